//! The cached objects, the resolvers' reports and the triggers' readings as the facts of one decision.

use std::sync::Arc;

use elasti_api::{AutoscalerType, ElastiServiceSpec};
use elasti_core::facts::{self, Claimant, FoundSlice};
use elasti_core::observed::{
    Autoscaler, Leadership, Me, Observed, Pod, Reading, Remembered, Report, Resolver, Rival,
    Settings,
};
use elasti_core::stable_since::StableSince;
use elasti_core::{Plan, plan};
use jiff::Timestamp;

use crate::name::{Name, TargetName};
use crate::ports::Allocation;
use crate::slim::{Declared, SliceView, TargetView};
use crate::store::{Cache, KindState, target_of};

/// What this operator remembers of one service between two reconciles.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) stable_since: StableSince,
    /// What each resolver last reported about it, by the resolver's name. A few of them in a vector are a tenth of the
    /// smallest map, for each of a thousand services.
    pub(crate) reports: Vec<(String, Report)>,
}

/// What a decision depends on beside the cached objects.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) now: Timestamp,
    pub(crate) leadership: Leadership,
    pub(crate) memory: Memory,
    pub(crate) allocation: Allocation,
    pub(crate) namespace_terminating: bool,
    pub(crate) readings: Vec<Reading>,
    pub(crate) wake_requested_at: Option<Timestamp>,
    pub(crate) woken_at: Option<Timestamp>,
    pub(crate) promised_until: Option<Timestamp>,
    pub(crate) may_mark: bool,
    pub(crate) times: Settings,
}

/// One service at one moment: the facts, and what steps need to know beyond them.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) me: Arc<Declared>,
    pub(crate) observed: Observed,
    pub(crate) target_name: TargetName,
    pub(crate) target: Option<Arc<TargetView>>,
    /// Our slices, with what deletes exactly them.
    pub(crate) our_slices: Vec<(Name, String)>,
    /// Our private Service, with what deletes exactly it.
    pub(crate) private_service: Option<(Name, String)>,
    /// The version of the ScaledObject that the facts speak of.
    pub(crate) scaled_version: Option<String>,
    /// When something may have changed that no event reports.
    changes_at: Option<Timestamp>,
}

/// Why there are no facts to decide on.
#[derive(Debug)]
pub(crate) enum Incomplete {
    /// There is no such ElastiService.
    Gone,
    /// Not everything has been listed yet.
    NotListed,
    /// Its pods and slices, or its scale, must be read first.
    Unread(Arc<Declared>),
}

impl Snapshot {
    pub(crate) fn spec(&self) -> &ElastiServiceSpec {
        &self.me.spec
    }

    /// What to do, by these facts.
    pub(crate) fn plan(&self) -> Plan {
        plan(&self.me.spec, &self.observed)
    }

    pub(crate) fn service(&self) -> Name {
        self.me.service()
    }

    /// What has been stable for how long, once the plan's steps are taken.
    pub(crate) fn stable_since_after(&self, plan: &Plan) -> StableSince {
        self.observed.stable_since.clone().after(&plan.steps)
    }

    /// When to reconcile again at the latest.
    pub(crate) fn requeue_at(&self, plan: &Plan) -> Option<Timestamp> {
        [plan.requeue_at, self.changes_at]
            .into_iter()
            .flatten()
            .min()
    }
}

/// The ElastiService of this name, if everything that a decision about it needs is cached.
pub(crate) fn find(cache: &Cache, name: &Name) -> Result<Arc<Declared>, Incomplete> {
    let me = cache.declared.get(name).ok_or(Incomplete::Gone)?;
    if !cache.is_listed() || kind_is_pending(cache, me) {
        return Err(Incomplete::NotListed);
    }
    let service = cache.service(&me.service());
    if service.is_some_and(|s| s.facts.service.internal_local) && cache.nodes_are_pending() {
        return Err(Incomplete::NotListed);
    }
    let target = cache.target(&target_of(me));
    let no_scale = target.is_some_and(|target| target.facts.replicas.is_none());
    if !cache.is_read(&me.service()) || no_scale {
        return Err(Incomplete::Unread(me.clone()));
    }
    Ok(me.clone())
}

