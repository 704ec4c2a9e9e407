//! How many connections a resolver has, and how it ends: not ready first, accepting until no slice names it and nothing
//! new came for the settle time, then nothing new, and held requests are served.
//! Never cuts a connection off by itself; the second signal is the caller's.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How far a resolver is with ending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Serving,
    /// It reports that it is not ready, and still accepts.
    Leaving,
    /// It accepts nothing new.
    Closing,
}

/// Files that are no client's, whatever the limit: the API server, operators, the admin port, the first listen ports.
const RESERVED_FILES: u64 = 256;
/// How many times as many connections as are still free one listener may have: alone it gets 4/5 of all, and n of them
/// leave 1/(4n + 1) for the next one (the dynamic threshold of the waiting rooms, with alpha = 4).
const MOST_OF_FREE: usize = 4;
/// How long it waits to be out of all slices: the leader writes 10,000 of them in less. Where no operator runs they stay,
/// and it must end all the same.
const OUT_OF_SLICES_TIMEOUT: Duration = Duration::from_secs(50);
/// And then, whatever the settle time, until nothing new came: a client that never stops to come must not keep a resolver
/// from ending, and nodes that follow late have had this long.
///
/// What is accepted last may be held for the longest hold, so the chart grants 120 s beyond it: 50 + 30 s, and 40 s for
/// the last answers.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30);

/// From start to shutdown: the stage, and the connections that are open.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    stage: watch::Sender<Stage>,
    connections: watch::Sender<usize>,
    max_connections: usize,
    /// Since the start.
    accepted: AtomicU64,
}

/// A quarter of the files, and at least [`RESERVED_FILES`], stay for what is no client's: connections to pods, listen
/// ports, operators, the API server. Of 1,048,576 clients get 786,432, of 1,024 they get 768. A held connection needs no
/// second file; where there is none for its pod, it is held on.
fn max_connections(open_files: u64) -> usize {
    let reserved = (open_files / 4).max(RESERVED_FILES);
    usize::try_from(open_files.saturating_sub(reserved)).map_or(usize::MAX, |most| most.max(1))
}

impl Lifecycle {
    pub(crate) fn new(open_files: u64) -> Self {
        Self {
            stage: watch::Sender::default(),
            connections: watch::Sender::default(),
            max_connections: max_connections(open_files),
            accepted: AtomicU64::new(0),
        }
    }

    /// Ends when a listener may accept one more, so that none takes the last ones from the others.
    pub(crate) async fn may_accept(&self, own: impl Fn() -> usize) {
        let may = |open: usize| {
            let free = self.max_connections.saturating_sub(open);
            own() < free.saturating_mul(MOST_OF_FREE)
        };
        if may(*self.connections.borrow()) {
            return;
        }
        let mut open = self.connections.subscribe();
        // The sender is ours, so this ends only when there is room.
        let _ = open.wait_for(|open| may(*open)).await;
    }

    /// How many connections are open, and how many may be.
    pub(crate) fn connections(&self) -> (usize, usize) {
        (*self.connections.borrow(), self.max_connections)
    }

    pub(crate) fn is_serving(&self) -> bool {
        *self.stage.borrow() == Stage::Serving
    }

    pub(crate) fn closing(&self) -> Closing {
        Closing {
            stage: self.stage.subscribe(),
            begun: false,
        }
    }

    /// Counts a connection as open for as long as the guard lives.
    pub(crate) fn count_connection(&self) -> ConnectionGuard {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.connections
            .send_modify(|count| *count = count.saturating_add(1));
        ConnectionGuard(self.connections.clone())
    }

    async fn nothing_new_for(&self, settle: Duration) {
        loop {
            let before = self.accepted.load(Ordering::Relaxed);
            sleep(settle).await;
            if self.accepted.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    /// Ends when every connection has. Nodes stop sending new ones when they have followed the slices, usually within
    /// `settle`, but some follow later: new ones are accepted until none came for that long.
    pub(crate) async fn drain(&self, settle: Duration, out_of_slices: impl Future<Output = ()>) {
        self.stage.send_replace(Stage::Leaving);
        if timeout(OUT_OF_SLICES_TIMEOUT, out_of_slices).await.is_err() {
            tracing::warn!("drain timed out: still in EndpointSlices");
        }
        let _ = timeout(SETTLE_TIMEOUT, self.nothing_new_for(settle)).await;
        self.stage.send_replace(Stage::Closing);
        let mut open = self.connections.subscribe();
        // The sender is ours, so this ends only when the count is 0.
        let _ = open.wait_for(|count| *count == 0).await;
    }
}

/// Waits for the stage in which connections should end.
#[derive(Debug)]
pub(crate) struct Closing {
    stage: watch::Receiver<Stage>,
    begun: bool,
}

impl Closing {
    /// Ends once, when closing begins.
    pub(crate) async fn begins(&mut self) {
        if self.begun
            || self
                .stage
                .wait_for(|stage| *stage == Stage::Closing)
                .await
                .is_err()
        {
            std::future::pending::<()>().await;
        }
        self.begun = true;
    }
}

/// Ends the connections of one listener in order: its route is gone, or the resolver is closing. Most listeners have no
/// connection for hours, so the channel (half a kilobyte) is made for the first one.
#[derive(Debug, Default)]
pub(crate) struct EndSender(OnceLock<watch::Sender<bool>>);

impl EndSender {
    fn sender(&self) -> &watch::Sender<bool> {
        self.0.get_or_init(watch::Sender::default)
    }

    pub(crate) fn end(&self) {
        self.sender().send_replace(true);
    }

    pub(crate) fn ending(&self) -> Ending {
        Ending {
            ends: self.sender().subscribe(),
            begun: false,
        }
    }
}

/// Waits for the moment in which a connection should end.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    ends: watch::Receiver<bool>,
    begun: bool,
}

impl Ending {
    pub(crate) fn has_begun(&self) -> bool {
        *self.ends.borrow()
    }

