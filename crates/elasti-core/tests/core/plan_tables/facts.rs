//! Facts for the tables: one set for each phase, and small changes to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use elasti_api::{
    ElastiServiceSpec, ListenPort, RouteGeneration, ScaleTargetRef, Trigger, TriggerType,
};
use elasti_core::facts::Requests;
use elasti_core::labels::Labels;
use elasti_core::observed::{
    Author, Autoscaler, DeletionCost, Endpoint, Family, Leadership, Me, Owned, Pod, PortsGiven,
    PrivateServiceShape, Reading, Remembered, Report, Resolver, Service, ServiceKind, ServicePort,
    Settings, SliceRole, SliceShape, Standing, StopOrder, Target, UserRequest,
};
use elasti_core::services::Unmanaged;
use elasti_core::stable_since::{ObservedTick, StableSince};
use elasti_core::{Observed, Plan, plan};
use jiff::{SignedDuration, Timestamp};

/// A change to a set of facts.
pub type Change = fn(&mut Observed);

pub fn now() -> Timestamp {
    "2026-03-02T08:00:00Z".parse().unwrap()
}

pub fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

pub const LONG: i64 = 3600;

pub fn spec() -> ElastiServiceSpec {
    ElastiServiceSpec {
        scale_target_ref: ScaleTargetRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "web".into(),
        },
        service: "web".into(),
        min_target_replicas: 1,
        cooldown_period: 900,
        triggers: vec![Trigger {
            type_: TriggerType::Prometheus,
            metadata: BTreeMap::default(),
            dropped: None,
        }],
        autoscaler: None,
        enabled_period: None,
        enabled_periods: Vec::new(),
        probe_response: Vec::new(),
        paused: None,
        hold: None,
        wake: None,
        handover: None,
        waiting_page: None,
        unmanaged_services: None,
    }
}

/// The plan for these facts, after one more observation of them.
pub fn planned(o: &Observed) -> Plan {
    planned_for(&spec(), o)
}

pub fn planned_for(spec: &ElastiServiceSpec, o: &Observed) -> Plan {
    plan(spec, &observed(o))
}

pub fn observed(o: &Observed) -> Observed {
    let mut o = o.clone();
    o.stable_since = o.stable_since.clone().observe(&o);
    o
}

/// Pods answer, and the trigger is active.
pub fn serving() -> Observed {
    let mut o = idle();
    o.readings = vec![active()];
    o
}

/// Pods answer, and it has been quiet for longer than the cooldown.
pub fn idle() -> Observed {
    Observed {
        now: now(),
        me: me(),
        leadership: Leadership::Leader {
            until: now() + SignedDuration::from_secs(15),
        },
        rival: None,
        predecessor: None,
        namespace_terminating: false,
        service: Some(service()),
        target: Some(target(1)),
        pods: vec![pod()],
        endpoints: vec![endpoint(true)],
        endpoints_version: "1".into(),
        slice: Owned::Ours(vec![net()]),
        private_service: Owned::Ours(private()),
        standing: Standing::Own,
        others: Vec::new(),
        unmanaged: Unmanaged::default(),
        resolvers: vec![resolver(1), resolver(2)],
        nodes: None,
        ports: PortsGiven::Given(ports()),
        autoscaler: Autoscaler::None,
        readings: vec![quiet()],
        reading_details: Vec::new(),
        wake_requested_at: None,
        wake_client: None,
        woken_at: None,
        promised_until: None,
        may_mark: true,
        stable_since: stable_since(),
        settings: Settings::default(),
    }
}

/// Idle, and the Service has just been redirected to the resolvers.
pub fn redirecting() -> Observed {
    let mut o = idle();
    redirect(&mut o, 1);
    o
}

/// Idle, and every node has had the redirect for long.
pub fn redirected() -> Observed {
    let mut o = idle();
    redirect(&mut o, LONG);
    o
}

/// Idle, and the pod was taken out of rotation a moment ago.
pub fn draining() -> Observed {
    let mut o = redirected();
    mark(&mut o, 1);
    o
}

