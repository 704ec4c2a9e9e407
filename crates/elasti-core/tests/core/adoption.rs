//! The objects that KubeElasti 0.1.30 leaves in a cluster, as they were recorded, read as facts and given to the plan.

use elasti_api::names::{self, IpFamily};
use elasti_api::{ElastiService, ListenPort, Phase, Reason};
use elasti_core::facts::{
    self, FoundSlice, PredecessorFacts, ServiceFacts, SliceFacts, SliceOwner,
};
use elasti_core::observed::{Author, Observed, Owned, PortsGiven, SliceRole};
use elasti_core::{Plan, Step, WakeDecision, wake};
use k8s_openapi::api::core::v1 as core_v1;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::plan_tables::facts::{asleep, planned_for, resolver, target};

const RECORD: &str = include_str!("adoption/predecessor.yaml");
/// The one plain service, and the one with KEDA at zero: their Services, and the uids that their private ones name.
const ASLEEP: [(&str, &str); 2] = [
    ("target", "932ae7fb-4314-4959-bd2e-357162a9292c"),
    ("target-deployment", "2ded423f-f6e3-44fd-a558-9368e1a59bd0"),
];

fn recorded(kind: &str, name: &str) -> Value {
    let all: Vec<Value> = serde_saphyr::from_multiple(RECORD).unwrap();
    // The same service is recorded awake and then at zero: the last one counts.
    let found = all.into_iter().rfind(|one| {
        let has = |pointer: &str, text: &str| one.pointer(pointer) == Some(&json!(text));
        has("/kind", kind) && has("/metadata/name", name)
    });
    found.unwrap_or_else(|| panic!("{kind} {name} is recorded"))
}

fn slice_of(service: &str) -> Value {
    let name = names::resolver_slice(service, IpFamily::V4, 0);
    recorded("EndpointSlice", &name)
}

/// What differs, and how.
type Change = (&'static str, fn(&mut Value));

/// What a slice is to the ElastiService of this uid.
fn seen(me_uid: &str, adopts: bool, slice: &Value) -> Owned<Vec<SliceRole>> {
    let slice: EndpointSlice = serde_json::from_value(slice.clone()).unwrap();
    let facts = SliceFacts::from_object(&slice);
    let labels = slice.metadata.labels.unwrap_or_default();
    let service = labels.get(names::SERVICE_NAME_LABEL);
    let found = FoundSlice {
        name: slice.metadata.name.as_deref().unwrap_or_default(),
        uid: "slice",
        version: "1",
        service: service.map(String::as_str),
        facts: &facts,
    };
    let given = PortsGiven::Given(vec![ListenPort {
        name: String::new(),
        port: 80,
        listen_port: 20_001,
    }]);
    let me = SliceOwner::new(me_uid, adopts);
    match facts::our_slices(me, "target", &[found], &given, &[]) {
        Owned::Ours(shapes) => Owned::Ours(shapes.iter().map(|shape| shape.role).collect()),
        Owned::Missing => Owned::Missing,
        Owned::Foreign => Owned::Foreign,
    }
}

/// The facts of a recorded service at zero, beside our two resolvers that are ready.
fn left_asleep(service: &str, uid: &str) -> (ElastiService, Observed) {
    let name = match service {
        "target" => "target",
        _ => "target-elastiservice",
    };
    let me: ElastiService = serde_json::from_value(recorded("ElastiService", name)).unwrap();
    let status = me.status.clone().unwrap_or_default();
    let slice: EndpointSlice = serde_json::from_value(slice_of(service)).unwrap();
    let facts = SliceFacts::from_object(&slice);
    let slice_name = slice.metadata.name.unwrap_or_default();
    let found = FoundSlice {
        name: &slice_name,
        uid: "slice",
        version: "1",
        service: Some(service),
        facts: &facts,
    };
    let read = |name: &str| -> core_v1::Service {
        serde_json::from_value(recorded("Service", name)).unwrap()
    };
    let private = ServiceFacts::from_object(read(&names::private_service(service)));
    let listen = ListenPort {
        name: String::new(),
        port: 80,
        listen_port: 20_001,
    };
    let mut o = asleep();
    o.me = facts::me(&me.metadata, &status);
    o.ports = PortsGiven::Given(vec![listen.clone()]);
    o.slice = facts::our_slices(SliceOwner::new(uid, true), service, &[found], &o.ports, &[]);
    o.private_service = facts::private_service(uid, Some(&private));
    o.service = Some(ServiceFacts::from_object(read(service)).service);
    o.target = Some(elasti_core::observed::Target {
        replicas_by: Author::Unknown,
        ..target(0)
    });
    // The first reconcile wrote the ports into the status, and the resolvers listen.
    o.me.remembered.ports = vec![listen];
    o.resolvers = vec![resolver(1), resolver(2)];
    for one in &mut o.resolvers {
        let route = elasti_api::RouteGeneration::from_ports(&o.me.remembered.ports);
        if let elasti_core::observed::Report::Seen { route: known, .. } = &mut one.report {
            *known = Some(route);
        }
    }
    (me, o)
}

fn steps(plan: &Plan) -> Vec<&'static str> {
    let name = |step: &Step| match step {
        Step::Redirect(_) => "Redirect",
        Step::AddFinalizer => "AddFinalizer",
        Step::EnsurePrivateService(_) => "EnsurePrivateService",
        Step::Wake(_) => "Wake",
        Step::ReleaseAutoscaler(_) => "ReleaseAutoscaler",
        _ => "another",
    };
    plan.steps.iter().map(name).collect()
}

