//! The cached objects, the resolvers' reports and the triggers' readings as the facts of one decision.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;

use elasti_api::{AutoscalerType, ElastiServiceSpec};
use elasti_core::facts::{self, Claimant, FoundSlice, PodOwner, PodSelector, SliceOwner};
use elasti_core::observed::{
    Autoscaler, Endpoint, Leadership, Me, Observed, OtherService, Owned, Pod, PortsGiven,
    PrivateServiceShape, Reading, ReadingDetails, Remembered, Report, Resolver, Rival, SeenClient,
    Settings, Standing,
};
use elasti_core::services::Unmanaged;
use elasti_core::stable_since::StableSince;
use elasti_core::{Plan, plan};
use jiff::Timestamp;

use crate::name::{KindName, Name, TargetName};
use crate::ports::Allocation;
use crate::slim::{Declared, PodView, SliceView, TargetView};
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
    /// The same for each other Service of the target's pods.
    pub(crate) other_allocations: Vec<(Name, Allocation)>,
    pub(crate) namespace_terminating: bool,
    pub(crate) readings: Vec<Reading>,
    pub(crate) reading_details: Vec<ReadingDetails>,
    pub(crate) wake_requested_at: Option<Timestamp>,
    pub(crate) wake_client: Option<SeenClient>,
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
    /// What is ours of the Service that the spec names.
    pub(crate) ours: Ours,
    /// What is ours of each other Service of the target's pods.
    pub(crate) others: Vec<Ours>,
    /// The version of the ScaledObject that the facts speak of.
    pub(crate) scaled_version: Option<String>,
    /// When something may have changed that no event reports.
    changes_at: Option<Timestamp>,
}

/// The objects of ours that belong to one Service.
#[derive(Clone, Debug)]
pub(crate) struct Ours {
    pub(crate) service: Name,
    /// Our slices, with what deletes exactly them.
    pub(crate) slices: Vec<(Name, String)>,
    /// What has the name of our private Service, with what deletes exactly it.
    pub(crate) private_service: Option<(Name, String)>,
    /// That is ours.
    pub(crate) has_private_service: bool,
}

impl Ours {
    /// What is ours of the Service that it names, and of each other one.
    fn find_all(
        cache: &Cache,
        me: &Declared,
        others: &[(Name, Allocation)],
        observed: &Observed,
    ) -> (Self, Vec<Self>) {
        let named = Self::find(cache, me, &me.service(), &observed.private_service);
        let others = others.iter().zip(&observed.others);
        let others =
            others.map(|((name, _), other)| Self::find(cache, me, name, &other.private_service));
        (named, others.collect())
    }

    fn find(
        cache: &Cache,
        me: &Declared,
        service: &Name,
        private: &Owned<PrivateServiceShape>,
    ) -> Self {
        let owner = slices_of(cache, me, service);
        let is_ours = |slice: &&Arc<SliceView>| owner.owns(&slice.facts);
        let slices = cache.slices(service).filter(is_ours);
        let found = cache.service(&private_name(service));
        Self {
            slices: slices.map(|s| (s.name.clone(), s.uid.clone())).collect(),
            private_service: found.map(|view| (view.name.clone(), view.uid.clone())),
            has_private_service: private.ours().is_some(),
            service: service.clone(),
        }
    }
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
    /// The operator is not allowed to list a kind that it refers to, so that nothing is known of such an object.
    Refused(Arc<Declared>, RefusedKind),
}

/// What the operator is not allowed to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RefusedKind {
    /// The kind of the target.
    Target(KindName),
    /// The kind of the autoscaler.
    Autoscaler(KindName),
}

impl Snapshot {
    pub(crate) fn spec(&self) -> &ElastiServiceSpec {
        &self.me.spec
    }

    /// What to do, by these facts.
    pub(crate) fn plan(&self) -> Plan {
        plan(&self.me.spec, &self.observed)
    }

    /// What is ours of another Service.
    pub(crate) fn other(&self, name: &str) -> Option<&Ours> {
        self.others.iter().find(|one| *one.service.name == *name)
    }

    pub(crate) fn service(&self) -> Name {
        self.me.service()
    }

