//! What each reader makes of an object, and where `why` and the operator used to read the same object differently.
#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

use std::collections::BTreeMap;

use elasti_api::{ElastiService, ScaleTargetRef, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core_v1;
use serde_json::{Value, json};

use super::*;
use crate::labels::Labels;
use crate::observed::{
    Author, Claim, Obstacle, ObstacleKind, Owned, Pod, Report, Rival, StopOrder,
};

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn pod(name: &str, status: Value) -> core_v1::Pod {
    let metadata = json!({"name": name, "namespace": "shop", "resourceVersion": "1"});
    serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
}

fn facts(status: Value) -> PodFacts {
    PodFacts::from_object(&pod("p", status))
}

fn waiting(reason: &str) -> Value {
    json!({"name": "app", "image": "x:1", "imageID": "", "ready": false, "restartCount": 3,
        "state": {"waiting": {"reason": reason, "message": "back-off 40s"}}})
}

fn condition(type_: &str, status: &str, reason: &str, seconds_ago: i64) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "lastTransitionTime": ago(seconds_ago)})
}

fn unready(reason: &str, seconds: i64) -> Value {
    json!({"phase": "Running", "conditions": [condition("Ready", "False", reason, seconds)]})
}

fn target(replicas: u32, refused: Option<&str>) -> TargetFacts {
    let failure = json!({"type": "ReplicaFailure", "status": "True", "message": refused});
    let conditions: Vec<Value> = refused.iter().map(|_| failure.clone()).collect();
    let object = json!({"spec": {"replicas": replicas}, "status": {"conditions": conditions}});
    TargetFacts::from_object(&ObjectMeta::default(), &object)
}

/// The pods of a Service by name, as a decision takes them.
fn pods_of(pods: &[core_v1::Pod], target: Option<&TargetFacts>) -> Vec<Pod> {
    let read: Vec<PodFacts> = pods.iter().map(PodFacts::from_object).collect();
    let ids = pods.iter().map(PodId::from_object);
    pods_of_service(ids.zip(&read), target.map(|t| ("web", t)), None, now()).0
}

#[test]
fn a_pod_is_ready_by_itself_only_if_its_readiness_gates_are_true() {
    let gated = |gates: Value| {
        let mut conditions = vec![condition("ContainersReady", "True", "", 5)];
        conditions.extend(gates.as_array().unwrap().clone());
        let mut pod = pod("p", json!({"phase": "Running", "conditions": conditions}));
        let gates = json!([{"conditionType": "lb.example/attached"}]);
        let spec = json!({"containers": [], "readinessGates": gates});
        pod.spec = serde_json::from_value(spec).unwrap();
        PodFacts::from_object(&pod).containers_ready
    };
    let gate = |status: &str| condition("lb.example/attached", status, "", 5);
    assert!(!gated(json!([])), "not set yet");
    assert!(!gated(json!([gate("False")])));
    assert!(gated(json!([gate("True")])));
}

#[test]
fn readiness_has_the_time_of_its_condition() {
    let ready = |status: &str| facts(json!({"conditions": [condition("Ready", status, "", 40)]}));
    assert_eq!(ready("True").ready_since, Some(ago(40)));
    assert_eq!(ready("False").ready_since, None);
}

#[test]
fn only_our_own_reason_is_our_mark() {
    let ready = |status: &str, reason: &str| {
        facts(json!({"conditions": [condition("Ready", status, reason, 0)]}))
    };
    assert!(ready("False", names::DRAIN_REASON).marked);
    assert!(!ready("False", "ContainersNotReady").marked);
    assert!(!ready("True", names::DRAIN_REASON).marked);
}

/// A pod that has run without being ready for so long.
fn unready_pod(reason: &str, seconds: i64) -> core_v1::Pod {
    let mut status = unready(reason, seconds);
    let scheduled = condition("PodScheduled", "True", "", 600);
    status["conditions"].as_array_mut().unwrap().push(scheduled);
    status["containerStatuses"] = json!([{"name": "app", "image": "x:1", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"running": {"startedAt": ago(seconds)}}}]);
    pod("p", status)
}

