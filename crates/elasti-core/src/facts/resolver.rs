//! Resolver pods.

use super::pod::PodFacts;
use crate::observed::{Report, Resolver};

/// A resolver as a decision takes it; `None` if its pod has ended.
#[must_use]
pub fn resolver(name: &str, pod: &PodFacts, report: Report) -> Option<Resolver> {
    (!pod.ended).then(|| Resolver {
        name: name.to_owned(),
        node: pod.node.clone(),
        addresses: pod.addresses.clone(),
        ready: pod.ready && !pod.addresses.is_empty(),
        terminating: pod.terminating,
        report,
    })
}
