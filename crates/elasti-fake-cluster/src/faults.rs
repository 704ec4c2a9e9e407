//! Faults at chosen API calls from outside the control plane, and the journal of all calls.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use crate::api_server::request::Verb;
use crate::random::Randomness;

/// The journal keeps this many calls; a day of one operator at rest is far below it.
const JOURNAL_LIMIT: usize = 100_000;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The caller dies before the call has any effect; its connection drops.
    CrashCallerBefore,
    /// The call takes effect, then the caller dies; its connection drops.
    CrashCallerAfter,
    /// The call takes effect, but the connection drops before the answer.
    LoseAnswer,
    /// 409, as if someone else had written in between.
    Conflict,
    /// 429 with this `Retry-After`.
    TooManyRequests {
        /// Seconds to wait.
        retry_after_seconds: u64,
    },
    /// 403, as a quota or a webhook refuses what the caller may otherwise do.
    Refuse,
    /// 500.
    InternalError,
    /// The call waits this long before it is worked on.
    Delay(Duration),
    /// A get or list shows the state this many writes ago.
    StaleRead {
        /// Writes to look back.
        versions_back: u64,
    },
    /// Something happens to the events of a watch.
    Watch(WatchFault),
}

/// What happens to the next event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// It is never sent.
    DropEvent,
    /// It is sent twice.
    RepeatEvent,
    /// Instead of it the watch ends with 410.
    Expire,
    /// From it on the watch is silent for ever, and never ends.
    GoSilent,
}

/// Which calls a fault is meant for; everything unset matches all.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    verb: Option<Verb>,
    kind: Option<String>,
    subresource: Option<String>,
    user: Option<String>,
    user_agent: Option<String>,
    namespace: Option<String>,
    writes_only: bool,
}

impl Calls {
    /// Every call from outside.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Only calls that change something.
    #[must_use]
    pub fn writes() -> Self {
        Self {
            writes_only: true,
            ..Self::default()
        }
    }

    /// Only this verb.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Only this resource, by plural.
    #[must_use]
    pub fn kind(mut self, plural: &str) -> Self {
        self.kind = Some(plural.to_owned());
        self
    }

    /// Only this subresource; empty for the object itself.
    #[must_use]
    pub fn subresource(mut self, name: &str) -> Self {
        self.subresource = Some(name.to_owned());
        self
    }

    /// Only this user.
    #[must_use]
    pub fn user(mut self, name: &str) -> Self {
        self.user = Some(name.to_owned());
        self
    }

    /// Only objects of this namespace.
    #[must_use]
    pub fn namespace(mut self, name: &str) -> Self {
        self.namespace = Some(name.to_owned());
        self
    }

    /// Only user agents that contain this text.
    #[must_use]
    pub fn user_agent(mut self, part: &str) -> Self {
        self.user_agent = Some(part.to_owned());
        self
    }

    fn match_call(&self, call: &Call) -> bool {
        let Self {
            verb,
            kind,
            subresource,
            user,
            user_agent,
            namespace,
            writes_only,
        } = self;
        verb.is_none_or(|verb| verb == call.verb)
            && kind.as_ref().is_none_or(|kind| *kind == call.kind)
            && subresource
                .as_ref()
                .is_none_or(|name| *name == call.subresource)
            && user.as_ref().is_none_or(|user| *user == call.user)
            && user_agent
                .as_ref()
                .is_none_or(|part| call.user_agent.contains(part.as_str()))
            && namespace
                .as_ref()
                .is_none_or(|name| *name == call.namespace)
            && (!writes_only || call.verb.writes())
    }
}

/// One call as the journal keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Counts calls from outside, from 1.
    pub number: u64,
    /// The caller.
    pub user: String,
    /// Its user agent.
    pub user_agent: String,
    /// What it asked for.
    pub verb: Verb,
    /// The resource's plural.
    pub kind: String,
    /// `status`, `scale`, … or empty.
    pub subresource: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The answer's code; 0 where none was sent.
    pub code: u16,
}

impl fmt::Display for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            user,
            verb,
            kind,
            subresource,
            namespace,
            name,
            code,
            user_agent: _,
        } = self;
        let slash = if subresource.is_empty() { "" } else { "/" };
        write!(
            out,
            "#{number} {user} {} {kind}{slash}{subresource} {namespace}/{name} -> {code}",
            verb.as_str()
        )
    }
}

#[derive(Debug)]
struct Rule {
    calls: Calls,
    /// Strikes at this matching call, counted from 1; 0 strikes at random.
    at: u64,
    per_thousand: usize,
    seen: u64,
    fault: Fault,
}

/// Strikes at this event of matching watches, counted from 1.
#[derive(Debug)]
struct EventRule {
    watches: Calls,
    at: u64,
    seen: u64,
    fault: WatchFault,
}

type CrashListener = Arc<dyn Fn(&Call) + Send + Sync>;

