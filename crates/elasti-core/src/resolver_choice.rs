//! Which resolvers serve one Service: a few of them, chosen by rendezvous hash, so that a resolver that comes or goes
//! changes the slices of its own share of the Services only.

use std::collections::BTreeMap;

use elasti_api::ListenPort;

use crate::observed::{Resolver, Service};

/// The resolvers of `candidates` that serve a Service with these listen ports: at most `most`, on as many nodes as
/// possible. With a `Local` policy a node sends only to its own resolver, so all of them do.
#[must_use]
pub fn chosen<'a>(
    service: &Service,
    ports: &[ListenPort],
    candidates: impl IntoIterator<Item = &'a Resolver>,
    most: usize,
) -> Vec<&'a Resolver> {
    let mut ranked: Vec<&Resolver> = candidates.into_iter().collect();
    if !service.allows_net() || ranked.len() <= most {
        return ranked;
    }
    // No other Service has this port, and it stays as long as the Service is managed.
    let key = ports.first().map_or(0, |port| port.listen_port);
    ranked.sort_by_cached_key(|r| (std::cmp::Reverse(weight(key, &r.name)), r.name.clone()));
    let mut on_node: BTreeMap<&str, usize> = BTreeMap::new();
    let mut spread: Vec<(usize, &Resolver)> = ranked
        .into_iter()
        .map(|resolver| (before_on_node(&mut on_node, resolver), resolver))
        .collect();
    // Stable: within each round over the nodes the order of the weights stays.
    spread.sort_by_key(|(round, _)| *round);
    spread.truncate(most);
    spread.into_iter().map(|(_, resolver)| resolver).collect()
}

/// How many resolvers of its node rank before this one; a node that is not known is no other's.
fn before_on_node<'a>(on_node: &mut BTreeMap<&'a str, usize>, resolver: &'a Resolver) -> usize {
    if resolver.node.is_empty() {
        return 0;
    }
    let count = on_node.entry(&resolver.node).or_default();
    *count += 1;
    *count - 1
}

/// FNV-1a over the key and the name, mixed by the end of SplitMix64. Not the standard library's hash, which may differ
/// between releases: every slice would be written again after an upgrade.
fn weight(key: u16, name: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let key = key.to_be_bytes();
    let bytes = key.iter().chain(name.as_bytes());
    let hash = bytes.fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    });
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_precision_loss, clippy::indexing_slicing)]
    use std::collections::{BTreeMap, BTreeSet};

    use elasti_api::ListenPort;

    use super::chosen;
    use crate::labels::Labels;
    use crate::observed::{Family, Report, Resolver, Service, ServiceKind};

    const MOST: usize = 3;
    const SERVICES: u16 = 10_000;
    const FIRST_PORT: u16 = 20_000;

    fn resolver(name: &str, node: &str) -> Resolver {
        Resolver {
            name: name.to_owned(),
            node: node.to_owned(),
            addresses: Vec::new(),
            ready: true,
            terminating: false,
            report: Report::NotAsked,
        }
    }

    fn resolvers(count: usize) -> Vec<Resolver> {
        let one = |i: usize| resolver(&format!("elasti-resolver-5d9c-{i}"), &format!("node-{i}"));
        (0..count).map(one).collect()
    }

    fn service() -> Service {
        Service {
            kind: ServiceKind::ClusterIp,
            selector: Labels::default(),
            ports: Vec::new(),
            families: BTreeSet::from([Family::V4]),
            external_local: false,
            internal_local: false,
            publishes_unready: false,
        }
    }

    fn names(service: &Service, port: u16, candidates: &[Resolver]) -> BTreeSet<String> {
        let ports = [ListenPort {
            name: String::new(),
            port: 80,
            listen_port: port,
        }];
        let chosen = chosen(service, &ports, candidates, MOST);
        chosen.into_iter().map(|r| r.name.clone()).collect()
    }

    fn of_all(candidates: &[Resolver]) -> Vec<BTreeSet<String>> {
        let ports = FIRST_PORT..FIRST_PORT + SERVICES;
        ports
            .map(|port| names(&service(), port, candidates))
            .collect()
    }

    #[test]
    fn every_service_has_three_resolvers_and_every_resolver_its_share() {
        let sets = of_all(&resolvers(10));
        assert!(sets.iter().all(|set| set.len() == MOST));
        let mut load: BTreeMap<&String, usize> = BTreeMap::new();
        for name in sets.iter().flatten() {
            *load.entry(name).or_default() += 1;
        }
        let share = usize::from(SERVICES) * MOST / 10;
        assert_eq!(load.len(), 10);
        for (name, services) in load {
            let off = services.abs_diff(share);
            assert!(off * 10 < share, "{name} has {services} of {share}");
        }
    }

    #[test]
    fn a_resolver_that_comes_or_goes_changes_only_the_services_that_use_it() {
        let nine = resolvers(9);
        let ten = resolvers(10);
        let new = &ten[9].name;
        let mut changed = 0_usize;
        for (before, after) in of_all(&nine).into_iter().zip(of_all(&ten)) {
            if before == after {
                continue;
            }
            changed += 1;
            let entered: Vec<&String> = after.difference(&before).collect();
            assert_eq!(entered, [new], "nothing but the new one enters");
            assert_eq!(
                before.difference(&after).count(),
                1,
                "one makes room for it"
            );
        }
        let share = usize::from(SERVICES) * MOST / 10;
        assert!(changed.abs_diff(share) * 10 < share, "{changed} of {share}");
    }

    #[test]
    fn the_same_holds_where_nodes_have_several_resolvers() {
        let mut all: Vec<Resolver> = (0..9)
            .map(|i| resolver(&format!("resolver-{i}"), &format!("node-{}", i % 4)))
            .collect();
        let before = of_all(&all);
        let gone = all.remove(4).name;
        for (before, after) in before.into_iter().zip(of_all(&all)) {
            let left: Vec<&String> = before.difference(&after).collect();
            assert!(left.is_empty() || left == [&gone], "{left:?} left");
            assert_eq!(before.contains(&gone), before != after);
        }
    }

    #[test]
    fn three_resolvers_are_on_three_nodes_where_there_are_three() {
        let mut all: Vec<Resolver> = (0..12)
            .map(|i| resolver(&format!("a-{i}"), "crowded"))
            .collect();
        all.push(resolver("b", "second"));
        all.push(resolver("c", "third"));
        for set in of_all(&all) {
            let rare = ["b", "c"].map(str::to_owned);
            assert!(rare.iter().all(|name| set.contains(name)), "{set:?}");
        }
    }

    #[test]
    fn up_to_three_resolvers_serve_every_service() {
        for count in 0..=MOST {
            let sets = of_all(&resolvers(count));
            assert!(sets.iter().all(|set| set.len() == count));
        }
    }

    #[test]
    fn a_local_policy_keeps_the_resolver_of_every_node() {
        let internal = Service {
            internal_local: true,
            ..service()
        };
        let external = Service {
            external_local: true,
            ..service()
        };
        for local in [internal, external] {
            assert_eq!(names(&local, FIRST_PORT, &resolvers(100)).len(), 100);
        }
    }

    #[test]
    fn the_choice_is_the_same_in_every_release() {
        let chosen = names(&service(), FIRST_PORT, &resolvers(10));
        let last: Vec<&str> = chosen.iter().filter_map(|n| n.rsplit('-').next()).collect();
        assert_eq!(last, ["5", "6", "7"]);
    }
}
