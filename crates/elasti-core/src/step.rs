//! The closed list of effects, and the proofs without which the dangerous ones cannot be built.
//! A proof has no constructor but from observed facts: do not add one that a test or a shortcut could use.

use std::collections::BTreeMap;
use std::net::IpAddr;

use elasti_api::{ListenPort, Reason, RouteGeneration};
use jiff::{SignedDuration, Timestamp};

use crate::autoscaler;
use crate::groups;
use crate::idle;
use crate::observed::{
    Family, KedaPause, Leadership, Observed, Pod, PortsGiven, PrivateServiceShape, Report,
    Resolver, Service, SliceRole, SliceShape, Standing,
};
use crate::resolver_choice;
use crate::services;
use crate::stable_since::TickWindow;
use crate::why::Why;

/// One effect. The operator carries a plan's steps out in order. After one that fails only those are tried that keep
/// another Service's path: each of them is safe by its own proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Put our finalizer on the ElastiService, before any other effect.
    AddFinalizer,
    /// Create or correct the private Service.
    EnsurePrivateService(PrivateServiceShape),
    /// Route the Service to resolvers that listen, beside its pods.
    Redirect(Routed),
    /// Keep the resolvers as a net, which nodes use only while the Service has no ready pod.
    EnsureNet(Net),
    /// Pause KEDA at its current replicas before the target goes to sleep.
    HoldAutoscaler(KedaPause),
    /// Take pods out of rotation while they still serve.
    Mark {
        /// New connections have somewhere else to go.
        redirected: Redirected,
        /// The pods, as they were observed.
        pods: Vec<PodRef>,
    },
    /// Scale the target down by the pods that are out of rotation, if nothing about it has changed.
    Shrink(GroupDrained),
    /// Scale the target to zero, if nothing about it has changed.
    ScaleToZero(Drained),
    /// Pause KEDA at zero replicas.
    PinAutoscaler(KedaPause),
    /// Scale the target to this many replicas, if it is still scaled to zero.
    Wake(u32),
    /// Scale the target back to what it had before the drain by groups, if nothing about it has changed.
    RestoreReplicas(u32),
    /// Restore KEDA's own pause settings.
    ReleaseAutoscaler(KedaPause),
    /// Take our mark off these pods.
    Unmark(Vec<PodRef>),
    /// Give these pods back the deletion cost that they had.
    ResetCost(Vec<PodRef>),
    /// Route the Service to its pods only.
    RemoveSlice(Restored),
    /// Delete the private Service.
    DeletePrivateService(SliceGone),
    /// Remove our finalizer, so that the ElastiService can be deleted.
    RemoveFinalizer(SliceGone),
    /// A step about another Service of the pods, by its name: its slice or its private Service.
    Other(String, Box<Step>),
}

/// A pod as it was observed. A write to it must be conditional on the version:
/// a pod that has changed since may no longer be ready by itself, or may be another pod of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What becomes of its deletion cost with that write.
    pub cost: CostChange,
}

/// What becomes of a pod's deletion cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostChange {
    /// Nothing.
    Keep,
    /// It becomes the lowest: should a tick undo the mark in the last moment, the ReplicaSet still stops this pod.
    Lower,
    /// It is taken away.
    Remove,
}

impl Step {
    /// The step is safe only on facts that were read just now.
    pub(crate) fn needs_fresh_facts(&self) -> bool {
        match self {
            Self::Mark { .. } | Self::Shrink(_) | Self::ScaleToZero(_) | Self::RemoveSlice(_) => {
                true
            }
            Self::EnsureNet(net) => net.replaces_redirect(),
            Self::Other(_, step) => step.needs_fresh_facts(),
            _ => false,
        }
    }

