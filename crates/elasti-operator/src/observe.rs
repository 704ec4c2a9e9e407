//! What the stores, the resolvers and the triggers say, as the facts that one decision needs.
//! Never asks the cluster and never interprets a fact: the brain does.

use std::sync::Arc;

use elasti_api::{AutoscalerType, ElastiServiceSpec};
use elasti_core::facts::{self, Claimant, FoundSlice};
use elasti_core::observed::{
    Autoscaler, Me, Observed, Pod, PortsGiven, Remembered, Report, Resolver, Rival,
};
use elasti_core::ports::{PortAllocator, ServiceKey, WantedPort};
use elasti_core::stable_since::StableSince;
use elasti_core::{Plan, plan};
use jiff::Timestamp;

use crate::name::{Name, TargetName};
use crate::operator::Operator;
use crate::slim::{Declared, ServiceView, SliceView, TargetView};
use crate::store::{KindState, Known, target_of};

/// What this operator remembers of one service between two looks.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) stable_since: StableSince,
    /// What each resolver last said about it, by the resolver's name. A few of them in a vector are a tenth of the
    /// smallest map, for each of a thousand services.
    pub(crate) reports: Vec<(String, Report)>,
}

/// One look at one service: the facts, and what steps need to know beyond them.
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
    /// When something that no event tells may have changed.
    pub(crate) requeue_at: Option<Timestamp>,
}

/// What a look gives.
#[derive(Debug)]
pub(crate) enum Look {
    /// There is no such ElastiService.
    Gone,
    /// Not everything has been listed yet.
    TooEarly,
    /// Its pods and slices, or its scale, must be read first.
    Unread(Arc<Declared>),
    /// Here it is.
    Seen(Box<Snapshot>),
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
}

/// Looks at one service: the facts as they are known now.
pub(crate) fn look(operator: &Operator, name: &Name, memory: &Memory) -> Look {
    let known = operator.store.known();
    let Some(me) = known.declared.get(name).cloned() else {
        return Look::Gone;
    };
    let service_name = me.service();
    let target_name = target_of(&me);
    if !known.is_listed() || kind_is_pending(&known, &me) {
        return Look::TooEarly;
    }
    let target = known.target(&target_name).cloned();
    let no_scale = target.as_ref().is_some_and(|t| t.facts.replicas.is_none());
    if !known.is_read(&service_name) || no_scale {
        return Look::Unread(me);
    }
    let now = operator.clock.now();
    let service = known.service(&service_name).cloned();
    let (ports, ports_again) = ports(operator, &me, service.as_deref(), now);
    let slices: Vec<FoundSlice<'_>> = known.slices(&service_name).map(|s| s.found()).collect();
    let (pods, never_ready_at) = pods(&known, &service_name, target.as_deref(), now);
    let (autoscaler, scaled_version) = autoscaler(&known, &me);
    let private = known
        .service(&service_name.sibling(elasti_api::names::private_service(&service_name.name)));
    let mut observed = Observed {
        now,
        leadership: operator.leadership(),
        rival: rival(&known, &me),
        namespace_terminating: operator.is_terminating(&me.name.namespace),
        service: service.as_ref().map(|view| view.facts.service.clone()),
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
        resolvers: resolvers(&known, memory),
        ports,
        autoscaler,
        readings: operator.readings.of(name),
        wake_requested_at: operator.wake_requested_at(name),
        may_mark: operator.permissions.may_mark(&me.name.namespace),
        stable_since: memory.stable_since.clone(),
        settings: operator.settings.times,
        me: remembered(&me),
    };
    observed.stable_since = observed.stable_since.clone().observe(&observed);
    let mine = |slice: &&Arc<SliceView>| slice.facts.owner.as_deref() == Some(me.uid.as_str());
    let our_slices = known.slices(&service_name).filter(mine);
    let our_slices = our_slices
        .map(|s| (s.name.clone(), s.uid.clone()))
        .collect();
    let private_service = private.map(|view| (view.name.clone(), view.uid.clone()));
    let requeue_at = [ports_again, never_ready_at].into_iter().flatten().min();
    Look::Seen(Box::new(Snapshot {
        our_slices,
        private_service,
        observed,
        target_name,
        target,
        scaled_version,
        requeue_at,
        me,
    }))
}

