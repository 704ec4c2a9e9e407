//! The steps of a scenario, `scenario().at("08:20:05").request().until("08:21")`, and its transcript.
//! Every plan is checked against the rules that hold in all scenarios.

use std::collections::VecDeque;
use std::fmt::Write as _;

use elasti_api::{
    Autoscaler as NamedAutoscaler, AutoscalerType, ElastiServiceSpec, Phase, ScaleTargetRef,
    Trigger, TriggerType,
};
use elasti_core::observed::{
    Author, Autoscaler, Claim, Owned, Reading, Remembered, Rival, UserRequest,
};
use elasti_core::phase::allowed;
use elasti_core::ports::{DEFAULT_QUARANTINE, PortAllocator, ServiceKey};
use elasti_core::status::status;
use elasti_core::{Step, WakeDecision};
use jiff::{SignedDuration, Timestamp};

use crate::scenarios::operator::{Operator, Reconciled, apply};
use crate::scenarios::transcript;
use crate::scenarios::why::{Misread, disagreements};
use crate::scenarios::world::{World, WorldEvent, quiet};

/// How late a watch reports a change to the operator.
const WATCH_DELAY: SignedDuration = SignedDuration::from_millis(10);
/// How often triggers are read.
const POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// How late after its first reconcile an operator has read the triggers.
const FIRST_READ_DELAY: SignedDuration = SignedDuration::from_millis(100);
/// More reconciles within one second mean a hot loop.
const MAX_RECONCILES_PER_SECOND: usize = 40;

/// One service's life on Monday 2026-03-02.
pub struct Scenario {
    pub world: World,
    operator: Option<Operator>,
    reconcile_at: Option<Timestamp>,
    poll_at: Timestamp,
    /// When an operator that has just started reads its triggers for the first time.
    first_read_at: Option<Timestamp>,
    /// When the operator restarts, and when it died.
    restart_at: Option<(Timestamp, Timestamp)>,
    seen: String,
    reconciles: VecDeque<Timestamp>,
    log: String,
    last_summary: String,
    last_answer: String,
    /// Each phase that was entered, and when.
    entered: Vec<(Phase, Timestamp)>,
    pub may_lose: bool,
    /// A reader of `why` that gets something wrong, and what came of it.
    misread: Option<Misread>,
    noticed: Vec<String>,
}

/// An ElastiService with defaults is created at eight, for a busy Deployment with one ready pod.
pub fn scenario() -> Scenario {
    scenario_with(|_| {})
}

/// The same, in a world that differs a little.
pub fn scenario_with(change: impl FnOnce(&mut World)) -> Scenario {
    let mut scenario = Scenario::starts("08:00", change);
    scenario.log("the ElastiService is created");
    scenario
}

/// It was created at seven and has been busy since.
pub fn busy(change: impl FnOnce(&mut World)) -> Scenario {
    let mut scenario = Scenario::starts("07:00", change);
    scenario.run(time("08:00"));
    scenario.begin_transcript()
}

/// It was created at seven, has been quiet since, and sleeps.
pub fn sleeping(change: impl FnOnce(&mut World)) -> Scenario {
    let mut scenario = Scenario::starts("07:00", |world| {
        world.trigger = quiet();
        change(world);
    });
    scenario.run(time("08:00"));
    assert_eq!(
        scenario.world.replicas(),
        Some(0),
        "it sleeps before the scenario begins"
    );
    scenario.begin_transcript()
}

impl Scenario {
    fn starts(at: &str, change: impl FnOnce(&mut World)) -> Self {
        let mut world = World::new(time(at), spec());
        change(&mut world);
        if world.target.is_none() {
            world.scale(1, Author::Other("kubectl".into()));
        }
        world.replicate();
        for pod in &mut world.pods {
            (pod.starts_at, pod.ready, pod.containers_ready) = (None, true, true);
            pod.ready_since = Some(world.now);
        }
        world.slices_follow_at = Some(world.now);
        world.advance();
        let operator = Operator::start(&world, None);
        Self {
            operator: Some(operator),
            reconcile_at: Some(world.now),
            poll_at: world.now + POLL_INTERVAL,
            first_read_at: Some(world.now + FIRST_READ_DELAY),
            world,
            restart_at: None,
            seen: String::new(),
            reconciles: VecDeque::new(),
            log: String::new(),
            last_summary: String::new(),
            last_answer: String::new(),
            entered: Vec::new(),
            may_lose: false,
            misread: None,
            noticed: Vec::new(),
        }
    }

