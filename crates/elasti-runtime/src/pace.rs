//! How often something may happen for each of many keys.
//! Never grows past its bound: a key too many is refused.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;
use tokio::time::Instant;

/// So many a second, and so many at once.
#[derive(Debug)]
pub struct Pace<K> {
    per_second: f64,
    at_once: f64,
    most: usize,
    left: Mutex<HashMap<K, (f64, Instant)>>,
}

impl<K: Clone + Eq + Hash> Pace<K> {
    /// So many a second and at once, for at most so many keys.
    #[must_use]
    pub fn new((per_second, at_once): (f64, f64), most: usize) -> Self {
        Self {
            per_second,
            at_once,
            most,
            left: Mutex::default(),
        }
    }

    /// Whether it may happen once more, which is then counted.
    pub fn allows(&self, key: &K) -> bool {
        let now = Instant::now();
        let mut left = self.left.lock();
        if left.len() >= self.most && !left.contains_key(key) {
            // Whoever has waited long enough is as good as new.
            left.retain(|_, (tokens, at)| self.refilled(*tokens, *at, now) < self.at_once);
            if left.len() >= self.most {
                return false;
            }
        }
        let (tokens, at) = left.entry(key.clone()).or_insert((self.at_once, now));
        *tokens = self.refilled(*tokens, *at, now);
        *at = now;
        if *tokens < 1.0 {
            return false;
        }
        *tokens -= 1.0;
        true
    }

    fn refilled(&self, tokens: f64, at: Instant, now: Instant) -> f64 {
        let passed = now.duration_since(at).as_secs_f64();
        passed.mul_add(self.per_second, tokens).min(self.at_once)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_then_only_the_pace_does() {
        let pace = Pace::new((2.0, 3.0), 10);
        let passed = (0..10).filter(|_| pace.allows(&"a")).count();
        assert_eq!(passed, 3);
        assert!(pace.allows(&"b"), "others are not slowed down");
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(pace.allows(&"a"));
        assert!(!pace.allows(&"a"));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_past_the_bound_are_refused_until_others_have_rested() {
        let pace = Pace::new((1.0, 1.0), 2);
        assert!(pace.allows(&1) && pace.allows(&2));
        assert!(!pace.allows(&3));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(pace.allows(&3));
    }
}
