//! The requests: the outcome of every request.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use elasti_visitor::{Answer, Lost};

/// One request and its outcome.
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

/// The outcomes of a round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    sent: usize,
    answered: usize,
    held: usize,
    /// Service and error of each.
    lost: Vec<String>,
}

impl Summary {
    /// # Errors
    /// If a request was lost.
    pub(crate) fn verdict(&self) -> anyhow::Result<()> {
        let (lost, sent) = (self.lost.len(), self.sent);
        match self.lost.first() {
            None => Ok(()),
            Some(first) => Err(anyhow::anyhow!(
                "{lost} of {sent} requests were lost, the first of {first}"
            )),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sent,
            answered,
            held,
            lost,
        } = self;
        let lost = lost.len();
        write!(
            f,
            "sent {sent}, answered {answered}, of them held {held}, lost {lost}"
        )
    }
}

/// The requests of one round; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestLog {
    entries: Arc<Mutex<Vec<Entry>>>,
}

impl RequestLog {
    pub(crate) fn write(&self, entry: Entry) {
        self.entries.lock().push(entry);
    }

    /// Starts a new round.
    pub(crate) fn clear(&self) {
        self.entries.lock().clear();
    }

    /// When the last request to a service ended; now if there was none.
    pub(crate) fn last_ended_at(&self, service: &str) -> Instant {
        let entries = self.entries.lock();
        let own = entries.iter().filter(|entry| entry.service == service);
        own.map(Entry::ended_at).max().unwrap_or_else(Instant::now)
    }

    /// Counts. Held is what a resolver forwarded and was sent before its service's first pod was ready.
    pub(crate) fn summarize(&self, ready: &BTreeMap<String, Instant>) -> Summary {
        let mut summary = Summary::default();
        for entry in self.entries.lock().iter() {
            summary.sent += 1;
            match &entry.outcome {
                Ok(answer) => {
                    let early = ready
                        .get(&entry.service)
                        .is_some_and(|at| entry.sent_at < *at);
                    summary.answered += 1;
                    summary.held += usize::from(early && answer.through_resolver);
                }
                Err(why) => summary.lost.push(format!("{}: {why}", entry.service)),
            }
        }
        summary
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

    use super::{Entry, RequestLog};
    use elasti_visitor::{Answer, Lost};

    fn entry(sent_at: Instant, outcome: Result<bool, Lost>) -> Entry {
        Entry {
            service: "web".into(),
            sent_at,
            took: Duration::from_millis(1),
            outcome: outcome.map(|through_resolver| Answer {
                pod: Some("web-1".into()),
                through_resolver,
            }),
        }
    }

    #[test]
    fn a_request_through_a_resolver_or_a_lost_one_breaks_the_row() {
        let requests = RequestLog::default();
        let now = Instant::now();
        requests.write(entry(now, Ok(false)));
        assert_eq!(requests.direct_in_a_row("web", now).len(), 1);
        requests.write(entry(now, Ok(true)));
        assert_eq!(requests.direct_in_a_row("web", now).len(), 0);
        requests.write(entry(now, Ok(false)));
        requests.write(entry(now, Ok(false)));
        assert_eq!(requests.direct_in_a_row("web", now).len(), 2);
        assert_eq!(requests.direct_in_a_row("other", now).len(), 0);
        requests.write(entry(now, Err(Lost::Broken("reset".into()))));
        assert_eq!(requests.direct_in_a_row("web", now).len(), 0);
    }

    #[test]
    fn a_lost_request_is_counted_named_and_fails_the_round() {
        let requests = RequestLog::default();
        let now = Instant::now();
        let ready = [("web".to_owned(), now + Duration::from_secs(2))].into();
        requests.write(entry(now, Ok(true)));
        requests.write(entry(now + Duration::from_secs(3), Ok(true)));
        requests.write(entry(now + Duration::from_secs(3), Ok(false)));
        let summary = requests.summarize(&ready);
        assert_eq!(
            summary.to_string(),
            "sent 3, answered 3, of them held 1, lost 0"
        );
        assert!(summary.verdict().is_ok());
        requests.write(entry(now, Err(Lost::Broken("reset".into()))));
        let summary = requests.summarize(&ready);
        assert_eq!(
            summary.to_string(),
            "sent 4, answered 3, of them held 1, lost 1"
        );
        let verdict = summary.verdict().unwrap_err().to_string();
        assert_eq!(
            verdict,
            "1 of 4 requests were lost, the first of web: the connection failed: reset"
        );
    }
}
