//! What an operator of the modelled cluster reads and plans: the world -> `Observed` -> the real `plan` -> effects.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use elasti_api::names::condition;
use elasti_api::{
    Condition, ElastiServiceStatus, Handover, ListenPort, Reason, RouteGeneration, ServicePorts,
    Time,
};
use elasti_core::facts::Requests;
use elasti_core::labels::Labels;
use elasti_core::observed::{
    Author, Autoscaler, Claim, DeletionCost, Endpoint, Family, KedaBefore, KedaPause, Leadership,
    Me, Observed, Obstacle, ObstacleKind, OtherService, Owned, Pod as PodFact, PortsGiven,
    PrivateServiceShape, Reading, Remembered, Report, Resolver, Rival, Service, ServiceKind,
    ServicePort, SliceRole, SliceShape, Standing, StopOrder, Target, UserRequest,
};
use elasti_core::ports::{PortAllocator, ServiceKey, WantedPort};
use elasti_core::services::Unmanaged;
use elasti_core::stable_since::{StableSince, TICK_KNOWN_PERIODS};
use elasti_core::status::status;
use elasti_core::step::PodRef;
use elasti_core::{Plan, Step, plan};
use jiff::{SignedDuration, Timestamp};

use crate::model::config::{COOLDOWN, Config, GRACE, LEASE, Mistake, SETTLE, TIMEOUT};
use crate::model::world::{
    Age, Effect, Evidence, Keda, NET, Op, Pod, Status, Svc, TERMINATING, TriggerState, World, ago,
    now,
};

/// What operator `op` does about service `s` when it reconciles now.
pub struct Reconciled {
    pub op: Op,
    pub effects: Vec<(Effect, Option<Age>)>,
    pub evidence: Evidence,
    pub plan: Plan,
    /// It read the store, not a cache that has stopped following it.
    pub fresh: bool,
}

pub fn reconcile(config: &Config, world: &World, op: usize, s: usize) -> Reconciled {
    let frozen = world.ops[op].frozen.as_ref();
    let cached = frozen.map_or(&world.svcs, |svcs| svcs);
    let mut first = reconcile_from(config, world, op, s, &cached[s]);
    first.fresh = frozen.is_none();
    let fresh_needed = first.plan.needs_fresh_facts() || zero_in(&first.effects);
    if fresh_needed && frozen.is_some() && !config.is(Mistake::TrustsStaleCache) {
        return reconcile_from(config, world, op, s, &world.svcs[s]);
    }
    first
}

fn zero_in(effects: &[(Effect, Option<Age>)]) -> bool {
    effects
        .iter()
        .any(|(e, _)| matches!(e, Effect::Zero { .. } | Effect::Shrink(_)))
}

fn reconcile_from(config: &Config, world: &World, op: usize, s: usize, read: &Svc) -> Reconciled {
    let mut operator = world.ops[op].clone();
    let mut o = observed(config, world, op, s, read, &mut operator.port_allocator);
    o.stable_since = crate::model::mistakes::memory(config, operator.memory[s].clone().observe(&o));
    let spec = config.spec();
    let plan = plan(&spec, &o);
    let timed = |step: &Step| {
        let valid_for = step.expires().map(|moment| age(moment, true));
        effect(config, step).map(|effect| (effect, valid_for))
    };
    let mut effects: Vec<(Effect, Option<Age>)> = plan.steps.iter().filter_map(timed).collect();
    operator.memory[s] = aged(config, o.after(&plan.steps), 0);
    crate::model::mistakes::alter(config, read, &plan, &mut effects);
    let stated = stated(config, &spec, &o, &plan, &read.status);
    if stated != read.status && o.leadership != Leadership::Follower {
        // The finalizer goes last: after it there is nothing to write a status on.
        let last = effects.last().map(|(effect, _)| effect);
        let at = effects.len() - usize::from(last == Some(&Effect::RemoveFinalizer));
        effects.insert(at, (Effect::Status(stated), None));
    } else if config.is(Mistake::WritesAtRest) && effects.is_empty() {
        effects.push((Effect::Status(stated), None));
    }
    Reconciled {
        op: operator,
        effects,
        evidence: evidence(world, op, s, read),
        plan,
        fresh: true,
    }
}

