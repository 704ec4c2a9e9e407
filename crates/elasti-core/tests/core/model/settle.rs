//! Liveness: from any state, a fair run without faults comes to rest, and rest is where it should be.
//! A fair run has exactly one next step, so the result for one state holds for all that lead to it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use elasti_core::laws;

use crate::model::actions::{Action, after, fair};
use crate::model::config::Config;
use crate::model::observe::reconcile;
use crate::model::world::{NET, Pod, Svc, TriggerState, World};

/// The results so far: how many steps to rest, or which law of liveness is broken.
#[derive(Default)]
pub struct Settling {
    results: Mutex<HashMap<u64, Result<u32, String>>>,
}

impl Settling {
    /// How many steps a fair run takes to rest, or which law of liveness it breaks.
    pub fn steps_to_rest(&self, config: &Config, start: &World) -> Result<u32, String> {
        let mut path: Vec<u64> = Vec::new();
        let mut trace: Vec<Action> = Vec::new();
        let mut world = start.clone();
        // From the last state of the path.
        let mut steps = loop {
            let id = identity(&world);
            if let Some(known) = self.results.lock().unwrap().get(&id) {
                break known.clone().map(|n| n + 1);
            }
            if let Some(first) = path.iter().position(|seen| *seen == id) {
                break Err(restless(&trace[first..], &world));
            }
            path.push(id);
            match next(config, &world) {
                Ok(Some((action, after))) => {
                    trace.push(action);
                    world = after;
                }
                Ok(None) => break Ok(0),
                Err(broken) => break Err(broken),
            }
        };
        let mut known = self.results.lock().unwrap();
        for id in path.into_iter().rev() {
            known.insert(id, steps.clone());
            steps = steps.map(|n| n + 1);
        }
        known[&identity(start)].clone()
    }

    /// The longest path to rest of all states so far.
    pub fn bound(&self) -> u32 {
        let known = self.results.lock().unwrap();
        known
            .values()
            .filter_map(|k| k.as_ref().ok())
            .copied()
            .max()
            .unwrap_or(0)
    }
}

/// The next step of a fair run; none at rest; an error if a law is broken.
fn next(config: &Config, world: &World) -> Result<Option<(Action, World)>, String> {
    if let Some(broken) = world.broken.first() {
        return Err(format!("{:?}: {} in a fair run", broken.law, broken.seen));
    }
    match fair_step(config, world) {
        Some((Action::Expire(_, s), _)) if world.svcs[s].pods.iter().any(|p| p.ready()) => {
            Err("L3: a request expires although a pod is ready".into())
        }
        Some(step) => Ok(Some(step)),
        None => at_rest(config, world).map(|()| None),
    }
}

/// A fair run that returns to an earlier state never rests.
fn restless(cycle: &[Action], world: &World) -> String {
    let law = if !world.ops[world.lease.holder].up {
        "L7: no leader"
    } else if cycle.len() == 2 {
        "L5: writes that change nothing"
    } else {
        "L1: no rest"
    };
    format!("{law}: {cycle:?}\n{world:?}")
}

fn identity(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// The one next step of a fair run: the first thing that changes anything; time passes only when nothing else does.
pub fn fair_step(config: &Config, world: &World) -> Option<(Action, World)> {
    step_of(config, world, |_| true)
}

/// The same in a run without some of the actions.
pub fn step_of(
    config: &Config,
    world: &World,
    happens: impl Fn(&Action) -> bool,
) -> Option<(Action, World)> {
    let mut actions = Vec::new();
    fair(config, world, &mut actions);
    let changed = |action| {
        let next = after(config, world, action)?;
        // The lease is renewed forever; that alone is rest.
        let renewed = world.ops[world.lease.holder].up;
        let as_before = World {
            lease: world.lease.clone(),
            ..next.clone()
        };
        let only_lease = renewed && action == Action::TimePasses && as_before == *world;
        (!only_lease).then_some((action, next))
    };
    actions.into_iter().filter(happens).find_map(changed)
}

/// Rest must be where the spec wants it.
fn at_rest(config: &Config, w: &World) -> Result<(), String> {
    check(w.ops[w.lease.holder].up, "L7: no leader", w)?;
    for (s, svc) in w.svcs.iter().enumerate() {
        let held: u8 = w
            .res
            .iter()
            .map(|r| r.routes[s].held + r.routes[s].held_again)
            .sum();
        let open: u8 = w.res.iter().map(|r| r.routes[s].open).sum();
        check(held == 0, "L2/L3: requests wait forever", w)?;
        if !svc.exists || config.rivals && s > 0 || svc.foreign {
            continue;
        }
        check(svc.deleting.is_none(), "L6: the deletion never ends", w)?;
        if svc.replicas.is_none() {
            continue;
        }
        let asleep = svc.replicas == Some(0);
        match svc.reading {
            TriggerState::Quiet if open > 0 => check(!asleep, "L1: it sleeps under a stream", w)?,
            TriggerState::Quiet => check(asleep, "L4: idle forever, and not asleep", w)?,
            TriggerState::Active => check(!asleep, "L1: a trigger is active, and it sleeps", w)?,
            TriggerState::Unknown => {}
        }
        check(
            svc.lent.is_none(),
            "L1: a cancelled sleep forgot the replicas that it took away",
            w,
        )?;
        let redirected = svc.slice.is_some_and(|slice| slice & NET == 0);
        check_objects(svc, w)?;
        let status = &svc.status;
        let honest = status.proxy == redirected && status.asleep == asleep;
        check(honest, "S15: the status at rest is not the truth", w)?;
        let mut snapshot = w.snapshot(s, config);
        snapshot.at_rest = true;
        if let Some(broken) = laws::check(&snapshot).first() {
            return Err(format!("{:?} at rest: {}\n{w:?}", broken.law, broken.seen));
        }
        let leader = w.lease.holder;
        check(
            reconcile(config, w, leader, s).effects.is_empty(),
            "L5: writes at rest",
            w,
        )?;
    }
    Ok(())
}

/// Slices and pods must be where the replicas say.
fn check_objects(svc: &Svc, w: &World) -> Result<(), String> {
    let asleep = svc.replicas == Some(0);
    let marked = svc.pods.iter().any(|p| p.marked());
    let ready = svc.pods.iter().any(|p| p.ready());
    let redirected = svc.slice.is_some_and(|slice| slice & NET == 0);
    // A `Local` policy allows no net.
    let stands = asleep || !w.local;
    check(
        svc.slice.is_some() == stands && redirected == asleep,
        "L1: neither a redirect at zero nor a net above it",
        w,
    )?;
    let second = svc.second.as_ref().map(|one| one.slice);
    check(
        second.is_none_or(|slice| slice.is_some_and(|slice| (slice & NET == 0) == asleep)),
        "L1: the second Service has neither a redirect at zero nor a net above it",
        w,
    )?;
    check(
        svc.slice.is_none_or(|slice| slice & !NET != 0),
        "L1: the slice leads to no resolver of ours",
        w,
    )?;
    check(
        !marked && ready != asleep,
        "L1: pods are not where they belong",
        w,
    )?;
    check(
        !svc.pods.contains(&Pod::Terminating),
        "L1: pods are left over",
        w,
    )?;
    Ok(())
}

fn check(holds: bool, law: &str, w: &World) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("{law}\n{w:?}"))
    }
}
