//! How many requests wait now, asked of the resolvers for whoever shows it.
//! Never writes anything and decides nothing: what a look at a service needs, it asks for itself.

use std::sync::Arc;

use elasti_core::held::{Counts, together};

use crate::activity::ResolverAddress;
use crate::operator::Operator;

/// Why it is not known how many wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeldUnavailable {
    /// There is nobody to ask.
    #[error("No resolver is ready.")]
    NoResolver,
    /// This one does not answer.
    #[error("Resolver {0} does not answer.")]
    Silent(String),
}

/// Asks for as long as the operator runs; clones ask together.
#[derive(Clone, Debug)]
pub struct Waiting(pub(crate) Arc<Operator>);

impl Waiting {
    /// All resolvers together, in one question each. One that ends may still hold requests, but need not answer.
    ///
    /// # Errors
    /// If no resolver is ready, or if one that is does not answer.
    pub async fn ask(&self) -> Result<Counts, HeldUnavailable> {
        let Self(operator) = self;
        let mut resolvers = Vec::new();
        let mut ending = Vec::new();
        for pod in operator.store.known().resolvers.values() {
            let Some(ip) = pod.facts.addresses.first().copied() else {
                continue;
            };
            let name = pod.name.name.to_string();
            match (pod.facts.ready, pod.facts.terminating) {
                (_, true) => ending.push(name.clone()),
                (true, false) => {}
                (false, false) => continue,
            }
            resolvers.push(ResolverAddress { name, ip });
        }
        if resolvers.len() == ending.len() {
            return Err(HeldUnavailable::NoResolver);
        }
        let mut said = Vec::new();
        for (name, held) in operator.reports.held(&resolvers).await {
            match held {
                Some(held) => said.push(held),
                None if ending.contains(&name) => {}
                None => return Err(HeldUnavailable::Silent(name)),
            }
        }
        Ok(together(said))
    }
}