/// The injector and the journal of one simulated cluster.
pub struct Faults {
    random: Randomness,
    rules: Mutex<Vec<Rule>>,
    event_rules: Mutex<Vec<EventRule>>,
    delivered: Mutex<VecDeque<Arc<Call>>>,
    journal: Mutex<Journal>,
    on_crash: Mutex<Option<CrashListener>>,
}

#[derive(Debug, Default)]
struct Journal {
    count: u64,
    calls: VecDeque<Call>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Faults")
            .field("seed", &self.random.seed())
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Faults {
    /// An injector whose random faults replay for the same seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            random: Randomness::seeded(seed),
            rules: Mutex::default(),
            event_rules: Mutex::default(),
            delivered: Mutex::default(),
            journal: Mutex::default(),
            on_crash: Mutex::default(),
        }
    }

    /// The seed that replays this run: print it when a run fails.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.random.seed()
    }

    /// Strikes once, at the `nth` (from 1) of `calls` from now on.
    pub fn strike(&self, nth: u64, calls: Calls, fault: Fault) {
        self.rules.lock().push(Rule {
            calls,
            at: nth.max(1),
            per_thousand: 0,
            seen: 0,
            fault,
        });
    }

    /// Strikes once, at the `nth` (from 1) event that any of these `watches` is sent from now on, old watches too.
    pub fn strike_event(&self, nth: u64, watches: Calls, fault: WatchFault) {
        self.event_rules.lock().push(EventRule {
            watches,
            at: nth.max(1),
            seen: 0,
            fault,
        });
    }

    /// Strikes `per_thousand` of `calls`, chosen by the seed, until healed.
    pub fn strike_randomly(&self, per_thousand: usize, calls: Calls, fault: Fault) {
        self.rules.lock().push(Rule {
            calls,
            at: 0,
            per_thousand,
            seen: 0,
            fault,
        });
    }

    /// No more faults.
    pub fn heal(&self) {
        self.rules.lock().clear();
        self.event_rules.lock().clear();
    }

    /// Whether a fault is still to come.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        !self.rules.lock().is_empty() || !self.event_rules.lock().is_empty()
    }

    /// The watch of each event that was sent, in order, as far as the journal goes.
    #[must_use]
    pub fn delivered(&self) -> Vec<Arc<Call>> {
        self.delivered.lock().iter().cloned().collect()
    }

    /// Called when a caller must die.
    pub fn on_crash(&self, listener: impl Fn(&Call) + Send + Sync + 'static) {
        *self.on_crash.lock() = Some(Arc::new(listener));
    }

    /// All calls from outside that the journal still holds.
    #[must_use]
    pub fn journal(&self) -> Vec<Call> {
        self.journal.lock().calls.iter().cloned().collect()
    }

    /// How many calls came from outside.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.journal.lock().count
    }

    /// Numbers a call.
    pub(crate) fn begin(&self, mut call: Call) -> Call {
        let mut journal = self.journal.lock();
        journal.count += 1;
        call.number = journal.count;
        if journal.calls.len() >= JOURNAL_LIMIT {
            journal.calls.pop_front();
        }
        journal.calls.push_back(call.clone());
        call
    }

    /// Notes the answer to a call.
    pub(crate) fn end(&self, number: u64, code: u16) {
        let mut journal = self.journal.lock();
        if let Some(call) = journal
            .calls
            .iter_mut()
            .rev()
            .find(|call| call.number == number)
        {
            call.code = code;
        }
    }

    /// The faults that strike this call, in the order they were asked for.
    pub(crate) fn strikes(&self, call: &Call) -> Vec<Fault> {
        let mut struck = Vec::new();
        self.rules.lock().retain_mut(|rule| {
            if !rule.calls.match_call(call) {
                return true;
            }
            rule.seen += 1;
            if rule.at == 0 {
                if self.random.below(1000) < rule.per_thousand {
                    struck.push(rule.fault);
                }
                return true;
            }
            if rule.seen == rule.at {
                struck.push(rule.fault);
            }
            rule.seen < rule.at
        });
        struck
    }

    /// The faults that strike the next event of this watch.
    pub(crate) fn strikes_event(&self, watch: &Arc<Call>) -> Vec<WatchFault> {
        let mut delivered = self.delivered.lock();
        if delivered.len() >= JOURNAL_LIMIT {
            delivered.pop_front();
        }
        delivered.push_back(watch.clone());
        let mut struck = Vec::new();
        self.event_rules.lock().retain_mut(|rule| {
            if rule.watches.match_call(watch) {
                rule.seen += 1;
            }
            if rule.seen == rule.at {
                struck.push(rule.fault);
            }
            rule.seen < rule.at
        });
        struck
    }

    pub(crate) fn crash(&self, call: &Call) {
        let listener = self.on_crash.lock().clone();
        if let Some(listener) = listener {
            listener(call);
        }
    }
}