/// Idle, and nothing has been able to reach the pod for the settle time: the scale to zero is due.
pub fn drained() -> Observed {
    let mut o = redirected();
    mark(&mut o, 3);
    o
}

/// Scaled to zero by us.
pub fn asleep() -> Observed {
    let mut o = redirected();
    o.target = Some(target(0));
    no_pods(&mut o);
    o.me.remembered.last_sleep = Some(ago(1800));
    o
}

/// Woken a moment ago; the pod is starting.
pub fn waking() -> Observed {
    let mut o = asleep();
    o.target = Some(target(1));
    o.target.as_mut().unwrap().replicas_at = Some(ago(3));
    o.me.remembered.last_wake = Some(ago(3));
    o.pods = vec![Pod {
        ready: false,
        ready_since: None,
        containers_ready: false,
        started: false,
        ..pod()
    }];
    o
}

/// The pod of that wake is in rotation for a second.
pub fn restoring() -> Observed {
    let mut o = waking();
    in_rotation(&mut o, 1);
    o
}

/// Deleted, with everything restored: the last steps are due.
pub fn finalize() -> Observed {
    let mut o = serving();
    o.me.deleting_since = Some(ago(5));
    o.slice = Owned::Missing;
    o.stable_since.slice = None;
    o.stable_since.slice_gone_since = Some(ago(3));
    o
}

pub fn redirect(o: &mut Observed, seconds: i64) {
    let shape = vec![slice()];
    o.slice = Owned::Ours(shape.clone());
    o.stable_since.slice = Some((shape, ago(seconds)));
    o.stable_since.slice_gone_since = None;
}

pub fn mark(o: &mut Observed, seconds: i64) {
    o.pods[0].ready = false;
    o.pods[0].marked = true;
    o.endpoints = vec![endpoint(false)];
    o.stable_since.in_rotation_since.clear();
    o.stable_since.ready_since.clear();
    o.stable_since.no_rotation_since = Some(ago(seconds));
    o.stable_since.pods_out_since = Some(ago(seconds));
    let tick = ObservedTick {
        after: ago(seconds),
        by: ago(seconds),
    };
    o.stable_since.ticks = BTreeMap::from([("node-a".to_owned(), tick)]);
}

pub fn no_pods(o: &mut Observed) {
    o.pods.clear();
    o.endpoints.clear();
    o.stable_since.pod_versions.clear();
    o.stable_since.ready_since.clear();
    o.stable_since.in_rotation_since.clear();
    o.stable_since.no_rotation_since = Some(ago(LONG));
    o.stable_since.pods_out_since = Some(ago(LONG));
}

pub fn in_rotation(o: &mut Observed, seconds: i64) {
    o.pods = vec![pod()];
    o.endpoints = vec![endpoint(true)];
    o.stable_since.pod_versions = BTreeMap::from([("web-1".to_owned(), "1".to_owned())]);
    o.stable_since.no_rotation_since = None;
    o.stable_since.pods_out_since = None;
    o.stable_since.in_rotation_since = BTreeMap::from([("web-1".to_owned(), ago(seconds))]);
    o.stable_since.ready_since = BTreeMap::from([("web-1".to_owned(), ago(seconds))]);
}

/// The report of one resolver, changed.
pub fn report(
    o: &mut Observed,
    change: impl FnOnce(&mut Timestamp, &mut u32, &mut u32, &mut Option<Timestamp>),
) {
    let Report::Seen {
        at,
        held,
        open,
        last_connection,
        ..
    } = &mut o.resolvers[1].report
    else {
        panic!("the resolver has reported");
    };
    change(at, held, open, last_connection);
}

pub fn active() -> Reading {
    Reading::Active {
        value: 12.0,
        threshold: 5.0,
    }
}

pub fn unknown(why: &str) -> Reading {
    Reading::Unknown {
        why: why.into(),
        quiet_now: false,
    }
}

/// Below the threshold, but from a source that was not up for the whole cooldown.
pub fn quiet_now() -> Reading {
    Reading::Unknown {
        why: "the server was down".into(),
        quiet_now: true,
    }
}

