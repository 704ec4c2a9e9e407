//! How many requests the resolvers hold now, for those who show it (dashboard, `elasti top`).

use std::sync::Arc;

use elasti_core::held::{Counts, together};

use crate::activity::{Reports, ResolverAddress};
use crate::cluster::Cluster;

/// Why it is not known how many requests are held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeldUnavailable {
    /// There is no resolver to ask.
    #[error("No resolver is ready.")]
    NoResolver,
    /// This one does not answer.
    #[error("Resolver {0} does not answer.")]
    Silent(String),
}

/// Asks for as long as the operator runs; clones share answers.
#[derive(Clone, Debug)]
pub struct HeldCounts {
    cluster: Arc<Cluster>,
    reports: Arc<Reports>,
}

impl HeldCounts {
    pub(crate) fn new(cluster: Arc<Cluster>, reports: Arc<Reports>) -> Self {
        Self { cluster, reports }
    }

    /// All resolvers together, each asked once. One that is terminating may still hold requests, but need not answer.
    ///
    /// # Errors
    /// If no resolver is ready, or if one that is does not answer.
    pub async fn ask(&self) -> Result<Counts, HeldUnavailable> {
        let mut resolvers = Vec::new();
        let mut terminating = Vec::new();
        for pod in self.cluster.store.cache().resolvers.values() {
            let Some(ip) = pod.facts.addresses.first().copied() else {
                continue;
            };
            let name = pod.name.name.to_string();
            match (pod.facts.ready, pod.facts.terminating) {
                (_, true) => terminating.push(name.clone()),
                (true, false) => {}
                (false, false) => continue,
            }
            resolvers.push(ResolverAddress { name, ip });
        }
        if resolvers.len() == terminating.len() {
            return Err(HeldUnavailable::NoResolver);
        }
        let mut answers = Vec::new();
        for (name, held) in self.reports.held(&resolvers).await {
            match held {
                Some(held) => answers.push(held),
                None if terminating.contains(&name) => {}
                None => return Err(HeldUnavailable::Silent(name)),
            }
        }
        Ok(together(answers))
    }
}
