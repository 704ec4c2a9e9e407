//! What a person is shown of one service, from plain objects and `now`.
//! What keeps a service awake comes from the rules that the operator runs.

mod calendar;
mod last_wake;
mod readings;
mod state;
#[cfg(test)]
mod tests;
mod totals;
mod workload;

use std::collections::BTreeSet;

use elasti_api::names::condition;
use elasti_api::{Condition, ElastiService, ElastiServiceStatus, Mode, Phase, Reason, Time};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use elasti_core::desire;
use elasti_core::facts::{self, Requests};
use elasti_core::observed::{
    Author, Autoscaler, Leadership, Observed, Owned, PortsGiven, Settings, Standing, StopOrder,
    Target,
};
use elasti_core::savings;
use elasti_core::services::Unmanaged;
use elasti_core::stable_since::StableSince;
use elasti_core::why::{TARGET_NOT_FOUND, Why};
use last_wake::{failed_wake, last_wake};
use readings::{readings, triggers};

pub use calendar::{Calendar, Month};
pub use elasti_core::savings::Saved;
pub use last_wake::{FailedWakeView, WakePart, WakeView};
pub use readings::TriggerView;
pub use totals::{Asleep, Totals};
pub use workload::Workload;

/// A service without a status this long after its creation is in trouble.
const UNSEEN_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);
/// Windows that follow each other are joined only so far, and one that is always open never ends.
const WAKE_SHOWN_WITHIN: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What is known of one service when it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The ElastiService, with its status.
    pub me: &'a ElastiService,
    /// Its target.
    pub target: &'a Lookup<Workload>,
    /// How many requests wait now, where the resolvers were asked.
    pub held: Option<u32>,
    /// The time at which it is shown.
    pub now: Timestamp,
}

/// Something that may have been looked up.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup<T> {
    /// It was not looked up, or may not be.
    Unknown,
    /// It does not exist.
    Missing,
    /// Here it is.
    Found(T),
}

/// One service as people and programs see it. Fields are added, never renamed or removed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Namespace of the ElastiService, its Service and its target.
    pub namespace: String,
    /// Name of the ElastiService.
    pub name: String,
    /// Name of the Service whose requests wake the target.
    pub service: String,
    /// What is scaled.
    pub target: TargetView,
    /// When the ElastiService was created.
    pub created: Option<Timestamp>,
    /// Its phase; absent until an operator has reconciled it.
    pub phase: Option<Phase>,
    /// Since when it has been in this phase.
    pub since: Option<Timestamp>,
    /// `proxy` while requests go to the resolver, else `serve`.
    pub mode: Option<Mode>,
    /// How many replicas the target asks for.
    pub replicas: Option<u32>,
    /// How many of its pods are ready.
    pub ready: Option<u32>,
    /// How many requests wait for a pod: now where `held_live`, else when the operator last wrote.
    pub held: u32,
    /// `held` comes from the resolvers themselves.
    pub held_live: bool,
    /// Why it is so, in one word.
    pub reason: String,
    /// Why it is so, in one sentence.
    pub sentence: String,
    /// Elasti cannot do its work for this service, or a wake fails.
    pub trouble: bool,
    /// `spec.paused` is true.
    pub paused: bool,
    /// The operator has not seen the last change of the spec yet.
    pub outdated: bool,
    /// Since when every trigger has been quiet.
    pub quiet_since: Option<Timestamp>,
    /// Seconds of quiet before sleep.
    pub cooldown_seconds: u32,
    /// When it will be put to sleep if nothing comes; absent while it sleeps, and while only an event can allow it.
    pub sleeps_at: Option<Timestamp>,
    /// What keeps it from sleeping now; empty while it sleeps.
    pub blockers: Vec<Blocker>,
    /// When it will be woken by the end of its active window; absent while it is awake, without a window, and where the
    /// window does not end within a month.
    pub wakes_at: Option<Timestamp>,
    /// The last reading of each trigger, in the order of the spec.
    pub triggers: Vec<TriggerView>,
    /// What is probably a mistake, in sentences: a metric of a trigger that has no series.
    pub warnings: Vec<String>,
    /// The last wake.
    pub last_wake: Option<WakeView>,
    /// The last wake that failed; absent as soon as one has succeeded.
    pub failed_wake: Option<FailedWakeView>,
    /// How long it has slept.
    pub asleep: Asleep,
    /// What that has saved.
    pub saved: Saved,
    /// The same by month and day; absent if it slept only before that was recorded.
    pub saved_calendar: Option<Calendar>,
}

/// The target of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetView {
    /// Its API version.
    pub api_version: String,
    /// Its kind, as Kubernetes spells it.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Whether it exists; absent if it was not looked up.
    pub found: Option<bool>,
}