    /// Ends once, when the connection should.
    pub(crate) async fn begins(&mut self) {
        if self.begun || self.ends.wait_for(|ends| *ends).await.is_err() {
            std::future::pending::<()>().await;
        }
        self.begun = true;
    }
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct ConnectionGuard(watch::Sender<usize>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// What the request that was held longest still has for its answer.
    const ANSWER_TIME: Duration = Duration::from_secs(40);

    #[test]
    fn clients_get_the_files_that_are_not_reserved() {
        for (files, connections) in [
            (1 << 20, 786_432),
            (4096, 3072),
            (1024, 768),
            (256, 1),
            (0, 1),
        ] {
            assert_eq!(max_connections(files), connections, "{files}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_never_takes_the_last_connections_from_the_others() {
        let lifecycle = Lifecycle::new(256 + 20);
        let mut busy = Vec::new();
        while tokio::time::timeout(Duration::from_secs(1), lifecycle.may_accept(|| busy.len()))
            .await
            .is_ok()
        {
            busy.push(lifecycle.count_connection());
        }
        assert_eq!(busy.len(), 16, "of 20");
        lifecycle.may_accept(|| 0).await;
        let _another = lifecycle.count_connection();
        drop(busy.split_off(9));
        lifecycle.may_accept(|| busy.len()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_accepts_until_nothing_new_came_for_the_settle_time() {
        let lifecycle = Lifecycle::new(1024);
        let settle = Duration::from_secs(2);
        let arrivals = async {
            for _ in 0..5 {
                sleep(Duration::from_millis(1500)).await;
                assert!(lifecycle.closing().begins().now_or_never().is_none());
                drop(lifecycle.count_connection());
            }
            lifecycle.closing().begins().await;
        };
        tokio::join!(lifecycle.drain(settle, async {}), arrivals);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_never_stop_to_come_do_not_keep_it_from_ending() {
        let lifecycle = Lifecycle::new(1024);
        tokio::select! {
            () = lifecycle.drain(Duration::from_secs(2), async {}) => {}
            () = async {
                loop {
                    sleep(Duration::from_millis(100)).await;
                    drop(lifecycle.count_connection());
                }
            } => {}
        }
        assert!(lifecycle.closing().begins().now_or_never().is_some());
    }

    /// How many seconds resolver pods have beyond the longest hold, by the chart and by its rendering.
    fn granted() -> (u64, u64) {
        const CHART: &str =
            include_str!("../../../deploy/helm/elasti/templates/resolver-deployment.yaml");
        const VALUES: &str = include_str!("../../../deploy/helm/elasti/values.yaml");
        const RENDERED: &str = include_str!("../../../deploy/kustomize/base/deployment.yaml");
        let number = |text: &str, before: &str| -> u64 {
            let (_, after) = text.rsplit_once(before).unwrap();
            let digits = after
                .trim_start_matches('"')
                .split(|it: char| !it.is_ascii_digit());
            digits.into_iter().next().unwrap().parse().unwrap()
        };
        let beyond = number(CHART, "add (int $r.proxy.env.reqTimeout) ");
        let whole = number(RENDERED, "terminationGracePeriodSeconds: ");
        (beyond, whole - number(VALUES, "reqTimeout: "))
    }

    /// Its slices never go, clients never stop to come, nodes are slow, and the last request is held for its whole time.
    #[tokio::test(start_paused = true)]
    async fn the_longest_drain_leaves_the_last_answer_time_before_its_pod_is_killed() {
        let (chart, rendered) = granted();
        assert_eq!(chart, rendered);
        for settle in [1, 2, 7, 100, 3_600] {
            let lifecycle = Lifecycle::new(1024);
            let began = tokio::time::Instant::now();
            let arrivals = async {
                loop {
                    sleep(Duration::from_millis(100)).await;
                    drop(lifecycle.count_connection());
                }
            };
            tokio::select! {
                () = lifecycle.drain(Duration::from_secs(settle), std::future::pending()) => {}
                () = arrivals => {}
            }
            let accepted_for = began.elapsed();
            assert!(
                accepted_for + ANSWER_TIME <= Duration::from_secs(chart),
                "{accepted_for:?} of {chart} s, with a settle time of {settle} s"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_accepts_as_long_as_slices_name_it_but_not_for_ever() {
        let lifecycle = Lifecycle::new(1024);
        let settle = Duration::from_secs(2);
        let follow = async {
            sleep(Duration::from_secs(20)).await;
            assert!(lifecycle.closing().begins().now_or_never().is_none());
        };
        lifecycle.drain(settle, follow).await;
        assert!(lifecycle.closing().begins().now_or_never().is_some());
        let lifecycle = Lifecycle::new(1024);
        lifecycle.drain(settle, std::future::pending()).await;
        assert!(lifecycle.closing().begins().now_or_never().is_some());
    }

    #[test]
    fn without_a_bound_one_listener_takes_every_connection_from_the_others() {
        for (bounded, another) in [(true, true), (false, false)] {
            let lifecycle = Lifecycle::new(256 + 20);
            let mut busy = Vec::new();
            // One whose own connections do not count has no bound.
            let may = |open: usize| lifecycle.may_accept(move || if bounded { open } else { 0 });
            while may(busy.len()).now_or_never().is_some() {
                busy.push(lifecycle.count_connection());
            }
            let accepted = lifecycle.may_accept(|| 0).now_or_never();
            assert_eq!(accepted.is_some(), another, "{} are open", busy.len());
        }
    }
}