/// The facts about one service, from the cache and the context alone.
pub(crate) fn observe(cache: &Cache, me: Arc<Declared>, context: Context) -> Snapshot {
    let Context {
        now,
        leadership,
        memory,
        allocation: Allocation { ports, requeue_at },
        namespace_terminating,
        readings,
        wake_requested_at,
        woken_at,
        promised_until,
        may_mark,
        times,
    } = context;
    let service_name = me.service();
    let target_name = target_of(&me);
    let target = cache.target(&target_name).cloned();
    let slices: Vec<FoundSlice<'_>> = cache.slices(&service_name).map(|s| s.found()).collect();
    let (pods, never_ready_at) = pods(cache, &service_name, target.as_deref(), now);
    let (autoscaler, scaled_version) = autoscaler(cache, &me);
    let private = elasti_api::names::private_service(&service_name.name);
    let private = cache.service(&service_name.sibling(private));
    let service = cache.service(&service_name);
    let mut observed = Observed {
        now,
        leadership,
        rival: rival(cache, &me),
        namespace_terminating,
        service: service.map(|view| view.facts.service.clone()),
        target: target.as_deref().map(|t| t.facts.target(&t.version)),
        pods,
        endpoints: facts::endpoints(&slices),
        endpoints_version: facts::endpoints_version(&slices),
        slice: facts::our_slices(
            &me.uid,
            &service_name.name,
            &slices,
            &ports,
            &me.status.ports,
        ),
        private_service: facts::private_service(&me.uid, private.map(|view| &view.facts)),
        resolvers: resolvers(cache, &memory),
        nodes: cache.nodes(),
        ports,
        autoscaler,
        readings,
        wake_requested_at,
        woken_at,
        promised_until,
        may_mark,
        stable_since: memory.stable_since,
        settings: times,
        me: remembered(&me),
    };
    observed.stable_since = observed.stable_since.clone().observe(&observed);
    let is_ours = |slice: &&Arc<SliceView>| slice.facts.owner.as_deref() == Some(me.uid.as_str());
    let ours = cache.slices(&service_name).filter(is_ours);
    Snapshot {
        our_slices: ours.map(|s| (s.name.clone(), s.uid.clone())).collect(),
        private_service: private.map(|view| (view.name.clone(), view.uid.clone())),
        observed,
        target_name,
        target,
        scaled_version,
        changes_at: [requeue_at, never_ready_at].into_iter().flatten().min(),
        me,
    }
}

fn kind_is_pending(cache: &Cache, me: &Declared) -> bool {
    let autoscaler = me.spec.autoscaler.as_ref();
    let autoscaler = autoscaler.map(|a| crate::store::autoscaler_kind(a.type_).0);
    let mut kinds = autoscaler.into_iter().chain([target_of(me).kind]);
    kinds.any(|kind| cache.kind(&kind) == KindState::Pending)
}

fn remembered(me: &Declared) -> Me {
    Me {
        created: me.created,
        generation: me.generation,
        deleting_since: me.deleting_since,
        finalizer: me.has_finalizer(),
        wake_request: me.wake_request,
        sleep_request: me.sleep_request,
        remembered: Remembered::from(&*me.status),
    }
}

fn rival(cache: &Cache, me: &Declared) -> Option<Rival> {
    fn oldest(claims: Option<&(Timestamp, Arc<str>)>) -> Option<Claimant<'_>> {
        claims.map(|(created, name)| Claimant {
            created: *created,
            name,
        })
    }
    let mine = Claimant {
        created: me.created,
        name: &me.name.name,
    };
    let (service, target) = (cache.oldest_for_service(me), cache.oldest_for_target(me));
    facts::rival(mine, oldest(service), oldest(target))
}

/// The pods that the Service selects, and when the next of them counts as never ready.
fn pods(
    cache: &Cache,
    service: &Name,
    target: Option<&TargetView>,
    now: Timestamp,
) -> (Vec<Pod>, Option<Timestamp>) {
    let pods = cache.pods(service).map(|pod| (pod.id(), &pod.facts));
    let target = target.map(|target| (&*target.name.name, &target.facts));
    facts::pods_of_service(pods, target, now)
}

fn resolvers(cache: &Cache, memory: &Memory) -> Vec<Resolver> {
    let report = |name: &str| {
        let mut reports = memory.reports.iter();
        let last = reports.find(|(one, _)| one == name);
        last.map_or(Report::NotAsked, |(_, report)| report.clone())
    };
    let pods = cache.resolvers.values();
    pods.filter_map(|pod| {
        let name = &*pod.name.name;
        facts::resolver(name, &pod.facts, report(name))
    })
    .collect()
}

/// The autoscaler that the spec names, and the version of it that must not have changed.
fn autoscaler(cache: &Cache, me: &Declared) -> (Autoscaler, Option<String>) {
    let Some(named) = &me.spec.autoscaler else {
        return (Autoscaler::None, None);
    };
    let name = me.name.sibling(named.name.as_str());
    match named.type_ {
        AutoscalerType::Hpa => {
            let found = cache.hpas.get(&name).copied();
            let hpa = found.map(|min_replicas| Autoscaler::Hpa { min_replicas });
            (hpa.unwrap_or(Autoscaler::Missing), None)
        }
        AutoscalerType::Keda => match cache.scaled.get(&name) {
            Some(view) => {
                let version = Some(view.version.clone());
                (Autoscaler::Keda(view.pause.clone()), version)
            }
            None => (Autoscaler::Missing, None),
        },
    }
}

/// The target's view after our own write to its scale, so that the next reconcile need not wait for the watch.
pub(crate) fn after_scale(
    before: &TargetView,
    replicas: u32,
    version: &str,
    now: Timestamp,
) -> TargetView {
    TargetView {
        version: version.to_owned(),
        facts: before.facts.clone().scaled_by_us(replicas, now),
        ..before.clone()
    }
}
