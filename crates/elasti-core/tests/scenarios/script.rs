//! The verbs of a scenario: `day().at("08:20:05").request().until("08:21")`, and the transcript that it tells.
//! It never looks away: on every look it holds the plan against rules that hold in all scenarios.

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

use crate::operator::{Look, Operator, apply};
use crate::why::{Misread, disagreements};
use crate::words;
use crate::world::{News, World, quiet};

/// How late a watch tells the operator of a change.
const WATCH: SignedDuration = SignedDuration::from_millis(10);
/// How often triggers are read.
const POLL: SignedDuration = SignedDuration::from_secs(30);
/// How late after its first look an operator has read the triggers.
const FIRST_READ: SignedDuration = SignedDuration::from_millis(100);
/// More looks within one second mean that something goes round in circles.
const MOST_LOOKS: usize = 40;

/// One service's day, from Monday 2026-03-02 on.
pub struct Day {
    pub world: World,
    operator: Option<Operator>,
    look_at: Option<Timestamp>,
    poll_at: Timestamp,
    /// When an operator that has just started reads its triggers for the first time.
    first_read_at: Option<Timestamp>,
    /// When an operator that died comes back, and when it died.
    back_at: Option<(Timestamp, Timestamp)>,
    seen: String,
    looks: VecDeque<Timestamp>,
    told: String,
    last_standing: String,
    last_answer: String,
    /// Each phase that was entered, and when.
    entered: Vec<(Phase, Timestamp)>,
    pub may_lose: bool,
    /// A reader of `why` that gets something wrong, and what came of it.
    misread: Option<Misread>,
    noticed: Vec<String>,
}

/// An ElastiService with defaults is created at eight, for a busy Deployment with one ready pod.
pub fn day() -> Day {
    day_with(|_| {})
}

/// The same, in a world that differs a little.
pub fn day_with(change: impl FnOnce(&mut World)) -> Day {
    let mut day = Day::starts("08:00", change);
    day.say("the ElastiService is created");
    day
}

/// It was created at seven and has been busy since.
pub fn busy_day(change: impl FnOnce(&mut World)) -> Day {
    let mut day = Day::starts("07:00", change);
    day.run(time("08:00"));
    day.begins()
}

/// It was created at seven, has been quiet since, and sleeps.
pub fn sleeping_day(change: impl FnOnce(&mut World)) -> Day {
    let mut day = Day::starts("07:00", |world| {
        world.trigger = quiet();
        change(world);
    });
    day.run(time("08:00"));
    assert_eq!(
        day.world.replicas(),
        Some(0),
        "it sleeps before the story begins"
    );
    day.begins()
}

impl Day {
    fn starts(at: &str, change: impl FnOnce(&mut World)) -> Self {
        let mut world = World::new(time(at), spec());
        change(&mut world);
        if world.target.is_none() {
            world.scale(1, Author::Other("kubectl".into()));
        }
        world.replicate();
        for pod in &mut world.pods {
            (pod.starts_at, pod.ready, pod.containers_ready) = (None, true, true);
        }
        world.slices_follow_at = Some(world.now);
        world.happen();
        let operator = Operator::start(&world, None);
        Self {
            operator: Some(operator),
            look_at: Some(world.now),
            poll_at: world.now + POLL,
            first_read_at: Some(world.now + FIRST_READ),
            world,
            back_at: None,
            seen: String::new(),
            looks: VecDeque::new(),
            told: String::new(),
            last_standing: String::new(),
            last_answer: String::new(),
            entered: Vec::new(),
            may_lose: false,
            misread: None,
            noticed: Vec::new(),
        }
    }

    /// What came before is not told.
    fn begins(mut self) -> Self {
        self.told.clear();
        self.entered.clear();
        self.last_standing.clear();
        self.look_at = Some(self.world.now);
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
            assert!(self.world.now < deadline, "never {phase:?}:\n{}", self.told);
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
        self.say(&format!("the trigger will read {what}"));
        self
    }

    pub fn request(mut self) -> Self {
        let where_to = self.world.request();
        self.say(&where_to);
        assert!(self.may_lose || !where_to.contains("LOST"), "{}", self.told);
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
        self.say(&format!("it is a stream that lasts {seconds} s"));
        self
    }

