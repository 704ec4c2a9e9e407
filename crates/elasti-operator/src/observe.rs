//! The cached objects, the resolvers' reports and the triggers' readings as the facts of one decision.

use std::collections::BTreeMap;
use std::sync::Arc;

use elasti_api::{AutoscalerType, ElastiServiceSpec, ListenPort};
use elasti_core::facts;
use elasti_core::observed::{
    Author, Autoscaler, Claim, Leadership, Me, Observed, Owned, Pod, PortsGiven,
    PrivateServiceShape, Reading, Remembered, Report, Resolver, Rival, Settings, SliceShape,
    Target,
};
use elasti_core::stable_since::StableSince;
use elasti_core::{Plan, plan};
use jiff::Timestamp;

use crate::name::{Name, TargetName};
use crate::ports::Allocation;
use crate::slim::{Declared, PodView, ServiceView, SliceView, TargetView};
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
    let target = cache.target(&target_of(me));
    let no_scale = target.is_some_and(|target| target.replicas.is_none());
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
        may_mark,
        times,
    } = context;
    let service_name = me.service();
    let target_name = target_of(&me);
    let target = cache.target(&target_name).cloned();
    let slices: Vec<&Arc<SliceView>> = cache.slices(&service_name).collect();
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
        service: service.map(|view| view.service.clone()),
        target: target.as_deref().map(scale),
        pods,
        endpoints: own_endpoints(&slices),
        endpoints_version: own_version(&slices),
        slice: our_slice(&me, &slices, &ports),
        private_service: our_private_service(&me, private.map(Arc::as_ref)),
        resolvers: resolvers(cache, &memory),
        ports,
        autoscaler,
        readings,
        wake_requested_at,
        may_mark,
        stable_since: memory.stable_since,
        settings: times,
        me: remembered(&me),
    };
    observed.stable_since = observed.stable_since.clone().look(&observed);
    let is_ours = |slice: &&&Arc<SliceView>| slice.owner.as_deref() == Some(me.uid.as_str());
    let ours = slices.iter().filter(is_ours);
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
    let service = cache.older_for_service(me).map(|n| (n, Claim::Service));
    let found = service.or_else(|| cache.older_for_target(me).map(|n| (n, Claim::Target)));
    found.map(|(name, claim)| Rival {
        name: name.to_string(),
        claim,
    })
}

fn scale(view: &TargetView) -> Target {
    Target {
        replicas: view.replicas.unwrap_or(0),
        version: view.version.clone(),
        replicas_by: view.by.clone(),
        replicas_at: view.at,
    }
}

/// The pods that the Service selects, and when the next of them counts as never ready.
fn pods(
    cache: &Cache,
    service: &Name,
    target: Option<&TargetView>,
    now: Timestamp,
) -> (Vec<Pod>, Option<Timestamp>) {
    let mut again = None;
    let mut pods: Vec<Pod> = cache
        .pods(service)
        .map(|view| {
            let gives_up_at = view
                .unready_since
                .filter(|_| !view.ready && !view.marked && !view.terminating)
                .and_then(|since| since.checked_add(facts::NEVER_READY).ok());
            if let Some(at) = gives_up_at.filter(|at| *at > now) {
                again = again.map_or(Some(at), |a: Timestamp| Some(a.min(at)));
            }
            pod(view, gives_up_at.is_some_and(|at| at <= now))
        })
        .collect();
    // A pod that is refused never comes to be; what refuses it is told by the workload.
    let refused = target.filter(|t| t.replicas != Some(0));
    if let Some(message) = refused.and_then(|t| t.refused.clone())
        && let Some(target) = target
        && pods.is_empty()
    {
        pods.push(Pod::refused(&target.name.name, message));
    }
    (pods, again)
}

fn pod(view: &PodView, never_ready: bool) -> Pod {
    let late = never_ready.then(facts::never_ready);
    Pod {
        name: view.name.name.to_string(),
        uid: view.uid.clone(),
        version: view.version.clone(),
        node: view.node.clone(),
        started: view.started,
        ready: view.ready,
        containers_ready: view.containers_ready,
        marked: view.marked,
        terminating: view.terminating,
        obstacle: view.obstacle.clone().or(late).filter(|_| !view.ready),
    }
}

