//! The moments of one undisturbed life: going to sleep, a wake by a request, and coming back.
//! Exploration starts from each of them, so that every edge of that life is near a start.

use elasti_core::phase::{self, Phase};

use crate::model::actions::{Action, Backend, Outcome, after};
use crate::model::config::Config;
use crate::model::settle::fair_step;
use crate::model::world::World;

/// A life that takes more steps than this has gone wrong; the laws will say how.
const MOST_STEPS: usize = 600;

/// The moments of one life, in order.
fn moments(config: &Config) -> Vec<World> {
    let mut moments = vec![config.start()];
    run_to_rest(config, &mut moments);
    let mut asleep = moments.last().unwrap().clone();
    // One client more than the budget, to see the way up too.
    asleep.budget.clients += 1;
    for s in 0..asleep.svcs.len() {
        let arrival = Action::Arrive(s, 0, Backend::Resolver(0));
        let listed = asleep.svcs[s].resolvers_at[0].seen & 1 != 0 && asleep.budget.clients > 0;
        if let Some(held) = listed.then(|| after(config, &asleep, arrival)).flatten() {
            asleep = held;
        }
    }
    moments.push(asleep);
    if config.endless_stream {
        stream_when_awake(config, &mut moments);
    }
    run_to_rest(config, &mut moments);
    moments
}

/// The same life with a request in the first drain, which calls the sleep off.
fn called_off(config: &Config, moments: &[World]) -> Vec<World> {
    let listed = |w: &&World| w.svcs[0].resolvers_at[0].seen & 1 != 0;
    let draining = |w: &&World| w.svcs[0].pods.iter().any(|p| p.marked());
    let Some(drain) = moments.iter().filter(listed).find(draining) else {
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

/// The request that waits is forwarded as a stream as soon as a pod is ready.
fn stream_when_awake(config: &Config, moments: &mut Vec<World>) {
    for _ in 0..MOST_STEPS {
        let last = moments.last().unwrap();
        let stream = Action::Forward(0, 0, Outcome::Streams);
        if let Some(streams) = after(config, last, stream) {
            return moments.push(streams);
        }
        let Some((_, next)) = fair_step(config, last) else {
            return;
        };
        moments.push(next);
    }
}

/// Those moments as starts of an exploration: each once, within the budget.
pub fn starts(config: &Config) -> Vec<World> {
    let mut moments = moments(config);
    moments.extend(called_off(config, &moments));
    moments.retain(|moment| moment.budget.clients <= config.budget.clients);
    moments.sort_by_cached_key(|moment| format!("{moment:?}"));
    moments.dedup();
    moments
}

fn run_to_rest(config: &Config, moments: &mut Vec<World>) {
    for _ in 0..MOST_STEPS {
        match fair_step(config, moments.last().unwrap()) {
            Some((_, next)) if next.broken.is_empty() => moments.push(next),
            Some((_, broken)) => return moments.push(broken),
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
    for phase in moments(&config)
        .iter()
        .filter_map(|moment| moment.svcs[0].status.phase)
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