    /// The order of steps within a plan: what requests need first, what they can do without last. A webhook or a quota
    /// that refuses the one must not keep the other from being written.
    pub(crate) fn order(&self) -> u8 {
        match self {
            Self::Wake(_) | Self::RestoreReplicas(_) => 0,
            Self::AddFinalizer => 1,
            Self::Redirect(_) | Self::EnsureNet(_) | Self::RemoveSlice(_) => 2,
            Self::HoldAutoscaler(_) => 3,
            Self::Mark { .. } | Self::Unmark(_) | Self::ResetCost(_) => 4,
            Self::Shrink(_) | Self::ScaleToZero(_) => 5,
            Self::ReleaseAutoscaler(_) | Self::PinAutoscaler(_) => 6,
            Self::EnsurePrivateService(_) => 7,
            Self::DeletePrivateService(_) => 8,
            Self::RemoveFinalizer(_) => 9,
            Self::Other(_, step) => step.order(),
        }
    }

    /// The step takes pods out of rotation or stops them, because the service is quiet.
    #[must_use]
    pub fn takes_down(&self) -> bool {
        match self {
            Self::Mark { .. } | Self::Shrink(_) | Self::ScaleToZero(_) => true,
            Self::Other(_, step) => step.takes_down(),
            _ => false,
        }
    }

    /// The step keeps a Service's slice as it has to be, whatever became of the steps before it.
    #[must_use]
    pub fn keeps_path(&self) -> bool {
        match self {
            Self::Redirect(_) | Self::EnsureNet(_) | Self::RemoveSlice(_) => true,
            Self::Other(_, step) => step.keeps_path(),
            _ => false,
        }
    }

    /// The step in logs, metrics and conditions.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::AddFinalizer => "AddFinalizer",
            Self::EnsurePrivateService(_) => "EnsurePrivateService",
            Self::Redirect(_) => "Redirect",
            Self::EnsureNet(_) => "EnsureNet",
            Self::HoldAutoscaler(_) => "HoldAutoscaler",
            Self::Mark { .. } => "Mark",
            Self::Shrink(_) => "Shrink",
            Self::ScaleToZero(_) => "ScaleToZero",
            Self::PinAutoscaler(_) => "PinAutoscaler",
            Self::Wake(_) => "Wake",
            Self::RestoreReplicas(_) => "RestoreReplicas",
            Self::ReleaseAutoscaler(_) => "ReleaseAutoscaler",
            Self::Unmark(_) => "Unmark",
            Self::ResetCost(_) => "ResetCost",
            Self::RemoveSlice(_) => "RemoveSlice",
            Self::DeletePrivateService(_) => "DeletePrivateService",
            Self::RemoveFinalizer(_) => "RemoveFinalizer",
            Self::Other(_, step) => step.name(),
        }
    }

    /// The step must not be sent at or after this moment: its proof may no longer hold.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        match self {
            Self::Redirect(routed) => Some(routed.expires),
            Self::EnsureNet(net) => Some(net.expires),
            Self::Mark { redirected, .. } => Some(redirected.expires),
            Self::Shrink(group) => Some(group.drained.expires),
            Self::ScaleToZero(drained) => Some(drained.expires),
            Self::RemoveSlice(restored) => Some(restored.expires),
            Self::Other(_, step) => step.expires(),
            _ => None,
        }
    }
}

/// Proof: these resolvers listen for this service, so its traffic may be sent to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    slices: Vec<SliceShape>,
    expires: Timestamp,
}

impl Routed {
    /// The slices that redirect.
    #[must_use]
    pub fn slices(&self) -> &[SliceShape] {
        &self.slices
    }

    /// Proves it from the facts.
    ///
    /// # Errors
    /// If the ports are not recorded yet, or no ready resolver listens on them.
    pub fn observe(service: &Service, o: &Observed) -> Result<Self, Why> {
        let PortsGiven::Given(ports) = &o.ports else {
            return Err(Why::new(Reason::PortsExhausted, PORTS_EXHAUSTED));
        };
        if o.me.remembered.ports != *ports {
            return Err(Why::new(
                Reason::RouteNotReady,
                "The listen ports are not recorded yet.",
            ));
        }
        let slices: Vec<SliceShape> = service
            .families
            .iter()
            .map(|family| SliceShape {
                family: *family,
                role: SliceRole::Redirect,
                ports: ports.clone(),
                endpoints: resolver_endpoints(service, ports, *family, o),
            })
            .filter(|slice| !slice.endpoints.is_empty())
            .collect();
        if slices.is_empty() {
            let sentence = "No ready resolver listens for this service yet.";
            return Err(Why::new(Reason::RouteNotReady, sentence));
        }
        Ok(Self {
            slices,
            expires: fresh_until(o),
        })
    }
}

