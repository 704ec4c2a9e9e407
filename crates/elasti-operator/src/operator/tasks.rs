//! What a running operator does all the time: terms, looks, news of triggers, wakes.
//! Never decides: it hands each piece of work to its room.

use std::sync::Arc;
use std::time::Duration;

use elasti_core::observed::Leadership;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::leader::LeaderElection;
use crate::name::Name;
use crate::reconcile;
use crate::wake::WakeRequest;

use super::{Operator, Term};

/// Begins and ends terms as the lease comes and goes.
pub(super) async fn keep_terms(operator: Arc<Operator>, election: Arc<LeaderElection>) {
    let mut leadership = election.subscribe();
    loop {
        let leads = matches!(*leadership.borrow_and_update(), Leadership::Leader { .. });
        let had = operator.term.borrow().is_some();
        if leads && !had {
            // Ports are remembered from the statuses, so those must be known first.
            while !operator.store.known().knows_what_matters() {
                sleep(Duration::from_millis(20)).await;
            }
            operator.begin_term(Term {
                began: operator.clock.now(),
                watched_before_until: election.watched_before_until(),
            });
        } else if !leads && had {
            operator.end_term();
        }
        if leadership.changed().await.is_err() {
            operator.end_term();
            return;
        }
    }
}

/// Looks at one service after another, while this process leads.
pub(super) async fn work(operator: Arc<Operator>) {
    let mut term = operator.term.subscribe();
    loop {
        if term.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let name = operator.queue.next().await;
        if term.borrow().is_none() || *operator.stopping.borrow() {
            // Whoever leads next looks at everything anew.
            operator.queue.done(&name, None);
            continue;
        }
        match reconcile::reconcile(&operator, &name).await {
            Ok(requeue_at) => {
                let at = requeue_at.map(|moment| operator.clock.instant(moment));
                operator.queue.done(&name, at);
            }
            Err(error) => {
                match error.is_routine() {
                    true => tracing::debug!(elastiservice = %name, %error, "again, on new facts"),
                    false => tracing::warn!(elastiservice = %name, %error, "it is tried again"),
                }
                operator.queue.failed(&name);
            }
        }
    }
}

pub(super) async fn hear_triggers(operator: Arc<Operator>, mut changed: mpsc::Receiver<Name>) {
    while let Some(name) = changed.recv().await {
        operator.queue.add(&name);
    }
}

/// Every wake at once; several for one service share one decision.
pub(super) async fn take_wakes(operator: Arc<Operator>, mut wakes: mpsc::Receiver<WakeRequest>) {
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            wake = wakes.recv() => {
                let Some(WakeRequest { namespace, service, answer }) = wake else { return };
                let service = Name::new(namespace, service);
                let mut waking = operator.waking.lock();
                let is_first = !waking.contains_key(&service);
                waking.entry(service.clone()).or_default().push(answer);
                drop(waking);
                if is_first {
                    under_way.spawn(wake_one(operator.clone(), service));
                }
            }
            Some(_) = under_way.join_next() => {}
        }
    }
}

async fn wake_one(operator: Arc<Operator>, service: Name) {
    let outcome = reconcile::wake(&operator, &service).await;
    let waiting = operator.waking.lock().remove(&service);
    for answer in waiting.into_iter().flatten() {
        // Who has left does not need an answer.
        let _ = answer.send(outcome.clone());
    }
    let claimant = operator.store.known().claimant(&service);
    operator.look_at(claimant.as_slice());
}
