//! One reconcile of one service: observe, plan, apply, report.

use std::time::{Duration, Instant};

use elasti_core::{Plan, idle};
use jiff::{SignedDuration, Timestamp};

use crate::error::Error;
use crate::name::Name;
use crate::observe::{Incomplete, Snapshot};
use crate::operator::Operator;
use crate::refresh;
use crate::slim::Declared;

/// A watch may bring something that was not read at any moment; more often in a row is not chance.
const OBSERVE_ATTEMPTS: usize = 3;

/// How much later a wake is tried again that was one too many: the burst is there again.
const RESOLVERLESS_WAKE_PAUSE: SignedDuration = SignedDuration::from_secs(5);

/// How a reconcile ended, and when the next one is due at the latest, also after a failure: what is refused must not
/// delay what the plan waits for.
pub(crate) struct Reconciled {
    pub(crate) outcome: Result<(), Error>,
    pub(crate) requeue_at: Option<Timestamp>,
}

impl Reconciled {
    fn without_plan(outcome: Result<(), Error>) -> Self {
        Self {
            outcome,
            requeue_at: None,
        }
    }
}

/// Reconciles one service.
pub(crate) async fn reconcile(operator: &Operator, name: &Name) -> Reconciled {
    let started = Instant::now();
    let (snapshot, plan) = match decide(operator, name).await {
        Ok(Some(decided)) => decided,
        Ok(None) => return Reconciled::without_plan(Ok(())),
        Err(error) => return Reconciled::without_plan(Err(error)),
    };
    let plan = paced(operator, plan, &snapshot);
    operator
        .memories
        .set_stable_since(name, snapshot.stable_since_after(&plan));
    let mut applied = operator.writer.apply(&snapshot, &plan).await;
    applied.unanswered = operator.memories.count_unanswered(name, &applied);
    if applied.has_woken() {
        operator.memories.set_woken(name);
    }
    // An earlier one without an answer may still take effect.
    let pending = snapshot.observed.stable_since.sent.is_some();
    if applied.has_not_scaled_down() && !pending {
        operator.memories.set_scale_down_refused(name);
    }
    let reported = operator.reporter.report(&snapshot, &plan, &applied).await;
    let outcome = applied.outcome().and(reported);
    operator
        .metrics
        .reconciled(name, started.elapsed(), outcome.as_ref().err());
    Reconciled {
        outcome,
        requeue_at: snapshot.requeue_at(&plan),
    }
}

/// Without resolvers everything is woken: so many at once that nodes and the API server can follow, the others later.
/// Namespaces share the pace, because what one of them wakes may be refused and tried again for ever.
fn paced(operator: &Operator, plan: Plan, snapshot: &Snapshot) -> Plan {
    let namespace = &snapshot.me.name.namespace;
    if !plan.wakes_for_lack_of_resolvers() || operator.resolverless_wakes.allows(namespace) {
        return plan;
    }
    let now = snapshot.observed.now;
    let later = now.checked_add(RESOLVERLESS_WAKE_PAUSE);
    plan.without_wake_until(later.unwrap_or(now))
}

/// Observes and plans; where the plan asks for it, refreshes what it depends on and plans again.
async fn decide(operator: &Operator, name: &Name) -> Result<Option<(Snapshot, Plan)>, Error> {
    operator.forget_replaced(name);
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
        let triggers_read = refresh_all(operator, &snapshot).await?;
        let Some(next) = observe(operator, name).await? else {
            return Ok(None);
        };
        snapshot = next;
        plan = snapshot.plan();
        if !triggers_read && plan.needs_fresh_readings() {
            return Err(Error::Expired);
        }
    }
    Ok(Some((snapshot, plan)))
}

/// The facts as they are cached; what was never read is read first. `None` if there is nothing to decide.
async fn observe(operator: &Operator, name: &Name) -> Result<Option<Snapshot>, Error> {
    for _ in 0..OBSERVE_ATTEMPTS {
        operator.cluster.queue.progressed(name);
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
            // It is enqueued again once the kind can be listed.
            Err(Incomplete::Refused(me, kind)) => {
                operator
                    .reporter
                    .kind_refused(&me, &kind, operator.clock.now())
                    .await?;
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

/// Before a step that cannot be undone: triggers, objects and resolvers, all past the caches. The resolvers last, because
/// their reports prove something for a second only, and the triggers first, because their servers may be slow. Gives whether
/// those were all read.
async fn refresh_all(operator: &Operator, snapshot: &Snapshot) -> Result<bool, Error> {
    let Operator {
        cluster,
        readings,
        reports,
        memories,
        ..
    } = operator;
    let me = &snapshot.me;
    let triggers_read = readings.read_now(&me.name).await;
    cluster.queue.progressed(&me.name);
    let (workload, declaration) = futures::join!(
        refresh::workload(cluster, me),
        refresh::declaration(cluster, me),
    );
    workload.and(declaration)?;
    refresh::reports(reports, memories, snapshot).await;
    Ok(triggers_read)
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
