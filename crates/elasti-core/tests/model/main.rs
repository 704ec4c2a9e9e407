//! The model checker: the real `plan`, `wake`, waiting rooms and port book against a modelled cluster.
//! It never samples: within each configuration's budget every interleaving is explored.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
#![allow(unreachable_pub, missing_docs)]

mod actions;
mod config;
mod mistakes;
mod observe;
mod settle;
mod world;

use std::sync::Arc;
use std::time::Instant;

use elasti_api::Phase;
use elasti_core::laws;
use stateright::{Checker, Model, Property};

use actions::{Action, after, fair, unfair};
use config::{Config, Mistake};
use settle::Settling;
use world::{Budget, World};

#[derive(Clone)]
struct Cluster {
    config: Config,
    settling: Arc<Settling>,
}

impl Model for Cluster {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.config.start()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_empty() {
            fair(&self.config, world, actions);
            unfair(&self.config, world, actions);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        after(&self.config, world, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("safe", |model, world| {
                violations(&model.config, world).is_empty()
            }),
            Property::always("settles", |model, world| {
                model.settling.of(&model.config, world).is_ok()
            }),
            Property::sometimes("serves", |_, w| in_phase(w, Phase::Serving)),
            Property::sometimes("redirects", |_, w| in_phase(w, Phase::Redirecting)),
            Property::sometimes("drains", |_, w| in_phase(w, Phase::Draining)),
            Property::sometimes("sleeps", |_, w| in_phase(w, Phase::Asleep)),
        ]
    }
}

fn in_phase(world: &World, phase: Phase) -> bool {
    world.svcs.iter().any(|s| s.status.phase == Some(phase))
}

/// Every law that this state, or a deed on the way to it, breaks.
fn violations(config: &Config, world: &World) -> Vec<laws::Violation> {
    let mut broken = world.broken.clone();
    for s in (0..world.svcs.len()).filter(|s| world.svcs[*s].exists) {
        broken.extend(laws::check(&world.scene(s, config)));
    }
    broken
}

/// What one run found.
struct Found {
    states: usize,
    depth: usize,
    bound: u32,
    failures: Vec<String>,
    reached: Vec<&'static str>,
}

/// Explores a configuration, up to `most` states.
fn explore(config: &Config, most: usize) -> Found {
    let began = Instant::now();
    let cluster = Cluster {
        config: config.clone(),
        settling: Arc::default(),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checker = cluster
        .clone()
        .checker()
        .threads(threads)
        .target_state_count(most);
    let checker = checker.spawn_bfs().join();
    let found = Found {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        bound: cluster.settling.bound(),
        failures: failures(&cluster, &checker),
        reached: checker
            .discoveries()
            .into_keys()
            .filter(|name| !cluster.property(name).expectation.discovery_is_failure())
            .collect(),
    };
    let whole = if checker.state_count() < most {
        "all"
    } else {
        "first"
    };
    println!(
        "model: {}: {whole} {} states, depth {}, K = {}, {:.1} s",
        config.name,
        found.states,
        found.depth,
        found.bound,
        began.elapsed().as_secs_f32()
    );
    found
}

/// Each law that was broken, with the way there.
fn failures(cluster: &Cluster, checker: &impl Checker<Cluster>) -> Vec<String> {
    let mut failures = Vec::new();
    for (name, path) in checker.discoveries() {
        if !cluster.property(name).expectation.discovery_is_failure() {
            continue;
        }
        let last = path.last_state().clone();
        let broken = violations(&cluster.config, &last)
            .iter()
            .map(|v| format!("{:?}: {}", v.law, v.seen))
            .chain(cluster.settling.of(&cluster.config, &last).err())
            .collect::<Vec<_>>()
            .join("; ");
        let way: Vec<String> = path
            .into_actions()
            .iter()
            .map(|a| format!("{a:?}"))
            .collect();
        failures.push(format!("{broken}\n    by way of {}", way.join(", ")));
    }
    failures
}

fn most() -> usize {
    let default = if cfg!(debug_assertions) {
        30_000
    } else {
        2_000_000
    };
    std::env::var("ELASTI_MODEL_STATES")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(default)
}

fn one() -> Config {
    let budget = Budget {
        clients: 2,
        faults: 1,
        outside: 0,
        readings: 0,
        deletions: 0,
    };
    Config {
        nodes: 1,
        resolvers: 2,
        budget,
        ..Config::new("1 service x 1 node x 2 resolvers")
    }
}

#[test]
fn first_light() {
    for config in [one()] {
        let found = explore(&config, most());
        println!("{:?}", found.reached);
        for failure in &found.failures {
            println!("{failure}");
        }
        assert!(found.failures.is_empty());
    }
    let _ = Mistake::None;
}