fn own_endpoints(slices: &[&Arc<SliceView>]) -> Vec<elasti_core::observed::Endpoint> {
    let own = slices.iter().filter(|slice| slice.by_kubernetes);
    own.flat_map(|slice| slice.endpoints.iter().cloned())
        .collect()
}

fn own_version(slices: &[&Arc<SliceView>]) -> String {
    let own = slices.iter().filter(|slice| slice.by_kubernetes);
    let parts: Vec<String> = own.map(|s| format!("{}:{}", s.uid, s.version)).collect();
    parts.join(",")
}

/// Our slices of one Service, put together by family.
fn our_slice(
    me: &Declared,
    slices: &[&Arc<SliceView>],
    ports: &PortsGiven,
) -> Owned<Vec<SliceShape>> {
    let service = me.service();
    let is_ours = |slice: &SliceView| slice.owner.as_deref() == Some(me.uid.as_str());
    let has_our_name = |slice: &SliceView| {
        let family = match slice.family {
            elasti_core::observed::Family::V4 => elasti_api::names::IpFamily::V4,
            elasti_core::observed::Family::V6 => elasti_api::names::IpFamily::V6,
        };
        *slice.name.name == *elasti_api::names::resolver_slice(&service.name, family, 0)
    };
    if slices.iter().any(|s| has_our_name(s) && !is_ours(s)) {
        return Owned::Foreign;
    }
    let mut shapes: BTreeMap<(_, Vec<ListenPort>), SliceShape> = BTreeMap::new();
    // A slice of ours whose labels were changed has no effect: it is as good as missing.
    let in_effect =
        |s: &&&Arc<SliceView>| is_ours(s) && s.by_elasti && s.service.as_ref() == Some(&service);
    for slice in slices.iter().filter(in_effect) {
        let mut listens: Vec<ListenPort> = slice
            .ports
            .iter()
            .map(|(name, number)| listen_port(name, *number, me, ports))
            .collect();
        listens.sort();
        let key = (slice.family, listens.clone());
        let shape = shapes.entry(key).or_insert_with(|| SliceShape {
            family: slice.family,
            ports: listens,
            addresses: Default::default(),
        });
        shape.addresses.extend(slice.addresses.iter().copied());
    }
    match shapes.is_empty() {
        true => Owned::Missing,
        false => Owned::Ours(shapes.into_values().collect()),
    }
}

/// A slice says where a port is listened for, not which number the Service gives it; our books do.
fn listen_port(name: &str, number: u16, me: &Declared, ports: &PortsGiven) -> ListenPort {
    let given = match ports {
        PortsGiven::Given(given) => given.as_slice(),
        PortsGiven::Exhausted => &[],
    };
    let mut books = given.iter().chain(&me.status.ports);
    let same = books.find(|p| p.name == name && p.listen_port == number);
    same.cloned().unwrap_or_else(|| ListenPort {
        name: name.to_owned(),
        port: 0,
        listen_port: number,
    })
}

fn our_private_service(me: &Declared, view: Option<&ServiceView>) -> Owned<PrivateServiceShape> {
    let Some(view) = view else {
        return Owned::Missing;
    };
    if view.owner.as_deref() != Some(me.uid.as_str()) {
        return Owned::Foreign;
    }
    let mut shape = PrivateServiceShape {
        selector: view.service.selector.clone(),
        ports: view.service.ports.clone(),
        families: view.service.families.clone(),
    };
    if !view.plain {
        // Someone gave it more than a cluster IP: it is not what it should be.
        shape.ports.clear();
    }
    Owned::Ours(shape)
}

fn resolvers(cache: &Cache, memory: &Memory) -> Vec<Resolver> {
    let pods = cache.resolvers.values();
    pods.map(|pod| Resolver {
        name: pod.name.name.to_string(),
        addresses: pod.addresses.clone(),
        ready: pod.ready && !pod.addresses.is_empty(),
        terminating: pod.terminating,
        report: memory
            .reports
            .iter()
            .find(|(name, _)| **name == *pod.name.name)
            .map_or(Report::NotAsked, |(_, report)| report.clone()),
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
        replicas: Some(replicas),
        version: version.to_owned(),
        by: match replicas {
            // Kubernetes drops the ownership of a number that becomes zero through `/scale`.
            0 => Author::Unknown,
            _ => Author::Elasti,
        },
        at: (replicas > 0).then_some(now),
        ..before.clone()
    }
}
