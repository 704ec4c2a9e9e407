//! How many requests wait, by service.

use std::collections::BTreeMap;

use crate::ports::ServiceKey;

/// Requests that wait, of all resolvers together. A service that is not named has none.
pub type Counts = BTreeMap<ServiceKey, u32>;

/// The sum of the counts of several resolvers.
#[must_use]
pub fn together(counts: impl IntoIterator<Item = Counts>) -> Counts {
    let mut sum = Counts::new();
    for (service, held) in counts.into_iter().flatten() {
        let all = sum.entry(service).or_default();
        *all = all.saturating_add(held);
    }
    sum
}
