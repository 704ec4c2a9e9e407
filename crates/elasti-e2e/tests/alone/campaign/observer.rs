//! Watches every change of a run and says afterwards which laws were broken, by `elasti_core::laws`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use elasti_api::names;
use elasti_core::laws::{self, NodeView, ScaledDown, Snapshot, TraceEvent};
use elasti_e2e::TestEnv;
use elasti_fake_cluster::api_server::Changed;
use jiff::SignedDuration;
use serde_json::Value;
use tokio::time::Instant;

use super::scenario::Scenario;

/// Nodes that know everything at once, and nodes that are as slow as the settle time allows.
const LAGS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(1500)];
/// A status may be written this long after the facts were read.
const READ_BEFORE: Duration = Duration::from_secs(3);

pub(crate) struct Observer {
    scenario: Scenario,
    since: Instant,
    /// Which resolvers lived from when on.
    resolvers: RefCell<Vec<(Instant, BTreeSet<String>)>>,
}

/// One version of what matters about the app.
#[derive(Clone, Debug, Default)]
struct Moment {
    slices: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    replicas: Option<u64>,
    declared: Option<Value>,
    private_service: bool,
}

impl Observer {
    pub(crate) fn new(env: &TestEnv, scenario: Scenario) -> Self {
        let observer = Self {
            scenario,
            since: Instant::now(),
            resolvers: RefCell::default(),
        };
        observer.resolvers_changed(env);
        observer.resolvers.borrow_mut()[0].0 = observer.since - Duration::from_secs(10);
        observer
    }

    /// Resolvers came or went just now.
    pub(crate) fn resolvers_changed(&self, env: &TestEnv) {
        let living = env.resolver_addresses();
        self.resolvers.borrow_mut().push((Instant::now(), living));
    }

    /// Everything that broke a law until then.
    pub(crate) fn violations(&self, env: &TestEnv, until: Instant) -> Vec<String> {
        let changes = env.fake_cluster().server.changes_after(1);
        let first = changes.first().map_or(self.since, |changed| changed.at);
        let mut moments: Vec<(Instant, Moment)> = vec![(first, Moment::default())];
        let mut broken = Vec::new();
        for changed in changes {
            let before = moments[moments.len() - 1].1.clone();
            let mut now = before.clone();
            now.take_in(&changed);
            moments.push((changed.at, now));
            if changed.at >= self.since && changed.at <= until {
                self.judge_deed(&before, &changed, &moments, &mut broken);
            }
        }
        self.judge_views(&moments, until, &mut broken);
        broken.dedup();
        broken
    }

    fn resolvers_at(&self, at: Instant) -> BTreeSet<String> {
        let all = self.resolvers.borrow();
        let known = all.iter().rev().find(|(since, _)| *since <= at);
        known.map(|(_, living)| living.clone()).unwrap_or_default()
    }

    /// What a node with this lag would send connections to, and whether that lives.
    fn view(&self, moments: &[(Instant, Moment)], at: Instant, lag: Duration) -> NodeView {
        let seen = moment_at(moments, at - lag);
        let now = moment_at(moments, at);
        let resolvers = self.resolvers_at(at);
        let mut view = NodeView {
            pods: Vec::new(),
            resolvers: Vec::new(),
        };
        for (is_ours, address) in seen.destinations() {
            if is_ours {
                let listens = now.declared.is_some() && resolvers.contains(&address);
                view.resolvers.push(listens);
            } else {
                view.pods.push(now.lives(&address));
            }
        }
        view
    }

    fn views(&self, moments: &[(Instant, Moment)], at: Instant) -> Vec<NodeView> {
        LAGS.iter()
            .map(|lag| self.view(moments, at, *lag))
            .collect()
    }

    /// S1 at every moment at which something changes, for the API or for a slow node.
    fn judge_views(&self, moments: &[(Instant, Moment)], until: Instant, broken: &mut Vec<String>) {
        let changes = moments.iter().map(|(at, _)| *at);
        let times: BTreeSet<Instant> = changes
            .flat_map(|at| LAGS.map(|lag| at + lag))
            .filter(|at| *at >= self.since && *at <= until)
            .collect();
        for at in times {
            let snapshot = Snapshot {
                excused: false,
                other_services: Vec::new(),
                nodes: self.views(moments, at),
                replicas: None,
                held: 0,
                wake_will_come: true,
                held_bound: 0,
                at_rest: false,
                keda_paused_by_us: false,
            };
            for violation in laws::check(&snapshot) {
                let (law, seen) = (violation.law, violation.seen);
                let when = (at - self.since).as_millis();
                broken.push(format!(
                    "{law:?} at {when} ms: {seen}: {:?}",
                    snapshot.nodes
                ));
            }
        }
    }

