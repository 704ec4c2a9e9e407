//! The model checker: the real `plan`, `wake`, waiting rooms and port allocator against a modelled cluster.
//! Within each configuration's budget it explores every interleaving.

mod actions;
mod config;
mod effects;
mod life;
mod mistakes;
mod mistakes_are_caught;
mod observe;
mod passing;
mod requests;
mod settle;
mod times;
mod walks;
mod world;

use std::sync::Arc;
use std::time::Instant;

use elasti_api::Phase;
use elasti_core::laws;
use stateright::{Checker, HasDiscoveries, Model, Property};

use actions::{Action, after, fair, unfair};
use config::Config;
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
        life::starts(&self.config)
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
                model.settling.steps_to_rest(&model.config, world).is_ok()
            }),
            Property::sometimes("serves", |_, w| in_phase(w, Phase::Serving)),
            Property::sometimes("redirects", |_, w| in_phase(w, Phase::Redirecting)),
            Property::sometimes("drains", |_, w| in_phase(w, Phase::Draining)),
            Property::sometimes("sleeps", |_, w| in_phase(w, Phase::Asleep)),
            Property::sometimes("wakes", |_, w| in_phase(w, Phase::Waking)),
            Property::sometimes("restores", |_, w| in_phase(w, Phase::Restoring)),
            Property::sometimes("holds a request", |_, w| each(w).any(|c| c.held > 0)),
            Property::sometimes("forwards a stream", |_, w| each(w).any(|c| c.open > 0)),
            Property::sometimes("is promised a pod", |_, w| {
                each(w).any(|c| c.promise.is_some())
            }),
            Property::sometimes("activity cancels sleep", |_, w| {
                in_phase(w, Phase::Restoring) && w.svcs.iter().any(|s| s.status.sleep.is_none())
            }),
        ]
    }
}

fn in_phase(world: &World, phase: Phase) -> bool {
    world.svcs.iter().any(|s| s.status.phase == Some(phase))
}

fn each(world: &World) -> impl Iterator<Item = &world::RouteState> {
    world.res.iter().flat_map(|r| &r.routes)
}

/// Every law that this state, or an event on the path to it, breaks.
fn violations(config: &Config, world: &World) -> Vec<laws::Violation> {
    let mut broken = world.broken.clone();
    for s in (0..world.svcs.len()).filter(|s| world.svcs[*s].exists) {
        broken.extend(laws::check(&world.snapshot(s, config)));
    }
    broken
}

/// The result of one run.
struct Found {
    states: usize,
    depth: usize,
    bound: u32,
    failures: Vec<String>,
    reached: Vec<&'static str>,
}

/// Explores a configuration, up to `most` states, or only until one of these properties fails.
fn explore(config: &Config, most: usize, until: &[&'static str]) -> Found {
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
    let checker = checker
        .finish_when(HasDiscoveries::AnyOf(until.iter().copied().collect()))
        .spawn_bfs()
        .join();
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
        "model: {}: {whole} {} states, {} deep, settle bound K = {}, {:.1} s",
        config.name,
        found.states,
        found.depth,
        found.bound,
        began.elapsed().as_secs_f32()
    );
    found
}

/// Each law that was broken, with the path there.
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
            .chain(cluster.settling.steps_to_rest(&cluster.config, &last).err())
            .collect::<Vec<_>>()
            .join("; ");
        let actions: Vec<String> = path
            .into_actions()
            .iter()
            .map(|a| format!("{a:?}"))
            .collect();
        failures.push(format!("{broken}\n    after {}", actions.join(", ")));
    }
    failures
}

/// How many states one configuration explores: few by default, more with `cargo xtask test`.
fn most_states() -> usize {
    std::env::var("ELASTI_MODEL_STATES")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(60_000)
}

fn budget(clients: u8, faults: u8, outside: u8, readings: u8, deletions: u8) -> Budget {
    Budget {
        clients,
        faults,
        outside,
        readings,
        deletions,
        user_requests: 0,
    }
}

/// The configurations in which every law must hold, or those of them that `ELASTI_MODEL_ONLY` names.
fn configurations() -> Vec<Config> {
    let mut all = [
        lives(),
        drains_by_groups(),
        two_services(),
        other_writers(),
        local_traffic(),
        some_resolvers(),
    ]
    .concat();
    if let Ok(only) = std::env::var("ELASTI_MODEL_ONLY") {
        all.retain(|config| config.name.contains(&only));
    }
    all
}

/// A second Service of the same pods, with slices and nodes that follow at their own pace.
fn two_services() -> Vec<Config> {
    let two = Config {
        second: true,
        resolvers: 1,
        ..Config::new("2 Services of one target")
    };
    vec![
        Config {
            budget: budget(1, 1, 0, 0, 0),
            ..two.clone()
        },
        Config {
            budget: budget(0, 0, 0, 0, 1),
            ..two
        },
    ]
}

/// A node sends only to what is on it.
fn local_traffic() -> Vec<Config> {
    vec![Config {
        nodes: 2,
        local: true,
        budget: budget(2, 0, 0, 0, 0),
        ..Config::new("internalTrafficPolicy is Local")
    }]
}

/// More resolvers than serve one Service: one that ends is replaced, and leaves its place to it when it returns.
fn some_resolvers() -> Vec<Config> {
    vec![
        Config {
            resolvers: 3,
            resolvers_per_service: 2,
            budget: budget(1, 1, 0, 0, 0),
            ..Config::new("2 of 3 resolvers")
        },
        Config {
            resolvers_per_service: 1,
            budget: budget(2, 1, 0, 1, 0),
            ..Config::new("1 of 2 resolvers")
        },
    ]
}

