//! The pods of KubeElasti's operator: while one lives, the services of its namespaces are left to it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use elasti_core::facts::PredecessorFacts;
use k8s_openapi::api::core::v1::Pod;

use super::Cache;
use super::cached_kind::{CachedKind, Source};
use crate::name::Name;
use crate::slim::FromObject;

/// A pod with the label of operators, which KubeElasti's share with many others.
#[derive(Clone, Debug)]
pub(crate) struct PredecessorPod {
    name: Name,
    facts: Option<PredecessorFacts>,
}

impl FromObject for PredecessorPod {
    fn from_object(object: serde_json::Value) -> Result<Self, serde_json::Error> {
        let pod: Pod = serde_json::from_value(object)?;
        Ok(Self {
            facts: PredecessorFacts::from_object(&pod),
            name: Name::from_metadata(&pod.metadata),
        })
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

impl CachedKind for PredecessorPod {
    const RESOURCE: &'static str = "predecessors";

    fn put(self, cache: &mut Cache, touched: &mut BTreeSet<Name>, _: Source) {
        let Some(facts) = self.facts else {
            return Self::gone(&self.name, cache, touched);
        };
        let before = cache.predecessors.insert(self.name, facts.clone());
        if before != Some(facts) {
            touched.extend(cache.declared.keys().cloned());
        }
    }

    fn gone(name: &Name, cache: &mut Cache, touched: &mut BTreeSet<Name>) {
        if cache.predecessors.remove(name).is_some() {
            touched.extend(cache.declared.keys().cloned());
        }
    }

    /// What must not be seen cannot be waited for.
    fn refused(cache: &mut Cache, touched: &mut BTreeSet<Name>) {
        cache.set_listed((Self::RESOURCE, None), touched);
    }

    fn names(cache: &Cache) -> Vec<Name> {
        cache.predecessors.keys().cloned().collect()
    }
}

impl Cache {
    /// The pod of a living operator of KubeElasti that manages this namespace.
    pub(crate) fn predecessor(&self, namespace: &str) -> Option<String> {
        let mut living = self.predecessors.iter();
        let (pod, _) = living.find(|(_, facts)| facts.serves(namespace))?;
        Some(pod.to_string())
    }

    /// A resolver of KubeElasti that has not ended has this address.
    pub(crate) fn has_predecessor_resolver(&self, address: IpAddr) -> bool {
        let mut living =
            { self.predecessor_resolvers.iter() }.filter_map(|name| self.resolvers.get(name));
        living.any(|pod| pod.facts.addresses.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::store::ResolverPod;

    #[test]
    fn addresses_of_its_resolvers_count_until_their_pods_have_ended() {
        let mut cache = Cache::default();
        let mut put = |name: &str, version: &str, argument: &str, phase: &str| {
            let pod = json!({
                "metadata": {"namespace": "elasti", "name": name, "uid": name, "resourceVersion": version},
                "spec": {"containers": [{"name": "proxy", "args": [argument]}]},
                "status": {"phase": phase, "podIP": name, "podIPs": [{"ip": name}]},
            });
            let pod = ResolverPod::from_object(pod).unwrap();
            pod.put(&mut cache, &mut BTreeSet::new(), Source::Event);
            ["10.0.0.1", "10.0.0.2"]
                .map(|address| cache.has_predecessor_resolver(address.parse().unwrap()))
        };
        assert_eq!(put("10.0.0.1", "1", "--its-own", "Running"), [true, false]);
        assert_eq!(put("10.0.0.2", "2", "resolver", "Running"), [true, false]);
        assert_eq!(put("10.0.0.1", "3", "--its-own", "Succeeded"), [false; 2]);
    }
}