/// The addresses of one family of the resolvers that serve the Service, each with its node. Each family has its own
/// choice, or a Service of both might have no resolver in one of them.
fn resolver_endpoints(
    service: &Service,
    ports: &[ListenPort],
    family: Family,
    o: &Observed,
) -> BTreeMap<IpAddr, String> {
    let of_family = |a: &&IpAddr| Family::from_address(a) == family;
    let candidates = { o.ready_resolvers() }
        .filter(|r| listens(r, ports) || is_in_slice(r, ports, o))
        .filter(|r| r.addresses.iter().any(|a| of_family(&a)));
    let most = o.settings.resolvers_per_service;
    let chosen = resolver_choice::chosen(service, ports, candidates, most).into_iter();
    let addresses = chosen.flat_map(|r| {
        let addresses = r.addresses.iter().filter(of_family);
        addresses.map(|a| (*a, r.node.clone()))
    });
    addresses.collect()
}

/// The sentence for a port range that is used up.
pub const PORTS_EXHAUSTED: &str =
    "No listen port is free; widen the operator's port range or remove unused ElastiServices.";

/// The resolver reported that it listens on exactly these ports.
fn listens(resolver: &Resolver, ports: &[ListenPort]) -> bool {
    let wanted = RouteGeneration::from_ports(ports);
    matches!(&resolver.report, Report::Seen { route: Some(route), .. } if *route == wanted)
}

/// The resolver was proven to listen on these ports when it was added to our slice.
fn is_in_slice(resolver: &Resolver, ports: &[ListenPort], o: &Observed) -> bool {
    o.slice.ours().is_some_and(|slices| {
        slices.iter().any(|s| {
            s.ports == ports
                && resolver
                    .addresses
                    .iter()
                    .any(|a| s.endpoints.contains_key(a))
        })
    })
}

/// Proof: every node sends new connections to a resolver too, and every ready resolver accepts them; for every Service of
/// the pods but those that pods of other owners serve as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirected {
    expires: Timestamp,
}

impl Redirected {
    /// Proves it from the facts.
    ///
    /// # Errors
    /// If our slice has not existed for the settle time yet, or a ready resolver has not just confirmed the route.
    pub fn observe(routed: &Routed, o: &Observed) -> Result<Self, Why> {
        for (name, view) in o.other_views() {
            if let (Standing::Own, Some(service)) = (view.standing, &view.service) {
                Routed::observe(service, &view)
                    .and_then(|routed| Self::of_one(&routed, &view))
                    .map_err(|why| why.about(name))?;
            }
        }
        Self::of_one(routed, o)
    }

    fn of_one(routed: &Routed, o: &Observed) -> Result<Self, Why> {
        let since = match &o.stable_since.slice {
            Some((shape, since)) if *shape == routed.slices => *since,
            _ => {
                let sentence = "The Service is being redirected to the resolvers.";
                return Err(Why::new(Reason::Redirecting, sentence));
            }
        };
        for resolver in o.ready_resolvers() {
            confirms(resolver, routed, o)?;
        }
        let waiting = Why::new(
            Reason::Redirecting,
            "Waiting until every node sends new connections to the resolvers.",
        );
        settled(since, o, waiting)?;
        Ok(Self {
            expires: fresh_until(o),
        })
    }
}