    /// What has been stable for how long, once the plan's steps are taken.
    pub(crate) fn stable_since_after(&self, plan: &Plan) -> StableSince {
        self.observed.after(&plan.steps)
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
    if let Some(kind) = refused_kind(cache, me) {
        return Err(Incomplete::Refused(me.clone(), kind));
    }
    let services = cache.services_of(me);
    let mut views = services.iter().filter_map(|one| cache.service(one));
    if views.any(|view| view.facts.service.internal_local) && cache.nodes_are_pending() {
        return Err(Incomplete::NotListed);
    }
    let target = cache.target(&target_of(me));
    let no_scale = target.is_some_and(|target| target.facts.replicas.is_none());
    let is_read = services.iter().all(|one| cache.is_read(one));
    if !is_read || no_scale {
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
        other_allocations,
        namespace_terminating,
        readings,
        reading_details,
        wake_requested_at,
        wake_client,
        woken_at,
        promised_until,
        may_mark,
        times,
    } = context;
    let service_name = me.service();
    let target_name = target_of(&me);
    let target = cache.target(&target_name).cloned();
    let owner = Ownership::new(cache, &me, target.as_deref());
    let (pods, pods_change_at) = pods(cache, &me, &owner, target.as_deref(), now);
    let (autoscaler, scaled_version) = autoscaler(cache, &me);
    let rival = rival(cache, &me);
    let named = service_of(cache, &me, &owner, &service_name, &ports);
    let others: Vec<OtherService> = { other_allocations.iter() }
        .map(|(name, given)| service_of(cache, &me, &owner, name, &given.ports))
        .collect();
    let mut observed = Observed {
        now,
        leadership,
        predecessor: cache.predecessor(&me.name.namespace),
        namespace_terminating,
        service: named.service,
        target: target.as_deref().map(|t| t.facts.target(&t.version)),
        pods,
        endpoints: named.endpoints,
        endpoints_version: named.endpoints_version,
        slice: named.slice,
        private_service: named.private_service,
        standing: Standing::Own,
        others,
        unmanaged: unmanaged(cache, &me),
        resolvers: resolvers(cache, &memory),
        nodes: cache.nodes(),
        ports,
        autoscaler,
        readings,
        reading_details,
        wake_requested_at,
        wake_client,
        woken_at,
        promised_until,
        may_mark,
        stable_since: memory.stable_since,
        settings: times,
        me: remembered(&me),
        rival,
    };
    observed.stable_since = observed.stable_since.clone().observe(&observed);
    let (ours, others) = Ours::find_all(cache, &me, &other_allocations, &observed);
    Snapshot {
        ours,
        others,
        observed,
        target_name,
        target,
        scaled_version,
        changes_at: soonest(&other_allocations, [requeue_at, pods_change_at]),
        me,
    }
}

/// When the first of these facts changes by itself.
fn soonest(others: &[(Name, Allocation)], changes: [Option<Timestamp>; 2]) -> Option<Timestamp> {
    let others = others.iter().map(|(_, given)| given.requeue_at);
    others.chain(changes).flatten().min()
}

fn kind_is_pending(cache: &Cache, me: &Declared) -> bool {
    let kinds = autoscaler_of(me).into_iter().map(|(kind, _)| kind);
    let mut kinds = kinds.chain([target_of(me).kind]);
    kinds.any(|kind| cache.kind(&kind, &me.name.namespace) == KindState::Pending)
}

fn autoscaler_of(me: &Declared) -> Option<(KindName, Name)> {
    let autoscaler = me.spec.autoscaler.as_ref()?;
    let name = me.name.sibling(autoscaler.name.as_str());
    Some((crate::store::autoscaler_kind(autoscaler.type_), name))
}

/// What is cached still counts: who was allowed to read it may be so again soon.
fn refused_kind(cache: &Cache, me: &Declared) -> Option<RefusedKind> {
    let is_refused = |kind: &KindName| cache.kind(kind, &me.name.namespace) == KindState::Refused;
    let target = target_of(me);
    if is_refused(&target.kind) && cache.target(&target).is_none() {
        return Some(RefusedKind::Target(target.kind));
    }
    let (kind, name) = autoscaler_of(me)?;
    let is_cached = cache.hpas.contains_key(&name) || cache.scaled.contains_key(&name);
    (is_refused(&kind) && !is_cached).then_some(RefusedKind::Autoscaler(kind))
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

fn private_name(service: &Name) -> Name {
    service.sibling(elasti_api::names::private_service(&service.name))
}

/// Which pods are the target's. Where their controllers do not tell, those are that its own selector matches; where that
/// is not known either, those that the Service of the spec selects.
struct Ownership {
    /// Every Service of the pods, the one of the spec first.
    services: Vec<Name>,
    target: Option<TargetName>,
    uid: String,
    selector: Option<PodSelector>,
}

impl Ownership {
    fn new(cache: &Cache, me: &Declared, target: Option<&TargetView>) -> Self {
        Self {
            services: cache.services_of(me),
            target: target.map(|_| target_of(me)),
            uid: target.map(|target| target.uid.clone()).unwrap_or_default(),
            selector: target.and_then(|target| target.facts.selector.clone()),
        }
    }

    fn owns(&self, cache: &Cache, pod: &PodView) -> bool {
        let known = self.target.as_ref().and_then(|target| {
            let owner = PodOwner {
                group: &target.kind.group,
                kind: &target.kind.kind,
                name: &target.name.name,
                uid: &self.uid,
            };
            owner.owns(&pod.facts, |other| {
                let name = target.name.sibling(other);
                let kind = target.kind.clone();
                cache.target(&TargetName { kind, name }).is_some()
            })
        });
        let selector = self.selector.as_ref().filter(|_| !pod.labels.is_empty());
        let selected = || {
            if let Some(selector) = selector {
                return selector.matches(&pod.labels);
            }
            let named = self.services.first();
            let mut pods = named.into_iter().flat_map(|service| cache.pods(service));
            pods.any(|one| one.name == pod.name)
        };
        known.unwrap_or_else(selected)
    }

    /// The Service's own endpoints but for those of other owners' pods, and whether one of those takes connections.
    fn endpoints(&self, cache: &Cache, service: &Name) -> (Vec<Endpoint>, bool) {
        let foreign: HashSet<&str> = { cache.pods(service) }
            .filter(|pod| !self.owns(cache, pod))
            .map(|pod| &*pod.name.name)
            .collect();
        let slices: Vec<FoundSlice<'_>> = cache.slices(service).map(|s| s.found()).collect();
        let all = facts::endpoints(&slices);
        let (others, own): (Vec<Endpoint>, Vec<Endpoint>) =
            { all.into_iter() }.partition(|endpoint| foreign.contains(endpoint.pod.as_str()));
        let shared = others.iter().any(|one| one.ready && !one.terminating);
        (own, shared)
    }
}

/// Which slices of a Service are this ElastiService's.
fn slices_of<'a>(cache: &Cache, me: &'a Declared, service: &Name) -> SliceOwner<'a> {
    SliceOwner::new(&me.uid, cache.adopts(service, &me.name))
}

