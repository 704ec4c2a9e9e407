//! Requests in the modelled cluster: they arrive, wait in the real waiting rooms, wake, are forwarded and leave.

use elasti_core::laws::TraceEvent;
use elasti_core::waiting_room::{Limits, WaitingRooms};
use elasti_core::{WakeDecision, wake};

use crate::model::actions::{Backend, Outcome};
use crate::model::config::{Config, Mistake, SHARED_WAITERS};
use crate::model::effects::scale_up;
use crate::model::observe::{age, evidence, key, observed, pod_index};
use crate::model::world::{Pod, World};

/// Each modelled Service has one port.
const LISTEN_PORT: u16 = 20_001;

/// A pod that a resolver may forward to, and whether that is right.
pub fn usable_pod(config: &Config, w: &World, r: usize, s: usize) -> Option<(bool, bool)> {
    let other = if config.is(Mistake::ForwardsToAnyService) {
        (s + 1) % w.svcs.len()
    } else {
        s
    };
    let ready = w.svcs[other].pods.iter().any(|p| p.ready() && p.answers());
    let marked = w.svcs[other].pods.iter().any(|p| p.marked() && p.answers());
    let covered = w.res[r].routes[s].promise.map_or(0, |(_, pods)| pods);
    let pods = w.svcs[s].pods.iter().enumerate();
    let promised = pods
        .filter(|(i, _)| covered & (1 << i) != 0)
        .any(|(_, p)| p.answers());
    let probed = w.svcs[other].pods.contains(&Pod::Passing);
    if ready || promised || probed {
        return Some((other == s, true));
    }
    // Its containers run, which is all that it knows without a probe.
    if config.is(Mistake::ForwardsUnprobed) && w.svcs[other].pods.contains(&Pod::Starting) {
        return Some((other == s, false));
    }
    (config.is(Mistake::ForwardsToMarkedPods) && marked).then_some((other == s, false))
}

pub fn one_less(w: &mut World, r: usize, s: usize) {
    let route = &mut w.res[r].routes[s];
    if route.held > 0 {
        route.held -= 1;
    } else {
        route.held_again = route.held_again.saturating_sub(1);
    }
    if route.held + route.held_again == 0 {
        route.held_for = 0;
        route.woke = false;
    }
}

pub fn arrives(config: &Config, w: &mut World, s: usize, _node: usize, backend: Backend) -> bool {
    w.budget.clients -= 1;
    let excused = w.svcs[s].excused;
    match backend {
        Backend::Nothing => {
            let excused = w.is_excused(s) || w.svcs[s].net_gone;
            w.judge(&TraceEvent::Connected {
                answered: false,
                excused,
            });
        }
        Backend::Pod(i) => {
            // An unhealthy pod that its kubelet took out of rotation is not our fault until nodes follow;
            // one that is ready only because we marked it so is.
            let answered = match w.svcs[s].pods[i] {
                Pod::Up { ready, healthy, .. } => healthy || !ready,
                _ => false,
            };
            let excused = excused || w.svcs[s].pods_broken;
            w.judge(&TraceEvent::Connected { answered, excused });
        }
        // Assumed: connections to a killed resolver are lost until the nodes follow.
        Backend::Resolver(r) if !w.res[r].up => {}
        Backend::Resolver(r) => {
            let listens = w.res[r].routes[s].listens;
            w.judge(&TraceEvent::Connected {
                answered: listens,
                excused,
            });
            w.res[r].routes[s].last = Some(0);
            admit(config, w, r, s);
        }
    }
    true
}

/// A resolver admits a request, by the real waiting rooms.
fn admit(config: &Config, w: &mut World, r: usize, s: usize) {
    let mut rooms = rooms(config, w, r);
    let room = if config.is(Mistake::OnePoolForAll) {
        0
    } else {
        s
    };
    match rooms.admit(&key(room), LISTEN_PORT, &limits().room(None), 0) {
        Ok(_) => w.res[r].routes[s].held += 1,
        Err(_) => {
            let first = w.res[r].routes[s].held + w.res[r].routes[s].held_again == 0;
            w.judge(&TraceEvent::RefusedFull {
                first_of_service: first,
            });
        }
    }
}

/// The waiting rooms of one resolver as they stand.
fn rooms(config: &Config, w: &World, r: usize) -> WaitingRooms {
    let mut rooms = WaitingRooms::new(&limits());
    for (s, route) in w.res[r].routes.iter().enumerate() {
        let room = if config.is(Mistake::OnePoolForAll) {
            0
        } else {
            s
        };
        for _ in 0..route.held + route.held_again {
            rooms
                .admit(&key(room), LISTEN_PORT, &limits().room(None), 0)
                .ok();
        }
    }
    rooms
}

fn limits() -> Limits {
    Limits {
        shared_requests: SHARED_WAITERS,
        ..Limits::default()
    }
}

pub fn forwards(config: &Config, w: &mut World, r: usize, s: usize, outcome: Outcome) -> bool {
    let Some((right_service, pod_usable)) = usable_pod(config, w, r, s) else {
        return false;
    };
    let again = w.res[r].routes[s].held == 0;
    let room = if config.is(Mistake::OnePoolForAll) {
        0
    } else {
        s
    };
    if rooms(config, w, r)
        .release(&key(room), LISTEN_PORT, 1)
        .is_empty()
    {
        return false;
    }
    let times = if again { 2 } else { 1 };
    w.judge(&TraceEvent::Delivered {
        times,
        right_service,
        pod_usable,
    });
    one_less(w, r, s);
    match outcome {
        Outcome::Answered => {}
        Outcome::Streams => w.res[r].routes[s].open += 1,
        Outcome::BreaksAfterFirstByte => {
            w.budget.faults -= 1;
            if config.is(Mistake::SendsTwice) {
                w.res[r].routes[s].held_again += 1;
            }
        }
    }
    true
}

/// A resolver's wake reaches an operator, which decides with the real `wake` on fresh facts. A follower passes it on to
/// the leader unless the target is at zero.
pub fn wakes(config: &Config, w: &mut World, r: usize, s: usize, op: usize) -> bool {
    w.res[r].routes[s].woke = true;
    let at_zero = w.svcs[s].replicas == Some(0);
    let leader = w.lease.holder;
    let op = if !at_zero && w.ops[leader].up {
        leader
    } else {
        op
    };
    w.ops[op].wake_requests[s] = Some((0, false));
    let mut port_allocator = w.ops[op].port_allocator.clone();
    let mut o = observed(config, w, op, s, &w.svcs[s], &mut port_allocator);
    o.stable_since = o.stable_since.clone().observe(&o);
    if config.is(Mistake::PromisesVictims) {
        // As if every pod that a scale-down stops had been seen to stop.
        o.stable_since.steady = Some(0);
    }
    match wake(&config.spec(), &o) {
        WakeDecision::Scale(n) => {
            let evidence = evidence(w, op, s, &w.svcs[s]);
            if scale_up(config, w, s, u8::try_from(n).unwrap(), &evidence) {
                w.ops[op].wakes[s] = Some(0);
            }
        }
        WakeDecision::AlreadyAwake(Some(promise)) => {
            let left = match config.mistake {
                Mistake::PromiseOutlivesLease => 9,
                _ => age(promise.until, true),
            };
            let pods = promise.pods.iter().map(|pod| 1 << pod_index(&pod.name));
            w.ops[op].promised[s] = left;
            w.res[r].routes[s].promise = Some((left, pods.sum()));
        }
        WakeDecision::AlreadyAwake(None) | WakeDecision::Refused(_) => {}
    }
    true
}