/// A ready resolver confirms the route, in a report that is fresh.
fn confirms(resolver: &Resolver, routed: &Routed, o: &Observed) -> Result<(), Why> {
    let name = &resolver.name;
    let unreachable = || {
        Why::new(
            Reason::ResolverUnreachable,
            format!("Resolver {name} does not answer the operator."),
        )
    };
    let Report::Seen { at, .. } = &resolver.report else {
        return Err(unreachable());
    };
    if o.since(*at) > o.settings.report_fresh {
        return Err(unreachable());
    }
    // Also one that is not in the slice: it takes the place of one that ends, and clients may be left from before.
    if routed.slices.iter().any(|s| listens(resolver, &s.ports)) {
        return Ok(());
    }
    Err(Why::new(
        Reason::RouteNotReady,
        format!("Resolver {name} does not listen for this service yet."),
    ))
}

/// Proof: no node sends anything to the pods, none will before `expires`, and no request waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drained {
    version: String,
    expires: Timestamp,
}

impl Drained {
    /// The version of the target that was observed; the write must be conditional on it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Proves it from the facts, after pods were taken out of rotation.
    ///
    /// # Errors
    /// If a pod may still get traffic, a kubelet tick is near or unknown, or a resolver has seen something.
    pub fn observe(_: &Redirected, o: &Observed) -> Result<Self, Why> {
        let out = |since: Option<Timestamp>, what: &str| {
            let waiting = Why::new(Reason::Draining, what);
            match since {
                Some(since) => settled(since, o, waiting),
                None => Err(waiting),
            }
        };
        out(
            o.stable_since.pods_out_since,
            "Pods are being taken out of rotation.",
        )?;
        for spans in services::spans(o)? {
            out(
                spans.no_rotation_since,
                "Some nodes may still send connections to the pods.",
            )?;
        }
        let window = o.stable_since.tick_window(&o.pods, &o.settings, o.now);
        groups::last_is_alone(o)?;
        groups::others_stopped(o)?;
        Self::unless_seen(o, tick_of(window, o)?)
    }

    /// Looks for the weaker proof of `handover: redirect`: the pods stay in rotation, the resolvers have seen nothing.
    ///
    /// # Errors
    /// If a resolver has seen something, or cannot be asked.
    pub fn observe_without_drain(_: &Redirected, o: &Observed) -> Result<Self, Why> {
        Self::unless_seen(o, Timestamp::MAX)
    }

    fn unless_seen(o: &Observed, tick: Timestamp) -> Result<Self, Why> {
        let Leadership::Leader { until } = o.leadership else {
            return Err(Why::new(
                Reason::NotLeader,
                "Another operator is the leader.",
            ));
        };
        if !autoscaler::is_held(&o.autoscaler) {
            return Err(Why::new(Reason::Draining, "KEDA is being paused."));
        }
        if let Some(promised) = o.promised_until.filter(|promised| o.now < *promised) {
            let sentence = "A resolver was promised that no pod is stopped yet.";
            return Err(Why::new(Reason::Traffic, sentence).until(promised));
        }
        for resolver in o.ready_resolvers() {
            is_quiet(resolver, o)?;
        }
        let Some(target) = &o.target else {
            return Err(Why::new(
                Reason::TargetNotFound,
                "The target does not exist.",
            ));
        };
        let expires = sub(tick.min(until), o.settings.margin).min(fresh_until(o));
        if expires <= o.now {
            let sentence =
                "A kubelet tick or the end of the lease is too close to scale to zero safely.";
            return Err(Why::new(Reason::Draining, sentence)
                .until(add(tick.min(until), TICK_POLL_INTERVAL)));
        }
        Ok(Self {
            version: target.version.clone(),
            expires,
        })
    }
}

/// Proof: no node sends anything to the pods that the target's controller will stop for this scale-down, none will
/// before it expires, and the replicas before the first scale-down are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDrained {
    drained: Drained,
    replicas: u32,
    pods: Vec<String>,
}

