//! The simulated cluster's seeded randomness: uids, generated names, random choices.
//! Never draws from the system's entropy: one seed gives one run.

use parking_lot::Mutex;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

/// The letters that Kubernetes uses in generated names: no vowels, no look-alikes.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A seeded source shared by everything in one simulated cluster.
#[derive(Debug)]
pub struct Randomness {
    seed: u64,
    source: Mutex<StdRng>,
}

impl Randomness {
    /// A source that replays for the same seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            source: Mutex::new(StdRng::seed_from_u64(seed)),
        }
    }

    /// The seed to print when a run fails.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A number below `bound` (0 when `bound` is 0).
    #[must_use]
    pub fn below(&self, bound: usize) -> usize {
        if bound == 0 {
            0
        } else {
            self.source.lock().random_range(0..bound)
        }
    }

    /// A random (version 4) uid.
    #[must_use]
    pub fn uid(&self) -> String {
        let mut bits: u128 = self.source.lock().random();
        bits = (bits & !(0xf << 76)) | (0x4 << 76);
        bits = (bits & !(0x3 << 62)) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        let part = |from, to| hex.get(from..to).unwrap_or_default();
        [
            part(0, 8),
            part(8, 12),
            part(12, 16),
            part(16, 20),
            part(20, 32),
        ]
        .join("-")
    }

    /// The five-letter suffix of a generated name.
    #[must_use]
    pub fn suffix(&self) -> String {
        let letter = || {
            NAME_LETTERS
                .get(self.below(NAME_LETTERS.len()))
                .copied()
                .unwrap_or(b'x')
        };
        (0..5).map(|_| char::from(letter())).collect()
    }
}
