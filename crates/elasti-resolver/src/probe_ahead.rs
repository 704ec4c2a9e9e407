//! Runs the probes of starting pods ahead of the kubelet while requests are held. `elasti-core` decides what is run,
//! when, and what it means; this does the waiting and counts.

mod call;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use elasti_core::ports::ServiceKey;
use elasti_core::probe_ahead::{Progress, Slots};
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::clock::Clock;
use crate::hold::Hold;
use crate::metrics::Metrics;
use crate::routes::Routes;
use crate::starting_pods::Probed;
use crate::table::{OpenGuard, Service};
use call::Calls;

/// Pods of one service that are probed at a time: one that passes is enough to begin with.
pub(crate) const MOST_PROBED: usize = 4;
/// How often a pod that no request waits for is looked at again.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A pod that no request came for in this time is not used ahead of its kubelet any more; the next request asks again.
const UNUSED_AFTER: Duration = Duration::from_secs(60);

/// All probes of one resolver.
#[derive(Debug)]
pub(crate) struct Probes {
    routes: Arc<Routes>,
    hold: Arc<Hold>,
    metrics: Arc<Metrics>,
    clock: Clock,
    calls: Calls,
    slots: Mutex<Slots>,
    /// The clock of the slots.
    began: Instant,
}

impl Probes {
    pub(crate) fn new(
        routes: Arc<Routes>,
        hold: Arc<Hold>,
        metrics: Arc<Metrics>,
        clock: Clock,
    ) -> Self {
        Self {
            routes,
            hold,
            metrics,
            clock,
            calls: Calls::new(),
            slots: Mutex::default(),
            began: Instant::now(),
        }
    }

    /// Probes the pods of a service as long as the future lives; `on_result` learns when one passes or does not any more.
    pub(crate) async fn run(
        &self,
        key: &ServiceKey,
        mut pods: watch::Receiver<Vec<Probed>>,
        on_result: impl Fn(&Probed, bool),
    ) {
        let mut known: HashSet<u64> = HashSet::new();
        let mut running = FuturesUnordered::new();
        loop {
            let current = pods.borrow_and_update().clone();
            for pod in current {
                if known.insert(pod.generation) {
                    running.push(self.follow_pod(key, pod, pods.clone(), &on_result));
                }
            }
            tokio::select! {
                changed = pods.changed() => if changed.is_err() { return },
                Some(gone) = running.next() => drop(known.remove(&gone)),
            }
        }
    }

    /// Probes one pod until it is not one to be probed any more; then it counts as one that has not passed.
    async fn follow_pod(
        &self,
        key: &ServiceKey,
        pod: Probed,
        mut pods: watch::Receiver<Vec<Probed>>,
        on_result: &impl Fn(&Probed, bool),
    ) -> u64 {
        let passed = AtomicBool::new(false);
        let on_change = |pod: &Probed, passes| {
            passed.store(passes, Ordering::Relaxed);
            on_result(pod, passes);
        };
        let gone = |all: &Vec<Probed>| !all.iter().any(|one| one.generation == pod.generation);
        tokio::select! {
            _ = pods.wait_for(gone) => {}
            () = self.probe(key, &pod, &on_change) => {}
        }
        if passed.load(Ordering::Relaxed) {
            on_result(&pod, false);
        }
        pod.generation
    }

    async fn probe(&self, key: &ServiceKey, pod: &Probed, on_result: &impl Fn(&Probed, bool)) {
        let first_seen = Instant::now();
        let mut progress = Progress::new(&pod.candidate);
        // While a pod is used that the operator does not know as ready, it counts as in use: it must not be stopped.
        let mut in_use: Option<OpenGuard> = None;
        loop {
            let service = self.routes.table.service(key);
            let service = service.filter(|service| {
                let used = || in_use.is_some() && self.is_recent(service);
                service.probe_ahead && (self.hold.held(key) > 0 || used())
            });
            match &service {
                Some(_) => self.run_due(key, pod, &mut progress, first_seen).await,
                None => progress = Progress::new(&pod.candidate),
            }
            let passes = service.is_some() && progress.passed();
            if passes != in_use.is_some() {
                let passing = service.as_ref().filter(|_| passes);
                in_use = passing.map(|service| OpenGuard::new(&service.stats));
                tracing::info!(service = %key, pod = %pod.address, passes, "readiness probe run ahead of the kubelet");
                on_result(pod, passes);
            }
            sleep(match service {
                Some(_) => progress.wait(first_seen.elapsed()),
                None => POLL_INTERVAL,
            })
            .await;
        }
    }

    /// A request has come lately.
    fn is_recent(&self, service: &Service) -> bool {
        let last = service.stats.last_arrival_millis.load(Ordering::Relaxed);
        let ago = Duration::from_millis(self.clock.millis().saturating_sub(last));
        last > 0 && ago < UNUSED_AFTER
    }

    /// Runs what is due of one pod, beside each other, and records the results.
    async fn run_due(
        &self,
        key: &ServiceKey,
        pod: &Probed,
        progress: &mut Progress,
        first_seen: Instant,
    ) {
        // Checked each time: which addresses are resolvers may have changed.
        let Some(address) = self.routes.checked(pod.address) else {
            return;
        };
        let due = progress.due(first_seen.elapsed()).into_iter();
        let calls = due.map(|(at, probe)| async move {
            let wait = { self.slots.lock() }.take(&key.namespace, self.began.elapsed());
            sleep(wait).await;
            let passes = timeout(probe.timeout, self.calls.pass(address, &probe.call)).await;
            (at, passes.unwrap_or(false))
        });
        for (at, passes) in join_all(calls).await {
            self.metrics.probed(passes);
            progress.record(at, passes);
        }
    }
}