impl GroupDrained {
    /// The version of the target that was observed; the write must be conditional on it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.drained.version
    }

    /// The replicas that are left.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.replicas
    }

    /// The pods among which the controller chooses.
    #[must_use]
    pub fn pods(&self) -> &[String] {
        &self.pods
    }

    /// Proves it from the facts.
    ///
    /// # Errors
    /// If a pod that may be stopped may still get traffic, a kubelet tick is near or unknown, a resolver has seen
    /// something, the controller is not done with the last group, or the replicas are not recorded.
    pub fn observe(_: &Redirected, o: &Observed) -> Result<Self, Why> {
        groups::controller_caught_up(o)?;
        let victims = groups::victims(o)?;
        for pod in &victims {
            is_out(pod, o)?;
        }
        let marked = victims.iter().copied().filter(|pod| pod.marked);
        let window = (o.stable_since).group_window(marked, &o.settings, o.now);
        let drained = Drained::unless_seen(o, tick_of(window, o)?)?;
        if groups::to_remember(true, o) != o.me.remembered.replicas_before_drain {
            let sentence = "The replicas are not recorded in the status yet.";
            return Err(Why::new(Reason::Draining, sentence));
        }
        let before = o.replicas().unwrap_or(0);
        let gone = u32::try_from(victims.len()).unwrap_or(u32::MAX);
        let replicas = before.saturating_sub(gone).max(groups::floor(o));
        if victims.is_empty() || replicas >= before {
            let sentence = "Pods are being taken out of rotation.";
            return Err(Why::new(Reason::Draining, sentence));
        }
        Ok(Self {
            drained,
            replicas,
            pods: victims.iter().map(|pod| pod.name.clone()).collect(),
        })
    }
}

/// The pod has been out of rotation for the settle time.
fn is_out(pod: &Pod, o: &Observed) -> Result<(), Why> {
    let waiting = Why::new(
        Reason::Draining,
        format!("Pod {} is being taken out of rotation.", pod.name),
    );
    for spans in services::spans(o)? {
        match spans.out_since.get(&pod.name) {
            Some(since) => settled(*since, o, waiting.clone())?,
            None => return Err(waiting),
        }
    }
    Ok(())
}

/// When the next tick comes, if that is known and the ticks leave a gap at all.
fn tick_of(window: TickWindow, o: &Observed) -> Result<Timestamp, Why> {
    match window {
        TickWindow::NoTicks => Ok(Timestamp::MAX),
        TickWindow::ClearUntil(tick) => Ok(tick),
        TickWindow::WaitUntil(moment) => {
            let sentence =
                "Waiting for the kubelet's next status tick, so that none interrupts the drain.";
            let until = moment.min(add(o.now, TICK_POLL_INTERVAL));
            Err(Why::new(Reason::Draining, sentence).until(until))
        }
        TickWindow::TooDense => Err(too_dense()),
    }
}

/// How often to reconcile while waiting for a tick. A tick is known to lie between two reconciles, so the time
/// between them is lost from the gap that follows; the tick itself is seen by its event.
const TICK_POLL_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// The reason for staying awake where ticks leave no gap.
#[must_use]
pub fn too_dense() -> Why {
    Why::new(
        Reason::TicksTooDense,
        "The kubelets undo the drain too often for it to be safe; set `handover: redirect` to sleep without a drain.",
    )
}

/// No request waits or is in flight, and none has arrived for the settle time. A report from before the end of
/// a promise proves nothing: a request may have gone to a promised pod since.
fn is_quiet(resolver: &Resolver, o: &Observed) -> Result<(), Why> {
    let name = &resolver.name;
    match &resolver.report {
        Report::Seen { at, .. } if o.promised_until.is_some_and(|promised| *at < promised) => {
            let sentence = format!("Resolver {name} is being asked again after a promise.");
            Err(Why::new(Reason::Traffic, sentence).until(add(o.now, TICK_POLL_INTERVAL)))
        }
        Report::Seen {
            held: 0,
            open: 0,
            last_connection,
            ..
        } if last_connection.is_none_or(|at| o.since(at) >= o.settings.settle) => Ok(()),
        Report::Seen { .. } => Err(Why::new(
            Reason::Traffic,
            format!("Resolver {name} has just had connections."),
        )),
        Report::NotAsked | Report::Unreachable => Err(Why::new(
            Reason::ResolverUnreachable,
            format!("Resolver {name} does not answer the operator."),
        )),
    }
}

