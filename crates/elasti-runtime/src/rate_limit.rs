//! A token bucket for each of a bounded number of keys.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;
use tokio::time::Instant;

/// So many a second, and so many in a burst.
#[derive(Debug)]
pub struct RateLimiter<K> {
    per_second: f64,
    burst: f64,
    max_keys: usize,
    left: Mutex<HashMap<K, (f64, Instant)>>,
}

impl<K: Clone + Eq + Hash> RateLimiter<K> {
    /// The rate and the burst, for at most `max_keys` keys.
    #[must_use]
    pub fn new((per_second, burst): (f64, f64), max_keys: usize) -> Self {
        Self {
            per_second,
            burst,
            max_keys,
            left: Mutex::default(),
        }
    }

    /// Whether it may happen once more, which is then counted.
    pub fn allows(&self, key: &K) -> bool {
        let now = Instant::now();
        let mut left = self.left.lock();
        if left.len() >= self.max_keys && !left.contains_key(key) {
            // A full bucket need not be remembered.
            left.retain(|_, (tokens, at)| self.refilled(*tokens, *at, now) < self.burst);
            if left.len() >= self.max_keys {
                return false;
            }
        }
        let (tokens, at) = left.entry(key.clone()).or_insert((self.burst, now));
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
        passed.mul_add(self.per_second, tokens).min(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_then_only_the_pace_does() {
        let limiter = RateLimiter::new((2.0, 3.0), 10);
        let passed = (0..10).filter(|_| limiter.allows(&"a")).count();
        assert_eq!(passed, 3);
        assert!(limiter.allows(&"b"), "others are not slowed down");
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(limiter.allows(&"a"));
        assert!(!limiter.allows(&"a"));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_past_the_bound_are_refused_until_others_have_rested() {
        let limiter = RateLimiter::new((1.0, 1.0), 2);
        assert!(limiter.allows(&1) && limiter.allows(&2));
        assert!(!limiter.allows(&3));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(limiter.allows(&3));
    }
}
