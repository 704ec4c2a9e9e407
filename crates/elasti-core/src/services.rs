//! All Services of the target's pods: the one that the spec names, and the others that select the same pods. Each has its
//! own slice and listen ports, and what is proven for one of them is proven from its own slices.

use elasti_api::{ElastiServiceSpec, Reason, ServicePorts, UnmanagedServices};

use crate::observed::{
    Observed, OtherService, Owned, PortsGiven, Report, Service, ServiceKind, Standing,
};
use crate::stable_since::StableSince;
use crate::step::PORTS_EXHAUSTED;
use crate::why::Why;

/// How many Services of one target are managed: each costs a slice, a private Service and listen ports.
pub const MOST_SERVICES: usize = 16;

/// What cannot be managed of the pods' Services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unmanaged {
    /// Services that have no endpoints while the target sleeps, by their names.
    pub services: Vec<String>,
    /// More Services select the pods than can be managed.
    pub too_many: bool,
}

/// Requests to a Service can be held: it has a cluster IP and a TCP port, and shows only pods that are ready.
#[must_use]
pub fn can_be_held(service: &Service) -> bool {
    let held = service.ports.iter().any(|port| port.tcp);
    service.kind == ServiceKind::ClusterIp && !service.publishes_unready && held
}

impl Observed {
    /// The facts as they are for each other Service of the pods, with its name.
    pub fn other_views(&self) -> impl Iterator<Item = (&str, Observed)> {
        let others = self.others.iter();
        others.map(|other| (other.name.as_str(), self.view_of(other)))
    }

    fn view_of(&self, other: &OtherService) -> Self {
        let spans = self.stable_since.others.get(&other.name);
        let mut view = Self {
            service: other.service.clone(),
            standing: other.standing,
            endpoints: other.endpoints.clone(),
            endpoints_version: other.endpoints_version.clone(),
            slice: other.slice.clone(),
            private_service: other.private_service.clone(),
            ports: other.ports.clone(),
            stable_since: spans.map_or_else(|| StableSince::fresh(self.now, None), Clone::clone),
            others: Vec::new(),
            unmanaged: Unmanaged::default(),
            ..self.clone()
        };
        let recorded = view.me.remembered.services.iter();
        let recorded = recorded.filter(|one| one.name == other.name);
        view.me.remembered.ports = recorded.flat_map(|one| one.ports.clone()).collect();
        for resolver in &mut view.resolvers {
            if let Report::Seen {
                route,
                other_routes,
                ..
            } = &mut resolver.report
            {
                *route = other_routes.get(&other.name).cloned();
            }
        }
        view
    }

    /// An object that is not ours has the name of one that this Service needs.
    pub(crate) fn has_foreign_object(&self) -> bool {
        matches!(self.slice, Owned::Foreign) || matches!(self.private_service, Owned::Foreign)
    }
}

/// What has been stable for how long of every Service that the pods must leave, the one that the spec names first.
pub(crate) fn spans(o: &Observed) -> Result<Vec<&StableSince>, Why> {
    let mut all = vec![&o.stable_since];
    for other in o.others.iter().filter(|one| one.standing != Standing::Left) {
        let waiting = || {
            let sentence = "It has only just been found.";
            Why::new(Reason::Draining, sentence).about(&other.name)
        };
        all.push(o.stable_since.others.get(&other.name).ok_or_else(waiting)?);
    }
    Ok(all)
}

/// What keeps the target awake because of another Service of its pods.
pub(crate) fn blocked(spec: &ElastiServiceSpec, o: &Observed) -> Option<Why> {
    if o.unmanaged.too_many {
        let sentence = format!(
            "More than {MOST_SERVICES} Services select the pods of the target, and no more are managed."
        );
        return Some(Why::new(Reason::Unsupported, sentence));
    }
    if spec.unmanaged_services == Some(UnmanagedServices::Block)
        && let Some(sentence) = unmanaged(spec, o)
    {
        return Some(Why::new(Reason::Unsupported, sentence));
    }
    let managed = o.others.iter().filter(|one| one.standing != Standing::Left);
    managed.into_iter().find_map(|other| {
        let foreign = matches!(other.slice, Owned::Foreign)
            || matches!(other.private_service, Owned::Foreign);
        let why = match other.ports {
            _ if foreign => Why::new(Reason::Conflict, FOREIGN_OBJECT),
            PortsGiven::Exhausted => Why::new(Reason::PortsExhausted, PORTS_EXHAUSTED),
            PortsGiven::Given(_) => return None,
        };
        Some(why.about(&other.name))
    })
}

/// The sentence for an object that is in our way.
pub(crate) const FOREIGN_OBJECT: &str =
    "An object that Elasti did not create has the name of one that it needs; rename or delete it.";

/// Which Services lose their endpoints while the target sleeps, as a sentence.
pub(crate) fn unmanaged(spec: &ElastiServiceSpec, o: &Observed) -> Option<String> {
    let services = &o.unmanaged.services;
    if services.is_empty() {
        return None;
    }
    let blocks = spec.unmanaged_services == Some(UnmanagedServices::Block);
    let so = match blocks {
        true => "so it does not sleep: `unmanagedServices` is `block`",
        false => "and requests to them wake nothing",
    };
    Some(format!(
        "Without endpoints while the target sleeps: {}. They are headless, publish pods that are not ready or have no TCP port, {so}.",
        services.join(", ")
    ))
}

/// What the status records of the other Services: those that are managed, and those of which something of ours is left.
pub(crate) fn recorded(o: &Observed) -> Vec<ServicePorts> {
    let remembered = |name: &str| {
        let services = o.me.remembered.services.iter();
        let found = services.filter(|one| one.name == name);
        found.flat_map(|one| one.ports.clone()).collect()
    };
    let there = |one: &&OtherService| {
        let ours = one.slice.ours().is_some() || one.private_service.ours().is_some();
        one.standing != Standing::Left || ours
    };
    let services = o.others.iter().filter(there);
    services
        .map(|other| ServicePorts {
            name: other.name.clone(),
            ports: match &other.ports {
                PortsGiven::Given(ports) => ports.clone(),
                PortsGiven::Exhausted => remembered(&other.name),
            },
        })
        .collect()
}