#[test]
fn the_recorded_slices_are_known_by_their_mark() {
    for (service, _) in ASLEEP {
        let slice: EndpointSlice = serde_json::from_value(slice_of(service)).unwrap();
        assert!(SliceFacts::from_object(&slice).by_predecessor, "{service}");
    }
    let all: Vec<Value> = serde_saphyr::from_multiple(RECORD).unwrap();
    let slices = all.into_iter().filter(|one| one["kind"] == "EndpointSlice");
    let marked = slices.filter(|one| {
        let slice: EndpointSlice = serde_json::from_value(one.clone()).unwrap();
        SliceFacts::from_object(&slice).by_predecessor
    });
    assert_eq!(marked.count(), ASLEEP.len(), "and no other slice is");
}

#[test]
fn a_slice_without_an_owner_is_adopted_and_one_of_ours_stays_ours() {
    let redirects = Owned::Ours(vec![SliceRole::Redirect]);
    assert_eq!(seen("me", true, &slice_of("target")), redirects);
    let owner = |uid: &str, kind: &str| {
        let mut slice = slice_of("target");
        slice["metadata"]["ownerReferences"] = json!([{
            "apiVersion": format!("{}/v1alpha1", names::GROUP), "kind": kind, "name": "target", "uid": uid,
        }]);
        slice
    };
    assert_eq!(seen("me", true, &owner("me", "ElastiService")), redirects);
    let another = seen("me", true, &owner("another", "ElastiService"));
    assert_eq!(another, Owned::Foreign);
    let of_service = seen("me", true, &owner("me", "Service"));
    assert_eq!(of_service, Owned::Foreign);
}

#[test]
fn a_slice_that_differs_in_any_part_of_the_mark_is_foreign() {
    let changes: [Change; 7] = [
        ("managed by a controller", |slice| {
            slice["metadata"]["labels"][names::SLICE_MANAGED_BY_LABEL] = json!("mine.example.com");
        }),
        ("managed by a tool", |slice| {
            slice["metadata"]["labels"][names::MANAGED_BY_LABEL] = json!("Helm");
        }),
        ("of another Service", |slice| {
            slice["metadata"]["labels"][names::SERVICE_NAME_LABEL] = json!("other");
        }),
        ("with two ports", |slice| {
            slice["ports"] = json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]);
        }),
        ("without an address", |slice| slice["endpoints"] = json!([])),
        ("of a pod", |slice| {
            slice["endpoints"][0]["targetRef"] = json!({"kind": "Pod", "name": "p"});
        }),
        ("with a condition", |slice| {
            slice["endpoints"][0]["conditions"] = json!({"ready": true});
        }),
    ];
    for (what, change) in changes {
        let mut slice = slice_of("target");
        change(&mut slice);
        assert_eq!(seen("me", true, &slice), Owned::Foreign, "{what}");
    }
}

#[test]
fn a_sleeping_service_keeps_sleeping_and_its_slice_leads_to_our_resolvers() {
    for (service, uid) in ASLEEP {
        let (me, o) = left_asleep(service, uid);
        assert!(o.me.finalizer && o.is_redirected(), "{service}");
        assert!(o.private_service.ours().is_some(), "{service}");
        let plan = planned_for(&me.spec, &o);
        assert_eq!(
            (plan.phase, steps(&plan)),
            (Phase::Asleep, vec!["Redirect"])
        );
    }
}

#[test]
fn before_a_resolver_of_ours_listens_the_slice_stays_as_it_is() {
    for (service, uid) in ASLEEP {
        let (me, mut o) = left_asleep(service, uid);
        for one in &mut o.resolvers {
            one.ready = false;
        }
        o.stable_since.no_resolver_since = None;
        let plan = planned_for(&me.spec, &o);
        assert_eq!(steps(&plan), Vec::<&str>::new(), "{service}");
        assert_eq!(plan.phase, Phase::Asleep);
    }
}

