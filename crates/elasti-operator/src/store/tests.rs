//! The store applies changes and lists in any order.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]
use elasti_core::labels::Labels;
use serde_json::json;

use super::*;
use crate::slim::FromObject as _;

fn declared(name: &str, version: u32) -> Declared {
    declared_for("Deployment", name, version)
}

fn declared_for(kind: &str, name: &str, version: u32) -> Declared {
    Declared::from_object(json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string()},
        "spec": {"service": name, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name}},
    }))
    .unwrap()
}

fn service(name: &str, selector: serde_json::Value) -> ServiceView {
    let metadata = json!({"name": name, "namespace": "shop", "resourceVersion": "1"});
    let spec = json!({"selector": selector, "ports": [{"port": 80}]});
    ServiceView::from_object(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn pod(name: &str, version: u32, labels: serde_json::Value) -> PodView {
    let metadata = json!({"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string(), "labels": labels});
    PodView::from_object(json!({"metadata": metadata})).unwrap()
}

fn name(name: &str) -> Name {
    Name::new("shop", name)
}

fn pods(store: &Store, service: &str) -> Vec<String> {
    let cache = store.cache();
    let service = name(service);
    let pods = cache.pods(&service);
    pods.map(|p| format!("{}@{}", p.name.name, p.version))
        .collect()
}

/// Two services that share a label, and differ in another.
fn store() -> Store {
    let store = Store::new(vec![None]);
    for one in ["a", "b"] {
        store.apply_change(None, Change::Set(declared(one, 1)));
        let selector = json!({"part-of": "shop", "app": one});
        store.apply_change(None, Change::Set(service(one, selector)));
    }
    store
}

#[test]
fn an_event_touches_only_the_services_that_it_concerns() {
    let store = store();
    let labels = json!({"part-of": "shop", "app": "a"});
    let touched = store.apply_change(None, Change::Set(pod("p", 5, labels)));
    assert_eq!(touched, [name("a")]);
    let unselected = pod("q", 5, json!({"part-of": "shop"}));
    assert!(store.apply_change(None, Change::Set(unselected)).is_empty());
    assert_eq!(pods(&store, "a"), ["p@5"]);
    assert!(pods(&store, "b").is_empty());
}

#[test]
fn an_older_version_never_replaces_a_newer_one() {
    let store = store();
    let labels = json!({"part-of": "shop", "app": "a"});
    store.apply_change(None, Change::Set(pod("p", 9, labels.clone())));
    let touched = store.apply_change(None, Change::Set(pod("p", 5, labels)));
    assert!(touched.is_empty());
    assert_eq!(pods(&store, "a"), ["p@9"]);
}

#[test]
fn a_pod_that_changes_its_labels_changes_its_service() {
    let store = store();
    store.apply_change(
        None,
        Change::Set(pod("p", 1, json!({"part-of": "shop", "app": "a"}))),
    );
    let touched = store.apply_change(
        None,
        Change::Set(pod("p", 2, json!({"part-of": "shop", "app": "b"}))),
    );
    assert_eq!(touched, [name("a"), name("b")]);
    assert!(pods(&store, "a").is_empty());
    assert_eq!(pods(&store, "b"), ["p@2"]);
}

#[test]
fn a_refresh_neither_brings_back_deleted_pods_nor_removes_new_ones() {
    let store = store();
    let labels = || json!({"part-of": "shop", "app": "a"});
    store.apply_change(None, Change::Set(pod("stays", 1, labels())));
    store.apply_change(None, Change::Set(pod("missed", 1, labels())));
    let before = store.begin_refresh(&name("a"));
    // Meanwhile the watch delivers a deletion and a new pod.
    store.apply_change::<PodView>(None, Change::Gone(name("deleted")));
    store.apply_change(None, Change::Set(pod("created", 3, labels())));
    let read = Lists {
        selector: [("part-of", "shop"), ("app", "a")].into(),
        pods_version: Some("3".into()),
        slices_version: "3".into(),
        pods: vec![pod("stays", 1, labels()), pod("deleted", 2, labels())],
        slices: vec![],
    };
    assert!(store.end_refresh(&name("a"), &before, Some(read)));
    assert_eq!(
        pods(&store, "a"),
        ["created@3", "stays@1"],
        "`missed` was missed by the watch"
    );
    assert!(store.cache().is_read(&name("a")));
}

#[test]
fn a_list_that_is_older_than_the_watch_is_rejected() {
    let store = store();
    let labels = || json!({"part-of": "shop", "app": "a"});
    store.apply_change(None, Change::Set(pod("deleted", 5, labels())));
    let gone: Change<PodView> = Change::Gone(name("deleted"));
    store.set_watch_version(None, &gone, "8");
    store.apply_change(None, gone);
    let list_at = |version: &str| Lists {
        selector: [("part-of", "shop"), ("app", "a")].into(),
        pods_version: Some(version.into()),
        slices_version: "8".into(),
        pods: vec![pod("deleted", 5, labels())],
        slices: vec![],
    };
    let before = store.begin_refresh(&name("a"));
    assert!(!store.end_refresh(&name("a"), &before, Some(list_at("7"))));
    assert!(pods(&store, "a").is_empty());
    assert!(!store.cache().is_read(&name("a")));
    let before = store.begin_refresh(&name("a"));
    assert!(store.end_refresh(&name("a"), &before, Some(list_at("8"))));
}

#[test]
fn a_new_selector_must_be_read_before_decisions_use_it() {
    let store = store();
    store.cache().not_read.clear();
    store.apply_change(
        None,
        Change::Set(pod("p", 1, json!({"part-of": "shop", "app": "a"}))),
    );
    let mut changed = service("a", json!({"app": "new"}));
    changed.version = "2".into();
    store.apply_change(None, Change::Set(changed));
    assert!(!store.cache().is_read(&name("a")));
    assert!(pods(&store, "a").is_empty());
}

#[test]
fn the_oldest_claim_wins_and_the_next_one_follows_it() {
    let store = Store::new(vec![None]);
    let mut old = declared("old", 1);
    let mut young = declared("young", 2);
    young.created = old.created + jiff::SignedDuration::from_secs(1);
    for one in [&mut old, &mut young] {
        one.spec = declared("cart", 1).spec;
        store.apply_change(None, Change::Set(one.clone()));
    }
    assert_eq!(store.cache().claimant(&name("cart")), Some(name("old")));
    let oldest = |me: &Declared| store.cache().oldest_for_service(me).cloned();
    assert_eq!(oldest(&young), Some((old.created, "old".into())));
    assert_eq!(oldest(&old), Some((old.created, "old".into())));
    store.apply_change::<Declared>(None, Change::Gone(name("old")));
    assert_eq!(store.cache().claimant(&name("cart")), Some(name("young")));
}

#[test]
fn nothing_is_left_of_a_service_that_is_not_managed_any_more() {
    let store = store();
    store.apply_change(
        None,
        Change::Set(pod("p", 1, json!({"part-of": "shop", "app": "a"}))),
    );
    store.apply_change::<Declared>(None, Change::Gone(name("a")));
    store.apply_change::<Declared>(None, Change::Gone(name("b")));
    let cache = store.cache();
    assert!(cache.by_service.is_empty() && cache.by_target.is_empty());
    assert!(cache.by_kind.is_empty() && cache.public_of.is_empty());
    assert!(cache.pods.is_empty() && cache.services_of_pod.is_empty());
    assert!(cache.selectors.is_empty() && cache.selector_of.is_empty());
    assert!(cache.not_read.is_empty() && cache.our_slices.is_empty());
}

fn target(labels: serde_json::Value) -> TargetView {
    TargetView::from_object(json!({
        "metadata": {"name": "a", "namespace": "shop", "uid": "t", "resourceVersion": "1"},
        "spec": {"template": {"metadata": {"labels": labels}}},
    }))
    .unwrap()
}

fn deployment() -> KindName {
    KindName::new("apps", "v1", "Deployment")
}

fn managed(store: &Store, me: &str) -> Vec<String> {
    let cache = store.cache();
    let others = cache.others(&name(me)).cloned().unwrap_or_default();
    others
        .managed
        .iter()
        .map(|one| one.name.to_string())
        .collect()
}

#[test]
fn a_service_that_selects_the_pod_template_belongs_to_the_target_with_its_pods_and_slices() {
    let store = store();
    store.apply_change(
        None,
        Change::Set(service("whole", json!({"part-of": "shop"}))),
    );
    assert_eq!(
        managed(&store, "a"),
        ["whole"],
        "the named Service's pods have that label"
    );
    assert!(managed(&store, "b").is_empty(), "the older has it");
    store.apply_change(
        None,
        Change::Set(service("admin", json!({"app": "a", "tier": "web"}))),
    );
    assert_eq!(managed(&store, "a"), ["whole"]);
    let labels = json!({"part-of": "shop", "app": "a", "tier": "web"});
    let change = Change::Set(target(labels.clone()));
    let touched = store.apply_target_change(&deployment(), None, change);
    assert!(touched.contains(&name("a")), "{touched:?}");
    assert_eq!(managed(&store, "a"), ["admin", "whole"]);
    assert!(
        !store.cache().is_read(&name("admin")),
        "it must be read first"
    );
    assert_eq!(store.cache().claimant(&name("admin")), Some(name("a")));
    let touched = store.apply_change(None, Change::Set(pod("p", 5, labels)));
    assert_eq!(touched, [name("a")]);
    assert_eq!(pods(&store, "admin"), ["p@5"]);
    store.apply_change::<ServiceView>(None, Change::Gone(name("admin")));
    assert_eq!(managed(&store, "a"), ["whole"]);
    assert!(pods(&store, "admin").is_empty());
    assert_eq!(store.cache().claimant(&name("admin")), None);
}

#[test]
fn a_service_of_one_pod_of_a_stateful_set_belongs_to_the_target() {
    let store = store();
    let kind = KindName::new("apps", "v1", "StatefulSet");
    let key = "statefulset.kubernetes.io/pod-name";
    store.apply_change(None, Change::Set(declared_for("StatefulSet", "a", 2)));
    let mut stateful = target(json!({"app": "a"}));
    stateful.facts = stateful.facts.for_kind(&kind.group, &kind.kind);
    store.apply_target_change(&kind, None, Change::Set(stateful));
    for (service_name, selector) in [
        ("first", json!({"app": "a", key: "a-0"})),
        (
            "numbered",
            json!({"app": "a", "apps.kubernetes.io/pod-index": "2"}),
        ),
        ("of-another", json!({key: "ab-0"})),
        ("no-pod", json!({"app": "a", key: "a-x"})),
    ] {
        store.apply_change(None, Change::Set(service(service_name, selector)));
    }
    assert_eq!(managed(&store, "a"), ["first", "numbered"]);
}

#[test]
fn a_target_is_compared_with_few_of_the_services_of_its_namespace() {
    let pod_name = "statefulset.kubernetes.io/pod-name";
    let all: Vec<ServiceView> = (0..5_000)
        .map(|n| service("s", json!({"part-of": "shop", "app": n.to_string()})))
        .chain([service("first", json!({pod_name: "a-0"}))])
        .collect();
    let mut by_selector = others::BySelector::default();
    all.iter().for_each(|one| by_selector.insert(one));
    let labels = [("part-of", "shop"), ("app", "4000")].into();
    let mut compared = Vec::new();
    by_selector.matching(&labels, |selector| {
        compared.push(selector.clone());
        true
    });
    let expected = all.iter().skip(4_000).step_by(1_000);
    let expected: Vec<Labels> = expected
        .map(|one| one.facts.service.selector.clone())
        .collect();
    assert_eq!(compared, expected);
}

#[test]
fn neither_a_private_service_nor_one_that_another_elastiservice_names_is_anothers() {
    let store = store();
    let own = json!({"metadata": {"name": "private", "namespace": "shop", "resourceVersion": "1",
        "ownerReferences": [{"apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService", "name": "a", "uid": "a"}]},
        "spec": {"selector": {"app": "a"}}});
    let own = ServiceView::from_object(own).unwrap();
    store.apply_change(None, Change::Set(own));
    store.apply_change(None, Change::Set(service("c", json!({"app": "a"}))));
    assert_eq!(managed(&store, "a"), ["c"]);
    store.apply_change(None, Change::Set(declared("c", 1)));
    assert!(managed(&store, "a").is_empty());
    assert_eq!(store.cache().claimant(&name("c")), Some(name("c")));
}

/// Otherwise the Service of the younger one would have no endpoints while the target sleeps.
#[test]
fn a_service_that_a_younger_elastiservice_of_the_same_target_names_is_one_of_the_older() {
    let store = Store::new(vec![None]);
    let old = declared("a", 1);
    let mut young = declared("c", 1);
    young.created = old.created + jiff::SignedDuration::from_secs(1);
    let own_target = young.clone();
    let mut spec = (*young.spec).clone();
    spec.scale_target_ref = old.spec.scale_target_ref.clone();
    young.spec = spec.into();
    store.apply_change(None, Change::Set(old));
    for one in ["a", "c"] {
        store.apply_change(None, Change::Set(service(one, json!({"app": "a"}))));
    }
    assert_eq!(managed(&store, "a"), ["c"]);
    let adopts = |me: &str| store.cache().adopts(&name("c"), &name(me));
    assert!(!adopts("a"), "KubeElasti made no slices for it");

    store.apply_change(None, Change::Set(young));
    assert_eq!(managed(&store, "a"), ["c"]);
    assert_eq!(store.cache().claimant(&name("c")), Some(name("a")));
    assert!(adopts("a") && !adopts("c"));

    let mut moved = own_target;
    moved.version = "2".into();
    store.apply_change(None, Change::Set(moved));
    assert!(
        managed(&store, "a").is_empty(),
        "it has a target of its own"
    );
    assert_eq!(store.cache().claimant(&name("c")), Some(name("c")));
    assert!(adopts("c"));
}

#[test]
fn what_the_status_records_stays_until_nothing_of_ours_is_left() {
    let store = store();
    store.apply_change(None, Change::Set(service("admin", json!({"app": "a"}))));
    let mut me = declared("a", 2);
    let recorded = json!({"services": [{"name": "admin", "ports": []}]});
    me.status = Arc::new(serde_json::from_value(recorded).unwrap());
    store.apply_change(None, Change::Set(me));
    store.apply_change(
        None,
        Change::Set(service("admin", json!({"app": "elsewhere"}))),
    );
    let others = store.cache().others(&name("a")).cloned().unwrap();
    assert!(others.managed.is_empty());
    assert_eq!(others.left, [name("admin")]);
    assert_eq!(store.cache().claimant(&name("admin")), None);
    store.apply_change(None, Change::Set(declared("a", 3)));
    assert!(store.cache().others(&name("a")).is_none());
}

#[test]
fn services_that_cannot_be_held_are_named_and_more_than_sixteen_are_too_many() {
    let store = store();
    let metadata = json!({"name": "peers", "namespace": "shop", "resourceVersion": "1"});
    let spec = json!({"selector": {"app": "a"}, "clusterIP": "None", "ports": [{"port": 80}]});
    let headless = ServiceView::from_object(json!({"metadata": metadata, "spec": spec})).unwrap();
    store.apply_change(None, Change::Set(headless));
    for n in 0..15 {
        store.apply_change(
            None,
            Change::Set(service(&format!("s{n}"), json!({"app": "a"}))),
        );
    }
    let others = || store.cache().others(&name("a")).cloned().unwrap();
    assert_eq!(others().unmanaged, [name("peers")]);
    assert_eq!((others().managed.len(), others().too_many), (15, false));
    store.apply_change(None, Change::Set(service("s15", json!({"app": "a"}))));
    assert_eq!((others().managed.len(), others().too_many), (15, true));
}

/// Otherwise the slice of one that is redirected would go while the target sleeps.
#[test]
fn one_service_too_many_takes_the_place_of_none_that_the_status_records() {
    let store = store();
    let select = |name: &str| {
        store.apply_change(None, Change::Set(service(name, json!({"app": "a"}))));
    };
    let recorded: Vec<String> = (10..25).map(|n| format!("s{n}")).collect();
    recorded.iter().for_each(|name| select(name));
    let mut me = declared("a", 2);
    let services: Vec<_> = { recorded.iter() }
        .map(|name| json!({"name": name, "ports": []}))
        .collect();
    me.status = Arc::new(serde_json::from_value(json!({"services": services})).unwrap());
    store.apply_change(None, Change::Set(me));
    select("early");
    let others = store.cache().others(&name("a")).cloned().unwrap();
    assert_eq!(managed(&store, "a"), recorded);
    assert_eq!((others.left, others.too_many), (vec![], true));
    store.apply_change::<ServiceView>(None, Change::Gone(name("s17")));
    let with_early = |name: &&str| managed(&store, "a").contains(&(*name).to_owned());
    assert!(
        ["early", "s10", "s24"].iter().all(with_early),
        "one place is free"
    );
}

#[test]
fn a_finalized_elasti_service_waits_for_its_end_and_never_comes_back() {
    let store = Store::new(vec![None]);
    let mut me = declared("web", 1);
    me.finalizers = vec!["other".into(), names::FINALIZER.into()];
    store.apply_change(None, Change::Set(me.clone()));
    store.set_finalized(&me);
    let cached = store.cache().declared.get(&me.name).cloned().unwrap();
    assert_eq!(cached.finalizers, ["other"]);
    // One of the same name is another one.
    let mut next = me.clone();
    (next.uid, next.version) = ("next".into(), "2".into());
    store.apply_change(None, Change::Set(next));
    store.set_finalized(&me);
    assert!(store.cache().declared[&me.name].has_finalizer());
    store.apply_change::<Declared>(None, Change::Gone(me.name.clone()));
    store.set_finalized(&me);
    assert!(store.cache().declared.is_empty());
}

/// An ElastiService in some namespace whose target has this kind.
fn of_kind(namespace: &str, kind: &str, created_second: i64) -> Declared {
    let created = Timestamp::from_second(created_second).unwrap().to_string();
    let name = kind.to_lowercase().replace(['.', '/'], "-");
    let (api_version, kind) = kind.rsplit_once('/').unwrap();
    Declared::from_object(json!({
        "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "1", "creationTimestamp": created},
        "spec": {"service": name, "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": name}},
    }))
    .unwrap()
}

fn wanted(store: &Store) -> BTreeSet<String> {
    let wanted = store.wanted_kinds();
    wanted.borrow().iter().map(ToString::to_string).collect()
}

#[test]
fn each_version_of_a_kind_is_followed_by_itself_and_both_name_one_workload() {
    let store = Store::new(vec![None]);
    let old = of_kind("aaa", "apps/v1beta1/Deployment", 1);
    let mut new = of_kind("aaa", "apps/v1/Deployment", 2);
    Arc::make_mut(&mut new.spec).scale_target_ref.name = target_of(&old).name.name.to_string();
    for me in [&old, &new] {
        store.apply_change(None, Change::Set(me.clone()));
    }
    let kinds = ["Deployment.v1.apps", "Deployment.v1beta1.apps"].map(str::to_owned);
    assert_eq!(wanted(&store), kinds.into());
    store.set_kind(&target_of(&old).kind, KindState::Absent);
    assert_eq!(
        store.cache().kind(&target_of(&new).kind, "aaa"),
        KindState::Pending
    );
    let oldest = store.cache().oldest_for_target(&new).cloned().unwrap();
    assert_eq!(oldest.1, old.name.name, "they are rivals");
}

#[test]
fn a_kind_that_is_refused_in_one_namespace_is_listed_for_the_services_of_another() {
    let scopes = ["aaa", "bbb"].map(|one| Some(one.to_owned()));
    let store = Store::new(scopes.to_vec());
    let [here, there] =
        ["aaa", "bbb"].map(|namespace| of_kind(namespace, "example.com/v1/Gadget", 1));
    for me in [&here, &there] {
        store.apply_change(Some(&me.name.namespace), Change::Set(me.clone()));
    }
    let kind = target_of(&here).kind;
    let state = |namespace: &str| store.cache().kind(&kind, namespace);
    assert_eq!(state("aaa"), KindState::Pending);
    let touched = store.set_kind_refused(&kind, Some("bbb"));
    assert!(touched.contains(&there.name));
    assert_eq!(state("bbb"), KindState::Refused);
    assert_eq!(state("aaa"), KindState::Pending, "not known yet");
    let touched = store.set_kind_listed(&kind, Some("aaa"));
    assert!(touched.contains(&here.name), "it waits for that");
    assert_eq!(state("aaa"), KindState::Listed);
    assert_eq!(state("bbb"), KindState::Refused);
    // The list comes again and again; nothing has changed by that.
    assert!(store.set_kind_listed(&kind, Some("aaa")).is_empty());
    let touched = store.set_kind_listed(&kind, Some("bbb"));
    assert!(touched.contains(&there.name), "someone has allowed it");
    for namespace in ["aaa", "bbb"] {
        assert_eq!(state(namespace), KindState::Listed);
    }
}

#[test]
fn a_namespace_that_names_many_kinds_leaves_all_others_theirs() {
    let store = Store::new(vec![None]);
    let bogus = |n: i64| of_kind("aaa", &format!("g{n}.example/v1/Kind{n}"), n);
    for n in 0..500 {
        store.apply_change(None, Change::Set(bogus(n)));
    }
    assert_eq!(wanted(&store).len(), 8, "the oldest of them");
    store.apply_change(
        None,
        Change::Set(of_kind("shop", "apps/v1/Deployment", 900)),
    );
    store.apply_change(
        None,
        Change::Set(of_kind("shop", "example.com/v1/App", 901)),
    );
    let all = wanted(&store);
    assert!(
        all.contains("Deployment.v1.apps") && all.contains("App.v1.example.com"),
        "{all:?}"
    );
    let kind = |n| target_of(&bogus(n)).kind;
    assert_eq!(
        store.cache().kind(&kind(8), "aaa"),
        KindState::Absent,
        "and its status says so"
    );
    assert_eq!(store.cache().kind(&kind(7), "aaa"), KindState::Pending);
    // Deleting one makes room for the next.
    let touched = store.apply_change::<Declared>(None, Change::Gone(bogus(0).name));
    assert!(touched.contains(&bogus(8).name), "{touched:?}");
    assert_eq!(store.cache().kind(&kind(8), "aaa"), KindState::Pending);
}

/// Each is a watch, or a call every 30 s for a kind that does not exist.
#[test]
fn without_bounds_one_namespace_has_five_hundred_kinds_followed() {
    let store = Store::new(vec![None]);
    for n in 0..500 {
        let bogus = of_kind("aaa", &format!("g{n}.example/v1/Kind{n}"), n);
        store.apply_change(None, Change::Set(bogus));
    }
    assert_eq!(wanted(&store).len(), 8);
    let unbounded = store.cache().kinds_to_follow(usize::MAX, usize::MAX);
    assert_eq!(unbounded.len(), 500);
}

/// The neighbour's target has the version of the other, as if all versions of a kind had one watch.
#[test]
fn where_versions_shared_a_watch_one_that_is_not_served_would_hide_a_neighbours_target() {
    for (version, state) in [("v1", KindState::Pending), ("v1beta1", KindState::Absent)] {
        let store = Store::new(vec![None]);
        let old = of_kind("aaa", "apps/v1beta1/Deployment", 1);
        let neighbour = of_kind("shop", &format!("apps/{version}/Deployment"), 2);
        for me in [&old, &neighbour] {
            store.apply_change(None, Change::Set(me.clone()));
        }
        store.set_kind(&target_of(&old).kind, KindState::Absent);
        assert_eq!(
            store.cache().kind(&target_of(&neighbour).kind, "shop"),
            state
        );
    }
}

#[test]
fn many_namespaces_with_many_kinds_leave_one_to_each() {
    let store = Store::new(vec![None]);
    for (namespace, n) in (0..100).flat_map(|ns| (0..8).map(move |n| (ns, n))) {
        let kind = format!("ns{namespace}.example/v1/Kind{n}");
        let me = of_kind(&format!("ns{namespace}"), &kind, 100 * namespace + n);
        store.apply_change(None, Change::Set(me));
    }
    let all = wanted(&store);
    assert_eq!(all.len(), 128);
    for namespace in 0..100 {
        assert!(all.contains(&format!("Kind0.v1.ns{namespace}.example")));
    }
}

#[test]
fn a_kind_that_is_no_longer_followed_leaves_nothing_behind() {
    let store = Store::new(vec![None]);
    let me = of_kind("shop", "example.com/v1/App", 1);
    let (kind, target) = (target_of(&me).kind, target_of(&me));
    store.apply_change(None, Change::Set(me.clone()));
    let object = json!({"metadata": {"name": &*target.name.name, "namespace": "shop", "uid": "t", "resourceVersion": "1"}});
    let good = vec![TargetView::from_object(object).unwrap()];
    store.apply_target_change(
        &kind,
        None,
        Change::All {
            version: String::new(),
            good,
            broken: vec![],
        },
    );
    assert!(store.cache().target(&target).is_some());
    assert_eq!(store.cache().kind(&kind, "aaa"), KindState::Listed);
    store.forget_kind(&kind);
    assert!(store.cache().target(&target).is_none());
    assert_eq!(store.cache().kind(&kind, "aaa"), KindState::Pending);
    store.apply_change::<Declared>(None, Change::Gone(me.name));
    assert!(store.cache().named_kinds.is_empty() && wanted(&store).is_empty());
}

#[test]
fn after_a_restore_a_list_of_targets_is_believed_although_its_versions_are_lower() {
    let store = store();
    let name = target_of(&declared("a", 1));
    let at = |version: &str| {
        let mut view = target(json!({}));
        view.version = version.into();
        view
    };
    let version = || store.cache().target(&name).unwrap().version.clone();
    store.apply_target_change(&deployment(), None, Change::Set(at("900")));
    store.apply_target_change(&deployment(), None, Change::Set(at("500")));
    assert_eq!(version(), "900", "an event that is late");
    let list = |list: &str, target: &str| list_at(list, vec![at(target)]);
    store.apply_target_change(&deployment(), None, list("500", "500"));
    assert_eq!(version(), "500");
    // One that has grown past what was reached knows what it shows, too.
    store.apply_target_change(&deployment(), None, list("600", "450"));
    assert_eq!(version(), "450");
}

#[test]
fn a_list_leaves_what_was_written_while_its_pages_were_read() {
    let store = store();
    let name = target_of(&declared("a", 1));
    let scaled = |version: &str, replicas| {
        let mut view = target(json!({}));
        (view.version, view.facts.replicas) = (version.into(), Some(replicas));
        view
    };
    let replicas = || store.cache().target(&name).unwrap().facts.replicas;
    store.apply_target_change(&deployment(), None, list_at("10", vec![scaled("9", 0)]));
    store.put_target(&name, scaled("13", 1));
    store.apply_target_change(&deployment(), None, list_at("12", vec![scaled("9", 0)]));
    assert_eq!(replicas(), Some(1), "the list is older than our write");
    store.apply_target_change(&deployment(), None, list_at("14", vec![scaled("14", 0)]));
    assert_eq!(replicas(), Some(0));
    let labels = json!({"part-of": "shop", "app": "a"});
    store.apply_change(None, list_at("10", vec![pod("p", 9, labels.clone())]));
    store.apply_change(None, Change::Set(pod("p", 13, labels.clone())));
    store.apply_change(None, list_at("12", vec![pod("p", 9, labels)]));
    assert_eq!(pods(&store, "a"), ["p@13"]);
}

fn list_at<K>(version: &str, good: Vec<K>) -> Change<K> {
    Change::All {
        version: version.into(),
        good,
        broken: Vec::new(),
    }
}

fn nothing<K>() -> Change<K> {
    list_at("", Vec::new())
}

fn slice(name: &str, service: &str, version: u32) -> SliceView {
    SliceView::from_object(json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string(),
            "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "endpoints": [],
    }))
    .unwrap()
}

#[test]
fn a_list_touches_all_services_once_and_then_only_those_that_it_changes() {
    let store = store();
    let of = |one: &str| json!({"part-of": "shop", "app": one});
    let both = [name("a"), name("b")];
    let list = |store: &Store, b: u32| {
        let list = vec![pod("of-a", 1, of("a")), pod("of-b", b, of("b"))];
        store.apply_change(None, list_at("9", list))
    };
    assert_eq!(list(&store, 1), both, "they may not have been decided on");
    assert!(list(&store, 1).is_empty());
    assert_eq!(list(&store, 2), [name("b")]);
    let touched = store.apply_change(None, list_at("9", vec![pod("of-b", 2, of("b"))]));
    assert_eq!(touched, [name("a")], "its pod is gone");
    let services = || {
        let all = ["a", "b"].map(|one| service(one, of(one)));
        store.apply_change(None, list_at("9", all.to_vec()))
    };
    assert_eq!(services(), both);
    assert!(services().is_empty());
    let slices = |version| store.apply_change(None, list_at("9", vec![slice("s", "a", version)]));
    assert_eq!(slices(1), both);
    assert!(slices(1).is_empty());
    assert_eq!(slices(2), [name("a")]);
    let targets = |version: &str| {
        let mut one = target(json!({}));
        one.version = version.into();
        store.apply_target_change(&deployment(), None, list_at("9", vec![one]))
    };
    assert_eq!(targets("1"), both, "their kind may have been unknown");
    assert!(targets("1").is_empty());
    assert_eq!(targets("2"), [name("a")]);
}

#[test]
fn a_list_again_finds_the_pod_of_a_service_that_selects_it_since() {
    let store = store();
    let labels = json!({"part-of": "shop", "app": "a"});
    store.apply_change(None, list_at("9", vec![pod("p", 1, labels.clone())]));
    store.apply_change(None, Change::Set(declared("whole", 1)));
    store.apply_change(
        None,
        Change::Set(service("whole", json!({"part-of": "shop"}))),
    );
    assert!(pods(&store, "whole").is_empty());
    let touched = store.apply_change(None, list_at("9", vec![pod("p", 1, labels)]));
    assert_eq!(touched, [name("a"), name("whole")]);
    assert_eq!(pods(&store, "whole"), ["p@1"]);
}

#[test]
fn a_list_that_is_still_being_read_covers_no_service_that_is_new_since_the_last_one() {
    let store = store();
    for _ in 0..2 {
        store.begin_list::<SliceView>(None);
        store.apply_change(None, nothing::<SliceView>());
        store.begin_list::<PodView>(None);
        store.apply_change(None, nothing::<PodView>());
    }
    assert!(store.cache().is_read(&name("a")));
    // The watches were away meanwhile.
    store.apply_change(None, Change::Set(declared("new", 1)));
    store.apply_change(None, Change::Set(service("new", json!({"app": "new"}))));
    store.begin_list::<PodView>(None);
    store.begin_list::<SliceView>(None);
    store.apply_change(None, nothing::<SliceView>());
    assert!(
        !store.cache().is_read(&name("new")),
        "its pods are being paged"
    );
    store.apply_change(None, nothing::<PodView>());
    assert!(store.cache().is_read(&name("new")));
}

#[test]
fn a_list_does_not_cover_a_service_that_is_managed_only_since_it_began() {
    let store = store();
    store.begin_list::<SliceView>(None);
    store.begin_list::<PodView>(None);
    // Its pod is on a page that is filtered before the Service is known.
    let early = pod("early", 1, json!({"app": "late"}));
    assert!(!early.matters(&store.cache()));
    store.apply_change(None, Change::Set(declared("late", 1)));
    store.apply_change(None, Change::Set(service("late", json!({"app": "late"}))));
    store.apply_change(None, nothing::<SliceView>());
    store.apply_change(None, nothing::<PodView>());
    assert!(store.cache().is_read(&name("a")));
    assert!(
        !store.cache().is_read(&name("late")),
        "its pods were not kept"
    );
}
