//! A wake, from the resolver's request to the one conditional scale write. It runs on every replica of the operator
//! and waits for no reconcile.

mod client;
mod endpoint;
mod leader_client;
mod refusal;

use std::collections::HashMap;
use std::sync::Arc;

use elasti_api::{WakeClient, WakePromise};
use elasti_core::{Promise, WakeDecision, Why};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::error::Error;
use crate::name::{Name, TargetName};
use crate::observe::{Incomplete, Snapshot};
use crate::operator::Operator;
use crate::refresh;
pub use endpoint::{WakeEndpoint, WakeSettings};
pub use leader_client::LeaderClient;

/// How often a wake decides again when something else writes the target at the same moment.
const WAKE_ATTEMPTS: usize = 8;

/// A wake that waits to be decided.
#[derive(Debug)]
pub struct PendingWake {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub service: String,
    /// Who it is for, if a resolver told it.
    pub client: Option<WakeClient>,
    /// Where the outcome goes.
    pub answer: oneshot::Sender<WakeOutcome>,
}

/// What became of a wake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeOutcome {
    /// Kubernetes accepted the scale write.
    Scaled,
    /// The target is scaled up already; what the leader promises about it.
    AlreadyAwake(Option<WakePromise>),
    /// No ElastiService has this Service.
    NotManaged,
    /// The plan does not allow it.
    Refused(Why),
    /// The write failed.
    Failed {
        /// Trying again may help.
        retry: bool,
    },
}

/// What was decided about a wake; a promise is still a moment, not a duration.
enum Decided {
    AlreadyAwake(Option<Promise>),
    Other(WakeOutcome),
}

const RETRY: Decided = Decided::Other(WakeOutcome::Failed { retry: true });

impl Decided {
    fn outcome(self, now: Timestamp) -> WakeOutcome {
        match self {
            Self::AlreadyAwake(promise) => {
                WakeOutcome::AlreadyAwake(promise.map(|promise| WakePromise {
                    millis: u64::try_from(promise.left(now).as_millis()).unwrap_or(0),
                    pods: promise.pods,
                }))
            }
            Self::Other(outcome) => outcome,
        }
    }
}

/// Wakes in progress, and where the outcome of each is awaited.
#[derive(Debug, Default)]
struct InProgress(Mutex<HashMap<Name, Vec<oneshot::Sender<WakeOutcome>>>>);

impl InProgress {
    /// Waits for the outcome of a Service's wake; tells whether it is the first to do so.
    fn join(&self, service: &Name, answer: oneshot::Sender<WakeOutcome>) -> bool {
        let mut waiting = self.0.lock();
        let answers = waiting.entry(service.clone()).or_default();
        answers.push(answer);
        answers.len() == 1
    }

    /// Gives the outcome to all that wait for it. It is made after the last of them has come: a promise is counted from
    /// before a wake was sent.
    fn finish(&self, service: &Name, outcome: impl FnOnce() -> WakeOutcome) {
        let mut waiting = self.0.lock();
        let Some(answers) = waiting.remove(service) else {
            return;
        };
        let outcome = outcome();
        for answer in answers {
            // The caller may have disconnected.
            let _ = answer.send(outcome.clone());
        }
    }
}