/// Proof: nodes that use our slice only while they know no ready pod lose nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Net {
    slices: Vec<SliceShape>,
    replaces_redirect: bool,
    expires: Timestamp,
}

impl Net {
    /// The slices that may be written.
    #[must_use]
    pub fn slices(&self) -> &[SliceShape] {
        &self.slices
    }

    /// It takes the resolvers out of the path, so it is safe only on current facts.
    #[must_use]
    pub fn replaces_redirect(&self) -> bool {
        self.replaces_redirect
    }

    /// Proves it from the facts. Where nothing is redirected a net takes nothing away. A redirect may become one as
    /// soon as a pod is in rotation: a node that does not know that pod yet uses the net.
    ///
    /// # Errors
    /// If no resolver listens, no pod is in rotation, or a node may know a terminating pod but no ready one: it would
    /// send connections to both the net and that pod.
    pub fn observe(service: &Service, o: &Observed) -> Result<Self, Why> {
        let redirect = match (Routed::observe(service, o), o.slice.ours()) {
            (Ok(routed), _) => routed.slices,
            // Without a resolver that listens, what is there steps back.
            (Err(_), Some(slices)) => slices.clone(),
            (Err(why), None) => return Err(why),
        };
        if o.is_redirected() {
            pod_takes_over(o)?;
        }
        let as_net = |slice| SliceShape {
            role: SliceRole::Net,
            ..slice
        };
        Ok(Self {
            slices: redirect.into_iter().map(as_net).collect(),
            replaces_redirect: o.is_redirected(),
            expires: fresh_until(o),
        })
    }
}

/// A pod that is ready is in rotation, the target's or that of another owner, and no node sends connections to a
/// terminating one.
fn pod_takes_over(o: &Observed) -> Result<(), Why> {
    let rotation = known_since(o)?;
    let waiting = Why::new(
        Reason::Restoring,
        "Some nodes may still send connections to terminating pods.",
    );
    let since = o.stable_since.no_terminating_since;
    settled(since.map_or(rotation, |at| at.min(rotation)), o, waiting)
}

/// After the settle time from then on every node knows a pod that is ready, however often other pods come and go. With a
/// `Local` policy a node sends only to pods of its own, so it takes all of them.
fn known_since(o: &Observed) -> Result<Timestamp, Why> {
    let seen = &o.stable_since;
    let local = { o.service.as_ref() }.is_some_and(|service| !service.allows_net());
    let wanted = o.replicas().filter(|_| local).unwrap_or(0);
    let known = u32::try_from(seen.in_rotation_since.len()).unwrap_or(u32::MAX);
    if known < wanted {
        let sentence = format!(
            "The Service's own endpoints show {known} of {wanted} pods; its traffic policy is Local, so every pod must be ready."
        );
        return Err(Why::new(Reason::Restoring, sentence));
    }
    let since = seen.in_rotation_since.iter().map(|(pod, since)| {
        // The slices have followed a pod that has not changed for the settle time, whatever they showed before.
        let followed = seen.ready_since.get(pod);
        followed.map_or(*since, |at| add(*at, o.settings.settle).min(*since))
    });
    let since = since.chain(seen.shared_since);
    let since = if local { since.max() } else { since.min() };
    since.ok_or_else(|| {
        let sentence = "The Service's own endpoints show no ready pod yet.";
        Why::new(Reason::Restoring, sentence)
    })
}

/// Proof: every node sends new connections to a ready pod, so the resolvers may leave the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    expires: Timestamp,
}

impl Restored {
    /// Proves it from the facts: the Service's own slices, not the pods, have shown a ready pod for the settle time. They
    /// may lag behind a pod that left and came back, so the pod itself must have stayed ready, too.
    ///
    /// # Errors
    /// If they have not.
    pub fn observe(o: &Observed) -> Result<Self, Why> {
        if let Some(proof) = Self::of_net(o) {
            return Ok(proof);
        }
        let waiting = Why::new(
            Reason::Restoring,
            "Waiting until every node sends new connections to the pods.",
        );
        settled(known_since(o)?, o, waiting)?;
        Ok(Self {
            expires: fresh_until(o),
        })
    }

