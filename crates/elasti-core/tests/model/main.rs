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

fn small() -> Config {
    Config {
        nodes: 1,
        resolvers: 1,
        budget: Budget {
            clients: 0,
            ..config::NO_BUDGET
        },
        ..Config::new("small")
    }
}

#[test]
fn first_light() {
    let config = small();
    let began = Instant::now();
    let cluster = Cluster {
        config: config.clone(),
        settling: Arc::default(),
    };
    let checker = cluster
        .clone()
        .checker()
        .threads(2)
        .target_state_count(
            std::env::var("STATES")
                .ok()
                .and_then(|s| s.parse().ok())
                .unwrap_or(20_000),
        )
        .spawn_bfs()
        .join();
    println!(
        "{}: {} states, depth {}, K = {}, {:.1?}",
        config.name,
        checker.unique_state_count(),
        checker.max_depth(),
        cluster.settling.bound(),
        began.elapsed()
    );
    for (name, path) in checker.discoveries() {
        let property = cluster
            .properties()
            .into_iter()
            .find(|p| p.name == name)
            .unwrap();
        if property.expectation.discovery_is_failure() {
            println!("{name}");
            for action in path.clone().into_actions() {
                println!("  {action:?}");
            }
            let last = path.last_state();
            println!("{:?}", violations(&config, last));
            println!("{:?}", cluster.settling.of(&config, last).err());
        } else {
            println!("reached: {name}");
        }
    }
    let _ = Mistake::None;
    checker.assert_properties();
}
