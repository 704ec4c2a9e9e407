//! How the store takes in what it is told, in any order.
//! Never asks a cluster.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]
use serde_json::json;

use super::*;
use crate::slim::Slim as _;

fn declared(name: &str, version: u32) -> Declared {
    Declared::read(json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string()},
        "spec": {"service": name, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
    }))
    .unwrap()
}

fn service(name: &str, selector: serde_json::Value) -> ServiceView {
    let metadata = json!({"name": name, "namespace": "shop", "resourceVersion": "1"});
    ServiceView::read(json!({"metadata": metadata, "spec": {"selector": selector}})).unwrap()
}

fn pod(name: &str, version: u32, labels: serde_json::Value) -> PodView {
    let metadata = json!({"name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string(), "labels": labels});
    PodView::read(json!({"metadata": metadata})).unwrap()
}

fn name(name: &str) -> Name {
    Name::new("shop", name)
}

fn pods(store: &Store, service: &str) -> Vec<String> {
    let known = store.known();
    let service = name(service);
    let pods = known.pods(&service);
    pods.map(|p| format!("{}@{}", p.name.name, p.version))
        .collect()
}

/// Two services that share a label, and differ in another.
fn store() -> Store {
    let store = Store::new(vec![None]);
    for one in ["a", "b"] {
        store.take_in(None, Change::Set(declared(one, 1)));
        let selector = json!({"part-of": "shop", "app": one});
        store.take_in(None, Change::Set(service(one, selector)));
    }
    store
}

#[test]
fn an_event_touches_only_the_services_that_care() {
    let store = store();
    let labels = json!({"part-of": "shop", "app": "a"});
    let touched = store.take_in(None, Change::Set(pod("p", 5, labels)));
    assert_eq!(touched, [name("a")]);
    let stranger = pod("q", 5, json!({"part-of": "shop"}));
    assert!(store.take_in(None, Change::Set(stranger)).is_empty());
    assert_eq!(pods(&store, "a"), ["p@5"]);
    assert!(pods(&store, "b").is_empty());
}

#[test]
fn an_older_version_never_replaces_a_newer_one() {
    let store = store();
    let labels = json!({"part-of": "shop", "app": "a"});
    store.take_in(None, Change::Set(pod("p", 9, labels.clone())));
    let touched = store.take_in(None, Change::Set(pod("p", 5, labels)));
    assert!(touched.is_empty());
    assert_eq!(pods(&store, "a"), ["p@9"]);
}

#[test]
fn a_pod_that_changes_its_labels_moves_house() {
    let store = store();
    store.take_in(
        None,
        Change::Set(pod("p", 1, json!({"part-of": "shop", "app": "a"}))),
    );
    let touched = store.take_in(
        None,
        Change::Set(pod("p", 2, json!({"part-of": "shop", "app": "b"}))),
    );
    assert_eq!(touched, [name("a"), name("b")]);
    assert!(pods(&store, "a").is_empty());
    assert_eq!(pods(&store, "b"), ["p@2"]);
}

#[test]
fn what_is_read_beside_the_watch_neither_brings_back_the_dead_nor_kills_the_newborn() {
    let store = store();
    let labels = || json!({"part-of": "shop", "app": "a"});
    store.take_in(None, Change::Set(pod("stays", 1, labels())));
    store.take_in(None, Change::Set(pod("missed", 1, labels())));
    let before = store.begin_reading(&name("a"));
    // Meanwhile the watch tells of one that died and one that was born.
    store.take_in::<PodView>(None, Change::Gone(name("died")));
    store.take_in(None, Change::Set(pod("born", 3, labels())));
    let read = Read {
        selector: [("part-of", "shop"), ("app", "a")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        pods_version: Some("3".into()),
        slices_version: "3".into(),
        pods: vec![pod("stays", 1, labels()), pod("died", 2, labels())],
        slices: vec![],
    };
    assert!(store.end_reading(&name("a"), &before, Some(read)));
    assert_eq!(
        pods(&store, "a"),
        ["born@3", "stays@1"],
        "`missed` was missed by the watch"
    );
    assert!(store.known().is_read(&name("a")));
}

#[test]
fn a_list_that_is_behind_the_watch_brings_nothing_back() {
    let store = store();
    let labels = || json!({"part-of": "shop", "app": "a"});
    store.take_in(None, Change::Set(pod("dead", 5, labels())));
    let gone: Change<PodView> = Change::Gone(name("dead"));
    store.reached(None, &gone, "8");
    store.take_in(None, gone);
    let late = |version: &str| Read {
        selector: [("part-of", "shop"), ("app", "a")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        pods_version: Some(version.into()),
        slices_version: "8".into(),
        pods: vec![pod("dead", 5, labels())],
        slices: vec![],
    };
    let before = store.begin_reading(&name("a"));
    assert!(!store.end_reading(&name("a"), &before, Some(late("7"))));
    assert!(pods(&store, "a").is_empty());
    assert!(!store.known().is_read(&name("a")));
    let before = store.begin_reading(&name("a"));
    assert!(store.end_reading(&name("a"), &before, Some(late("8"))));
}

#[test]
fn a_new_selector_must_be_read_before_it_is_trusted() {
    let store = store();
    store.known().unread.clear();
    store.take_in(
        None,
        Change::Set(pod("p", 1, json!({"part-of": "shop", "app": "a"}))),
    );
    let mut changed = service("a", json!({"app": "new"}));
    changed.version = "2".into();
    store.take_in(None, Change::Set(changed));
    assert!(!store.known().is_read(&name("a")));
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
        store.take_in(None, Change::Set(one.clone()));
    }
    assert_eq!(store.known().claimant(&name("cart")), Some(name("old")));
    let oldest = |me: &Declared| store.known().oldest_for_service(me).cloned();
    assert_eq!(oldest(&young), Some((old.created, "old".into())));
    assert_eq!(oldest(&old), Some((old.created, "old".into())));
    store.take_in::<Declared>(None, Change::Gone(name("old")));
    assert_eq!(store.known().claimant(&name("cart")), Some(name("young")));
}

#[test]
fn nothing_is_left_of_a_service_that_nobody_manages_any_more() {
    let store = store();
    store.take_in(
        None,
        Change::Set(pod("p", 1, json!({"part-of": "shop", "app": "a"}))),
    );
    store.take_in::<Declared>(None, Change::Gone(name("a")));
    store.take_in::<Declared>(None, Change::Gone(name("b")));
    let known = store.known();
    assert!(known.by_service.is_empty() && known.by_target.is_empty());
    assert!(known.by_kind.is_empty() && known.public_of.is_empty());
    assert!(known.pods.is_empty() && known.pod_homes.is_empty());
    assert!(known.selectors.is_empty() && known.selector_of.is_empty());
    assert!(known.unread.is_empty() && known.our_slices.is_empty());
}