fn kind_is_pending(known: &Known, me: &Declared) -> bool {
    let autoscaler = me.spec.autoscaler.as_ref();
    let autoscaler = autoscaler.map(|a| crate::store::autoscaler_kind(a.type_).0);
    let mut kinds = autoscaler.into_iter().chain([target_of(me).kind]);
    kinds.any(|kind| known.kind(&kind) == KindState::Pending)
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

fn rival(known: &Known, me: &Declared) -> Option<Rival> {
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
    let (service, target) = (known.oldest_for_service(me), known.oldest_for_target(me));
    facts::rival(mine, oldest(service), oldest(target))
}

/// The listen ports of the Service's TCP ports, and when one may become free if there are too few.
fn ports(
    operator: &Operator,
    me: &Declared,
    service: Option<&ServiceView>,
    now: Timestamp,
) -> (PortsGiven, Option<Timestamp>) {
    let Some(service) = service else {
        // Without a Service nothing is known to have changed.
        return (PortsGiven::Given(me.status.ports.clone()), None);
    };
    let tcp = service.facts.service.ports.iter().filter(|port| port.tcp);
    let wanted: Vec<WantedPort> = tcp
        .map(|port| WantedPort {
            name: port.name.clone(),
            port: port.port,
        })
        .collect();
    let owner = ServiceKey::new(&*me.name.namespace, me.spec.service.as_str());
    let mut port_allocator = operator.port_allocator.lock();
    assign(&mut port_allocator, &owner, me, &wanted, now)
}

fn assign(
    port_allocator: &mut PortAllocator,
    owner: &ServiceKey,
    me: &Declared,
    wanted: &[WantedPort],
    now: Timestamp,
) -> (PortsGiven, Option<Timestamp>) {
    for port in port_allocator.remember(owner, &me.status.ports) {
        tracing::warn!(service = %owner, port = port.listen_port, "a listen port cannot be kept");
    }
    match port_allocator.assign(owner, wanted, now) {
        Ok(given) => (PortsGiven::Given(given), None),
        Err(exhausted) => (PortsGiven::Exhausted, exhausted.requeue_at),
    }
}

/// The pods that the Service selects, and when the next of them counts as never ready.
fn pods(
    known: &Known,
    service: &Name,
    target: Option<&TargetView>,
    now: Timestamp,
) -> (Vec<Pod>, Option<Timestamp>) {
    let pods = known.pods(service).map(|pod| (pod.id(), &pod.facts));
    let target = target.map(|target| (&*target.name.name, &target.facts));
    facts::pods_of_service(pods, target, now)
}

fn resolvers(known: &Known, memory: &Memory) -> Vec<Resolver> {
    let report = |name: &str| {
        let mut reports = memory.reports.iter();
        let last = reports.find(|(one, _)| one == name);
        last.map_or(Report::NotAsked, |(_, report)| report.clone())
    };
    let pods = known.resolvers.values();
    pods.filter_map(|pod| {
        let name = &*pod.name.name;
        facts::resolver(name, &pod.facts, report(name))
    })
    .collect()
}

/// The autoscaler that the spec names, and the version of it that must not have changed.
fn autoscaler(known: &Known, me: &Declared) -> (Autoscaler, Option<String>) {
    let Some(named) = &me.spec.autoscaler else {
        return (Autoscaler::None, None);
    };
    let name = me.name.sibling(named.name.as_str());
    match named.type_ {
        AutoscalerType::Hpa => {
            let found = known.hpas.get(&name).copied();
            let hpa = found.map(|min_replicas| Autoscaler::Hpa { min_replicas });
            (hpa.unwrap_or(Autoscaler::Missing), None)
        }
        AutoscalerType::Keda => match known.scaled.get(&name) {
            Some(view) => {
                let version = Some(view.version.clone());
                (Autoscaler::Keda(view.pause.clone()), version)
            }
            None => (Autoscaler::Missing, None),
        },
    }
}

/// The target's view after our own write to its scale, so that the next look need not wait for the watch.
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