#[test]
fn a_pod_that_is_marked_or_terminates_has_no_obstacle_and_a_slow_one_has() {
    let obstacle = |pod: &core_v1::Pod| {
        let pods = pods_of(std::slice::from_ref(pod), None);
        pods.first().unwrap().obstacle.as_ref().map(|o| o.kind)
    };
    assert_eq!(obstacle(&unready_pod("Unready", 59)), None);
    let late = unready_pod("Unready", 60);
    assert_eq!(obstacle(&late), Some(ObstacleKind::NeverReady));
    assert_eq!(obstacle(&unready_pod(names::DRAIN_REASON, 60)), None);
    let mut terminating = late.clone();
    terminating.metadata.deletion_timestamp = serde_json::from_value(json!(ago(1))).unwrap();
    assert_eq!(obstacle(&terminating), None);
    let facts = PodFacts::from_object(&unready_pod("Unready", 20));
    let pods = || [(PodId::from_object(&late), &facts)].into_iter();
    let (_, requeue_at) = pods_of_service(pods(), None, None, now());
    assert_eq!(requeue_at, Some(ago(-40)));
    let soon = Some(SignedDuration::from_secs(25));
    let (_, requeue_at) = pods_of_service(pods(), None, soon, now());
    assert_eq!(requeue_at, Some(ago(-5)));
}

#[test]
fn a_ready_pod_has_no_obstacle() {
    let conditions = [condition("Ready", "True", "", 90)];
    let restarted =
        json!({"conditions": conditions, "containerStatuses": [waiting("CrashLoopBackOff")]});
    assert_eq!(pods_of(&[pod("p", restarted)], None)[0].obstacle, None);
}

#[test]
fn a_refused_pod_stands_in_only_where_there_is_no_pod_at_all() {
    let refused = target(1, Some("exceeded quota: pods."));
    let stand_in = Pod::refused(
        "web",
        Obstacle {
            kind: ObstacleKind::Quota,
            message: "exceeded quota: pods".into(),
            failed: false,
        },
    );
    assert_eq!(
        pods_of(&[], Some(&refused)),
        std::slice::from_ref(&stand_in)
    );
    assert_eq!(pods_of(&[], Some(&target(0, Some("quota")))), []);
    assert_eq!(pods_of(&[], Some(&target(1, None))), []);
    // `why` used to take a pod that terminates for none.
    let mut terminating = pod("old", json!({}));
    terminating.metadata.deletion_timestamp = serde_json::from_value(json!(ago(1))).unwrap();
    let pods = pods_of(&[terminating], Some(&refused));
    assert_eq!(
        pods.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(),
        ["old"]
    );
    // `why` used to take a pod that has ended for one.
    let ended = pod("job", json!({"phase": "Failed"}));
    assert_eq!(pods_of(&[ended], Some(&refused)), [stand_in]);
}

#[test]
fn a_pod_that_has_ended_counts_for_nothing() {
    let mut ended = unready("PodFailed", 600);
    ended["phase"] = json!("Failed");
    ended["containerStatuses"] = json!([waiting("CrashLoopBackOff")]);
    assert_eq!(pods_of(&[pod("evicted", ended.clone())], None), []);
    let resolver = super::resolver("r", &facts(ended), Report::NotAsked);
    assert_eq!(resolver, None, "`why` used to list it");
}

#[test]
fn a_resolver_has_the_addresses_of_both_families_and_is_ready_only_with_one() {
    let ready = condition("Ready", "True", "", 9);
    let both = json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "conditions": [ready]});
    let resolver = super::resolver("r", &facts(both), Report::NotAsked).unwrap();
    let addresses: Vec<String> = resolver.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(
        addresses,
        ["10.0.0.1", "fd00::1"],
        "`why` used to see only the first"
    );
    assert!(resolver.ready);
    let resolver = super::resolver(
        "r",
        &facts(json!({"conditions": [ready]})),
        Report::NotAsked,
    );
    assert!(!resolver.unwrap().ready);
}

