//! What can go wrong in a scenario: every fault of the simulated cluster, at every call and every event that was recorded.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use elasti_e2e::{OPERATOR_USER, RESOLVER_USER};
use elasti_fake_cluster::faults::{Call, Calls, Fault, Faults, Verb, WatchFault};
use serde_json::Value;

use super::scenario::Scenario;

/// A scenario without any fault.
pub(crate) struct Recording {
    /// The calls of the operator and the resolvers.
    pub(crate) calls: Vec<Call>,
    /// The watch of each event that they received.
    pub(crate) events: Vec<Arc<Call>>,
    /// How it ended.
    pub(crate) end: Value,
}

/// One fault in one scenario.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) scenario: Scenario,
    user: &'static str,
    nth: u64,
    what: String,
    wrong: Wrong,
}

#[derive(Clone, Copy, Debug)]
enum Wrong {
    Call(Fault),
    Event(WatchFault),
}

impl fmt::Display for Case {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = if self.user == OPERATOR_USER {
            "operator"
        } else {
            "resolver"
        };
        let (scenario, nth, what) = (self.scenario, self.nth, &self.what);
        match self.wrong {
            Wrong::Call(fault) => {
                write!(out, "[{scenario}; {who}'s call {nth}, {what}; {fault:?}]")
            }
            Wrong::Event(fault) => {
                write!(out, "[{scenario}; {who}'s event {nth}, {what}; {fault:?}]")
            }
        }
    }
}

impl Case {
    /// From now on it can strike.
    pub(crate) fn arm(&self, faults: &Faults) {
        let calls = Calls::all().user(self.user);
        match self.wrong {
            Wrong::Call(fault) => faults.strike(self.nth, calls, fault),
            Wrong::Event(fault) => faults.strike_event(self.nth, calls, fault),
        }
    }
}

const EVENT_FAULTS: [WatchFault; 4] = [
    WatchFault::DropEvent,
    WatchFault::RepeatEvent,
    WatchFault::Expire,
    WatchFault::GoSilent,
];

/// Everything that can go wrong in one scenario.
pub(crate) fn all_cases(scenario: Scenario, recording: &Recording) -> Vec<Case> {
    let mut all = Vec::new();
    for user in [OPERATOR_USER, RESOLVER_USER] {
        let case = |nth: usize, call: &Call, wrong: Wrong| Case {
            scenario,
            user,
            nth: nth as u64 + 1,
            what: format!("{} {}/{}", call.verb.as_str(), call.kind, call.subresource),
            wrong,
        };
        let calls = recording.calls.iter().filter(|call| call.user == user);
        for (nth, call) in calls.enumerate() {
            let faults = faults_of(call).into_iter();
            all.extend(faults.map(|fault| case(nth, call, Wrong::Call(fault))));
        }
        let events = recording.events.iter().filter(|call| call.user == user);
        for (nth, call) in events.enumerate() {
            all.extend(EVENT_FAULTS.map(|fault| case(nth, call, Wrong::Event(fault))));
        }
    }
    all
}

fn stale(versions_back: u64) -> Fault {
    Fault::StaleRead { versions_back }
}

fn faults_of(call: &Call) -> Vec<Fault> {
    let mut faults = vec![
        Fault::LoseAnswer,
        Fault::TooManyRequests {
            retry_after_seconds: 1,
        },
        Fault::InternalError,
        // Shorter than every timeout, and beyond it.
        Fault::Delay(Duration::from_secs(2)),
        Fault::Delay(Duration::from_secs(60)),
    ];
    if call.user == OPERATOR_USER {
        faults.extend([Fault::CrashCallerBefore, Fault::CrashCallerAfter]);
    }
    match call.verb {
        Verb::Get | Verb::List => faults.extend([stale(5), stale(40)]),
        Verb::Watch => faults.extend(EVENT_FAULTS.map(Fault::Watch)),
        _ => faults.push(Fault::Conflict),
    }
    faults
}