    /// What came before is not in the transcript.
    fn begin_transcript(mut self) -> Self {
        self.log.clear();
        self.entered.clear();
        self.last_summary.clear();
        self.reconcile_at = Some(self.world.now);
        self
    }

    /// From now on `why` reads objects wrongly.
    pub fn misreads(mut self, misread: Misread) -> Self {
        self.misread = Some(misread);
        self
    }

    /// Where a `why` that reads wrongly and the operator disagreed.
    pub fn disagreements(self) -> Vec<String> {
        self.noticed
    }

    pub fn at(mut self, clock: &str) -> Self {
        self.run(time(clock));
        self
    }

    pub fn until(self, clock: &str) -> Self {
        self.at(clock)
    }

    /// Runs on until the service is in a phase.
    pub fn until_phase(mut self, phase: Phase) -> Self {
        let deadline = self.world.now + SignedDuration::from_hours(2);
        while self.world.status.phase != Some(phase) {
            assert!(self.world.now < deadline, "never {phase:?}:\n{}", self.log);
            let next = self.next();
            self.run(next);
        }
        self
    }

    pub fn trigger_reads(mut self, reading: Reading) -> Self {
        let what = match &reading {
            Reading::Active { .. } => "active",
            Reading::Quiet { .. } => "quiet",
            Reading::Unknown { .. } | Reading::Unread => "unknown",
        };
        self.world.trigger = reading;
        self.log(&format!("the trigger will read {what}"));
        self
    }

    pub fn request(mut self) -> Self {
        let where_to = self.world.request();
        self.log(&where_to);
        assert!(self.may_lose || !where_to.contains("LOST"), "{}", self.log);
        let now = self.world.now;
        self.run(now);
        self
    }

    /// A stream through a resolver that ends by itself later.
    pub fn stream_ends_after(mut self, seconds: i64) -> Self {
        let at = self.world.now + SignedDuration::from_secs(seconds);
        for r in self.world.resolvers.iter_mut().filter(|r| r.open > 0) {
            r.done_at = Some(at);
        }
        self.log(&format!("it is a stream that lasts {seconds} s"));
        self
    }

    pub fn client_leaves(mut self) -> Self {
        for r in &mut self.world.resolvers {
            (r.held, r.wakes_at) = (0, None);
        }
        self.log("the client leaves");
        self
    }

    pub fn operator_restarts(mut self, gap_seconds: i64) -> Self {
        let (now, gap) = (self.world.now, SignedDuration::from_secs(gap_seconds));
        self.operator = None;
        self.reconcile_at = None;
        self.restart_at = Some((now + gap, now));
        self.log(&format!(
            "the operator dies; the next one starts after {gap_seconds} s"
        ));
        self
    }

    pub fn resolver(mut self, n: usize, ready: bool) -> Self {
        let r = &mut self.world.resolvers[n - 1];
        r.ready = ready;
        if ready {
            r.learns_at = Some(self.world.now);
        } else {
            (r.held, r.open, r.wakes_at, r.done_at) = (0, 0, None, None);
            r.listens.clear();
        }
        let does = if ready { "is ready again" } else { "dies" };
        self.log(&format!("resolver-{n} {does}"));
        self
    }

    pub fn resolver_answers(mut self, n: usize, answers: bool) -> Self {
        self.world.resolvers[n - 1].answers = answers;
        let does = if answers {
            "answers the operator again"
        } else {
            "stops answering the operator"
        };
        self.log(&format!("resolver-{n} {does}"));
        self
    }

    pub fn scaled_by(mut self, who: &str, replicas: u32) -> Self {
        self.log(&format!("{who} scales to {replicas}"));
        self.world.scale(replicas, Author::Other(who.into()));
        self
    }

    pub fn deleted(mut self) -> Self {
        self.log("the ElastiService is deleted");
        self.world.deleting_since = Some(self.world.now);
        self.world.generation += 1;
        self.world.exists = self.world.finalizer;
        self
    }

    pub fn target_deleted(mut self) -> Self {
        self.log("the target is deleted");
        self.world.delete_target();
        self
    }