#[test]
fn the_last_writer_of_replicas_is_found_in_the_record() {
    let entry = |manager: &str, time: &str, field: &str| json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": {"f:spec": {field: {}}}});
    let target = |entries: Vec<Value>| {
        let metadata = serde_json::from_value(json!({"managedFields": entries})).unwrap();
        let facts = TargetFacts::from_object(&metadata, &json!({"spec": {"replicas": 3}}));
        (facts.replicas_by, facts.replicas_at)
    };
    let early = "2026-01-01T00:00:00Z";
    let late = "2026-01-01T00:00:09Z";
    let ours = target(vec![
        entry("kubectl", early, "f:replicas"),
        entry(names::FIELD_MANAGER, late, "f:replicas"),
    ]);
    assert_eq!(ours, (Author::Elasti, Some(late.parse().unwrap())));
    let theirs = target(vec![
        entry("argocd", late, "f:replicas"),
        entry(names::FIELD_MANAGER, late, "f:template"),
    ]);
    assert_eq!(theirs.0, Author::Other("argocd".into()));
    // After a write of zero through `/scale` no manager owns the field.
    let unowned = target(vec![entry("kubectl", late, "f:template")]);
    assert_eq!(unowned, (Author::Unknown, None));
}

#[test]
fn spec_replicas_tells_the_scale_only_for_kinds_that_are_known_to_keep_it_there() {
    for (group, written, asks) in [
        ("apps", Some(3), Some(3)),
        ("argoproj.io", None, Some(1)),
        ("", Some(0), Some(0)),
        ("example.org", Some(3), None),
    ] {
        let object = json!({"spec": {"replicas": written}});
        let facts = TargetFacts::from_object(&ObjectMeta::default(), &object);
        assert_eq!(
            facts.for_kind(group, "Deployment").replicas,
            asks,
            "{group}"
        );
    }
    assert_eq!(replicas_of_scale(&json!({"spec": {}})), 0);
}

fn declared(name: &str, seconds_old: i64, service: &str, target: (&str, &str)) -> ElastiService {
    let (api_version, workload) = target;
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": ago(seconds_old)},
        "spec": {"service": service, "scaleTargetRef": {"apiVersion": api_version, "kind": "Deployment", "name": workload}},
    }))
    .unwrap()
}

#[test]
fn the_oldest_claim_of_the_service_comes_before_an_older_claim_of_the_target() {
    let me = declared("me", 10, "web", ("apps/v1", "web"));
    let of_target = declared("a", 30, "other", ("apps/v1", "web"));
    let of_service = declared("b", 20, "web", ("apps/v1", "other"));
    let rival = |name: &str, claim: Claim| {
        let name = name.to_owned();
        Some(Rival { name, claim })
    };
    let both = [of_target.clone(), of_service];
    assert_eq!(
        rival_among(&me, &both),
        rival("b", Claim::Service),
        "`why` used to say a"
    );
    assert_eq!(rival_among(&me, &[of_target]), rival("a", Claim::Target));
    let younger = declared("c", 5, "web", ("apps/v1", "web"));
    assert_eq!(rival_among(&me, &[younger]), None);
    let same_age = |name| declared(name, 10, "web", ("apps/v1", "web"));
    assert_eq!(rival_among(&me, &[same_age("z")]), None);
    assert_eq!(
        rival_among(&me, &[same_age("a")]),
        rival("a", Claim::Service)
    );
}

#[test]
fn another_version_of_a_group_names_the_same_workload() {
    let me = declared("me", 10, "web", ("apps/v1", "web"));
    let older = declared("a", 30, "other", ("apps/v1beta2", "web"));
    let found = rival_among(&me, &[older]).map(|rival| rival.claim);
    assert_eq!(
        found,
        Some(Claim::Target),
        "`why` used to compare the versions"
    );
    let reference = |api_version: &str| ScaleTargetRef {
        api_version: api_version.into(),
        ..me.spec.scale_target_ref.clone()
    };
    assert!(!reference("apps/v1").is_same_workload(&reference("example.org/v1")));
}