fn wanted_port() -> WantedPort {
    WantedPort {
        name: String::new(),
        port: 80,
    }
}

/// The facts as operator `op` reads them.
pub fn observed(
    config: &Config,
    world: &World,
    op: usize,
    s: usize,
    read: &Svc,
    port_allocator: &mut PortAllocator,
) -> Observed {
    let wanted = [wanted_port()];
    let given = port_allocator
        .assign(&key(s), &wanted, now())
        .expect("the model's range is wide enough");
    let second_ports = read.second.is_some().then(|| {
        port_allocator
            .assign(&second_key(s), &wanted, now())
            .expect("the model's range is wide enough")
    });
    let slices = read
        .slice
        .map(|mask| crate::model::mistakes::slice(config, read, mask))
        .map(|mask| vec![shape(&given, mask, world.res.len())]);
    let private = PrivateServiceShape {
        selector: service().selector,
        ports: service().ports,
        families: service().families,
    };
    let owned = |there: bool| match (read.foreign, there) {
        (true, _) if !config.is(Mistake::TakesForeignObjects) => Owned::Foreign,
        (_, true) => Owned::Ours(private.clone()),
        (_, false) => Owned::Missing,
    };
    Observed {
        now: now(),
        me: me(config, read, &given, second_ports.as_deref()),
        leadership: leadership(config, world, op),
        rival: (config.rivals && s > 0 && !config.is(Mistake::IgnoresRival)).then(|| Rival {
            name: "first".into(),
            claim: Claim::Service,
        }),
        predecessor: (world.predecessor && !config.is(Mistake::IgnoresPredecessor))
            .then(|| "elasti/manager".into()),
        namespace_terminating: false,
        service: Some(public_service(config)),
        target: read.replicas.map(|replicas| target(config, read, replicas)),
        pods: pods(config, op, read),
        endpoints: endpoints(read.pods.len(), read.own.seen),
        endpoints_version: version(read.changed[op].0),
        slice: slices.map_or(Owned::Missing, Owned::Ours),
        private_service: owned(read.private),
        standing: Standing::Own,
        others: crate::model::mistakes::others(
            config,
            second(world, op, read, second_ports.as_deref()),
        ),
        unmanaged: Unmanaged::default(),
        resolvers: (0..world.res.len())
            .map(|r| resolver(config, world, r, s, &given, second_ports.as_deref()))
            .collect(),
        nodes: config.local.then(|| (0..config.nodes).map(node).collect()),
        ports: PortsGiven::Given(given),
        autoscaler: read
            .keda
            .map_or(Autoscaler::None, |keda| Autoscaler::Keda(pause(keda))),
        readings: vec![reading(config, read.reading)],
        reading_details: Vec::new(),
        wake_requested_at: { world.ops[op].wake_requests[s] }
            // Without a promise to keep, the request alone would keep the pods for a cooldown.
            .filter(|_| !config.is(Mistake::ForgetsWakes) && !config.is(Mistake::ZeroUnderPromise))
            .map(|(age, _)| ago(age)),
        wake_client: None,
        woken_at: { world.ops[op].wakes[s].map(ago) }.filter(|_| !config.is(Mistake::FightsAZero)),
        promised_until: (world.ops[op].promised[s] > 0 && !config.is(Mistake::ZeroUnderPromise))
            .then(|| now() + SignedDuration::from_secs(i64::from(world.ops[op].promised[s]))),
        may_mark: true,
        stable_since: world.ops[op].memory[s].clone(),
        settings: crate::model::mistakes::settings(config),
    }
}

