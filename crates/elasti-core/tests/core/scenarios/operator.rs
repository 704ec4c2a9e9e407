//! The operator of a scenario: the world -> `Observed` -> the real `plan` and `status` -> the world.

use std::collections::BTreeMap;

use elasti_api::{ElastiServiceStatus, RouteGeneration};
use elasti_core::facts::Requests;
use elasti_core::observed::{
    Author, Autoscaler, DeletionCost, Leadership, Me, Observed, Owned, Pod, PortsGiven, Reading,
    Remembered, Report, Resolver, Settings, Standing, Target,
};
use elasti_core::ports::{ServiceKey, WantedPort};
use elasti_core::services::Unmanaged;
use elasti_core::stable_since::StableSince;
use elasti_core::status::status;
use elasti_core::{Plan, Step, WakeDecision, plan, wake};
use jiff::{SignedDuration, Timestamp};

use crate::scenarios::world::World;

/// One running operator.
pub struct Operator {
    pub stable_since: StableSince,
    /// The last report of each resolver.
    pub reports: Vec<Report>,
    pub readings: Vec<Reading>,
    pub wake_requested_at: Option<Timestamp>,
    pub woken_at: Option<Timestamp>,
    pub promised_until: Option<Timestamp>,
}

/// One reconcile: what was planned, and the status that goes with it.
pub struct Reconciled {
    pub plan: Plan,
    pub observed: Observed,
    pub status: ElastiServiceStatus,
}

impl Operator {
    pub fn start(world: &World, watched_before_until: Option<Timestamp>) -> Self {
        Self {
            stable_since: StableSince::fresh(world.clock(), watched_before_until),
            reports: vec![Report::NotAsked; world.resolvers.len()],
            readings: vec![Reading::Unread; world.spec.triggers.len()],
            wake_requested_at: None,
            woken_at: None,
            promised_until: None,
        }
    }

    /// Observes and plans; if the plan needs the resolvers' reports, asks them and plans again.
    pub fn reconcile(&mut self, world: &mut World) -> Reconciled {
        let mut reconcile = self.plan(world, world.clock());
        if reconcile.plan.ask_resolvers {
            self.ask(world);
            reconcile = self.plan(world, world.clock());
        }
        if reconcile.plan.reason_may_be_old {
            self.ask(world);
            self.readings.fill(world.trigger.clone());
            reconcile = self.plan(world, world.clock());
        }
        let wakes = |step: &Step| matches!(step, Step::Wake(_));
        if reconcile.plan.steps.iter().any(wakes) {
            self.woken_at = Some(world.clock());
        }
        self.stable_since = reconcile.observed.after(&reconcile.plan.steps);
        reconcile
    }

    /// What would be planned at a moment, if nothing but the clock changed.
    pub fn plan_at(&self, world: &mut World, moment: Timestamp) -> Reconciled {
        let mut then = Self {
            stable_since: self.stable_since.clone(),
            reports: self.reports.clone(),
            readings: self.readings.clone(),
            wake_requested_at: self.wake_requested_at,
            woken_at: self.woken_at,
            promised_until: self.promised_until,
        };
        for report in &mut then.reports {
            if let Report::Seen { at, .. } = report {
                *at = moment;
            }
        }
        then.plan(world, moment)
    }

    fn plan(&mut self, world: &mut World, now: Timestamp) -> Reconciled {
        let mut observed = self.observe(world, now);
        observed.stable_since = self.stable_since.clone().observe(&observed);
        let plan = plan(&world.spec, &observed);
        let status = status(&world.spec, &observed, &plan, &world.status);
        Reconciled {
            plan,
            observed,
            status,
        }
    }

    /// Every resolver reports its activity.
    fn ask(&mut self, world: &World) {
        let clock = world.clock();
        let report = |r: &crate::scenarios::world::Resolver| match r.answers {
            false => Report::Unreachable,
            true => Report::Seen {
                at: clock,
                route: Some(RouteGeneration::from_ports(&r.listens))
                    .filter(|_| !r.listens.is_empty()),
                other_routes: BTreeMap::new(),
                held: r.held,
                open: r.open,
                last_connection: r
                    .last_connection
                    .map(|at| clock - world.now.duration_since(at)),
                first_answer: r
                    .first_answer
                    .map(|at| clock - world.now.duration_since(at)),
            },
        };
        self.reports = world.resolvers.iter().map(report).collect();
    }

    pub fn wake(&mut self, world: &mut World) -> WakeDecision {
        self.wake_requested_at = Some(world.clock());
        let mut observed = self.observe(world, world.clock());
        observed.stable_since = self.stable_since.clone().observe(&observed);
        let decision = wake(&world.spec, &observed);
        match &decision {
            WakeDecision::Scale(replicas) => {
                world.scale(*replicas, Author::Elasti);
                self.woken_at = Some(world.clock());
            }
            WakeDecision::AlreadyAwake(Some(promise)) => self.promised_until = Some(promise.until),
            WakeDecision::AlreadyAwake(None) | WakeDecision::Refused(_) => {}
        }
        decision
    }

