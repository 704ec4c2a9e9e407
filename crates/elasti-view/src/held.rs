//! How many requests wait now: when to ask the resolvers, and what their answers or their silence mean.

use elasti_api::{ElastiService, Phase};
use jiff::Timestamp;

use elasti_core::ports::ServiceKey;

pub use elasti_core::held::{Counts, together};

/// Whom to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// No resolver: no client shows it.
    NoService,
    /// No resolver: every service is plainly awake, so that nothing can wait.
    Needless,
    /// Every resolver.
    Resolvers,
}

impl Ask {
    /// Whom to ask about these services while so many clients show them.
    pub fn about<'a>(
        viewers: usize,
        mut services: impl Iterator<Item = &'a ElastiService>,
    ) -> Self {
        match viewers {
            0 => Self::NoService,
            _ if services.all(plainly_awake) => Self::Needless,
            _ => Self::Resolvers,
        }
    }
}

/// Its pods answer, and nothing waited when the operator last wrote.
fn plainly_awake(me: &ElastiService) -> bool {
    let status = me.status.as_ref();
    status
        .is_some_and(|status| status.phase == Some(Phase::Serving) && status.held.unwrap_or(0) == 0)
}

/// What the resolvers report, and since when without a break.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HeldState {
    /// They were not asked.
    #[default]
    Unasked,
    /// They report how many wait.
    Live {
        /// Since when.
        since: Timestamp,
        /// What they report.
        counts: Counts,
    },
    /// They cannot be asked: the operator's last status counts.
    Told {
        /// Since when.
        since: Timestamp,
        /// Why, in a sentence.
        why: String,
    },
}

impl HeldState {
    /// After another answer, or after silence for this reason.
    #[must_use]
    pub fn after(self, answer: Result<Counts, String>, now: Timestamp) -> Self {
        match (self, answer) {
            (Self::Live { since, .. }, Ok(counts)) => Self::Live { since, counts },
            (_, Ok(counts)) => Self::Live { since: now, counts },
            (Self::Told { since, .. }, Err(why)) => Self::Told { since, why },
            (_, Err(why)) => Self::Told { since: now, why },
        }
    }

    /// How many requests wait for a service now; `None` where only its status tells.
    #[must_use]
    pub fn held(&self, me: &ElastiService) -> Option<u32> {
        let Self::Live { counts, .. } = self else {
            return None;
        };
        let namespace = me.metadata.namespace.clone().unwrap_or_default();
        let key = ServiceKey::new(namespace, me.spec.service.as_str());
        Some(counts.get(&key).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn service(name: &str, phase: &str, held: u32) -> ElastiService {
        serde_json::from_value(json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": format!("of-{name}"), "namespace": "shop"},
            "spec": {
                "service": name,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "triggers": [{"type": "prometheus", "metadata": {"query": "q", "threshold": "1"}}],
            },
            "status": {"phase": phase, "held": held},
        }))
        .unwrap()
    }

    fn counts(of: &[(&str, u32)]) -> Counts {
        let one = |(name, held): &(&str, u32)| (ServiceKey::new("shop", *name), *held);
        of.iter().map(one).collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn resolvers_are_asked_while_somebody_looks_and_something_may_wait() {
        let awake = service("a", "Serving", 0);
        let serving = service("b", "Serving", 2);
        for (viewers, services, ask) in [
            (0, vec![], Ask::NoService),
            (0, vec![service("c", "Asleep", 3)], Ask::NoService),
            (1, vec![], Ask::Needless),
            (1, vec![awake.clone()], Ask::Needless),
            (1, vec![awake.clone(), serving], Ask::Resolvers),
            (2, vec![service("c", "Asleep", 0)], Ask::Resolvers),
            (2, vec![service("c", "Restoring", 0)], Ask::Resolvers),
            (1, vec![service("c", "Draining", 0)], Ask::Resolvers),
        ] {
            assert_eq!(Ask::about(viewers, services.iter()), ask);
        }
        let mut unseen = awake;
        unseen.status = None;
        assert_eq!(Ask::about(1, [&unseen].into_iter()), Ask::Resolvers);
    }

    #[test]
    fn what_resolvers_say_is_added_and_silence_leaves_the_word_to_the_status() {
        let web = service("web", "Waking", 9);
        assert_eq!(HeldState::Unasked.held(&web), None);
        let said = [counts(&[("web", 2), ("cart", 1)]), counts(&[("web", 3)])];
        let live = HeldState::Unasked.after(Ok(together(said)), at(1));
        assert_eq!(live.held(&web), Some(5));
        assert_eq!(live.held(&service("cart", "Asleep", 0)), Some(1));
        assert_eq!(live.held(&service("else", "Asleep", 7)), Some(0));
        let told = live.after(Err("It is not allowed.".into()), at(5));
        assert_eq!(told.held(&web), None);
    }

    #[test]
    fn a_state_tells_since_when_it_has_lasted() {
        let live = HeldState::Unasked.after(Ok(counts(&[("web", 1)])), at(1));
        let live = live.after(Ok(counts(&[])), at(2));
        let counts = Counts::new();
        let since = at(1);
        assert_eq!(live, HeldState::Live { since, counts });
        let told = live.after(Err("One.".into()), at(3));
        let told = told.after(Err("Two.".into()), at(4));
        let (since, why) = (at(3), "Two.".to_owned());
        assert_eq!(told, HeldState::Told { since, why });
    }
}
