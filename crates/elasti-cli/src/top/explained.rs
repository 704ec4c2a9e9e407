//! The text of `why` in `top`: what it needs is read once, and again when the service changes or after some time.
//! Neither the screen nor a key ever waits for it.

use std::future::pending;
use std::time::Duration;

use elasti_view::explanation::LiveObjects;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::access::Cluster;
use crate::choice::Chosen;
use crate::fleet::Fleet;
use crate::terminal::Terminal;
use crate::why;

/// Pods and Events are not watched.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

type Loaded = Result<LiveObjects, String>;

/// What is known of the service that is explained.
#[derive(Debug, Default)]
pub(super) struct Explained {
    /// What was read last, for which service and when.
    asked: Option<(Chosen, String, Instant)>,
    loaded: Option<Loaded>,
    /// At most one; none outlives the screen.
    loading: JoinSet<Loaded>,
}

impl Explained {
    /// Begins to read about this service where that is due.
    pub(super) fn refresh(&mut self, cluster: &Cluster, one: Option<&Chosen>, fleet: &Fleet) {
        let Some(one) = one else {
            *self = Self::default();
            return;
        };
        let version = fleet.version(&one.namespace, &one.name);
        if !self.begins(one, version, Instant::now()) {
            return;
        }
        let (cluster, one) = (cluster.clone(), one.clone());
        self.loading
            .spawn(async move { why::load(&cluster, &one).await });
    }

    /// Whether to read now; what was read of another service is forgotten.
    fn begins(&mut self, one: &Chosen, version: String, now: Instant) -> bool {
        let is_due = match &self.asked {
            Some((asked, _, _)) if asked != one => {
                *self = Self::default();
                true
            }
            Some((_, seen, at)) => {
                let is_old = *seen != version || now.duration_since(*at) >= RELOAD_INTERVAL;
                is_old && self.loading.is_empty()
            }
            None => true,
        };
        if is_due {
            self.asked = Some((one.clone(), version, now));
        }
        is_due
    }

    /// Ends when something new was read.
    pub(super) async fn changed(&mut self) {
        match self.loading.join_next().await {
            Some(Ok(loaded)) => self.loaded = Some(loaded),
            // It was ended for another service's sake; the next refresh reads again.
            Some(Err(_)) => {}
            None => pending().await,
        }
    }

    /// The text as of now.
    pub(super) fn text(&mut self, one: &Chosen, now: Timestamp, terminal: Terminal) -> String {
        match &mut self.loaded {
            Some(Ok(live)) => {
                live.now = now;
                why::rendered(live, terminal)
            }
            Some(Err(line)) => line.clone(),
            None => format!("Reading about {} ...\n", one.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(name: &str) -> Chosen {
        Chosen {
            namespace: "shop".into(),
            name: name.into(),
        }
    }

    #[tokio::test]
    async fn a_service_is_read_once_and_again_when_it_changes_or_after_some_time() {
        let mut why = Explained::default();
        let start = Instant::now();
        let web = chosen("web");
        let mut begins = |one: &Chosen, version: &str, seconds| {
            why.begins(one, version.into(), start + Duration::from_secs(seconds))
        };
        assert!(begins(&web, "1", 0));
        assert!(!begins(&web, "1", 1), "it is known");
        assert!(begins(&web, "2", 2), "it has changed");
        assert!(!begins(&web, "2", 6));
        assert!(begins(&web, "2", 7), "pods and Events may have changed");
        assert!(begins(&chosen("api"), "2", 7), "another one");
    }

    #[tokio::test]
    async fn nothing_is_read_twice_at_once() {
        let mut why = Explained::default();
        let start = Instant::now();
        let web = chosen("web");
        assert!(why.begins(&web, "1".into(), start));
        why.loading.spawn(pending());
        assert!(!why.begins(&web, "2".into(), start + Duration::from_secs(60)));
        assert!(why.begins(&chosen("api"), "1".into(), start));
        assert!(why.loading.is_empty(), "the other one is not shown");
    }
}