    /// What one write did.
    fn judge_deed(
        &self,
        before: &Moment,
        changed: &Changed,
        moments: &[(Instant, Moment)],
        broken: &mut Vec<String>,
    ) {
        let now = &moments[moments.len() - 1].1;
        let mut deeds = Vec::new();
        match (before.replicas, now.replicas) {
            (Some(1..), Some(0)) => deeds.push(TraceEvent::ScaledDown(ScaledDown {
                nodes: self.views(moments, changed.at),
                pods_in_slices: now.endpoints().iter().any(|(is_ours, _)| !is_ours),
                busy_when_decided: false,
                resolver_silent_when_decided: false,
                quiet_when_decided: self.scenario == Scenario::GoingToSleep,
                since_wake: None,
                since_ready: None,
                since_raised: None,
                sleep_requested_since_wake: false,
                cooldown: SignedDuration::ZERO,
                writer_leads: true,
                by_redirect: false,
                promised: false,
            })),
            (Some(from), Some(to)) if from != to => deeds.push(TraceEvent::Woke {
                from: u32::try_from(from).unwrap(),
                to: u32::try_from(to).unwrap(),
                justified: matches!(
                    self.scenario,
                    Scenario::WakeByRequest | Scenario::WakeByTrigger | Scenario::DeletionAtZero
                ),
                against_younger_zero: false,
            }),
            _ => {}
        }
        if before.declared.is_some() && now.declared.is_none() {
            deeds.push(TraceEvent::FinalizerRemoved {
                leftovers: now.has_our_slice() || now.private_service,
                awake_or_pointless: now.replicas != Some(0),
                keda_paused_by_us: false,
            });
        }
        if let Some(stated) = now.stated()
            && before.stated() != Some(stated)
        {
            deeds.push(self.statement(stated, changed.at, moments));
        }
        for violation in deeds.iter().flat_map(laws::check_event) {
            let (law, seen) = (violation.law, violation.seen);
            let when = (changed.at - self.since).as_millis();
            broken.push(format!("{law:?} at {when} ms: {seen}: {deeds:?}"));
        }
    }

    /// A status may speak of any moment shortly before it was written.
    fn statement(&self, stated: Stated, at: Instant, moments: &[(Instant, Moment)]) -> TraceEvent {
        let recent = || {
            let after = moments
                .iter()
                .filter(move |(then, _)| *then + READ_BEFORE >= at);
            let first = moment_at(moments, at - READ_BEFORE);
            after.map(|(_, moment)| moment).chain([first])
        };
        let (proxy, asleep) = (stated.proxy, stated.asleep);
        let slice_held = recent().any(|moment| moment.is_redirected() == proxy);
        let zero_held = recent().any(|moment| (moment.replicas == Some(0)) == asleep);
        TraceEvent::StatusWritten {
            proxy,
            redirected: proxy == slice_held,
            asleep,
            was_zero: asleep == zero_held,
        }
    }
}

/// What a status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stated {
    proxy: bool,
    asleep: bool,
}

/// The last moment not after this one.
fn moment_at(moments: &[(Instant, Moment)], at: Instant) -> &Moment {
    let after = moments.partition_point(|(then, _)| *then <= at);
    &moments[after.saturating_sub(1)].1
}

impl Moment {
    fn take_in(&mut self, changed: &Changed) {
        let object = &changed.object;
        if object["metadata"]["namespace"] != "default" {
            return;
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let kept = (!changed.gone).then(|| object.clone());
        match changed.kind.as_str() {
            "endpointslices" => {
                let of_app = object["metadata"]["labels"][names::SERVICE_NAME_LABEL] == "web";
                keep(&mut self.slices, name, kept.filter(|_| of_app));
            }
            "pods" => keep(&mut self.pods, name, kept),
            "deployments" => self.replicas = kept.and_then(|it| it["spec"]["replicas"].as_u64()),
            "elastiservices" => self.declared = kept,
            "services" if name == names::private_service("web") => {
                self.private_service = kept.is_some();
            }
            _ => {}
        }
    }

    /// What a node sends connections to: the ready endpoints, or else those that serve while they terminate.
    fn destinations(&self) -> Vec<(bool, String)> {
        let ready = self.endpoints();
        if !ready.is_empty() {
            return ready;
        }
        self.endpoints_with(|conditions| {
            conditions["serving"] != false && conditions["terminating"] == true
        })
    }

    /// Ready endpoints: ours or a pod's, and the address.
    fn endpoints(&self) -> Vec<(bool, String)> {
        self.endpoints_with(|conditions| conditions["ready"] != false)
    }

    fn endpoints_with(&self, holds: impl Fn(&Value) -> bool) -> Vec<(bool, String)> {
        let mut all = Vec::new();
        for slice in self.slices.values() {
            let endpoints = slice["endpoints"].as_array().into_iter().flatten();
            for endpoint in endpoints.filter(|one| holds(&one["conditions"])) {
                let addresses = endpoint["addresses"].as_array().into_iter().flatten();
                let addresses = addresses.filter_map(Value::as_str);
                all.extend(addresses.map(|address| (is_ours(slice), address.to_owned())));
            }
        }
        all
    }

    fn is_redirected(&self) -> bool {
        self.endpoints().iter().any(|(is_ours, _)| *is_ours)
    }

    fn has_our_slice(&self) -> bool {
        self.slices.values().any(is_ours)
    }

    /// A pod at this address takes connections: its containers are ready and it is not being deleted.
    fn lives(&self, address: &str) -> bool {
        self.pods.values().any(|pod| {
            let conditions = pod["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let ready = conditions.any(|c| c["type"] == "ContainersReady" && c["status"] == "True");
            pod["status"]["podIP"] == address
                && ready
                && pod["metadata"]["deletionTimestamp"].is_null()
        })
    }

    fn stated(&self) -> Option<Stated> {
        let status = &self.declared.as_ref()?["status"];
        let mode = status["mode"].as_str()?;
        let mut conditions = status["conditions"].as_array()?.iter();
        let asleep = conditions.find(|c| c["type"] == names::condition::ASLEEP)?;
        Some(Stated {
            proxy: mode == "proxy",
            asleep: asleep["status"] == "True",
        })
    }
}

fn keep(objects: &mut BTreeMap<String, Value>, name: &str, object: Option<Value>) {
    match object {
        Some(object) => objects.insert(name.to_owned(), object),
        None => objects.remove(name),
    };
}

fn is_ours(slice: &Value) -> bool {
    slice["metadata"]["labels"][names::SLICE_MANAGED_BY_LABEL] == names::SLICE_MANAGED_BY_ELASTI
}