/// Runs every wake at once; several for one Service share one decision.
pub(crate) async fn run(operator: Arc<Operator>, mut wakes: mpsc::Receiver<PendingWake>) {
    let in_progress = Arc::new(InProgress::default());
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            wake = wakes.recv() => {
                let Some(PendingWake { namespace, service, client, answer }) = wake else { return };
                let service = Name::new(namespace, service);
                if in_progress.join(&service, answer) {
                    let (operator, in_progress) = (operator.clone(), in_progress.clone());
                    tasks.spawn(async move {
                        let finish = |decided: Decided| {
                            let outcome = || decided.outcome(operator.clock.now());
                            in_progress.finish(&service, outcome);
                            let claimant = operator.cluster.store.cache().claimant(&service);
                            operator.cluster.queue.add_all(claimant.as_slice());
                        };
                        let promised = |promise| finish(Decided::AlreadyAwake(Some(promise)));
                        let decided = wake_service(&operator, &service, client, promised).await;
                        finish(decided);
                    });
                }
            }
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Decides on the cached facts and writes the scale; where something else was faster, decides again. What can be promised
/// is `promised` at once, before anything is read.
async fn wake_service(
    operator: &Operator,
    service: &Name,
    client: Option<WakeClient>,
    promised: impl Fn(Promise),
) -> Decided {
    let cluster = &operator.cluster;
    let Some(name) = cluster.store.cache().claimant(service) else {
        return match operator.is_ready() {
            true => Decided::Other(WakeOutcome::NotManaged),
            false => RETRY,
        };
    };
    for attempt in 0..WAKE_ATTEMPTS {
        let snapshot = match operator.snapshot(&name) {
            Ok(snapshot) => snapshot,
            Err(Incomplete::Unread(me)) => match refresh::first_read(cluster, &me).await {
                Ok(()) => continue,
                Err(_) => return RETRY,
            },
            Err(Incomplete::Gone | Incomplete::NotListed | Incomplete::Refused(..)) => {
                return RETRY;
            }
        };
        operator.memories.set_wake_requested(&name);
        match elasti_core::wake(snapshot.spec(), &snapshot.observed) {
            WakeDecision::Refused(why) => return Decided::Other(WakeOutcome::Refused(why)),
            WakeDecision::AlreadyAwake(_) => {
                let promise = promise(operator, &name, &snapshot.target_name).await;
                // The cache may be behind a sleep that has just begun, so "awake" is believed only after a read.
                match (attempt, promise) {
                    (0, Some(promise)) => promised(promise),
                    (0, None) => {}
                    (_, promise) => {
                        client::remember(operator, &snapshot, client).await;
                        return Decided::AlreadyAwake(promise);
                    }
                }
            }
            WakeDecision::Scale(replicas) => {
                let scaled = scale_up(operator, &snapshot, replicas, client.clone());
                if let Some(outcome) = scaled.await {
                    return outcome;
                }
            }
        }
        if refresh::target(cluster, &snapshot.me).await.is_err() {
            return RETRY;
        }
    }
    tracing::warn!(elastiservice = %name, attempts = WAKE_ATTEMPTS, "wake failed: too many conflicting writes to the target");
    RETRY
}

/// Gives a promise where the leader can: on the facts as they are once no write of the target is in flight.
async fn promise(operator: &Operator, name: &Name, target: &TargetName) -> Option<Promise> {
    let decide = || {
        let snapshot = operator.snapshot(name).ok()?;
        match elasti_core::wake(snapshot.spec(), &snapshot.observed) {
            WakeDecision::AlreadyAwake(promise) => promise,
            WakeDecision::Scale(_) | WakeDecision::Refused(_) => None,
        }
    };
    let promise = operator.writer.promise(target, decide).await;
    // A shutdown waits for the promises that were given before it began.
    promise.filter(|_| !operator.is_closing())
}

/// The one write; `None` if something else wrote the target first.
async fn scale_up(
    operator: &Operator,
    snapshot: &Snapshot,
    replicas: u32,
    client: Option<WakeClient>,
) -> Option<Decided> {
    let Some(target) = &snapshot.target else {
        return Some(RETRY);
    };
    let (writer, reporter) = (&operator.writer, &operator.reporter);
    match writer
        .scale_up(&snapshot.target_name, target, replicas)
        .await
    {
        Ok(()) => {
            operator.memories.set_woken(&snapshot.me.name);
            let client = client::remember(operator, snapshot, client).await;
            reporter.wake_scaled(snapshot, replicas, client.as_ref());
            Some(Decided::Other(WakeOutcome::Scaled))
        }
        Err(Error::Conflict(_)) => None,
        Err(error) => {
            reporter.wake_failed(snapshot, &error);
            tracing::warn!(elastiservice = %snapshot.me.name, %error, "wake failed");
            Some(RETRY)
        }
    }
}