    /// Our slice has been a net for the settle time, no pod is ready, none has our mark and no wake of ours is under
    /// way: that no pod is ready is not our doing. A ready pod may be new to a node, so it has to prove itself.
    fn of_net(o: &Observed) -> Option<Self> {
        let (slices, since) = o.stable_since.slice.as_ref()?;
        let net = slices.iter().all(|s| s.role == SliceRole::Net);
        let settled = o.since(*since) >= o.settings.settle;
        let ready = o.pods.iter().any(|pod| pod.ready) || o.endpoints.iter().any(|e| e.ready);
        let ours = o.marked_pods().next().is_some() || idle::wake_is_under_way(o);
        (net && settled && !ready && !ours).then(|| Self {
            expires: fresh_until(o),
        })
    }

    /// No pod of the target can become ready behind the Service any more: it, the target or the namespace is gone, it
    /// selects other pods now, or the deletion has timed out.
    #[must_use]
    pub fn pointless(o: &Observed) -> Option<Self> {
        let left = o.service.is_none() || o.standing == Standing::Left;
        let nothing_left = o.target.is_none() || left || o.namespace_terminating;
        (nothing_left || deletion_timed_out(o)).then_some(Self {
            expires: Timestamp::MAX,
        })
    }
}

/// A deletion has waited long enough for a ready pod.
#[must_use]
pub fn deletion_timed_out(o: &Observed) -> bool {
    deletion_deadline(o).is_some_and(|deadline| o.now >= deadline)
}

/// When a deletion stops waiting for a ready pod. Only time counts in which this process could wake the target
/// and pods could start, not time in which no operator ran.
#[must_use]
pub fn deletion_deadline(o: &Observed) -> Option<Timestamp> {
    let deleting = o.me.deleting_since?;
    let woken = o
        .target
        .as_ref()
        .filter(|t| t.replicas > 0)
        .and_then(|t| t.replicas_at.or(o.stable_since.replicas_at));
    let since = deleting
        .max(o.stable_since.watching_since)
        .max(woken.unwrap_or(deleting));
    Some(add(since.min(o.now), o.settings.deletion_timeout))
}

/// Proof: no node sends anything to our listen ports any more, so they may be reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceGone(());

impl SliceGone {
    /// Proves it from the facts.
    ///
    /// # Errors
    /// If a slice of ours still exists or has not been gone for the settle time.
    pub fn observe(o: &Observed) -> Result<Self, Why> {
        for (name, view) in o.other_views() {
            Self::observe(&view).map_err(|why| why.about(name))?;
        }
        let Some(since) = o.stable_since.slice_gone_since else {
            return Err(Why::new(
                Reason::Deleting,
                "The Service still routes to the resolvers.",
            ));
        };
        let waiting = Why::new(
            Reason::Deleting,
            "Some nodes may still send connections to the resolvers.",
        );
        settled(since, o, waiting)?;
        Ok(Self(()))
    }
}

/// What was observed now proves nothing after this moment.
fn fresh_until(o: &Observed) -> Timestamp {
    add(o.now, o.settings.report_fresh)
}

/// Ok if the settle time has passed since then; else the reason to wait, and until when.
fn settled(since: Timestamp, o: &Observed, waiting: Why) -> Result<(), Why> {
    if o.since(since) >= o.settings.settle {
        return Ok(());
    }
    Err(waiting.until(add(since, o.settings.settle)))
}

fn add(moment: Timestamp, span: SignedDuration) -> Timestamp {
    moment.checked_add(span).unwrap_or(Timestamp::MAX)
}

fn sub(moment: Timestamp, span: SignedDuration) -> Timestamp {
    moment.checked_sub(span).unwrap_or(Timestamp::MIN)
}
