//! Holds `elasti why` against the operator: on every reconcile of every scenario both must give the same reason and the
//! same sentence, from the same facts. A seeded misreading shows that the comparison notices.

use elasti_api::names::{self, condition};
use elasti_api::{ElastiService, Reason};
use elasti_core::observed::{
    Author, Autoscaler, Claim, Observed, Owned, Report, Service, ServiceKind, UserRequest,
};
use elasti_view::explanation::{Explanation, LiveObjects, explain, observed};
use elasti_view::view::Lookup;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1 as core_v1;
use serde_json::{Value, json};

use super::operator::Reconciled;
use super::script::{Scenario, busy, older, scenario_with, sleeping, with_autoscaler};
use super::world::{Pod, Resolver, World, quiet};

/// A reader that gets something wrong.
pub type Misread = fn(&mut LiveObjects);

/// Where `why`, given the objects that the operator saw and the status that it wrote, says something else.
pub fn disagreements(
    world: &World,
    reconcile: &Reconciled,
    misread: Option<Misread>,
) -> Vec<String> {
    let mut live = live_objects(world, reconcile);
    if let Some(misread) = misread {
        misread(&mut live);
    }
    let explanation = explain(&live);
    let mut found = facts_differ(&observed(&live), &reconcile.observed);
    found.extend(words_differ(reconcile, &explanation));
    found
}

/// A fact by name, as text.
type Reader<'a> = (&'a str, &'a dyn Fn(&Observed) -> String);

fn facts_differ(why: &Observed, operator: &Observed) -> Vec<String> {
    let pods = |o: &Observed| {
        let mut pods = o.pods.clone();
        // In this world a pod whose image cannot be pulled counts as started.
        pods.iter_mut().for_each(|pod| pod.started = pod.ready);
        format!("{pods:?}")
    };
    let resolvers = |o: &Observed| {
        let mut resolvers = o.resolvers.clone();
        resolvers
            .iter_mut()
            .for_each(|r| r.report = Report::NotAsked);
        format!("{resolvers:?}")
    };
    let readers: [Reader<'_>; 7] = [
        ("me", &|o| {
            format!(
                "{:?} {:?}",
                o.me.created,
                (
                    o.me.deleting_since,
                    o.me.finalizer,
                    o.me.wake_request,
                    o.me.sleep_request
                )
            )
        }),
        ("rival", &|o| format!("{:?}", o.rival)),
        ("service", &|o| format!("{:?}", o.service)),
        ("target", &|o| format!("{:?}", o.target)),
        ("pods", &pods),
        ("resolvers", &resolvers),
        ("autoscaler", &|o| format!("{:?}", o.autoscaler)),
    ];
    let differs = readers
        .iter()
        .filter(|(_, read)| read(why) != read(operator));
    differs
        .map(|(what, read)| format!("{what}: why {} operator {}", read(why), read(operator)))
        .collect()
}

fn words_differ(reconcile: &Reconciled, why: &Explanation) -> Vec<String> {
    let ready = reconcile
        .status
        .conditions
        .iter()
        .find(|c| c.type_ == condition::READY);
    let sentence = ready.map(|c| c.message.as_str()).unwrap_or_default();
    let reason = reconcile.status.reason.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    if (why.view.reason.as_str(), why.view.sentence.as_str()) != (reason, sentence) {
        found.push(format!(
            "in words: why {}: {} operator {reason}: {sentence}",
            why.view.reason, why.view.sentence
        ));
    }
    let plan = &reconcile.plan.why;
    let cause = |one: &elasti_view::explanation::Cause| {
        one.reason == plan.reason.as_str() && one.sentence == plan.sentence
    };
    // Only the operator looks for objects of another owner under our names, and for another operator.
    let o = &reconcile.observed;
    let foreign = o.slice == Owned::Foreign || o.private_service == Owned::Foreign;
    let hidden = foreign && o.rival.is_none() || o.predecessor.is_some();
    let seen = has_cause(plan.reason) && !hidden;
    if seen && !why.causes.iter().any(cause) {
        found.push(format!("no cause: {}: {}", plan.reason, plan.sentence));
    }
    found
}

/// What `why` must explain by a cause of its own, found in the live objects.
fn has_cause(reason: Reason) -> bool {
    reason.is_obstacle()
        || matches!(
            reason,
            Reason::Conflict
                | Reason::Unsupported
                | Reason::ServiceNotFound
                | Reason::TargetNotFound
                | Reason::AutoscalerNotFound
        )
}