/// One thing that keeps a service from sleeping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocker {
    /// In one word.
    pub reason: String,
    /// In one sentence.
    pub sentence: String,
    /// Until when, where time alone ends it.
    pub until: Option<Timestamp>,
}

impl<T> Lookup<T> {
    /// What was found.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(found) => Some(found),
            Self::Unknown | Self::Missing => None,
        }
    }
}

/// What is shown of one service.
#[must_use]
pub fn view(facts: Facts<'_>) -> View {
    let Facts {
        me,
        target,
        held,
        now,
    } = facts;
    let nothing = ElastiServiceStatus::default();
    let status = me.status.as_ref().unwrap_or(&nothing);
    let created = me.metadata.creation_timestamp.as_ref().map(|t| t.0);
    let replicas = target.found().map(|one| one.replicas);
    let recorded = status.replicas.and_then(|n| u32::try_from(n).ok());
    let replicas = replicas.or(recorded);
    // Another ElastiService puts the target of a conflicting one to sleep.
    let sleeps = replicas == Some(0) && !savings::in_conflict(status);
    let blockers = match sleeps {
        true => Vec::new(),
        false => blockers(&facts, status, &observed(&facts, status)),
    };
    let (reason, sentence, trouble) = summary(&facts, status);
    let reference = me.spec.scale_target_ref.canonical();
    View {
        namespace: me.metadata.namespace.clone().unwrap_or_default(),
        name: me.metadata.name.clone().unwrap_or_default(),
        service: me.spec.service.clone(),
        target: TargetView {
            api_version: reference.api_version,
            kind: reference.kind,
            name: reference.name,
            found: match target {
                Lookup::Unknown => None,
                Lookup::Missing => Some(false),
                Lookup::Found(_) => Some(true),
            },
        },
        created,
        phase: status.phase,
        since: since(status, created),
        mode: status.mode,
        replicas,
        ready: target.found().map(|one| one.ready),
        held: held.or(status.held).unwrap_or(0),
        held_live: held.is_some(),
        reason,
        sentence,
        trouble,
        paused: me.spec.paused == Some(true),
        outdated: status.observed_generation.is_some()
            && status.observed_generation != me.metadata.generation,
        quiet_since: stamp(status.quiet_since.as_ref()),
        cooldown_seconds: me.spec.cooldown_seconds(),
        sleeps_at: match sleeps || status.phase.is_none() {
            true => None,
            false => sleeps_at(&blockers, now),
        },
        blockers,
        wakes_at: desire::window_closes(&me.spec, now)
            .filter(|at| sleeps && at.duration_since(now) < WAKE_SHOWN_WITHIN),
        triggers: triggers(me, status),
        warnings: { condition_of(status, condition::METRICS_MISSING).into_iter() }
            .map(|c| c.message.clone())
            .collect(),
        last_wake: last_wake(status),
        failed_wake: failed_wake(status),
        asleep: Asleep::from_status(status, replicas, created, now),
        saved: Saved::from(&savings::saved_seconds(status, replicas, now)),
        saved_calendar: Calendar::from_status(status, replicas, now),
    }
}

fn stamp(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|t| t.0)
}

fn condition_of<'a>(status: &'a ElastiServiceStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|c| c.type_ == type_)
}

/// The word, the sentence, and whether it is trouble.
fn summary(facts: &Facts<'_>, status: &ElastiServiceStatus) -> (String, String, bool) {
    let deleting = facts.me.metadata.deletion_timestamp.is_some();
    let stands = { status.reason.as_deref() }
        .and_then(Reason::from_word)
        .is_some_and(comes_before_target);
    if *facts.target == Lookup::Missing && !deleting && !stands {
        let reason = Reason::TargetNotFound.as_str().to_owned();
        return (reason, TARGET_NOT_FOUND.to_owned(), true);
    }
    let Some(reason) = &status.reason else {
        let created = facts.me.metadata.creation_timestamp.as_ref();
        let late = created.is_none_or(|t| facts.now.duration_since(t.0) > UNSEEN_TIMEOUT);
        let sentence = match late {
            true => "No operator has reconciled it; is one running? See: elasti check",
            false => "No operator has reconciled it yet.",
        };
        return ("Unseen".to_owned(), sentence.to_owned(), late);
    };
    let ready = condition_of(status, condition::READY);
    let sentence = ready.map(|c| c.message.clone()).unwrap_or_default();
    let trouble = ready.is_some_and(|c| c.status == "False");
    (reason.clone(), sentence, trouble)
}

/// What the operator reports rather than a missing target, in the order in which it looks: a view that sees only the
/// target must not contradict it.
fn comes_before_target(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Conflict | Reason::ServiceNotFound | Reason::Unsupported
    )
}

