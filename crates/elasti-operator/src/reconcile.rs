//! One reconcile of one service: observe, plan, apply, report.

use std::time::Instant;

use elasti_core::Plan;
use jiff::{SignedDuration, Timestamp};

use crate::apply::Applied;
use crate::error::Error;
use crate::gather::{self, Facts, Gathered};
use crate::name::Name;
use crate::observe::Snapshot;
use crate::operator::Operator;

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
    match observe_and_act(operator, name).await {
        Ok(Some(reconciled)) => reconciled,
        Ok(None) => Reconciled::without_plan(Ok(())),
        Err(error) => Reconciled::without_plan(Err(error)),
    }
}

/// `None` if there was nothing to decide; an error if the facts could not be gathered.
async fn observe_and_act(operator: &Operator, name: &Name) -> Result<Option<Reconciled>, Error> {
    let started = Instant::now();
    let gathered = gather::cached(operator, name).await?;
    let Some(cached) = facts(operator, gathered).await? else {
        return Ok(None);
    };
    keep_paths_ahead_of_readings(operator, &cached).await;
    let gathered = gather::fresh(operator, cached).await?;
    let Some(Facts {
        snapshot,
        readings_are_fresh,
    }) = facts(operator, gathered).await?
    else {
        return Ok(None);
    };
    let plan = paced(operator, decide(&snapshot, readings_are_fresh), &snapshot);
    let mut applied = apply(operator, &snapshot, &plan).await;
    let before = &snapshot.observed.stable_since;
    operator.memories.set_applied(name, before, &mut applied);
    let reported = operator.reporter.report(&snapshot, &plan, &applied).await;
    let outcome = applied.outcome().and(reported);
    operator
        .metrics
        .reconciled(name, started.elapsed(), outcome.as_ref().err());
    Ok(Some(Reconciled {
        outcome,
        requeue_at: snapshot.requeue_at(&plan),
    }))
}

/// The facts, if any were gathered; a kind that may not be listed is reported.
async fn facts(operator: &Operator, gathered: Gathered) -> Result<Option<Facts>, Error> {
    match gathered {
        Gathered::Facts(facts) => Ok(Some(facts)),
        Gathered::Refused(me, kind) => {
            let now = operator.clock.now();
            operator.reporter.kind_refused(&me, &kind, now).await?;
            Ok(None)
        }
        Gathered::Nothing => Ok(None),
    }
}

/// Fresh readings may take 10 s, which the path of a Service does not wait for. A step that fails comes again, and is
/// reported, with the plan that is made by them.
async fn keep_paths_ahead_of_readings(operator: &Operator, cached: &Facts) {
    let plan = cached.snapshot.plan();
    if plan.needs_fresh_readings() {
        let ahead = plan.ahead_of_readings();
        if !ahead.steps.is_empty() {
            drop(apply(operator, &cached.snapshot, &ahead).await);
        }
    }
}

/// The plan; what must not stand on readings from before is not in it if there are no others.
fn decide(snapshot: &Snapshot, readings_are_fresh: bool) -> Plan {
    let plan = snapshot.plan();
    match readings_are_fresh {
        true => plan,
        false => plan.without_fresh_readings(snapshot.observed.now),
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

/// Carries the plan out. What its steps end is remembered before, because they may take effect without an answer.
async fn apply(operator: &Operator, snapshot: &Snapshot, plan: &Plan) -> Applied {
    let (name, memories) = (&snapshot.me.name, &operator.memories);
    memories.set_stable_since(name, snapshot.stable_since_after(plan));
    operator.writer.apply(snapshot, plan).await
}