/// The world as the API server would show it to `why`, with the status that the operator has just written.
fn live_objects(world: &World, reconcile: &Reconciled) -> LiveObjects {
    let found = |object: Option<Value>| object.map_or(Lookup::Missing, Lookup::Found);
    let service = world.service.as_ref().map(service);
    LiveObjects {
        me: me(world, reconcile),
        others: world.rival.iter().map(|rival| {
            let (service, target) = match rival.claim {
                Claim::Service => ("web", "other"),
                Claim::Target => ("other", "web"),
            };
            other(&rival.name, world.created - SignedDuration::from_hours(1), service, target)
        }).collect(),
        target: found(world.target.as_ref().map(|scale| {
            let entry = |manager: &str| json!([{"manager": manager, "operation": "Update", "time": scale.at, "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
            json!({
                "metadata": {"name": "web", "resourceVersion": scale.version.to_string(), "managedFields": match &scale.by {
                    Author::Elasti => entry(names::FIELD_MANAGER),
                    Author::Other(manager) => entry(manager),
                    Author::Unknown => json!([]),
                }},
                "spec": {"replicas": scale.replicas},
            })
        })),
        service: service.map_or(Lookup::Missing, Lookup::Found),
        pods: world.pods.iter().map(|p| pod(p, world.now)).collect(),
        events: Vec::new(),
        resolvers: Lookup::Found(world.resolvers.iter().map(resolver).collect()),
        nodes: Lookup::Found(world.nodes.iter().map(|(name, _)| name.clone()).collect()),
        autoscaler: match &world.autoscaler {
            Autoscaler::None => Lookup::Unknown,
            Autoscaler::Missing => Lookup::Missing,
            Autoscaler::Hpa { min_replicas } => Lookup::Found(json!({"spec": {"minReplicas": min_replicas}})),
            Autoscaler::Keda(pause) => {
                let before = pause.before.as_ref().map(elasti_core::facts::keda_before_to_text);
                Lookup::Found(json!({"metadata": {"annotations": {
                    names::KEDA_PAUSED_ANNOTATION: pause.paused,
                    names::KEDA_PAUSED_REPLICAS_ANNOTATION: pause.paused_replicas,
                    names::KEDA_BEFORE_ANNOTATION: before,
                }}}))
            }
        },
        now: world.clock(),
    }
}

fn me(world: &World, reconcile: &Reconciled) -> ElastiService {
    let mut me = ElastiService::new("web", world.spec.clone());
    let request = |request: UserRequest| match request {
        UserRequest::None => String::new(),
        UserRequest::At(at) => at.to_string(),
        UserRequest::Unreadable => "soon".into(),
    };
    me.metadata = serde_json::from_value(json!({
        "name": "web", "namespace": "shop", "uid": "me", "generation": world.generation,
        "creationTimestamp": world.created, "deletionTimestamp": world.deleting_since,
        "finalizers": world.finalizer.then_some(names::FINALIZER).into_iter().collect::<Vec<_>>(),
        "annotations": {
            names::WAKE_REQUESTED_ANNOTATION: request(world.wake_request),
            names::SLEEP_REQUESTED_ANNOTATION: request(world.sleep_request),
        },
    }))
    .unwrap();
    me.status = Some(reconcile.status.clone());
    me
}

fn other(name: &str, created: Timestamp, service: &str, target: &str) -> ElastiService {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": created},
        "spec": {"service": service, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}},
    }))
    .unwrap()
}

fn service(service: &Service) -> core_v1::Service {
    let Service {
        kind,
        selector,
        ports,
        families,
        external_local,
        internal_local,
        publishes_unready,
    } = service;
    let port = |p: &elasti_core::observed::ServicePort| {
        let number = p.target_port.parse::<i32>();
        let target_port = number.map_or_else(|_| json!(p.target_port), |n| json!(n));
        json!({
            "name": p.name, "port": p.port, "targetPort": target_port,
            "protocol": if p.tcp { "TCP" } else { "UDP" }, "appProtocol": p.app_protocol,
        })
    };
    let family = |f: &elasti_core::observed::Family| match f {
        elasti_core::observed::Family::V4 => "IPv4",
        elasti_core::observed::Family::V6 => "IPv6",
    };
    let (type_, cluster_ip) = match kind {
        ServiceKind::ClusterIp => ("ClusterIP", Some("10.96.0.1")),
        ServiceKind::Headless => ("ClusterIP", Some("None")),
        ServiceKind::ExternalName => ("ExternalName", None),
    };
    serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {
        "type": type_, "clusterIP": cluster_ip, "selector": selector.to_map(),
        "ports": ports.iter().map(port).collect::<Vec<_>>(),
        "ipFamilies": families.iter().map(family).collect::<Vec<_>>(),
        "externalTrafficPolicy": external_local.then_some("Local"),
        "internalTrafficPolicy": internal_local.then_some("Local"),
        "publishNotReadyAddresses": publishes_unready,
    }}))
    .unwrap()
}

