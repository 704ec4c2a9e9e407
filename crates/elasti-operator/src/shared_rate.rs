//! A rate that namespaces share: each that asks gets an equal part of it, so that one that asks for ever leaves the others
//! theirs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use elasti_runtime::rate_limit::RateLimiter;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A namespace that has not asked for so long leaves its part to the others; what is refused asks again after 5 s.
const ASKS_WITHIN: Duration = Duration::from_secs(10);

/// So many a second, and so many in a burst, for all namespaces together.
#[derive(Debug)]
pub(crate) struct SharedRate {
    per_second: f64,
    burst: f64,
    all: RateLimiter<()>,
    /// Of each namespace that asks, what is left of its part, and when it asked last.
    parts: Mutex<HashMap<Arc<str>, (f64, Instant)>>,
}

impl SharedRate {
    pub(crate) fn new((per_second, burst): (f64, f64)) -> Self {
        Self {
            per_second,
            burst,
            all: RateLimiter::new((per_second, burst), 1),
            parts: Mutex::default(),
        }
    }

    /// Whether it may happen once more for this namespace, which is then counted.
    pub(crate) fn allows(&self, namespace: &Arc<str>) -> bool {
        let now = Instant::now();
        let mut parts = self.parts.lock();
        parts.retain(|_, (_, asked)| now.duration_since(*asked) < ASKS_WITHIN);
        let is_new = !parts.contains_key(namespace);
        let sharing = parts.len() + usize::from(is_new);
        let sharing = f64::from(u32::try_from(sharing).unwrap_or(u32::MAX));
        let part = parts.entry(namespace.clone());
        let (left, asked) = part.or_insert((self.burst, now));
        let passed = now.duration_since(*asked).as_secs_f64();
        let most = (self.burst / sharing).max(1.0);
        *left = passed.mul_add(self.per_second / sharing, *left).min(most);
        *asked = now;
        let allowed = *left >= 1.0 && self.all.allows(&());
        if allowed {
            *left -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_alone_gets_all_of_it() {
        let rate = SharedRate::new((20.0, 100.0));
        let shop: Arc<str> = "shop".into();
        let burst = (0..1_000).filter(|_| rate.allows(&shop)).count();
        tokio::time::advance(Duration::from_secs(3)).await;
        let more = (0..1_000).filter(|_| rate.allows(&shop)).count();
        assert_eq!((burst, more), (100, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_that_ask_for_ever_leave_another_its_part() {
        let rate = SharedRate::new((20.0, 100.0));
        let hostile: [Arc<str>; 3] = ["a".into(), "b".into(), "c".into()];
        let shop: Arc<str> = "shop".into();
        let mut woken = 0;
        for tick in 0..3_000 {
            for one in &hostile {
                for _ in 0..5 {
                    rate.allows(one);
                }
            }
            // Ten services ask every 5 s, after a minute of the others.
            if tick > 600 && tick % 50 == 0 {
                woken += (0..10).filter(|_| rate.allows(&shop)).count();
            }
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        // What the others have saved up lasts for some seconds.
        assert!(woken >= 400, "{woken} of 470");
    }
}