pub fn quiet() -> Reading {
    Reading::Quiet {
        value: 0.0,
        threshold: 5.0,
    }
}

pub fn ports() -> Vec<ListenPort> {
    vec![ListenPort {
        name: "http".into(),
        port: 80,
        listen_port: 20_000,
    }]
}

pub fn slice() -> SliceShape {
    SliceShape {
        family: Family::V4,
        role: SliceRole::Redirect,
        ports: ports(),
        endpoints: [1, 2].map(|n| (address(n), node(n))).into(),
    }
}

pub fn net() -> SliceShape {
    SliceShape {
        role: SliceRole::Net,
        ..slice()
    }
}

fn node(n: u8) -> String {
    format!("node-{n}")
}

pub fn address(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 9, n))
}

pub fn resolver(n: u8) -> Resolver {
    Resolver {
        name: format!("resolver-{n}"),
        addresses: vec![address(n)],
        node: node(n),
        ready: true,
        terminating: false,
        report: Report::Seen {
            at: now(),
            route: Some(RouteGeneration::from_ports(&ports())),
            other_routes: BTreeMap::new(),
            held: 0,
            open: 0,
            last_connection: None,
            first_answer: None,
        },
    }
}

pub fn target(replicas: u32) -> Target {
    Target {
        replicas,
        version: "7".into(),
        generation: Some(1),
        replicas_by: Author::Elasti,
        replicas_at: Some(ago(LONG)),
        stops: StopOrder::Unknown,
        min_ready_seconds: 0,
        requests: Requests::default(),
    }
}

pub fn pod() -> Pod {
    Pod {
        name: "web-1".into(),
        uid: "uid-1".into(),
        version: "1".into(),
        node: "node-a".into(),
        started: true,
        ready: true,
        ready_since: Some(ago(LONG)),
        containers_ready: true,
        marked: false,
        deletion_cost: DeletionCost::Unset,
        terminating: false,
        obstacle: None,
    }
}

pub fn endpoint(ready: bool) -> Endpoint {
    Endpoint {
        pod: "web-1".into(),
        ready,
        terminating: false,
    }
}

fn me() -> Me {
    Me {
        created: ago(24 * LONG),
        generation: 1,
        deleting_since: None,
        finalizer: true,
        wake_request: UserRequest::None,
        sleep_request: UserRequest::None,
        remembered: Remembered {
            generation: Some(1),
            ports: ports(),
            services: Vec::new(),
            quiet_since: Some(ago(LONG)),
            last_active: Some(ago(LONG)),
            last_wake: Some(ago(2 * LONG)),
            woken_by_other: false,
            ready_after_wake: None,
            last_sleep: Some(ago(3 * LONG)),
            replicas: None,
            replicas_before_drain: None,
            pause_left: false,
            contended_since: None,
        },
    }
}

fn stable_since() -> StableSince {
    let mut seen = StableSince::fresh(ago(LONG), Some(ago(LONG)));
    seen.slice = Some((vec![net()], ago(LONG)));
    seen.no_terminating_since = Some(ago(LONG));
    seen.in_rotation_since = BTreeMap::from([("web-1".to_owned(), ago(LONG))]);
    seen.came_back = BTreeSet::from(["web-1".to_owned()]);
    seen.ready_since = BTreeMap::from([("web-1".to_owned(), ago(LONG))]);
    seen.endpoints_version = Some("1".into());
    seen.pod_versions = BTreeMap::from([("web-1".to_owned(), "1".to_owned())]);
    seen
}

pub fn private() -> PrivateServiceShape {
    PrivateServiceShape {
        selector: service().selector,
        ports: service().ports,
        families: service().families,
    }
}

pub fn service() -> Service {
    Service {
        kind: ServiceKind::ClusterIp,
        selector: Labels::from([("app", "web")]),
        ports: vec![ServicePort {
            name: "http".into(),
            port: 80,
            target_port: "8080".into(),
            tcp: true,
            app_protocol: None,
        }],
        families: BTreeSet::from([Family::V4]),
        external_local: false,
        internal_local: false,
        publishes_unready: false,
    }
}