fn target(config: &Config, read: &Svc, replicas: u8) -> Target {
    let recorded = replicas > 0 && (read.recorded || config.keeps_record);
    Target {
        replicas: u32::from(replicas),
        version: "1".into(),
        generation: Some(i64::from(read.generation)),
        replicas_by: match (recorded, read.by_us) {
            (false, _) => Author::Unknown,
            (true, true) => Author::Elasti,
            (true, false) => Author::Other("kubectl".into()),
        },
        replicas_at: (recorded && !config.is(Mistake::ForgetsWakes)).then(|| ago(read.written)),
        stops: match config.ordered {
            _ if config.is(Mistake::DrainsWhole) => StopOrder::Unknown,
            true => StopOrder::HighestAlone,
            false => StopOrder::UnreadyFirst,
        },
        min_ready_seconds: match config.mistake {
            Mistake::StopsAboveUnavailablePods => 0,
            _ => u32::from(config.min_ready),
        },
        requests: Requests::default(),
    }
}

fn me(config: &Config, read: &Svc, given: &[ListenPort], second: Option<&[ListenPort]>) -> Me {
    Me {
        created: if config.is(Mistake::NeverIdle) {
            now()
        } else {
            ago(read.created)
        },
        generation: 1,
        deleting_since: read.deleting.map(ago),
        finalizer: read.finalizer,
        wake_request: user_request(read.wake_request),
        sleep_request: if config.is(Mistake::SleepRequestsNeverExpire) {
            UserRequest::At(now())
        } else {
            user_request(read.sleep_request)
        },
        remembered: Remembered {
            generation: read.status.observed.then_some(1),
            ports: if read.status.ports {
                given.to_vec()
            } else {
                Vec::new()
            },
            services: { second.iter().filter(|_| read.status.second) }
                .map(|ports| ServicePorts {
                    name: SECOND.into(),
                    ports: ports.to_vec(),
                })
                .collect(),
            quiet_since: read.status.quiet.map(ago),
            last_active: read.status.quiet.map(ago),
            last_wake: read
                .status
                .wake
                .map(ago)
                .filter(|_| !config.is(Mistake::ForgetsWakes)),
            woken_by_other: read.status.woken_by_other,
            // As after a restart: only the pods show when they became ready.
            ready_after_wake: None,
            last_sleep: read.status.sleep.map(ago),
            replicas: read
                .status
                .observed
                .then_some(u32::from(!read.status.asleep)),
            replicas_before_drain: read.status.before.map(u32::from),
            pause_left: read.status.pause_left,
            contended_since: read.status.contended.map(ago),
        },
    }
}

fn user_request(age: Option<Age>) -> UserRequest {
    age.map_or(UserRequest::None, |age| UserRequest::At(ago(age)))
}

fn leadership(config: &Config, world: &World, op: usize) -> Leadership {
    if config.is(Mistake::OldLeaderGoesOn) {
        return Leadership::Leader {
            until: now() + SignedDuration::from_hours(1),
        };
    }
    if world.lease.holder != op || world.lease.age >= LEASE {
        return Leadership::Follower;
    }
    let left = LEASE - world.lease.age;
    Leadership::Leader {
        until: now() + SignedDuration::from_secs(i64::from(left)),
    }
}

pub fn key(s: usize) -> ServiceKey {
    ServiceKey {
        namespace: "ns".into(),
        service: format!("service-{s}"),
    }
}

/// The name of the second Service.
const SECOND: &str = "second";

pub fn second_key(s: usize) -> ServiceKey {
    ServiceKey {
        namespace: "ns".into(),
        service: format!("second-{s}"),
    }
}

