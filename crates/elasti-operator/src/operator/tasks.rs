//! The long-running tasks of an operator: terms, reconcile workers, changed readings.

use std::sync::Arc;
use std::time::Duration;

use elasti_core::observed::Leadership;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::cluster::Cluster;
use crate::leader::LeaderElection;
use crate::name::Name;
use crate::reconcile::{self, Reconciled};
use crate::term::Term;

use super::Operator;

/// Resolvers are settled when none has come or gone for this long: twice as long as their grace.
const RESOLVERS_SETTLE: Duration = Duration::from_secs(60);
const LIST_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Begins and ends terms as the lease comes and goes.
pub(super) async fn follow_lease(operator: Arc<Operator>, election: Arc<LeaderElection>) {
    let mut leadership = election.subscribe();
    loop {
        let leads = matches!(*leadership.borrow_and_update(), Leadership::Leader { .. });
        let led = operator.terms.leads();
        if leads && !led {
            // Ports are restored from the statuses, so those must be listed first.
            while !operator.cluster.store.cache().services_listed() {
                sleep(LIST_POLL_INTERVAL).await;
            }
            operator.begin_term(Term {
                began: operator.clock.now(),
                previous_leader_until: election.previous_leader_until(),
            });
        } else if !leads && led {
            operator.end_term();
        }
        if leadership.changed().await.is_err() {
            operator.end_term();
            return;
        }
    }
}

/// Reconciles one service after another, while this process leads.
pub(super) async fn reconcile_queued(operator: Arc<Operator>) {
    let queue = &operator.cluster.queue;
    loop {
        let name = queue.next().await;
        if !operator.terms.leads() || operator.is_stopping() {
            // The next leader reconciles everything.
            queue.done(&name, None);
            continue;
        }
        let Reconciled {
            outcome,
            requeue_at,
        } = reconcile::reconcile(&operator, &name).await;
        let requeue_at = requeue_at.map(|moment| operator.clock.instant(moment));
        match outcome {
            Ok(()) => queue.done(&name, requeue_at),
            Err(error) => {
                match error.is_routine() {
                    true => tracing::debug!(elastiservice = %name, %error, "reconcile retried"),
                    false => tracing::warn!(elastiservice = %name, %error, "reconcile failed"),
                }
                queue.failed(&name, requeue_at);
            }
        }
    }
}

/// Tells whether resolvers have come or gone lately.
pub(super) async fn follow_resolver_changes(
    operator: Arc<Operator>,
    unsettled: watch::Sender<bool>,
) {
    let changed = || operator.resolvers_changed.notified();
    loop {
        changed().await;
        unsettled.send_replace(true);
        while timeout(RESOLVERS_SETTLE, changed()).await.is_ok() {}
        unsettled.send_replace(false);
    }
}

/// Reconciles a service when a reading of its triggers changes.
pub(super) async fn enqueue_readings(cluster: Arc<Cluster>, mut changed: mpsc::Receiver<Name>) {
    while let Some(name) = changed.recv().await {
        cluster.queue.add(&name);
    }
}