#[test]
fn a_private_service_is_ours_by_its_owner_and_wrong_if_it_is_more_than_a_cluster_ip() {
    let service = |uid: &str, type_: &str| {
        let owner = json!({"apiVersion": format!("{}/v1alpha1", names::GROUP), "kind": "ElastiService", "name": "web", "uid": uid});
        let object = json!({"metadata": {"ownerReferences": [owner]}, "spec": {"type": type_, "ports": [{"port": 80}]}});
        ServiceFacts::from_object(serde_json::from_value(object).unwrap())
    };
    let ports = |found: Option<&ServiceFacts>| {
        let owned = private_service("u1", found);
        owned.ours().map(|shape| shape.ports.len())
    };
    assert_eq!(private_service("u1", None), Owned::Missing);
    assert_eq!(
        private_service("u1", Some(&service("u2", "ClusterIP"))),
        Owned::Foreign
    );
    assert_eq!(ports(Some(&service("u1", "ClusterIP"))), Some(1));
    assert_eq!(ports(Some(&service("u1", "NodePort"))), Some(0));
}

#[test]
fn a_target_says_which_pods_its_controller_stops_first() {
    let settled = json!({"status": {"observedGeneration": 4, "replicas": 3, "updatedReplicas": 3}});
    let rollout = json!({"status": {"observedGeneration": 4, "replicas": 4, "updatedReplicas": 1}});
    let lags = json!({"status": {"observedGeneration": 3, "replicas": 3, "updatedReplicas": 3}});
    let parallel = json!({"spec": {"podManagementPolicy": "Parallel"}});
    let ordered = json!({"spec": {"podManagementPolicy": "OrderedReady", "minReadySeconds": 30}});
    let apps = "apps";
    for (group, kind, object, expected) in [
        (apps, "Deployment", &settled, StopOrder::UnreadyFirst),
        (apps, "Deployment", &rollout, StopOrder::Unknown),
        (apps, "Deployment", &lags, StopOrder::Unsettled),
        (apps, "ReplicaSet", &lags, StopOrder::UnreadyFirst),
        (apps, "StatefulSet", &settled, StopOrder::HighestAlone),
        (apps, "StatefulSet", &ordered, StopOrder::HighestAlone),
        (apps, "StatefulSet", &parallel, StopOrder::HighestFirst),
        ("argoproj.io", "Rollout", &settled, StopOrder::Unknown),
    ] {
        let metadata = ObjectMeta {
            generation: Some(4),
            ..ObjectMeta::default()
        };
        let facts = TargetFacts::from_object(&metadata, object).for_kind(group, kind);
        let target = facts.target("1");
        assert_eq!(target.stops, expected, "{kind}: {object}");
        let min_ready = if *object == ordered { 30 } else { 0 };
        assert_eq!(target.min_ready_seconds, min_ready, "{kind}: {object}");
    }
}

#[test]
fn a_pod_belongs_to_the_workload_whose_replica_set_controls_it() {
    let of = |set: &str, label: &str, hash: &str| {
        let mut pod = pod("p", json!({}));
        let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": "rs", "controller": true}]);
        pod.metadata.owner_references = serde_json::from_value(owner).unwrap();
        pod.metadata.labels = Some([(label.to_owned(), hash.to_owned())].into());
        PodFacts::from_object(&pod)
    };
    let owner = |group: &'static str, kind: &'static str, uid: &'static str| PodOwner {
        group,
        kind,
        name: "web",
        uid,
    };
    let deployment = owner("apps", "Deployment", "d");
    let there = |_: &str| true;
    let web = of("web-6f7", "pod-template-hash", "6f7");
    assert_eq!(deployment.owns(&web, there), Some(true));
    let longer = of("web-api-6f7", "pod-template-hash", "6f7");
    assert_eq!(deployment.owns(&longer, there), Some(false), "of web-api");
    let adopted = deployment.owns(&longer, |name| name != "web-api");
    assert_eq!(adopted, None, "there is no web-api: it may be adopted");
    let plain = of("set", "app", "web");
    assert_eq!(deployment.owns(&plain, there), None, "may be adopted");
    let bare = PodFacts::from_object(&pod("p", json!({})));
    assert_eq!(deployment.owns(&bare, there), Some(false));
    let rollout = owner("argoproj.io", "Rollout", "r");
    assert_eq!(
        rollout.owns(&web, there),
        Some(false),
        "of a Deployment of that name"
    );
    assert_eq!(rollout.owns(&plain, there), None);
    assert_eq!(rollout.owns(&bare, there), None);
    let rolled = of("web-6f7", "rollouts-pod-template-hash", "6f7");
    assert_eq!(rollout.owns(&rolled, there), Some(true));
    assert_eq!(
        owner("apps", "ReplicaSet", "rs").owns(&web, there),
        Some(true)
    );
    assert_eq!(
        owner("apps", "StatefulSet", "s").owns(&web, there),
        Some(false)
    );
    assert_eq!(
        owner("apps.kruise.io", "CloneSet", "rs").owns(&web, there),
        Some(true)
    );
    let other_kind = owner("example.com", "App", "a");
    assert_eq!(
        other_kind.owns(&web, there),
        None,
        "by something in between, perhaps"
    );
}