/// One Service of the target's pods: the one that the spec names, or another.
fn service_of(
    cache: &Cache,
    me: &Declared,
    owner: &Ownership,
    name: &Name,
    ports: &PortsGiven,
) -> OtherService {
    let view = cache.service(name);
    let (endpoints, shared) = owner.endpoints(cache, name);
    let found: Vec<FoundSlice<'_>> = cache.slices(name).map(|s| s.found()).collect();
    let others = cache.others(&me.name);
    let managed = others.is_some_and(|others| others.managed.contains(name));
    let private = cache.service(&private_name(name));
    OtherService {
        name: name.name.to_string(),
        service: view.map(|view| view.facts.service.clone()),
        standing: match shared {
            _ if !managed => Standing::Left,
            true => Standing::Shared,
            false => Standing::Own,
        },
        endpoints,
        endpoints_version: facts::endpoints_version(&found),
        slice: facts::our_slices(
            slices_of(cache, me, name),
            &name.name,
            &found,
            ports,
            &me.recorded_ports(name),
        ),
        private_service: facts::private_service(&me.uid, private.map(|view| &view.facts)),
        ports: ports.clone(),
    }
}

fn unmanaged(cache: &Cache, me: &Declared) -> Unmanaged {
    let Some(others) = cache.others(&me.name) else {
        return Unmanaged::default();
    };
    let names = others.unmanaged.iter();
    Unmanaged {
        services: names.map(|one| one.name.to_string()).collect(),
        too_many: others.too_many,
    }
}

/// The pods of the target, and when what keeps one of them from starting next counts for more.
fn pods(
    cache: &Cache,
    me: &Declared,
    owner: &Ownership,
    target: Option<&TargetView>,
    now: Timestamp,
) -> (Vec<Pod>, Option<Timestamp>) {
    let selected = { owner.services.iter() }.flat_map(|service| cache.pods(service));
    let mut seen: HashSet<&str> = HashSet::new();
    let own = selected.filter(|pod| seen.insert(&pod.name.name) && owner.owns(cache, pod));
    let target = target.map(|target| (&*target.name.name, &target.facts));
    let own = own.map(|pod| (pod.id(), &pod.facts));
    facts::pods_of_service(own, target, facts::fail_fast(&me.spec), now)
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