    pub fn edits(mut self, what: &str, edit: impl FnOnce(&mut ElastiServiceSpec)) -> Self {
        self.log(what);
        edit(&mut self.world.spec);
        self.world.generation += 1;
        self
    }

    pub fn happens(mut self, what: &str, change: impl FnOnce(&mut World)) -> Self {
        self.log(what);
        change(&mut self.world);
        self
    }

    /// A user annotates the ElastiService with the current time.
    pub fn wake_requested(mut self) -> Self {
        self.log("a user requests a wake");
        self.world.wake_request = UserRequest::At(self.world.now);
        self
    }

    /// A user annotates the ElastiService with the current time.
    pub fn sleep_requested(mut self) -> Self {
        self.log("a user requests sleep");
        self.world.sleep_request = UserRequest::At(self.world.now);
        self
    }

    pub fn clock_set_back(mut self, seconds: i64) -> Self {
        self.log(&format!("the operator's clock is set back by {seconds} s"));
        self.world.clock_ahead -= SignedDuration::from_secs(seconds);
        self.reconcile_at = Some(self.world.now);
        self
    }

    /// The transcript, with the whole status at its end.
    pub fn transcript(mut self) -> String {
        self.log_phases();
        if !self.world.exists {
            self.log("the ElastiService is gone");
            return self.log;
        }
        let now = transcript::clock(self.world.now);
        let _ = writeln!(self.log, "{now}  the status");
        for line in transcript::full_status(&self.world.status) {
            let _ = writeln!(self.log, "                {line}");
        }
        self.log
    }

    fn log_phases(&mut self) {
        let ends = self.entered.iter().skip(1).map(|(_, at)| *at);
        let ends = ends.chain([self.world.now]);
        let lasted = self.entered.iter().zip(ends).map(|((phase, from), to)| {
            let seconds = to.duration_since(*from).as_secs_f64();
            format!("{phase:?} {seconds:.2} s")
        });
        let lasted = lasted.collect::<Vec<String>>().join(", ");
        let now = transcript::clock(self.world.now);
        let _ = writeln!(self.log, "{now}  the phases lasted: {lasted}");
    }

    /// The end of the scenario, whatever the path there.
    pub fn end(&self) -> String {
        let w = &self.world;
        let ready = w.pods.iter().filter(|p| p.ready).count();
        let ours = |there: bool| if there { "there" } else { "gone" };
        let slice = match w.slice.ours().and_then(|slices| slices.first()) {
            Some(slice) => format!("{:?}", slice.role).to_lowercase(),
            None => "none".into(),
        };
        format!(
            "{:?}, {:?} replicas, {ready} pods ready, slice {slice}, private Service {}, marks {}",
            w.status.phase,
            w.replicas(),
            ours(w.private_service.ours().is_some()),
            w.pods.iter().filter(|p| p.marked).count(),
        )
    }

    fn log(&mut self, what: &str) {
        let now = transcript::clock(self.world.now);
        let _ = writeln!(self.log, "{now}  * {what}");
    }