/// When the phase began, by the stamps and transitions that the status keeps.
fn since(status: &ElastiServiceStatus, created: Option<Timestamp>) -> Option<Timestamp> {
    let turned = |type_: &str, holds: &str| {
        let found = condition_of(status, type_).filter(|c| c.status == holds);
        found.map(|c| c.last_transition_time.0)
    };
    let woken = stamp(status.last_scaled_up_time.as_ref());
    match status.phase? {
        Phase::Asleep => {
            stamp(status.last_sleep_time.as_ref()).or_else(|| turned(condition::ASLEEP, "True"))
        }
        Phase::Waking | Phase::Restoring => {
            woken.or_else(|| turned(condition::TRAFFIC_REDIRECTED, "True"))
        }
        Phase::Redirecting | Phase::Draining => turned(condition::TRAFFIC_REDIRECTED, "True"),
        Phase::Serving => turned(condition::TRAFFIC_REDIRECTED, "False").or(created),
    }
}

/// What keeps a service awake: by the operator's own rules where a view can see the facts, and by the operator's status
/// where it cannot.
pub(crate) fn blockers(
    facts: &Facts<'_>,
    status: &ElastiServiceStatus,
    observed: &Observed,
) -> Vec<Blocker> {
    let mut found: Vec<Blocker> = match status.phase {
        None => Vec::new(),
        Some(_) => {
            let rules = desire::blockers(&facts.me.spec, observed);
            rules.into_iter().map(Blocker::from).collect()
        }
    };
    let (reason, sentence, _) = summary(facts, status);
    let unseen = !SEEN_BY_A_VIEW.iter().any(|one| one.as_str() == reason);
    if unseen && !found.iter().any(|one| one.reason == reason) {
        let until = None;
        found.insert(
            0,
            Blocker {
                reason,
                sentence,
                until,
            },
        );
    }
    found
}

/// Reasons that follow from the facts of a view, so that the status is not needed for them; and those of a service that
/// is going to sleep.
const SEEN_BY_A_VIEW: [Reason; 12] = [
    Reason::TriggerActive,
    Reason::TriggerUnknown,
    Reason::WakeRequested,
    Reason::WokenByRequest,
    Reason::CoolingDown,
    Reason::Idle,
    Reason::OutsideWindow,
    Reason::InvalidWindow,
    Reason::Paused,
    Reason::SleepRequested,
    Reason::Draining,
    Reason::Restoring,
];

impl From<Why> for Blocker {
    fn from(why: Why) -> Self {
        Self {
            reason: why.reason.as_str().to_owned(),
            sentence: why.sentence,
            until: why.until,
        }
    }
}

pub(crate) fn sleeps_at(blockers: &[Blocker], now: Timestamp) -> Option<Timestamp> {
    let ends: Option<Vec<Timestamp>> = blockers.iter().map(|one| one.until).collect();
    Some(ends?.into_iter().max().unwrap_or(now))
}

/// The facts of a view as the rules of sleep take them. What a view cannot see counts as in order: the operator's
/// status is added where it is not.
pub(crate) fn observed(facts: &Facts<'_>, status: &ElastiServiceStatus) -> Observed {
    let Facts {
        me, target, now, ..
    } = *facts;
    Observed {
        now,
        me: facts::me(&me.metadata, status),
        leadership: Leadership::Follower,
        rival: None,
        predecessor: None,
        namespace_terminating: false,
        service: None,
        target: target.found().map(|one| Target {
            replicas: one.replicas,
            version: String::new(),
            generation: None,
            replicas_by: Author::Unknown,
            replicas_at: None,
            stops: StopOrder::Unknown,
            min_ready_seconds: 0,
            requests: Requests::default(),
        }),
        pods: Vec::new(),
        endpoints: Vec::new(),
        endpoints_version: String::new(),
        slice: Owned::Missing,
        private_service: Owned::Missing,
        standing: Standing::Own,
        others: Vec::new(),
        unmanaged: Unmanaged::default(),
        resolvers: Vec::new(),
        nodes: Some(BTreeSet::new()),
        ports: PortsGiven::Given(status.ports.clone()),
        autoscaler: Autoscaler::None,
        readings: readings(me, status),
        reading_details: Vec::new(),
        wake_requested_at: None,
        wake_client: None,
        woken_at: None,
        promised_until: None,
        may_mark: true,
        // The operator has watched all the time, as far as a view can tell.
        stable_since: StableSince::fresh(Timestamp::UNIX_EPOCH, Some(Timestamp::UNIX_EPOCH)),
        settings: Settings::default(),
    }
}
