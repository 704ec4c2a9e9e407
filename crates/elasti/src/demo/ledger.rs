//! The ledger: what became of every request, and how many the app has answered lately.
//! Never forgets a request within a round, and never counts a lost one as answered.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::visitor::{Answer, Lost};

/// One request and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) service: String,
    pub(crate) sent_at: Instant,
    pub(crate) took: Duration,
    pub(crate) outcome: Result<Answer, Lost>,
}

impl Entry {
    pub(crate) fn ended_at(&self) -> Instant {
        self.sent_at + self.took
    }
}

/// The requests of one round; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl Ledger {
    pub(crate) fn write(&self, entry: Entry) {
        self.entries.lock().push(entry);
    }

    /// A new round: the old one was told.
    pub(crate) fn clear(&self) {
        self.entries.lock().clear();
    }

    pub(crate) fn all(&self) -> Vec<Entry> {
        self.entries.lock().clone()
    }

    /// How many requests a service has answered within the window that ends now: what its metrics would say.
    pub(crate) fn answered_within(&self, service: &str, window: Duration) -> usize {
        let now = Instant::now();
        let entries = self.entries.lock();
        let recent = entries.iter().filter(|entry| {
            entry.service == service
                && entry.outcome.is_ok()
                && now.saturating_duration_since(entry.ended_at()) < window
        });
        recent.count()
    }

    /// The last requests of a service, oldest first, back to the last one that went through a resolver or was sent
    /// before `since`.
    pub(crate) fn direct_in_a_row(&self, service: &str, since: Instant) -> Vec<Duration> {
        let entries = self.entries.lock();
        let own = entries
            .iter()
            .rev()
            .filter(|entry| entry.service == service);
        let direct = own.map_while(|entry| match &entry.outcome {
            Ok(answer) if !answer.through_resolver && entry.sent_at >= since => Some(entry.took),
            _ => None,
        });
        direct.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Entry, Ledger};
    use crate::demo::visitor::{Answer, Lost};

    fn entry(sent_at: Instant, outcome: Result<bool, Lost>) -> Entry {
        Entry {
            service: "web".into(),
            sent_at,
            took: Duration::from_millis(1),
            outcome: outcome.map(|through_resolver| Answer {
                pod: "web-1".into(),
                through_resolver,
            }),
        }
    }

    #[test]
    fn a_request_through_a_resolver_or_a_lost_one_breaks_the_row() {
        let ledger = Ledger::default();
        let now = Instant::now();
        ledger.write(entry(now, Ok(false)));
        assert_eq!(ledger.direct_in_a_row("web", now).len(), 1);
        ledger.write(entry(now, Ok(true)));
        assert_eq!(ledger.direct_in_a_row("web", now).len(), 0);
        ledger.write(entry(now, Ok(false)));
        ledger.write(entry(now, Ok(false)));
        assert_eq!(ledger.direct_in_a_row("web", now).len(), 2);
        assert_eq!(ledger.direct_in_a_row("other", now).len(), 0);
        ledger.write(entry(now, Err(Lost::Broken("reset".into()))));
        assert_eq!(ledger.direct_in_a_row("web", now).len(), 0);
        assert_eq!(ledger.answered_within("web", Duration::from_secs(60)), 4);
    }
}
