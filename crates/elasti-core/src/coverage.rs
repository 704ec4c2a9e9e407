//! Whether every client of a Service would reach a resolver while the service sleeps: in each address family, and on each
//! node if the Service sends only to endpoints of the client's own node. Also what only some of its clients notice.

use std::collections::BTreeSet;

use elasti_api::Reason;

use crate::observed::{Family, Observed, Service, Standing};
use crate::why::Why;

/// More would fill a status.
const NAMES_SHOWN: usize = 5;

/// Why some clients of a Service of the pods would not reach a resolver; `None` also if there is none at all, which is
/// another problem.
#[must_use]
pub fn gap(o: &Observed) -> Option<Why> {
    let of_one = |o: &Observed| {
        let service = o.service.as_ref()?;
        o.ready_resolvers().next()?;
        family_gap(service, o).or_else(|| node_gap(service, o))
    };
    let mut others = o.other_views();
    of_one(o).or_else(|| {
        others.find_map(|(name, view)| {
            let redirected = view.standing == Standing::Own;
            of_one(&view)
                .filter(|_| redirected)
                .map(|why| why.about(name))
        })
    })
}

/// What only some clients of a Service notice, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// One sentence.
    pub sentence: String,
    /// What to change.
    pub fix: &'static str,
}

/// What of a Service that can sleep some of its clients notice; the same in the status, in `lint` and in `check`.
#[must_use]
pub fn warnings(service: &Service) -> Vec<Warning> {
    let others = service.ports.iter().filter(|port| !port.tcp);
    let others: Vec<String> = others.map(|port| port.port.to_string()).collect();
    let (noun, verb) = match others.len() {
        1 => ("Port", "is"),
        _ => ("Ports", "are"),
    };
    let rules = [
        (
            !others.is_empty(),
            format!(
                "{noun} {} of the Service {verb} not TCP: while the target sleeps nothing answers there, and it is not woken.",
                listed(&others)
            ),
            "use TCP for what must wake the target",
        ),
        (
            service.external_local,
            "externalTrafficPolicy is Local: external clients reach it only through nodes that run a resolver.".to_owned(),
            "use Cluster, or run the resolver on every node (elastiResolver.kind: DaemonSet)",
        ),
        (
            service.internal_local,
            "internalTrafficPolicy is Local: it sleeps only while every node has a ready resolver.".to_owned(),
            "use Cluster, or run the resolver on every node (elastiResolver.kind: DaemonSet)",
        ),
    ];
    let found = rules.into_iter().filter(|(holds, ..)| *holds);
    found
        .map(|(_, sentence, fix)| Warning { sentence, fix })
        .collect()
}

/// A Service of both families needs a resolver in each: the slice of a family without one would be empty.
fn family_gap(service: &Service, o: &Observed) -> Option<Why> {
    let addresses = o.ready_resolvers().flat_map(|r| &r.addresses);
    let answered: BTreeSet<Family> = addresses.map(Family::from_address).collect();
    let dark = service.families.difference(&answered).next()?;
    let family = match dark {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    };
    let sentence = format!(
        "The Service has {family}, and no ready resolver has an {family} address; give the resolvers both families, or the Service only one."
    );
    Some(Why::new(Reason::Unsupported, sentence))
}

/// With `internalTrafficPolicy: Local` a node sends only to a resolver of its own.
fn node_gap(service: &Service, o: &Observed) -> Option<Why> {
    if !service.internal_local {
        return None;
    }
    let Some(nodes) = &o.nodes else {
        let sentence = "internalTrafficPolicy is Local, and the operator may not read nodes, so it cannot know whether each has a resolver; install Elasti for all namespaces, or use Cluster.";
        return Some(Why::new(Reason::NodesWithoutResolver, sentence));
    };
    let covered: BTreeSet<&String> = o.ready_resolvers().map(|r| &r.node).collect();
    let missing = nodes.iter().filter(|node| !covered.contains(node));
    let missing: Vec<String> = missing.cloned().collect();
    if missing.is_empty() {
        return None;
    }
    let sentence = format!(
        "internalTrafficPolicy is Local, and no resolver is ready on {}; run the resolver on every node (elastiResolver.kind: DaemonSet), or use Cluster.",
        listed(&missing)
    );
    Some(Why::new(Reason::NodesWithoutResolver, sentence))
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>();
    let shown = shown.join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
