//! One reconcile of one service: observe, plan, apply, report.

use std::time::{Duration, Instant};

use elasti_core::{Plan, idle};
use jiff::Timestamp;

use crate::error::Error;
use crate::name::Name;
use crate::observe::{Incomplete, Snapshot};
use crate::operator::Operator;
use crate::refresh;
use crate::slim::Declared;

/// A watch may bring something that was not read at any moment; more often in a row is not chance.
const OBSERVE_ATTEMPTS: usize = 3;

/// Reconciles one service; gives when to reconcile it again at the latest.
pub(crate) async fn reconcile(
    operator: &Operator,
    name: &Name,
) -> Result<Option<Timestamp>, Error> {
    let started = Instant::now();
    let Some((snapshot, plan)) = decide(operator, name).await? else {
        return Ok(None);
    };
    operator
        .memories
        .set_stable_since(name, snapshot.stable_since_after(&plan));
    let applied = operator.writer.apply(&snapshot, &plan).await;
    let reported = operator.reporter.report(&snapshot, &plan, &applied).await;
    let outcome = applied.outcome().and(reported);
    operator
        .metrics
        .reconciled(name, started.elapsed(), outcome.as_ref().err());
    outcome.map(|()| snapshot.requeue_at(&plan))
}

/// Observes and plans; where the plan asks for it, refreshes what it depends on and plans again.
async fn decide(operator: &Operator, name: &Name) -> Result<Option<(Snapshot, Plan)>, Error> {
    let Some(mut snapshot) = observe(operator, name).await? else {
        return Ok(None);
    };
    let mut plan = snapshot.plan();
    if plan.ask_resolvers {
        refresh::reports(&operator.reports, &operator.memories, &snapshot).await;
        let Some(next) = observe(operator, name).await? else {
            return Ok(None);
        };
        snapshot = next;
        plan = snapshot.plan();
    }
    if plan.needs_fresh_facts() {
        refresh_all(operator, &snapshot).await?;
        let Some(next) = observe(operator, name).await? else {
            return Ok(None);
        };
        snapshot = next;
        plan = snapshot.plan();
    }
    Ok(Some((snapshot, plan)))
}

/// The facts as they are cached; what was never read is read first. `None` if there is nothing to decide.
async fn observe(operator: &Operator, name: &Name) -> Result<Option<Snapshot>, Error> {
    for _ in 0..OBSERVE_ATTEMPTS {
        match operator.snapshot(name) {
            Ok(snapshot) => {
                track(operator, &snapshot.me).await;
                return Ok(Some(snapshot));
            }
            Err(Incomplete::Unread(me)) => refresh::first_read(&operator.cluster, &me).await?,
            Err(Incomplete::Gone) => {
                operator.forget(name);
                return Ok(None);
            }
            // The list that is still missing enqueues it again.
            Err(Incomplete::NotListed) => return Ok(None),
        }
    }
    Err(Error::Conflict(
        "it changes faster than it can be read".into(),
    ))
}

/// Before a step that cannot be undone: objects, resolvers and triggers, all past the caches.
async fn refresh_all(operator: &Operator, snapshot: &Snapshot) -> Result<(), Error> {
    let (cluster, me) = (&operator.cluster, &snapshot.me);
    let (workload, declaration, (), ()) = futures::join!(
        refresh::workload(cluster, me),
        refresh::declaration(cluster, me),
        refresh::reports(&operator.reports, &operator.memories, snapshot),
        operator.readings.read_now(&me.name),
    );
    workload.and(declaration)
}

/// Starts to follow what a decision about this service needs beside the watches.
async fn track(operator: &Operator, me: &Declared) {
    let cooldown = Duration::try_from(idle::cooldown(&me.spec)).unwrap_or_default();
    operator
        .readings
        .track(&me.name, &me.spec.triggers, cooldown);
    let memories = &operator.memories;
    let services = operator.cluster.store.cache().services_of(me);
    operator.release_ports(&memories.set_public_services(&me.name, services));
    let namespace = &me.name.namespace;
    // Only a deletion needs to know, so namespaces are not watched.
    if me.deleting_since.is_some() && !memories.is_terminating(namespace) {
        let terminating = refresh::is_terminating(&operator.cluster.client, namespace).await;
        memories.set_terminating(namespace, terminating);
    }
}
