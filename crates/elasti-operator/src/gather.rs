//! Gathers the facts of one reconcile: those that are cached, and past the caches what the plan by them has to have read
//! anew. Nothing is decided here, and nothing written to the cluster.

use std::sync::Arc;
use std::time::Duration;

use elasti_core::idle;

use crate::error::Error;
use crate::name::Name;
use crate::observe::{Incomplete, RefusedKind, Snapshot};
use crate::operator::Operator;
use crate::refresh;
use crate::slim::Declared;

/// A watch may bring something that was not read at any moment; more often in a row is not chance.
const OBSERVE_ATTEMPTS: usize = 3;

/// What there is to decide on.
pub(crate) enum Gathered {
    /// The facts.
    Facts(Facts),
    /// The operator is not allowed to list a kind that the ElastiService refers to.
    Refused(Arc<Declared>, RefusedKind),
    /// Nothing: it is gone, or a list is still missing.
    Nothing,
}

/// The facts of one decision.
pub(crate) struct Facts {
    pub(crate) snapshot: Box<Snapshot>,
    /// Every trigger was read for it; otherwise a reading may be one from before.
    pub(crate) readings_are_fresh: bool,
}

/// The facts as they are cached, with the resolvers asked if the plan by them wants to know what they see.
pub(crate) async fn cached(operator: &Operator, name: &Name) -> Result<Gathered, Error> {
    operator.forget_replaced(name);
    let gathered = observe(operator, name, false).await?;
    if let Gathered::Facts(Facts { snapshot, .. }) = &gathered
        && snapshot.plan().ask_resolvers
    {
        refresh::reports(&operator.reports, &operator.memories, snapshot).await;
        return observe(operator, name, false).await;
    }
    Ok(gathered)
}

/// The facts after a fresh read of everything, if the plan by the cached ones has a step that needs that: triggers where it
/// needs their readings, objects and resolvers. The resolvers last, because their reports prove something for a second
/// only, and the triggers first, because their servers may be slow.
pub(crate) async fn fresh(operator: &Operator, cached: Facts) -> Result<Gathered, Error> {
    let plan = cached.snapshot.plan();
    if !plan.needs_fresh_facts() {
        return Ok(Gathered::Facts(cached));
    }
    let Operator {
        cluster,
        readings,
        reports,
        memories,
        ..
    } = operator;
    let me = &cached.snapshot.me;
    let readings_are_fresh = plan.needs_fresh_readings() && readings.read_now(&me.name).await;
    cluster.queue.progressed(&me.name);
    let (workload, declaration) = futures::join!(
        refresh::workload(cluster, me),
        refresh::declaration(cluster, me),
    );
    workload.and(declaration)?;
    refresh::reports(reports, memories, &cached.snapshot).await;
    observe(operator, &me.name, readings_are_fresh).await
}

/// What is cached; what was never read is read first.
async fn observe(
    operator: &Operator,
    name: &Name,
    readings_are_fresh: bool,
) -> Result<Gathered, Error> {
    for _ in 0..OBSERVE_ATTEMPTS {
        operator.cluster.queue.progressed(name);
        match operator.snapshot(name) {
            Ok(snapshot) => {
                track(operator, &snapshot.me).await;
                return Ok(Gathered::Facts(Facts {
                    snapshot: Box::new(snapshot),
                    readings_are_fresh,
                }));
            }
            Err(Incomplete::Unread(me)) => refresh::first_read(&operator.cluster, &me).await?,
            Err(Incomplete::Gone) => {
                operator.forget(name);
                return Ok(Gathered::Nothing);
            }
            // It is enqueued again once the kind can be listed.
            Err(Incomplete::Refused(me, kind)) => return Ok(Gathered::Refused(me, kind)),
            // The list that is still missing enqueues it again.
            Err(Incomplete::NotListed) => return Ok(Gathered::Nothing),
        }
    }
    Err(Error::Conflict(
        "it changes faster than it can be read".into(),
    ))
}

/// Starts to follow what a decision about this service needs beside the watches.
async fn track(operator: &Operator, me: &Declared) {
    let cooldown = Duration::try_from(idle::cooldown(&me.spec)).unwrap_or_default();
    operator
        .readings
        .track(&me.name, &me.name.namespace, &me.spec, cooldown);
    let memories = &operator.memories;
    let services = operator.cluster.store.cache().services_of(me);
    operator.release_ports(&memories.set_public_services(me, services));
    // Only a deletion needs to know, so namespaces are not watched.
    if me.deleting_since.is_some() && !memories.is_namespace_terminating(me) {
        let (client, namespace) = (&operator.cluster.client, &me.name.namespace);
        let terminating = refresh::is_terminating(client, namespace).await;
        memories.set_namespace_terminating(me, terminating);
    }
}