fn pod(pod: &Pod, now: Timestamp) -> core_v1::Pod {
    let word = |holds: bool| if holds { "True" } else { "False" };
    let reason = pod.marked.then_some(names::DRAIN_REASON);
    // This world knows one obstacle.
    let state = match (&pod.obstacle, pod.starts_at) {
        (Some(_), _) => json!({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}),
        (None, Some(_)) => json!({"waiting": {"reason": "ContainerCreating"}}),
        (None, None) => json!({"running": {"startedAt": now}}),
    };
    serde_json::from_value(json!({
        "metadata": {
            "name": pod.name, "namespace": "shop", "uid": pod.name, "resourceVersion": pod.version.to_string(),
            "deletionTimestamp": pod.gone_at,
        },
        "spec": {"nodeName": pod.node, "containers": []},
        "status": {
            "phase": if pod.starts_at.is_none() && pod.obstacle.is_none() { "Running" } else { "Pending" },
            "conditions": [
                {"type": "Ready", "status": word(pod.ready), "reason": reason, "lastTransitionTime": pod.ready_since.filter(|_| pod.ready).unwrap_or(now)},
                {"type": "ContainersReady", "status": word(pod.containers_ready)},
            ],
            "containerStatuses": [{
                "name": "web", "image": "registry/web:9", "imageID": "", "ready": pod.ready, "restartCount": 0, "state": state,
            }],
        },
    }))
    .unwrap()
}

fn resolver(resolver: &Resolver) -> core_v1::Pod {
    let ready = if resolver.ready { "True" } else { "False" };
    serde_json::from_value(json!({
        "metadata": {"name": resolver.name},
        "spec": {"nodeName": resolver.node, "containers": []},
        "status": {"podIP": resolver.address, "conditions": [{"type": "Ready", "status": ready}]},
    }))
    .unwrap()
}

/// What is misread, how, and a scenario that depends on it.
type Case = (&'static str, Misread, fn(Misread) -> Scenario);

/// Each way of reading an object wrongly is noticed in a scenario that depends on it.
#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn a_seeded_misreading_is_noticed() {
    fn no_service(_: &mut World) {}
    let cases: [Case; 6] = [
        (
            "a younger ElastiService is taken for the older",
            |live| live.others.clear(),
            |misread| {
                let scenario = scenario_with(|world| world.rival = older("web-first"));
                scenario.misreads(misread).until("08:01")
            },
        ),
        (
            "a headless Service is taken for one with an address",
            |live| {
                if let Lookup::Found(service) = &mut live.service {
                    service
                        .spec
                        .iter_mut()
                        .for_each(|spec| spec.cluster_ip = None);
                }
            },
            |misread| {
                let headless = |s: &mut Service| s.kind = ServiceKind::Headless;
                let scenario = scenario_with(|world| world.service.iter_mut().for_each(headless));
                scenario.misreads(misread).until("08:01")
            },
        ),
        (
            "an image that cannot be pulled is taken for one that is being pulled",
            |live| {
                let status = live.pods.iter_mut().filter_map(|pod| pod.status.as_mut());
                status.for_each(|status| status.container_statuses = None);
            },
            |misread| {
                let scenario = sleeping(|world| world.pull_fails = true).misreads(misread);
                scenario.at("08:05").request().until("08:06")
            },
        ),
        (
            "a missing autoscaler is not looked up",
            |live| live.autoscaler = Lookup::Unknown,
            |misread| {
                let missing = Autoscaler::Missing;
                let scenario = busy(|world| {
                    with_autoscaler(world, elasti_api::AutoscalerType::Keda, missing);
                });
                scenario
                    .misreads(misread)
                    .trigger_reads(quiet())
                    .until("08:20")
            },
        ),
        (
            "a pod that terminates is taken for one that stays",
            |live| {
                let pods = live.pods.iter_mut();
                pods.for_each(|pod| pod.metadata.deletion_timestamp = None);
            },
            |misread| {
                sleeping(no_service)
                    .misreads(misread)
                    .at("08:05")
                    .request()
                    .until("08:40")
            },
        ),
        (
            "a marked pod is taken for one that fails",
            |live| {
                let status = live.pods.iter_mut().filter_map(|pod| pod.status.as_mut());
                let conditions = status.filter_map(|status| status.conditions.as_mut());
                conditions.flatten().for_each(|c| c.reason = None);
            },
            |misread| {
                busy(no_service)
                    .misreads(misread)
                    .trigger_reads(quiet())
                    .until("08:20")
            },
        ),
    ];
    for (what, misread, scenario) in cases {
        let found = scenario(misread).disagreements();
        assert!(!found.is_empty(), "not noticed: {what}");
    }
}
