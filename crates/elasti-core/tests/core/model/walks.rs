//! Long random walks: exploration is broad and a few steps deep, these are narrow and hundreds of steps deep.
//! A walk that breaks a law prints the seed that replays it.

use crate::model::actions::{Action, after, fair, unfair};
use crate::model::config::Config;
use crate::model::settle::Settling;
use crate::model::world::{Budget, World};
use crate::model::{configurations, life, violations};

const STEPS: usize = 400;

/// Enough for several sleeps and wakes with something going wrong in each.
const BUDGET: Budget = Budget {
    faults: 15,
    clients: 20,
    outside: 4,
    readings: 8,
    deletions: 0,
    user_requests: 4,
};

/// A small generator (xorshift64*), so that a seed gives the same walk everywhere.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).unwrap() % limit
    }
}

/// Walks until a law is broken or the steps are over; returns how many steps it took.
fn walk(config: &Config, settling: &Settling, starts: &[World], seed: u64) -> usize {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut world = starts[rng.below(starts.len())].clone();
    world.budget = config.budget.clone();
    let mut trace: Vec<Action> = Vec::new();
    for step in 0..STEPS {
        let broken = violations(config, &world);
        let restless = if step % 16 == 0 {
            settling.steps_to_rest(config, &world).err()
        } else {
            None
        };
        assert!(
            broken.is_empty() && restless.is_none(),
            "{}: seed {seed}: {broken:?} {restless:?}\n  after {trace:?}",
            config.name
        );
        let mut actions = Vec::new();
        fair(config, &world, &mut actions);
        unfair(config, &world, &mut actions);
        let mut next = None;
        while next.is_none() && !actions.is_empty() {
            let action = actions.swap_remove(rng.below(actions.len()));
            next = after(config, &world, action).map(|w| (action, w));
        }
        let Some((action, after)) = next else {
            return step;
        };
        trace.push(action);
        world = after;
    }
    STEPS
}

#[test]
fn long_random_walks_break_no_law() {
    let walks = std::env::var("ELASTI_MODEL_WALKS")
        .ok()
        .and_then(|n| n.parse().ok());
    let first = std::env::var("ELASTI_MODEL_SEED")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1);
    let walks: u64 = walks.unwrap_or(60);
    for config in configurations() {
        let budget = Budget {
            deletions: config.budget.deletions,
            // Nothing catches what others stop under a `Local` policy.
            outside: if config.local { 0 } else { BUDGET.outside },
            ..BUDGET
        };
        let config = Config { budget, ..config };
        let (settling, starts) = (Settling::default(), life::starts(&config));
        let seeds = first..first + walks;
        let steps: usize = seeds
            .map(|seed| walk(&config, &settling, &starts, seed))
            .sum();
        println!(
            "model: {}: {walks} walks, {steps} steps, 0 violations",
            config.name
        );
    }
}
