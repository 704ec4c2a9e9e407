//! How far the probes of one pod are: which to run next, when, and whether all have passed.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Candidate, Probe};

/// The first probes come this fast: 40 a second, for half a second.
const FIRST_INTERVAL: Duration = Duration::from_millis(25);
/// Afterwards the next one waits for a twentieth of the time so far: what is known late is known at most 5 % late. The
/// first 30 s cost 100 probes, each further doubling 14.
const BACKOFF_DIVISOR: u32 = 20;
/// Never slower than the fastest probe that a kubelet can have.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
/// One that has passed is asked again at its own period, or sooner: until the kubelet says that it is ready, only this
/// shows whether it still is.
const LONGEST_RECHECK: Duration = Duration::from_secs(10);
/// All probes of one resolver for the pods of one namespace: at most 100 a second.
const SLOT: Duration = Duration::from_millis(10);

/// What has been counted of one probe.
#[derive(Clone, Debug)]
struct Count {
    probe: Probe,
    successes: u32,
    failures: u32,
    passed: bool,
}

impl Count {
    fn new(probe: Probe) -> Self {
        Self {
            probe,
            successes: 0,
            failures: 0,
            passed: false,
        }
    }

    fn record(&mut self, success: bool) {
        if success {
            (self.successes, self.failures) = (self.successes.saturating_add(1), 0);
            self.passed |= self.successes >= self.probe.successes;
        } else {
            (self.successes, self.failures) = (0, self.failures.saturating_add(1));
            // As a kubelet does: one that has passed is not ready again after so many failures in a row.
            self.passed &= self.failures < self.probe.failures;
        }
    }

    /// It has begun to pass, and must go on.
    fn is_proving(&self) -> bool {
        !self.passed && self.successes > 0
    }
}

#[derive(Clone, Debug)]
struct Container {
    startup: Option<Count>,
    readiness: Option<Count>,
}

impl Container {
    /// The probe that is run now. A startup probe that has passed is over, as for a kubelet.
    fn current(&self) -> Option<&Count> {
        let startup = self.startup.as_ref().filter(|count| !count.passed);
        startup.or(self.readiness.as_ref())
    }

    fn current_mut(&mut self) -> Option<&mut Count> {
        let startup = self.startup.as_mut().filter(|count| !count.passed);
        startup.or(self.readiness.as_mut())
    }

    fn passed(&self) -> bool {
        self.current().is_none_or(|count| count.passed)
            && self.startup.as_ref().is_none_or(|count| count.passed)
    }
}

/// The probes of one pod, from when it was first seen to run.
#[derive(Clone, Debug)]
pub struct Progress {
    containers: Vec<Container>,
}

impl Progress {
    /// Nothing has been asked yet.
    #[must_use]
    pub fn new(candidate: &Candidate) -> Self {
        let containers = candidate.containers.iter().map(|probes| Container {
            startup: probes.startup.clone().map(Count::new),
            readiness: probes.readiness.clone().map(Count::new),
        });
        Self {
            containers: containers.collect(),
        }
    }

    /// The probes to run now, each with its number: one of each container whose initial delay is over.
    #[must_use]
    pub fn due(&self, since_first_seen: Duration) -> Vec<(usize, Probe)> {
        let all = self.containers.iter().enumerate();
        all.filter_map(|(at, container)| Some((at, container.current()?)))
            .filter(|(_, count)| count.probe.delay <= since_first_seen)
            .map(|(at, count)| (at, count.probe.clone()))
            .collect()
    }

    /// What the probe of this number gave.
    pub fn record(&mut self, at: usize, success: bool) {
        let container = self.containers.get_mut(at);
        if let Some(count) = container.and_then(Container::current_mut) {
            count.record(success);
        }
    }

    /// Every container has passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.containers.iter().all(Container::passed)
    }

    /// How long to wait before the next probes.
    #[must_use]
    pub fn wait(&self, since_first_seen: Duration) -> Duration {
        let counts = || self.containers.iter().filter_map(Container::current);
        let periods = |which: fn(&Count) -> bool| {
            let periods = counts().filter(|count| which(count));
            periods.map(|count| count.probe.period).min()
        };
        let slow = match self.passed() {
            true => periods(|_| true).map(|period| period.min(LONGEST_RECHECK)),
            // A probe that must pass several times means times that are a period apart.
            false => periods(Count::is_proving),
        };
        let backoff = since_first_seen
            .checked_div(BACKOFF_DIVISOR)
            .unwrap_or_default();
        slow.unwrap_or_else(|| backoff.clamp(FIRST_INTERVAL, LONGEST_INTERVAL))
    }
}

/// Spreads the probes of each namespace over time, so that no number of starting pods makes a flood, and those of one
/// namespace never wait for those of another.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// By namespace, when the next is free, on the caller's clock.
    next: BTreeMap<String, Duration>,
}

impl Slots {
    /// How long the next probe for a pod of this namespace has to wait, at this time of the caller's clock.
    pub fn take(&mut self, namespace: &str, now: Duration) -> Duration {
        self.next.retain(|_, next| *next > now);
        let next = self.next.entry(namespace.to_owned()).or_insert(now);
        let wait = next.saturating_sub(now);
        *next = next.saturating_add(SLOT);
        wait
    }
}