    /// When anything happens next.
    fn next(&self) -> Timestamp {
        let up = self.operator.as_ref().map(|_| self.poll_at);
        let back = self.restart_at.map(|(at, _)| at);
        let first = self.first_read_at;
        let moments = [self.world.next_event(), self.reconcile_at, up, back, first];
        moments
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Timestamp::MAX)
    }

    fn run(&mut self, to: Timestamp) {
        self.watch();
        while self.next() <= to {
            self.world.now = self.next().max(self.world.now);
            self.step();
            self.watch();
        }
        self.world.now = self.world.now.max(to);
    }

    fn step(&mut self) {
        for events in self.world.advance() {
            match events {
                WorldEvent::Described(what) => self.log(&what),
                WorldEvent::WakeRequested(who) => self.wake_requested_by(&who),
            }
        }
        self.watch();
        let now = self.world.now;
        if self.restart_at.is_some_and(|(at, _)| at <= now) {
            self.operator_starts();
        }
        let first = self.first_read_at.take_if(|at| *at <= now).is_some();
        if self.poll_at <= now {
            self.poll_at = now + POLL_INTERVAL;
            self.read();
        } else if first {
            self.read();
        }
        if self.reconcile_at.is_some_and(|at| at <= now) {
            self.reconcile();
        }
    }

    fn read(&mut self) {
        let triggers = self.world.spec.triggers.len();
        if let Some(operator) = &mut self.operator {
            operator.readings = vec![self.world.trigger.clone(); triggers];
            self.reconcile_at = Some(self.world.now);
        }
    }

    fn operator_starts(&mut self) {
        let (_, died) = self.restart_at.take().unwrap();
        self.world.ports = PortAllocator::new(20_000..=20_999, DEFAULT_QUARANTINE);
        let key = ServiceKey::new("shop", "web");
        self.world.ports.remember(&key, &self.world.status.ports);
        self.operator = Some(Operator::start(&self.world, Some(died)));
        self.first_read_at = Some(self.world.now + FIRST_READ_DELAY);
        self.reconcile_at = Some(self.world.now);
        self.log("an operator starts");
    }

    fn wake_requested_by(&mut self, who: &str) {
        let Some(operator) = &mut self.operator else {
            return;
        };
        let answer = match operator.wake(&mut self.world) {
            WakeDecision::Scale(n) => format!("scaled to {n}"),
            WakeDecision::AlreadyAwake(_) => "already awake".into(),
            WakeDecision::Refused(why) => format!("refused: {}", why.sentence),
        };
        self.reconcile_at = Some(self.world.now + WATCH_DELAY);
        let log = format!("{who} requests a wake: {answer}");
        if log != self.last_answer {
            self.log(&log);
            self.last_answer = log;
        }
    }

    /// A change that watches report makes the operator reconcile.
    fn watch(&mut self) {
        let w = &self.world;
        let pods: Vec<_> = w.pods.iter().map(|p| (&p.name, p.version)).collect();
        let ready: Vec<bool> = w.resolvers.iter().map(|r| r.ready).collect();
        let target = w.target.as_ref().map(|t| t.version);
        let objects = (
            &w.slice,
            &w.private_service,
            &w.autoscaler,
            &w.service,
            (&w.rival, &w.predecessor),
        );
        let me = (
            w.generation,
            w.finalizer,
            w.deleting_since,
            &w.status,
            w.may_mark,
            (w.wake_request, w.sleep_request),
        );
        let seen = format!(
            "{pods:?}{ready:?}{target:?}{}{objects:?}{me:?}",
            w.endpoints_version
        );
        if seen != self.seen && self.operator.is_some() {
            self.seen = seen;
            let soon = w.now + WATCH_DELAY;
            self.reconcile_at = Some(self.reconcile_at.map_or(soon, |at| at.min(soon)));
        }
    }

    fn reconcile(&mut self) {
        self.reconcile_at = None;
        let Some(operator) = self.operator.as_mut().filter(|_| self.world.exists) else {
            return;
        };
        let reconcile = operator.reconcile(&mut self.world);
        self.check_hot_loop();
        self.check_plan(&reconcile);
        let differs = disagreements(&self.world, &reconcile, self.misread);
        let transcript = &self.log;
        assert!(
            self.misread.is_some() || differs.is_empty(),
            "why and the operator disagree: {differs:#?}\n{transcript}"
        );
        self.noticed.extend(differs);
        self.print(&reconcile);
        for step in &reconcile.plan.steps {
            apply(&mut self.world, step);
        }
        let ahead = self.world.clock_ahead;
        self.reconcile_at = reconcile.plan.requeue_at.map(|at| at - ahead);
        let at_rest = reconcile.plan.steps.is_empty() && reconcile.status == self.world.status;
        if self.world.status != reconcile.status {
            self.world.status = reconcile.status.clone();
            self.world.status_written();
        }
        if at_rest {
            self.check_requeue(&reconcile);
        }
    }

    fn check_hot_loop(&mut self) {
        let now = self.world.now;
        self.reconciles.push_back(now);
        while self
            .reconciles
            .front()
            .is_some_and(|at| now.duration_since(*at).as_secs() >= 1)
        {
            self.reconciles.pop_front();
        }
        assert!(
            self.reconciles.len() <= MAX_RECONCILES_PER_SECOND,
            "hot loop at {now}:\n{}",
            self.log
        );
    }

    /// What holds for every plan in every scenario.
    fn check_plan(&mut self, reconcile: &Reconciled) {
        let log = &self.log;
        if let Some(from) = self.world.status.phase {
            let to = reconcile.plan.phase;
            assert!(
                allowed(from, to),
                "no transition from {from:?} to {to:?}:\n{log}"
            );
        }
        let sentence = &reconcile.plan.why.sentence;
        let full_status = sentence.ends_with('.') && !sentence.contains("..");
        assert!(full_status, "not a sentence: {sentence}");
        let mut written = reconcile.observed.clone();
        written.me.remembered = Remembered::from(&reconcile.status);
        let again = status(
            &self.world.spec,
            &written,
            &reconcile.plan,
            &reconcile.status,
        );
        assert_eq!(
            again, reconcile.status,
            "the status changes by being written:\n{log}"
        );
        let zero = reconcile
            .plan
            .steps
            .iter()
            .any(|s| matches!(s, Step::ScaleToZero(_)));
        let full_status =
            |c: &elasti_api::Condition| c.last_transition_time.0.subsec_nanosecond() == 0;
        assert!(
            reconcile.status.conditions.iter().all(full_status),
            "not in whole seconds"
        );
        let redirected = matches!(self.world.slice, Owned::Ours(_));
        assert!(!zero || redirected, "zero before the redirect:\n{log}");
    }

    /// A plan that will change by time alone must say when.
    fn check_requeue(&mut self, reconcile: &Reconciled) {
        let Some(operator) = &self.operator else {
            return;
        };
        let clock = self.world.clock();
        let event = self
            .world
            .next_event()
            .map(|at| at + self.world.clock_ahead);
        let horizon = [event, reconcile.plan.requeue_at]
            .into_iter()
            .flatten()
            .min();
        let offsets = [
            50, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 60_000, 600_000, 3_600_000,
        ];
        for millis in offsets {
            let moment = clock + SignedDuration::from_millis(millis);
            if horizon.is_some_and(|at| moment >= at) {
                break;
            }
            let then = operator.plan_at(&mut self.world, moment).plan;
            let same = (then.phase, &then.steps, then.why.reason)
                == (
                    reconcile.plan.phase,
                    &reconcile.plan.steps,
                    reconcile.plan.why.reason,
                );
            assert!(
                same,
                "{millis} ms later time alone gives {:?} {} {:?}, but the plan says to reconcile again at {:?}:\n{}",
                then.phase, then.why.sentence, then.steps, reconcile.plan.requeue_at, self.log
            );
        }
    }

    fn print(&mut self, reconcile: &Reconciled) {
        if self.entered.last().map(|(phase, _)| *phase) != Some(reconcile.plan.phase) {
            self.entered.push((reconcile.plan.phase, self.world.now));
        }
        let summary = transcript::summary(reconcile);
        let changed_conditions = transcript::changed_conditions(
            &self.world.status.conditions,
            &reconcile.status.conditions,
        );
        if summary == self.last_summary
            && reconcile.plan.steps.is_empty()
            && changed_conditions.is_empty()
        {
            return;
        }
        let now = transcript::clock(self.world.now);
        let again = reconcile
            .plan
            .requeue_at
            .map(|at| format!(" [requeue {}]", transcript::clock(at)));
        let _ = writeln!(self.log, "{now}  {summary}{}", again.unwrap_or_default());
        for step in &reconcile.plan.steps {
            let _ = writeln!(self.log, "                > {}", transcript::step(step));
        }
        for condition in changed_conditions {
            let _ = writeln!(self.log, "                ! {condition}");
        }
        self.last_summary = summary;
    }
}

/// A time of the day, `08:20` or `08:20:05` or `08:20:05.250`.
pub fn time(clock: &str) -> Timestamp {
    let seconds = if clock.len() == 5 { ":00" } else { "" };
    format!("2026-03-02T{clock}{seconds}Z").parse().unwrap()
}

fn spec() -> ElastiServiceSpec {
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
            metadata: std::collections::BTreeMap::default(),
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

/// The world has an autoscaler, and the spec names it.
pub fn with_autoscaler(world: &mut World, type_: AutoscalerType, autoscaler: Autoscaler) {
    world.spec.autoscaler = Some(NamedAutoscaler {
        type_,
        name: "web".into(),
    });
    world.autoscaler = autoscaler;
}

pub fn older(name: &str) -> Option<Rival> {
    Some(Rival {
        name: name.into(),
        claim: Claim::Service,
    })
}