#[test]
fn the_selector_of_a_workload_tells_its_pods_where_their_controllers_do_not() {
    let labels = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = all.iter();
        pairs.map(|(k, v)| (k.to_string(), v.to_string())).collect()
    };
    let web = labels(&[("app", "web"), ("track", "b")]);
    let canary = labels(&[("app", "web"), ("track", "canary")]);
    let zoo = labels(&[("app", "zoo"), ("track", "b")]);
    let structured = json!({"spec": {"selector": {
        "matchLabels": {"app": "web"},
        "matchExpressions": [
            {"key": "track", "operator": "In", "values": ["a", "b"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }}});
    for object in [
        structured,
        json!({"status": {"selector": "app=web,track in (a, b),!old"}}),
        json!({"spec": {"selector": {}}, "status": {"selector": "app==web, track notin (canary,c),track"}}),
        json!({"status": {"selector": "app=web,track!=canary"}}),
    ] {
        let selector = PodSelector::from_object(&object).unwrap();
        assert!(selector.matches(&web), "{object}");
        assert!(!selector.matches(&canary), "{object}");
        assert!(!selector.matches(&zoo), "{object}");
    }
    for object in [
        json!({}),
        json!({"spec": {"selector": {}}}),
        json!({"status": {"selector": ""}}),
    ] {
        assert_eq!(PodSelector::from_object(&object), None, "{object}");
    }
}

#[test]
fn the_labels_of_future_pods_are_those_of_the_template() {
    let labels = |spec: Value| {
        let object = json!({"spec": spec});
        TargetFacts::from_object(&ObjectMeta::default(), &object).pod_labels
    };
    let web = json!({"template": {"metadata": {"labels": {"app": "web"}}}});
    assert_eq!(labels(web), Some([("app", "web")].into()));
    assert_eq!(labels(json!({"template": {}})), Some(Labels::default()));
    assert_eq!(labels(json!({"podTemplate": {}})), None);
}

#[test]
fn requests_are_those_of_all_containers_that_stay() {
    let spec = json!({
        "containers": [
            {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
            {"resources": {"limits": {"cpu": "500m", "nvidia.com/gpu": "2"}}},
            {},
        ],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m", "nvidia.com/gpu": 1}}},
            {"resources": {"requests": {"cpu": "8", "amd.com/gpu": "1"}}},
        ],
        "overhead": {"memory": "1Gi"},
    });
    let requests = Requests::from_pod_spec(&spec);
    assert_eq!(requests.cpu_millicores, 1600);
    assert_eq!(requests.memory_bytes, 2 << 30);
    let gpus = [("nvidia.com/gpu".to_owned(), 3)];
    assert_eq!(requests.resources, gpus.into());
}

#[test]
fn an_amount_that_cannot_be_read_counts_as_none() {
    let of = |amounts: Value| {
        let container = json!({"resources": {"requests": amounts}});
        Requests::from_pod_spec(&json!({"containers": [container]}))
    };
    for amounts in [
        json!({"cpu": "a lot", "memory": "1GiB", "nvidia.com/gpu": "one"}),
        json!({"cpu": ["1"], "memory": {}, "nvidia.com/gpu": null}),
        json!({"cpu": "-1", "memory": "-1Gi", "nvidia.com/gpu": "-1"}),
        json!({"ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi", "kubernetes.io/batch": "1"}),
        json!("none"),
    ] {
        assert_eq!(of(amounts.clone()), Requests::default(), "{amounts}");
    }
    let endless = of(json!({"cpu": "9e300", "example.com/gpu": "9e300"}));
    assert_eq!(endless.cpu_millicores, i64::MAX);
    assert_eq!(endless.resources["example.com/gpu"], i64::MAX);
}