    pub fn client_leaves(mut self) -> Self {
        for r in &mut self.world.resolvers {
            (r.held, r.wakes_at) = (0, None);
        }
        self.say("the client leaves");
        self
    }

    pub fn operator_restarts(mut self, gap_seconds: i64) -> Self {
        let (now, gap) = (self.world.now, SignedDuration::from_secs(gap_seconds));
        self.operator = None;
        self.look_at = None;
        self.back_at = Some((now + gap, now));
        self.say(&format!(
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
        self.say(&format!("resolver-{n} {does}"));
        self
    }

    pub fn resolver_answers(mut self, n: usize, answers: bool) -> Self {
        self.world.resolvers[n - 1].answers = answers;
        let does = if answers {
            "answers the operator again"
        } else {
            "stops answering the operator"
        };
        self.say(&format!("resolver-{n} {does}"));
        self
    }

    pub fn scaled_by(mut self, who: &str, replicas: u32) -> Self {
        self.say(&format!("{who} scales to {replicas}"));
        self.world.scale(replicas, Author::Other(who.into()));
        self
    }

    pub fn deleted(mut self) -> Self {
        self.say("the ElastiService is deleted");
        self.world.deleting_since = Some(self.world.now);
        self.world.generation += 1;
        self.world.exists = self.world.finalizer;
        self
    }

    pub fn target_deleted(mut self) -> Self {
        self.say("the target is deleted");
        self.world.delete_target();
        self
    }

    pub fn edits(mut self, what: &str, edit: impl FnOnce(&mut ElastiServiceSpec)) -> Self {
        self.say(what);
        edit(&mut self.world.spec);
        self.world.generation += 1;
        self
    }

    pub fn happens(mut self, what: &str, change: impl FnOnce(&mut World)) -> Self {
        self.say(what);
        change(&mut self.world);
        self
    }

    /// A person annotates the ElastiService with the time of now.
    pub fn wake_requested(mut self) -> Self {
        self.say("a person asks for a wake");
        self.world.wake_request = UserRequest::At(self.world.now);
        self
    }

    /// A person annotates the ElastiService with the time of now.
    pub fn sleep_requested(mut self) -> Self {
        self.say("a person asks for sleep");
        self.world.sleep_request = UserRequest::At(self.world.now);
        self
    }

    pub fn clock_set_back(mut self, seconds: i64) -> Self {
        self.say(&format!("the operator's clock is set back by {seconds} s"));
        self.world.clock_ahead -= SignedDuration::from_secs(seconds);
        self.look_at = Some(self.world.now);
        self
    }

    /// The transcript, with the whole status at its end.
    pub fn tell(mut self) -> String {
        self.tell_phases();
        if !self.world.exists {
            self.say("the ElastiService is gone");
            return self.told;
        }
        let now = words::clock(self.world.now);
        let _ = writeln!(self.told, "{now}  the status says");
        for line in words::whole(&self.world.status) {
            let _ = writeln!(self.told, "                {line}");
        }
        self.told
    }

    fn tell_phases(&mut self) {
        let ends = self.entered.iter().skip(1).map(|(_, at)| *at);
        let ends = ends.chain([self.world.now]);
        let lasted = self.entered.iter().zip(ends).map(|((phase, from), to)| {
            let seconds = to.duration_since(*from).as_secs_f64();
            format!("{phase:?} {seconds:.2} s")
        });
        let lasted = lasted.collect::<Vec<String>>().join(", ");
        let now = words::clock(self.world.now);
        let _ = writeln!(self.told, "{now}  the phases lasted: {lasted}");
    }

    /// What the story comes to, whatever the way there.
    pub fn end(&self) -> String {
        let w = &self.world;
        let ready = w.pods.iter().filter(|p| p.ready).count();
        let ours = |there: bool| if there { "there" } else { "gone" };
        format!(
            "{:?}, {:?} replicas, {ready} pods ready, slice {}, private Service {}, marks {}",
            w.status.phase,
            w.replicas(),
            ours(w.slice.ours().is_some()),
            ours(w.private_service.ours().is_some()),
            w.pods.iter().filter(|p| p.marked).count(),
        )
    }

    fn say(&mut self, what: &str) {
        let now = words::clock(self.world.now);
        let _ = writeln!(self.told, "{now}  * {what}");
    }

    /// When anything happens next.
    fn next(&self) -> Timestamp {
        let up = self.operator.as_ref().map(|_| self.poll_at);
        let back = self.back_at.map(|(at, _)| at);
        let first = self.first_read_at;
        let moments = [self.world.next_event(), self.look_at, up, back, first];
        moments
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(Timestamp::MAX)
    }

    fn run(&mut self, to: Timestamp) {
        self.notice();
        while self.next() <= to {
            self.world.now = self.next().max(self.world.now);
            self.step();
            self.notice();
        }
        self.world.now = self.world.now.max(to);
    }

    fn step(&mut self) {
        for news in self.world.happen() {
            match news {
                News::Said(what) => self.say(&what),
                News::WakeAsked(who) => self.wake_asked(&who),
            }
        }
        self.notice();
        let now = self.world.now;
        if self.back_at.is_some_and(|(at, _)| at <= now) {
            self.operator_starts();
        }
        let first = self.first_read_at.take_if(|at| *at <= now).is_some();
        if self.poll_at <= now {
            self.poll_at = now + POLL;
            self.read();
        } else if first {
            self.read();
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look();
        }
    }

    fn read(&mut self) {
        let triggers = self.world.spec.triggers.len();
        if let Some(operator) = &mut self.operator {
            operator.readings = vec![self.world.trigger.clone(); triggers];
            self.look_at = Some(self.world.now);
        }
    }

    fn operator_starts(&mut self) {
        let (_, died) = self.back_at.take().unwrap();
        self.world.ports = PortAllocator::new(20_000..=20_999, DEFAULT_QUARANTINE);
        let key = ServiceKey::new("shop", "web");
        self.world.ports.remember(&key, &self.world.status.ports);
        self.operator = Some(Operator::start(&self.world, Some(died)));
        self.first_read_at = Some(self.world.now + FIRST_READ);
        self.look_at = Some(self.world.now);
        self.say("an operator starts");
    }

    fn wake_asked(&mut self, who: &str) {
        let Some(operator) = &mut self.operator else {
            return;
        };
        let answer = match operator.wake(&mut self.world) {
            WakeDecision::Scale(n) => format!("scaled to {n}"),
            WakeDecision::AlreadyAwake => "replicas are asked for already".into(),
            WakeDecision::Refused(why) => format!("refused: {}", why.sentence),
        };
        self.look_at = Some(self.world.now + WATCH);
        let told = format!("{who} asks for a wake: {answer}");
        if told != self.last_answer {
            self.say(&told);
            self.last_answer = told;
        }
    }

    /// A change that watches show makes the operator look.
    fn notice(&mut self) {
        let w = &self.world;
        let pods: Vec<_> = w.pods.iter().map(|p| (&p.name, p.version)).collect();
        let ready: Vec<bool> = w.resolvers.iter().map(|r| r.ready).collect();
        let target = w.target.as_ref().map(|t| t.version);
        let objects = (
            &w.slice,
            &w.private_service,
            &w.autoscaler,
            &w.service,
            &w.rival,
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
            let soon = w.now + WATCH;
            self.look_at = Some(self.look_at.map_or(soon, |at| at.min(soon)));
        }
    }

    fn look(&mut self) {
        self.look_at = None;
        let Some(operator) = self.operator.as_mut().filter(|_| self.world.exists) else {
            return;
        };
        let look = operator.look(&mut self.world);
        self.not_in_circles();
        self.judge(&look);
        let differs = disagreements(&self.world, &look, self.misread);
        let told = &self.told;
        assert!(
            self.misread.is_some() || differs.is_empty(),
            "why and the operator disagree: {differs:#?}\n{told}"
        );
        self.noticed.extend(differs);
        self.print(&look);
        for step in &look.plan.steps {
            apply(&mut self.world, step);
        }
        let ahead = self.world.clock_ahead;
        self.look_at = look.plan.requeue_at.map(|at| at - ahead);
        let rests = look.plan.steps.is_empty() && look.status == self.world.status;
        if self.world.status != look.status {
            self.world.status = look.status.clone();
            self.world.status_written();
        }
        if rests {
            self.says_until_when(&look);
        }
    }

    fn not_in_circles(&mut self) {
        let now = self.world.now;
        self.looks.push_back(now);
        while self
            .looks
            .front()
            .is_some_and(|at| now.duration_since(*at).as_secs() >= 1)
        {
            self.looks.pop_front();
        }
        assert!(
            self.looks.len() <= MOST_LOOKS,
            "in circles at {now}:\n{}",
            self.told
        );
    }

    /// What holds for every plan in every scenario.
    fn judge(&mut self, look: &Look) {
        let told = &self.told;
        if let Some(from) = self.world.status.phase {
            let to = look.plan.phase;
            assert!(
                allowed(from, to),
                "no move from {from:?} to {to:?}:\n{told}"
            );
        }
        let sentence = &look.plan.why.sentence;
        let whole = sentence.ends_with('.') && !sentence.contains("..");
        assert!(whole, "not a sentence: {sentence}");
        let mut written = look.observed.clone();
        written.me.remembered = Remembered::from(&look.status);
        let again = status(&self.world.spec, &written, &look.plan, &look.status);
        assert_eq!(
            again, look.status,
            "the status changes by being written:\n{told}"
        );
        let zero = look
            .plan
            .steps
            .iter()
            .any(|s| matches!(s, Step::ScaleToZero(_)));
        let whole = |c: &elasti_api::Condition| c.last_transition_time.0.subsec_nanosecond() == 0;
        assert!(
            look.status.conditions.iter().all(whole),
            "not in whole seconds"
        );
        let redirected = matches!(self.world.slice, Owned::Ours(_));
        assert!(!zero || redirected, "zero before the redirect:\n{told}");
    }

    /// A plan that time alone will change must say when.
    fn says_until_when(&mut self, look: &Look) {
        let Some(operator) = &self.operator else {
            return;
        };
        let clock = self.world.clock();
        let event = self
            .world
            .next_event()
            .map(|at| at + self.world.clock_ahead);
        let horizon = [event, look.plan.requeue_at].into_iter().flatten().min();
        let offsets = [
            50, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 60_000, 600_000, 3_600_000,
        ];
        for millis in offsets {
            let moment = clock + SignedDuration::from_millis(millis);
            if horizon.is_some_and(|at| moment >= at) {
                break;
            }
            let then = operator.would(&mut self.world, moment).plan;
            let same = (then.phase, &then.steps, then.why.reason)
                == (look.plan.phase, &look.plan.steps, look.plan.why.reason);
            assert!(
                same,
                "{millis} ms later time alone gives {:?} {} {:?}, but the plan says to look again at {:?}:\n{}",
                then.phase, then.why.sentence, then.steps, look.plan.requeue_at, self.told
            );
        }
    }

    fn print(&mut self, look: &Look) {
        if self.entered.last().map(|(phase, _)| *phase) != Some(look.plan.phase) {
            self.entered.push((look.plan.phase, self.world.now));
        }
        let standing = words::standing(look);
        let turned = words::turned(&self.world.status.conditions, &look.status.conditions);
        if standing == self.last_standing && look.plan.steps.is_empty() && turned.is_empty() {
            return;
        }
        let now = words::clock(self.world.now);
        let again = look
            .plan
            .requeue_at
            .map(|at| format!(" [again {}]", words::clock(at)));
        let _ = writeln!(self.told, "{now}  {standing}{}", again.unwrap_or_default());
        for step in &look.plan.steps {
            let _ = writeln!(self.told, "                > {}", words::step(step));
        }
        for condition in turned {
            let _ = writeln!(self.told, "                ! {condition}");
        }
        self.last_standing = standing;
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
        }],
        autoscaler: None,
        enabled_period: None,
        probe_response: Vec::new(),
        paused: None,
        hold: None,
        handover: None,
        waiting_page: None,
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
