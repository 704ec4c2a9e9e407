//! The states of one undisturbed life: going to sleep, a wake by a request, and back to serving.
//! Exploration starts from each of them, so that every transition is close to a start.

use elasti_core::phase::{self, Phase};

use crate::model::actions::{Action, Backend, Outcome, after};
use crate::model::config::Config;
use crate::model::settle::fair_step;
use crate::model::world::{Pod, World};

/// A life that takes more steps than this has gone wrong; the laws will show how.
const MOST_STEPS: usize = 600;

/// The states of one life, in order.
fn states(config: &Config) -> Vec<World> {
    let mut states = vec![config.start()];
    run_to_rest(config, &mut states);
    let mut asleep = states.last().unwrap().clone();
    // One client more than the budget, to include the wake.
    asleep.budget.clients += 1;
    for s in 0..asleep.svcs.len() {
        let arrival = Action::Arrive(s, 0, Backend::Resolver(0));
        let listed = asleep.svcs[s].resolvers_at[0].seen & 1 != 0 && asleep.budget.clients > 0;
        if let Some(held) = listed.then(|| after(config, &asleep, arrival)).flatten() {
            asleep = held;
        }
    }
    states.push(asleep);
    if config.endless_stream {
        stream_when_awake(config, &mut states);
    }
    run_to_rest(config, &mut states);
    states
}

/// The same life with a request in the first drain, which cancels the sleep.
fn cancelled(config: &Config, states: &[World]) -> Vec<World> {
    let listed = |w: &&World| w.svcs[0].resolvers_at[0].seen & 1 != 0;
    let draining = |w: &&World| w.svcs[0].pods.iter().any(|p| p.marked());
    let Some(drain) = states.iter().filter(listed).find(draining) else {
        return Vec::new();
    };
    let mut drain = drain.clone();
    drain.budget.clients += 1;
    let arrival = Action::Arrive(0, 0, Backend::Resolver(0));
    let mut other: Vec<World> = after(config, &drain, arrival).into_iter().collect();
    if !other.is_empty() {
        run_to_rest(config, &mut other);
    }
    other
}

/// A wake right after the zero: a new pod is ready while an old one still terminates.
fn woken_while_terminating(config: &Config, states: &[World]) -> Vec<World> {
    let listed = |w: &&World| w.svcs[0].resolvers_at[0].seen & 1 != 0;
    let at_zero =
        |w: &&World| w.svcs[0].replicas == Some(0) && w.svcs[0].pods.contains(&Pod::Terminating);
    let last = states.iter().filter(listed).find(at_zero);
    let free = |w: &World| w.svcs[0].pods.iter().position(|p| *p == Pod::None);
    let Some((mut last, free)) = last.and_then(|w| Some((w.clone(), free(w)?))) else {
        return Vec::new();
    };
    last.budget.clients += 1;
    let actions = [
        Action::Publish(0),
        Action::NodeSeesPods(0, 0),
        Action::NodeSeesPods(0, 1),
        Action::Arrive(0, 0, Backend::Resolver(0)),
        Action::Wake(0, 0, 0),
        Action::Replicate(0),
        Action::PodReady(0, free),
    ];
    let mut other = vec![last];
    for action in actions {
        other.extend(after(config, &other[other.len() - 1], action));
    }
    other
}

/// The request that waits is forwarded as a stream as soon as a pod is ready.
fn stream_when_awake(config: &Config, states: &mut Vec<World>) {
    for _ in 0..MOST_STEPS {
        let last = states.last().unwrap();
        let stream = Action::Forward(0, 0, Outcome::Streams);
        if let Some(streams) = after(config, last, stream) {
            return states.push(streams);
        }
        let Some((_, next)) = fair_step(config, last) else {
            return;
        };
        states.push(next);
    }
}

/// Those states as starts of an exploration: each once, within the budget.
pub fn starts(config: &Config) -> Vec<World> {
    let mut states = states(config);
    states.extend(cancelled(config, &states));
    states.extend(woken_while_terminating(config, &states));
    states.retain(|state| state.budget.clients <= config.budget.clients);
    states.sort_by_cached_key(|state| format!("{state:?}"));
    states.dedup();
    states
}

fn run_to_rest(config: &Config, states: &mut Vec<World>) {
    for _ in 0..MOST_STEPS {
        match fair_step(config, states.last().unwrap()) {
            Some((_, next)) if next.broken.is_empty() => states.push(next),
            Some((_, broken)) => return states.push(broken),
            None => return,
        }
    }
}

#[test]
fn an_undisturbed_life_moves_only_along_the_table() {
    let config = Config {
        nodes: 2,
        ..Config::new("life")
    };
    let mut seen: Vec<Phase> = Vec::new();
    for phase in states(&config)
        .iter()
        .filter_map(|state| state.svcs[0].status.phase)
    {
        match seen.last() {
            Some(last) if *last == phase => {}
            Some(last) => {
                assert!(phase::allowed(*last, phase), "from {last:?} to {phase:?}");
                seen.push(phase);
            }
            None => seen.push(phase),
        }
    }
    let down = [
        Phase::Serving,
        Phase::Redirecting,
        Phase::Draining,
        Phase::Asleep,
    ];
    let up = [Phase::Waking, Phase::Restoring, Phase::Serving];
    let again = [Phase::Redirecting, Phase::Draining, Phase::Asleep];
    assert_eq!(seen, [&down[..], &up[..], &again[..]].concat());
}
