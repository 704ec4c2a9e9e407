//! Which pods count as the target's, where their controllers tell it and where they do not.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

use elasti_core::facts::PodSelector;
use serde_json::{Value, json};

use super::*;
use crate::name::KindName;
use crate::slim::{FromObject as _, ServiceView};
use crate::store::{Change, Store};

fn declared(kind: (&str, &str)) -> Declared {
    let target = json!({"apiVersion": format!("{}/v1", kind.0), "kind": kind.1, "name": "web"});
    Declared::from_object(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "e", "resourceVersion": "1"},
        "spec": {"service": "web", "scaleTargetRef": target},
    }))
    .unwrap()
}

fn target(name: &str, object: Value) -> TargetView {
    let mut object = object;
    object["metadata"] =
        json!({"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"});
    TargetView::from_object(object).unwrap()
}

fn pod(name: &str, labels: Value, set: Option<&str>) -> PodView {
    let owner = |set| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set, "controller": true});
    let owners: Vec<Value> = set.map(owner).into_iter().collect();
    PodView::from_object(json!({"metadata": {
        "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1",
        "labels": labels, "ownerReferences": owners,
    }}))
    .unwrap()
}

/// A Service that selects every pod of the shop, and these pods.
fn own_pods(kind: (&str, &str), targets: Vec<TargetView>, pods: Vec<PodView>) -> Vec<String> {
    let store = Store::new(vec![None]);
    let me = declared(kind);
    store.apply_change(None, Change::Set(me.clone()));
    let service = json!({
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "1"},
        "spec": {"selector": {"part-of": "shop"}, "ports": [{"port": 80}]},
    });
    let service = ServiceView::from_object(service).unwrap();
    store.apply_change(None, Change::Set(service));
    for target in targets {
        let kind = KindName::new(kind.0, "v1", kind.1);
        store.apply_target_change(&kind, None, Change::Set(target));
    }
    for pod in pods {
        store.apply_change(None, Change::Set(pod));
    }
    let cache = store.cache();
    let target = cache.target(&target_of(&me)).cloned();
    let owner = Ownership::new(&cache, &me, target.as_deref());
    let (pods, _) = super::pods(
        &cache,
        &me,
        &owner,
        target.as_deref(),
        Timestamp::UNIX_EPOCH,
    );
    pods.into_iter().map(|pod| pod.name).collect()
}

fn labels(app: &str, hash: Option<&str>) -> Value {
    let mut labels = json!({"part-of": "shop", "app": app});
    if let Some(hash) = hash {
        labels["pod-template-hash"] = json!(hash);
    }
    labels
}

#[test]
fn a_deployment_owns_the_pods_of_replica_sets_that_it_adopted() {
    let selector = json!({"spec": {"selector": {"matchLabels": {"app": "web"}}}});
    let targets = vec![target("web", selector.clone()), target("canary", selector)];
    let pods = vec![
        pod("own", labels("web", Some("5d8")), Some("web-5d8")),
        pod("plain", labels("web", None), Some("adopted")),
        pod("renamed", labels("web", Some("5d8")), Some("old-5d8")),
        pod("canary", labels("web", Some("5d8")), Some("canary-5d8")),
        pod("zoo", labels("zoo", None), Some("zoo")),
        pod("bare", labels("web", None), None),
    ];
    let own = own_pods(("apps", "Deployment"), targets, pods);
    assert_eq!(own, ["own", "plain", "renamed"]);
}

#[test]
fn a_workload_of_any_kind_owns_the_pods_that_its_selector_matches() {
    let pods = || {
        vec![
            pod("made-by-a-set", labels("web", None), Some("some-set")),
            pod("bare", labels("web", None), None),
            pod("zoo", labels("zoo", None), None),
        ]
    };
    let mut web = target("web", json!({}));
    web.facts.selector = PodSelector::from_scale(&json!({"status": {"selector": "app=web"}}));
    let kind = ("example.com", "App");
    let own = own_pods(kind, vec![web], pods());
    assert_eq!(own, ["bare", "made-by-a-set"]);
    // Where it has none, the Service of the spec tells.
    let own = own_pods(kind, vec![target("web", json!({}))], pods());
    assert_eq!(own, ["bare", "made-by-a-set", "zoo"]);
}

#[test]
fn a_kind_that_may_not_be_listed_is_told_where_it_is_so_and_until_it_is_listed() {
    let store = Store::new(vec![Some("shop".into()), Some("zoo".into())]);
    let me = declared(("apps", "ReplicaSet"));
    store.apply_change(None, Change::Set(me.clone()));
    let kind = KindName::new("apps", "v1", "ReplicaSet");
    let refused = || refused_kind(&store.cache(), &me);
    let list = || Change::All {
        version: String::new(),
        good: Vec::new(),
        broken: Vec::new(),
    };
    assert!(kind_is_pending(&store.cache(), &me));
    store.apply_target_change(&kind, Some("zoo"), Change::Refused);
    assert_eq!(refused(), None, "another namespace");
    let touched = store.apply_target_change(&kind, Some("shop"), Change::Refused);
    assert_eq!(touched, std::slice::from_ref(&me.name));
    assert_eq!(refused(), Some(RefusedKind::Target(kind.clone())));
    assert!(!kind_is_pending(&store.cache(), &me), "so it gets a status");
    assert!(!store.is_kind_listed(&kind));
    let touched = store.apply_target_change(&kind, Some("shop"), list());
    assert_eq!(touched, std::slice::from_ref(&me.name));
    assert_eq!(refused(), None);
    assert!(
        !kind_is_pending(&store.cache(), &me),
        "whatever zoo may not"
    );
    // What was read before counts, also when it may not be read any more.
    let target = target("web", json!({}));
    store.apply_target_change(&kind, Some("shop"), Change::Set(target));
    store.apply_target_change(&kind, Some("shop"), Change::Refused);
    assert_eq!(refused(), None);
}
