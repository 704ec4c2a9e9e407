//! What of a Service keeps some of its clients from a resolver while it sleeps, in the operator's own sentences: for
//! `check` and `lint`.

use std::net::IpAddr;

use elasti_api::ElastiService;
use elasti_core::coverage;
use elasti_core::observed::{Report, Resolver, Service};
use elasti_view::explanation::{LiveObjects, observed};
use elasti_view::view::Lookup;
use jiff::Timestamp;

/// One such thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Trouble {
    /// A sentence without its full stop.
    pub(crate) sentence: String,
    /// What to change.
    pub(crate) fix: String,
    /// The operator does not let the target sleep because of it.
    pub(crate) keeps_awake: bool,
}

impl Trouble {
    /// The same, about another Service of the target's pods.
    pub(crate) fn about(mut self, service: &str) -> Self {
        self.sentence = format!("Service {service}: {}", self.sentence);
        self
    }
}

/// Everything of one Service. Without the addresses of the ready resolvers the families are not compared.
pub(crate) fn troubles(
    me: &ElastiService,
    service: &Service,
    resolvers: Option<&[IpAddr]>,
) -> Vec<Trouble> {
    let warnings = coverage::warnings(service).into_iter();
    let mut found: Vec<Trouble> = warnings
        .map(|warning| Trouble {
            sentence: warning.sentence.trim_end_matches('.').to_owned(),
            fix: warning.fix.to_owned(),
            keeps_awake: false,
        })
        .collect();
    found.extend(resolvers.and_then(|addresses| gap(me, service, addresses)));
    found
}

/// The operator's rule, over what is known here: the Service, and one resolver with all of the addresses. Nodes are not.
fn gap(me: &ElastiService, service: &Service, addresses: &[IpAddr]) -> Option<Trouble> {
    let mut o = observed(&LiveObjects {
        me: me.clone(),
        others: Vec::new(),
        target: Lookup::Unknown,
        service: Lookup::Unknown,
        pods: Vec::new(),
        events: Vec::new(),
        resolvers: Lookup::Unknown,
        nodes: Lookup::Unknown,
        autoscaler: Lookup::Unknown,
        now: Timestamp::UNIX_EPOCH,
    });
    o.service = Some(service.clone());
    o.resolvers = vec![Resolver {
        name: String::new(),
        node: String::new(),
        addresses: addresses.to_vec(),
        ready: !addresses.is_empty(),
        terminating: false,
        report: Report::NotAsked,
    }];
    let whole = coverage::gap(&o)?.sentence;
    let whole = whole.trim_end_matches('.');
    let (sentence, fix) = whole
        .split_once("; ")
        .unwrap_or((whole, "elasti why NAME -n NAMESPACE shows the cause"));
    Some(Trouble {
        sentence: sentence.to_owned(),
        fix: fix.to_owned(),
        keeps_awake: true,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use elasti_core::facts::ServiceFacts;
    use serde_json::json;

    use super::*;

    fn found(families: &[&str], resolvers: Option<&[&str]>) -> Vec<String> {
        let me = serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {"service": "web", "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        }))
        .unwrap();
        let service = json!({"spec": {"ipFamilies": families, "ports": [{"port": 80}]}});
        let service = ServiceFacts::from_object(serde_json::from_value(service).unwrap()).service;
        let resolvers: Option<Vec<IpAddr>> =
            resolvers.map(|all| all.iter().map(|one| one.parse().unwrap()).collect());
        let found = troubles(&me, &service, resolvers.as_deref());
        found
            .into_iter()
            .map(|one| format!("{} | {}", one.sentence, one.fix))
            .collect()
    }

    #[test]
    fn a_dual_stack_service_needs_resolvers_of_both_families() {
        let both = ["IPv4", "IPv6"];
        assert_eq!(
            found(&both, Some(&["10.0.0.1", "10.0.0.2"])),
            [
                "The Service has IPv6, and no ready resolver has an IPv6 address | give the resolvers both families, or the Service only one"
            ]
        );
        assert!(found(&both, Some(&["10.0.0.1", "fd00::1"])).is_empty());
        assert!(found(&["IPv4"], Some(&["10.0.0.1"])).is_empty());
    }

    #[test]
    fn without_resolvers_or_their_addresses_the_families_are_not_compared() {
        let both = ["IPv4", "IPv6"];
        assert!(found(&both, None).is_empty());
        assert!(found(&both, Some(&[])).is_empty());
    }
}