#[test]
fn the_first_request_wakes_a_service_that_was_left_asleep() {
    for (service, uid) in ASLEEP {
        let (me, o) = left_asleep(service, uid);
        assert_eq!(wake(&me.spec, &o), WakeDecision::Scale(1), "{service}");
    }
}

/// A pod of KubeElasti's operator, by its chart.
fn operator_pod(arguments: &[&str], watched: Option<&str>) -> core_v1::Pod {
    let mut env = vec![json!({
        "name": "ELASTI_OPERATOR_DEPLOYMENT_NAME", "value": "elasti-operator-controller-manager",
    })];
    env.extend(watched.map(|list| json!({"name": "WATCH_NAMESPACES", "value": list})));
    let container =
        json!({"name": "manager", "command": ["/manager"], "args": arguments, "env": env});
    serde_json::from_value(json!({"spec": {"containers": [container]}})).unwrap()
}

#[test]
fn a_living_operator_of_kube_elasti_is_known_and_so_are_its_namespaces() {
    let serves = |pod: &core_v1::Pod| {
        let facts = PredecessorFacts::from_object(pod)?;
        Some(["shop", "bank"].map(|namespace| facts.serves(namespace)))
    };
    let everywhere = operator_pod(&["--leader-elect"], None);
    assert_eq!(serves(&everywhere), Some([true, true]));
    let one = operator_pod(&["--watch-namespace=shop"], None);
    assert_eq!(serves(&one), Some([true, false]));
    let some = operator_pod(&[], Some("bank, other"));
    assert_eq!(serves(&some), Some([false, true]));

    let mut ended = everywhere.clone();
    ended.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    assert_eq!(serves(&ended), None);
    let mut ours = everywhere.clone();
    let container = &mut ours.spec.as_mut().unwrap().containers[0];
    container.command = None;
    container.args = Some(vec!["operator".into()]);
    assert_eq!(serves(&ours), None);
    let mut another = everywhere;
    another.spec.as_mut().unwrap().containers[0].env = None;
    assert_eq!(serves(&another), None, "every operator runs /manager");
}

#[test]
fn a_resolver_of_kube_elasti_is_told_from_ours_and_has_an_address_of_its_own() {
    let is_its = |spec: Value| {
        let spec: core_v1::PodSpec = serde_json::from_value(spec).unwrap();
        facts::is_predecessor_resolver(&spec)
    };
    let variables = json!([{"name": "HEADER_FOR_HOST", "value": "Host"}]);
    let its = json!({"containers": [{"name": "resolver", "env": variables}]});
    assert!(is_its(its.clone()));
    let mut on_the_node = its.clone();
    on_the_node["hostNetwork"] = json!(true);
    assert!(
        !is_its(on_the_node),
        "everything on the node has its address"
    );
    let mut ours = its.clone();
    ours["containers"][0]["args"] = json!(["resolver"]);
    assert!(!is_its(ours));
    let mut with_token = its;
    with_token["containers"][0]["env"] =
        json!([{"name": "ELASTI_RESOLVER_TOKEN_FILE", "value": "/var/run/token"}]);
    assert!(!is_its(with_token));
}

#[test]
fn while_its_operator_lives_nothing_is_written_but_a_wake() {
    let (me, mut o) = left_asleep(ASLEEP[0].0, ASLEEP[0].1);
    o.predecessor = Some("elasti/manager-0".into());
    for deleting in [false, true] {
        o.me.deleting_since = deleting.then_some(o.now);
        let plan = planned_for(&me.spec, &o);
        assert_eq!((steps(&plan), plan.why.reason), (vec![], Reason::Conflict));
        assert_eq!(
            plan.why.sentence,
            "KubeElasti's operator still runs as pod elasti/manager-0; Elasti leaves the service to it until that pod is gone."
        );
    }
    o.me.deleting_since = None;
    assert_eq!(wake(&me.spec, &o), WakeDecision::Scale(1));
}

#[test]
fn a_slice_that_kube_elasti_left_is_ours_only_where_we_adopt_it() {
    let slice = slice_of("target");
    assert_eq!(seen("me", false, &slice), Owned::Foreign);
    assert!(seen("me", true, &slice).ours().is_some());
    let mut ours = slice;
    ours["metadata"]["ownerReferences"] = json!([{
        "apiVersion": format!("{}/v1alpha1", names::GROUP), "kind": "ElastiService", "name": "a", "uid": "me",
    }]);
    assert!(seen("me", false, &ours).ours().is_some());
}