    fn observe(&self, world: &mut World, now: Timestamp) -> Observed {
        Observed {
            now,
            me: me(world),
            leadership: Leadership::Leader {
                until: now + SignedDuration::from_secs(15),
            },
            rival: world.rival.clone(),
            predecessor: world.predecessor.clone(),
            namespace_terminating: false,
            service: world.service.clone(),
            target: world.target.as_ref().map(|t| Target {
                replicas: t.replicas,
                version: t.version.to_string(),
                generation: None,
                replicas_by: t.by.clone(),
                replicas_at: Some(t.at).filter(|_| t.by != Author::Unknown),
                stops: world.stops,
                min_ready_seconds: 0,
                requests: Requests::default(),
            }),
            pods: pods(world),
            endpoints: world.endpoints.clone(),
            endpoints_version: world.endpoints_version.to_string(),
            slice: world.slice.clone(),
            private_service: world.private_service.clone(),
            standing: Standing::Own,
            others: Vec::new(),
            unmanaged: Unmanaged::default(),
            resolvers: self.resolvers(world),
            nodes: Some(world.nodes.iter().map(|(name, _)| name.clone()).collect()),
            ports: ports(world),
            autoscaler: world.autoscaler.clone(),
            readings: self.readings.clone(),
            reading_details: Vec::new(),
            wake_requested_at: self.wake_requested_at,
            wake_client: None,
            woken_at: self.woken_at,
            promised_until: self.promised_until,
            may_mark: world.may_mark,
            stable_since: self.stable_since.clone(),
            settings: Settings::default(),
        }
    }

    fn resolvers(&self, world: &World) -> Vec<Resolver> {
        let both = world.resolvers.iter().zip(&self.reports);
        both.map(|(r, report)| Resolver {
            name: r.name.clone(),
            node: r.node.clone(),
            addresses: vec![r.address],
            ready: r.ready,
            terminating: false,
            report: report.clone(),
        })
        .collect()
    }
}

fn me(world: &World) -> Me {
    Me {
        created: world.created,
        generation: world.generation,
        deleting_since: world.deleting_since,
        finalizer: world.finalizer,
        wake_request: world.wake_request,
        sleep_request: world.sleep_request,
        remembered: Remembered::from(&world.status),
    }
}

/// In the order of their names, as every decision takes them.
fn pods(world: &World) -> Vec<Pod> {
    let mut pods: Vec<Pod> = world.pods.iter().map(pod).collect();
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    pods
}

fn pod(p: &crate::scenarios::world::Pod) -> Pod {
    Pod {
        name: p.name.clone(),
        uid: p.name.clone(),
        version: p.version.to_string(),
        node: p.node.clone(),
        started: p.starts_at.is_none(),
        ready: p.ready,
        ready_since: p.ready_since.filter(|_| p.ready),
        containers_ready: p.containers_ready,
        marked: p.marked,
        deletion_cost: DeletionCost::Unset,
        terminating: p.gone_at.is_some(),
        obstacle: p.obstacle.clone().filter(|_| p.gone_at.is_none()),
    }
}

fn ports(world: &mut World) -> PortsGiven {
    let tcp = |service: &elasti_core::observed::Service| -> Vec<WantedPort> {
        let ports = service.ports.iter().filter(|p| p.tcp);
        ports
            .map(|p| WantedPort {
                name: p.name.clone(),
                port: p.port,
            })
            .collect()
    };
    let wanted = world.service.as_ref().map(tcp).unwrap_or_default();
    let now = world.now;
    match world
        .ports
        .assign(&ServiceKey::new("shop", "web"), &wanted, now)
    {
        Ok(given) => PortsGiven::Given(given),
        Err(_) => PortsGiven::Exhausted,
    }
}

/// Carries one step out.
pub fn apply(world: &mut World, step: &Step) {
    match step {
        Step::AddFinalizer => world.finalizer = true,
        Step::EnsurePrivateService(shape) => world.private_service = Owned::Ours(shape.clone()),
        Step::Redirect(routed) => world.slice = Owned::Ours(routed.slices().to_vec()),
        Step::EnsureNet(net) => world.slice = Owned::Ours(net.slices().to_vec()),
        Step::HoldAutoscaler(pause)
        | Step::PinAutoscaler(pause)
        | Step::ReleaseAutoscaler(pause) => {
            world.autoscaler = Autoscaler::Keda(pause.clone());
            world.keda_notices();
        }
        Step::Mark { pods, .. } => world.mark(pods, true),
        Step::Unmark(pods) => {
            world.mark(pods, false);
            let now = world.now;
            let unmarked = |name: &str| pods.iter().any(|pod| pod.name == name);
            let pods = world.pods.iter_mut();
            pods.filter(|pod| pod.ready && unmarked(&pod.name))
                .for_each(|pod| pod.ready_since = Some(now));
        }
        Step::ResetCost(_) => {}
        Step::Shrink(group) => world.scale(group.replicas(), Author::Elasti),
        Step::RestoreReplicas(replicas) => world.scale(*replicas, Author::Elasti),
        Step::ScaleToZero(_) => world.scale(0, Author::Elasti),
        Step::Wake(replicas) => {
            assert_eq!(world.replicas(), Some(0), "a wake only goes up from zero");
            world.scale(*replicas, Author::Elasti);
        }
        Step::RemoveSlice(_) => world.slice = Owned::Missing,
        Step::DeletePrivateService(_) => world.private_service = Owned::Missing,
        Step::Other(name, step) => unreachable!("there is one Service, not {name}: {step:?}"),
        Step::RemoveFinalizer(_) => {
            world.finalizer = false;
            world.exists = world.deleting_since.is_none();
        }
    }
}