/// The second Service as operator `op` reads it.
fn second(
    world: &World,
    op: usize,
    read: &Svc,
    ports: Option<&[ListenPort]>,
) -> Option<OtherService> {
    let (second, ports) = (read.second.as_ref()?, ports?);
    let slice = { second.slice }.map(|mask| vec![shape(ports, mask, world.res.len())]);
    let private = second.private.then(|| PrivateServiceShape {
        selector: service().selector,
        ports: service().ports,
        families: service().families,
    });
    Some(OtherService {
        name: SECOND.into(),
        service: Some(service()),
        standing: Standing::Own,
        endpoints: endpoints(read.pods.len(), second.own.seen),
        endpoints_version: version(second.changed[op]),
        slice: slice.map_or(Owned::Missing, Owned::Ours),
        private_service: private.map_or(Owned::Missing, Owned::Ours),
        ports: PortsGiven::Given(ports.to_vec()),
    })
}

pub fn uid(i: usize) -> String {
    format!("uid-{i}")
}

fn service() -> Service {
    Service {
        kind: ServiceKind::ClusterIp,
        selector: Labels::from([("app", "target")]),
        ports: vec![ServicePort {
            name: String::new(),
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

fn public_service(config: &Config) -> Service {
    Service {
        internal_local: config.local,
        ..service()
    }
}

fn address(r: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(r).unwrap() + 1))
}

fn shape(ports: &[ListenPort], mask: u8, resolvers: usize) -> SliceShape {
    SliceShape {
        family: Family::V4,
        role: match mask & NET {
            0 => SliceRole::Redirect,
            _ => SliceRole::Net,
        },
        ports: ports.to_vec(),
        endpoints: (0..resolvers)
            .filter(|r| mask & (1 << r) != 0)
            .map(|r| (address(r), node(r)))
            .collect(),
    }
}

fn node(i: usize) -> String {
    format!("node-{i}")
}

/// What the last reconcile saw is version "old"; anything since then is "new".
fn version(changed: bool) -> String {
    if changed { "new".into() } else { "old".into() }
}

fn pods(config: &Config, op: usize, read: &Svc) -> Vec<PodFact> {
    let served = { read.served }.filter(|_| !config.is(Mistake::CountsFromTheWake));
    let since = |i: usize| match config.min_ready {
        0 => served,
        _ => Some(read.ready_for[i]),
    };
    let pods = read.pods.iter().enumerate();
    pods.filter_map(|(i, pod)| pod_fact(i, *pod, read.changed[op].1 & (1 << i) != 0, since(i)))
        .collect()
}

fn pod_fact(i: usize, pod: Pod, changed: bool, ready_for: Option<Age>) -> Option<PodFact> {
    let (ready, containers_ready, marked, terminating) = match pod {
        Pod::None => return None,
        Pod::Starting | Pod::Passing | Pod::Stuck => (false, false, false, false),
        Pod::Up {
            ready,
            healthy,
            marked,
        } => (ready, healthy, marked, false),
        Pod::Terminating => (false, false, false, true),
    };
    Some(PodFact {
        name: format!("pod-{i}"),
        uid: uid(i),
        version: version(changed),
        node: node(i),
        started: ready,
        ready,
        ready_since: ready_for.filter(|_| ready).map(ago),
        containers_ready,
        marked,
        deletion_cost: DeletionCost::Unset,
        terminating,
        obstacle: (pod == Pod::Stuck).then(|| Obstacle {
            kind: ObstacleKind::CrashLoop,
            message: "it dies".into(),
            failed: true,
        }),
    })
}

fn endpoints(pods: usize, seen: u8) -> Vec<Endpoint> {
    (0..pods)
        .map(|i| Endpoint {
            pod: format!("pod-{i}"),
            ready: seen & (1 << i) != 0,
            terminating: seen & (1 << i << TERMINATING) != 0,
        })
        .collect()
}

fn resolver(
    config: &Config,
    world: &World,
    r: usize,
    s: usize,
    given: &[ListenPort],
    second: Option<&[ListenPort]>,
) -> Resolver {
    let route = &world.res[r].routes[s];
    let in_slice = world.svcs[s].slice.is_some_and(|mask| mask & (1 << r) != 0);
    let blind = config.is(Mistake::SleepsOnOpenStreams)
        || config.is(Mistake::AsksChosenResolversOnly) && !in_slice;
    Resolver {
        name: format!("resolver-{r}"),
        addresses: vec![address(r)],
        node: node(r),
        ready: world.res[r].up,
        terminating: false,
        report: Report::Seen {
            at: now(),
            route: route.listens.then(|| RouteGeneration::from_ports(given)),
            other_routes: { second.into_iter().filter(|_| route.listens_second) }
                .map(|ports| (SECOND.to_owned(), RouteGeneration::from_ports(ports)))
                .collect(),
            held: if blind { 0 } else { u32::from(route.held) },
            open: if blind { 0 } else { u32::from(route.open) },
            last_connection: route.last.filter(|_| !blind).map(ago),
            first_answer: None,
        },
    }
}

fn pause(keda: Keda) -> KedaPause {
    let before = Some(KedaBefore::default());
    match keda {
        Keda::Running => KedaPause {
            paused: Some("false".into()),
            paused_replicas: None,
            before: None,
        },
        Keda::Held => KedaPause {
            paused: Some("true".into()),
            paused_replicas: None,
            before,
        },
        Keda::Pinned | Keda::Left => KedaPause {
            paused: Some("true".into()),
            paused_replicas: Some("0".into()),
            before: before.filter(|_| keda == Keda::Pinned),
        },
    }
}

fn reading(config: &Config, said: TriggerState) -> Reading {
    match said {
        TriggerState::Unknown if config.is(Mistake::UnknownIsQuiet) => {
            reading(config, TriggerState::Quiet)
        }
        TriggerState::Unknown if config.is(Mistake::UnknownIsActive) => {
            reading(config, TriggerState::Active)
        }
        TriggerState::Quiet => Reading::Quiet {
            value: 0.0,
            threshold: 1.0,
        },
        TriggerState::Active => Reading::Active {
            value: 2.0,
            threshold: 1.0,
        },
        TriggerState::Unknown => Reading::Unknown {
            why: "no answer".into(),
            quiet_now: config.restarted_source,
        },
    }
}

pub fn pod_index(name: &str) -> usize {
    name.trim_start_matches("pod-").parse().unwrap()
}

/// A step as an effect on the modelled store.
fn effect(config: &Config, step: &Step) -> Option<Effect> {
    let index = |pod: &PodRef| pod_index(&pod.name);
    Some(match step {
        Step::AddFinalizer => Effect::AddFinalizer,
        Step::EnsurePrivateService(_) => Effect::EnsurePrivate,
        Step::Redirect(routed) => Effect::EnsureSlice(resolvers_in(&routed.slices()[0])),
        Step::EnsureNet(net) => Effect::EnsureSlice(NET | resolvers_in(&net.slices()[0])),
        Step::HoldAutoscaler(_) => Effect::Keda(Keda::Held),
        Step::PinAutoscaler(_) => Effect::Keda(Keda::Pinned),
        Step::ReleaseAutoscaler(_) if config.is(Mistake::KeepsKedaPaused) => return None,
        Step::ReleaseAutoscaler(_) => Effect::Keda(Keda::Running),
        Step::Mark { pods, .. } => Effect::Mark(pods.iter().map(index).collect()),
        Step::ResetCost(_) => return None,
        Step::Unmark(pods) => Effect::Unmark(pods.iter().map(index).collect()),
        Step::Shrink(group) => Effect::Shrink(u8::try_from(group.replicas()).unwrap()),
        Step::RestoreReplicas(_) if config.is(Mistake::ForgetsShrink) => return None,
        Step::RestoreReplicas(n) => Effect::RestoreReplicas(u8::try_from(*n).unwrap()),
        Step::ScaleToZero(_) => Effect::Zero {
            by_redirect: config.handover == Handover::Redirect,
        },
        Step::Wake(n) => Effect::Wake(u8::try_from(*n).unwrap()),
        Step::RemoveSlice(_) => Effect::RemoveSlice,
        Step::DeletePrivateService(_) => Effect::DeletePrivate,
        Step::RemoveFinalizer(_) => Effect::RemoveFinalizer,
        Step::Other(_, step) => Effect::Second(Box::new(effect(config, step)?)),
    })
}

fn resolvers_in(slice: &SliceShape) -> u8 {
    let resolver = |address: &IpAddr| match address {
        IpAddr::V4(v4) => 1 << (v4.octets()[3] - 1),
        IpAddr::V6(_) => 0,
    };
    slice.endpoints.keys().map(resolver).sum()
}

/// Units between a moment and now, ahead or behind.
pub fn age(moment: Timestamp, ahead: bool) -> Age {
    let span = now().duration_since(moment).as_secs();
    let span = if ahead { -span } else { span };
    u8::try_from(span.clamp(0, 9)).unwrap()
}

fn stated(
    config: &Config,
    spec: &elasti_api::ElastiServiceSpec,
    o: &Observed,
    plan: &Plan,
    before: &Status,
) -> Status {
    let previous = ElastiServiceStatus {
        phase: before.phase,
        quiet_since: before.quiet.map(|a| Time(ago(a))),
        conditions: before.contended.map(contended).into_iter().collect(),
        ..ElastiServiceStatus::default()
    };
    let next = status(spec, o, plan, &previous);
    let stamp = |time: &Option<Time>| time.as_ref().map(|t| age(t.0, false));
    let asleep = next
        .conditions
        .iter()
        .any(|c| c.type_ == "Asleep" && c.status == "True");
    let contended =
        { next.conditions.iter() }.find(|c| c.type_ == condition::CONTENDED && c.status == "True");
    let intends_proxy = plan.steps.iter().any(|s| matches!(s, Step::Redirect(_)));
    Status {
        phase: next.phase,
        proxy: next.mode == Some(elasti_api::Mode::Proxy)
            || config.is(Mistake::StatusFromIntent) && intends_proxy,
        asleep,
        ports: !next.ports.is_empty(),
        second: !next.services.is_empty(),
        observed: next.observed_generation == Some(1),
        quiet: stamp(&next.quiet_since),
        wake: stamp(&next.last_scaled_up_time),
        woken_by_other: match next.last_wake {
            Some(wake) => wake.by == Reason::Manual.as_str(),
            None => before.woken_by_other,
        },
        sleep: stamp(&next.last_sleep_time),
        before: next.replicas_before_drain.map(|n| u8::try_from(n).unwrap()),
        pause_left: next.pause_left == Some(true),
        contended: contended.map(|c| age(c.last_transition_time.0, false)),
    }
}

fn contended(for_so_long: Age) -> Condition {
    Condition {
        type_: condition::CONTENDED.into(),
        status: "True".into(),
        reason: "Contended".into(),
        message: String::new(),
        observed_generation: Some(1),
        last_transition_time: Time(ago(for_so_long)),
    }
}

pub fn evidence(world: &World, op: usize, s: usize, read: &Svc) -> Evidence {
    let truth = &world.svcs[s];
    let up = || world.res.iter().filter(|r| r.up).map(|r| &r.routes[s]);
    // A deletion may give up once an operator has watched it for the whole timeout.
    let watched = world.ops[op].memory[s].watching_since <= ago(TIMEOUT);
    let attended = watched && read.deleting.is_some_and(|age| age >= TIMEOUT);
    let waits = up().any(|c| c.held > 0);
    let standing = read.deleting.is_some() || !world.res.iter().any(|r| r.up);
    let requested = truth.wake_request.or(read.wake_request);
    let user_asks = requested.is_some() && !truth.wake_request_answered;
    let asked = world.ops[op].wake_requests[s];
    let resolver_asks = asked.is_some_and(|(_, answered)| !answered);
    // A cache that has the zero has a reading from after it, even if that has changed since.
    let has_zero = read.replicas == Some(0) && !read.target_outdated;
    let reads_active = has_zero && read.reading == TriggerState::Active;
    let newer = waits
        || user_asks
        || resolver_asks
        || reads_active
        || truth.reading == TriggerState::Active;
    Evidence {
        busy: up().any(|c| c.held + c.held_again + c.open > 0),
        silent: up().any(|c| !c.listens || truth.second.is_some() && !c.listens_second),
        reading: truth.reading,
        since_wake: truth.woken,
        since_ready: truth.served,
        since_raised: truth.raised,
        sleep_requested_since_wake: truth.sleep_request.is_some_and(|asked| {
            let mut both = [truth.woken, truth.raised].into_iter().flatten();
            both.all(|since| asked < since)
        }),
        wake_justified: waits
            || asked.is_some()
            || read.wake_request.is_some()
            || read.reading == TriggerState::Active
            || standing,
        against_younger_zero: !truth.by_us && !newer && !standing,
        redirected: read.slice.is_some_and(|slice| slice & NET == 0),
        zero: read.replicas == Some(0),
        pointless: read.replicas.is_none() || attended,
    }
}

/// The same `units` of time later, with every span truncated that no rule can tell from a longer one.
pub fn aged(config: &Config, mut seen: StableSince, units: Age) -> StableSince {
    let later = SignedDuration::from_secs(i64::from(units));
    let age = |moment: &mut Timestamp, most: Age| *moment = (*moment - later).max(ago(most));
    age(&mut seen.watching_since, TIMEOUT);
    seen.watched_before_until = Some(seen.watching_since);
    seen.endpoints_version = seen.endpoints_version.map(|_| version(false));
    seen.pod_versions
        .values_mut()
        .for_each(|seen| *seen = version(false));
    for mark in seen.marks.values_mut() {
        age(&mut mark.seen_at, config.tick_period());
        age(&mut mark.since, config.tick_period() + 1);
    }
    for span in [
        &mut seen.slice_gone_since,
        &mut seen.shared_since,
        &mut seen.no_rotation_since,
        &mut seen.no_terminating_since,
        &mut seen.pods_out_since,
        &mut seen.zeroed_at,
    ] {
        span.iter_mut().for_each(|moment| age(moment, SETTLE));
    }
    seen.ready_since
        .values_mut()
        .for_each(|moment| age(moment, 2 * SETTLE));
    seen.in_rotation_since
        .values_mut()
        .for_each(|moment| age(moment, SETTLE));
    seen.out_since
        .values_mut()
        .for_each(|moment| age(moment, SETTLE));
    seen.pushed_back
        .iter_mut()
        .for_each(|back| age(&mut back.at, 4));
    for moment in [
        &mut seen.replicas_at,
        &mut seen.raised_at,
        &mut seen.left_zero_at,
    ] {
        moment.iter_mut().for_each(|at| age(at, COOLDOWN));
    }
    seen.zero
        .iter_mut()
        .for_each(|zero| age(&mut zero.since, COOLDOWN));
    // As old as the requests that are forgotten.
    seen.served_wake = { seen.served_wake }
        .map(|moment| moment - later)
        .filter(|moment| *moment >= ago(COOLDOWN));
    seen.no_resolver_since
        .iter_mut()
        .for_each(|moment| age(moment, GRACE));
    seen.slice
        .iter_mut()
        .for_each(|(_, moment)| age(moment, SETTLE));
    for undone in seen.ticks.values_mut() {
        undone.after -= later;
        undone.by -= later;
    }
    // Only the status shows it; no rule depends on it.
    (seen.zero_at, seen.wake) = (None, None);
    (seen.stopping, seen.stopped_unmarked) = (None, None);
    let periods = u8::try_from(TICK_KNOWN_PERIODS).unwrap();
    let forgotten = ago(config.tick_period() * periods + 2);
    seen.ticks.retain(|_, undone| undone.by > forgotten);
    let others = std::mem::take(&mut seen.others).into_iter();
    seen.others = others
        .map(|(name, seen)| (name, aged(config, seen, units)))
        .collect();
    seen
}