/// Who writes the replicas beside us, and what else asks for a wake.
fn other_writers() -> Vec<Config> {
    vec![
        Config {
            resolvers: 1,
            budget: Budget {
                user_requests: 1,
                ..budget(1, 0, 2, 0, 0)
            },
            ..Config::new("a user scales to zero and requests a wake")
        },
        Config {
            resolvers: 1,
            restarted_source: true,
            budget: Budget {
                user_requests: 2,
                ..budget(1, 0, 0, 1, 0)
            },
            ..Config::new("the source has restarted and a user requests sleep")
        },
        Config {
            resolvers: 1,
            budget: budget(1, 0, 1, 1, 0),
            ..Config::new("a job scales to zero while a trigger changes")
        },
        Config {
            resolvers: 1,
            operators: 2,
            budget: budget(1, 0, 1, 0, 0),
            ..Config::new("a user scales to zero, 2 operators")
        },
        Config {
            resolvers: 1,
            keda: true,
            budget: budget(1, 1, 1, 0, 0),
            ..Config::new("KEDA and another writer")
        },
    ]
}

/// Pods that cannot go together.
fn drains_by_groups() -> Vec<Config> {
    vec![
        Config {
            nodes: 2,
            resolvers: 1,
            dense: true,
            budget: budget(1, 0, 0, 1, 0),
            ..Config::new("2 nodes whose ticks do not fit together")
        },
        Config {
            nodes: 2,
            resolvers: 1,
            dense: true,
            operators: 2,
            budget: budget(0, 1, 0, 1, 0),
            ..Config::new("2 nodes whose ticks do not fit together, 2 operators")
        },
        Config {
            nodes: 2,
            resolvers: 1,
            ordered: true,
            budget: budget(1, 1, 0, 0, 0),
            ..Config::new("an ordered StatefulSet of 2 pods")
        },
        Config {
            nodes: 2,
            resolvers: 1,
            dense: true,
            budget: budget(0, 0, 2, 0, 0),
            ..Config::new("something else scales up during the drain")
        },
        Config {
            nodes: 2,
            resolvers: 1,
            ordered: true,
            dense: true,
            min_ready: 3,
            budget: budget(0, 1, 0, 0, 0),
            ..Config::new("an ordered StatefulSet with minReadySeconds")
        },
        Config {
            nodes: 3,
            resolvers: 1,
            ordered: true,
            no_crash: true,
            budget: budget(0, 0, 1, 1, 0),
            ..Config::new("a user scales down during the drain of 3 pods")
        },
    ]
}

fn lives() -> Vec<Config> {
    vec![
        Config {
            resolvers: 1,
            ..Config::new("undisturbed life, 1 node x 1 resolver")
        },
        Config {
            nodes: 2,
            budget: budget(2, 1, 0, 1, 0),
            ..Config::new("1 service x 2 nodes x 2 resolvers")
        },
        Config {
            resolvers: 1,
            budget: budget(2, 0, 0, 0, 0),
            ..Config::new("a wake right after the zero")
        },
        Config {
            services: 2,
            budget: budget(3, 1, 0, 0, 0),
            ..Config::new("2 services")
        },
        Config {
            operators: 2,
            budget: budget(1, 2, 0, 0, 0),
            ..Config::new("2 operators")
        },
        Config {
            budget: budget(1, 1, 2, 0, 0),
            ..Config::new("an outside writer of replicas")
        },
        Config {
            budget: budget(1, 1, 0, 0, 2),
            ..Config::new("deletion")
        },
        Config {
            budget: Budget {
                user_requests: 2,
                ..budget(1, 1, 0, 0, 0)
            },
            ..Config::new("a user requests sleep and wakes")
        },
        Config {
            keda: true,
            budget: budget(1, 1, 0, 1, 1),
            ..Config::new("KEDA")
        },
        Config {
            left: true,
            budget: budget(1, 1, 0, 0, 0),
            ..Config::new("a service that KubeElasti left asleep")
        },
        Config {
            left: true,
            keda: true,
            resolvers: 1,
            budget: budget(1, 1, 0, 0, 0),
            ..Config::new("a service with KEDA that KubeElasti left asleep")
        },
        Config {
            handover: elasti_api::Handover::Redirect,
            keeps_record: true,
            budget: budget(2, 1, 0, 1, 0),
            ..Config::new("handover without drain")
        },
    ]
}

#[test]
fn every_law_holds_in_every_configuration() {
    let mut states = 0;
    let mut reached: Vec<&str> = Vec::new();
    for config in configurations() {
        let found = explore(&config, most_states(), &["safe", "settles"]);
        assert!(
            found.failures.is_empty(),
            "{}: {}",
            config.name,
            found.failures.join("\n")
        );
        states += found.states;
        reached.extend(found.reached);
    }
    println!("model: {states} states in all, 0 violations");
    for wanted in [
        "serves",
        "redirects",
        "drains",
        "sleeps",
        "wakes",
        "restores",
    ] {
        assert!(
            reached.contains(&wanted),
            "no state {wanted}: the laws would hold vacuously"
        );
    }
    for wanted in [
        "holds a request",
        "forwards a stream",
        "is promised a pod",
        "activity cancels sleep",
    ] {
        assert!(
            reached.contains(&wanted),
            "nothing {wanted}: the laws would hold vacuously"
        );
    }
}
