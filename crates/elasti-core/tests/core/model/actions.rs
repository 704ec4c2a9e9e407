//! Everything that can happen next in the modelled cluster, and what Kubernetes itself changes.

use elasti_core::laws::TraceEvent;

use crate::model::config::{Config, HOLD, LEASE, Mistake};
use crate::model::effects::{applies, reconciles};
use crate::model::observe::{key, second_key, uid};
use crate::model::passing::time_passes;
use crate::model::requests::{arrives, forwards, one_less, usable_pod, wakes};
use crate::model::world::{
    Effect, Keda, Kubelet, NET, Pending, Pipe, Pod, Second, Svc, TriggerState, World, now,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    Pod(usize),
    Resolver(usize),
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Answered,
    Streams,
    BreaksAfterFirstByte,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    TimePasses,
    // Kubernetes' controllers and nodes.
    Replicate(usize),
    ReplicateLate(usize),
    PodPasses(usize, usize),
    PodReady(usize, usize),
    PodGone(usize, usize),
    PodFixed(usize, usize),
    PodWell(usize, usize),
    KubeletTick(usize, usize),
    Publish(usize),
    NodeSeesPods(usize, usize),
    NodeSeesResolvers(usize, usize),
    PublishSecond(usize),
    NodeSeesPodsOfSecond(usize, usize),
    NodeSeesResolversOfSecond(usize, usize),
    // Elasti.
    Reconcile(usize, usize),
    Apply(usize),
    Renew(usize),
    Acquire(usize),
    Listen(usize, usize),
    Forward(usize, usize, Outcome),
    StreamEnds(usize, usize),
    Expire(usize, usize),
    Wake(usize, usize, usize),
    // Clients.
    Arrive(usize, usize, Backend),
    Leave(usize, usize),
    // Users and other controllers, within their budget.
    PredecessorEnds,
    SetReading(usize, TriggerState),
    OutsideScale(usize, u8),
    RequestWake(usize),
    RequestSleep(usize),
    Delete(usize),
    DeleteTarget(usize),
    // Faults, within their budget.
    Crash(usize),
    Restart(usize),
    AnswerLost(usize),
    Refused(usize),
    Freeze(usize),
    Thaw(usize),
    ResolverDies(usize),
    ResolverStarts(usize),
    PodSticks(usize, usize),
    PodSickens(usize, usize),
    KubeletSyncs(usize, usize),
    KedaActs(usize),
}

/// What a fair run does by itself, in the order in which it tries it.
pub fn fair(config: &Config, w: &World, actions: &mut Vec<Action>) {
    for (op, operator) in w.ops.iter().enumerate() {
        if !operator.up && !config.no_restart {
            actions.push(Action::Restart(op));
        }
        if operator.frozen.is_some() {
            actions.push(Action::Thaw(op));
        }
        let leads = w.lease.holder == op;
        if operator.up && leads && w.lease.age > 0 && w.lease.age < LEASE {
            actions.push(Action::Renew(op));
        }
        let barred = config.is(Mistake::NoTakeover) && !leads;
        if operator.up && w.lease.age >= LEASE && !barred {
            actions.push(Action::Acquire(op));
        }
    }
    for r in (0..w.res.len()).filter(|r| !w.res[*r].up) {
        actions.push(Action::ResolverStarts(r));
    }
    for r in (0..w.res.len()).filter(|r| w.res[*r].up) {
        for s in 0..w.svcs.len() {
            resolver(config, w, r, s, actions);
        }
    }
    for op in (0..w.ops.len()).filter(|op| w.ops[*op].up) {
        match &w.ops[op].pending {
            Some(_) => actions.push(Action::Apply(op)),
            None => {
                let exists = (0..w.svcs.len()).filter(|s| w.svcs[*s].exists);
                actions.extend(exists.map(|s| Action::Reconcile(op, s)));
            }
        }
    }
    for s in 0..w.svcs.len() {
        machinery(config, w, s, actions);
    }
    if w.predecessor {
        actions.push(Action::PredecessorEnds);
    }
    actions.push(Action::TimePasses);
}

fn machinery(config: &Config, w: &World, s: usize, actions: &mut Vec<Action>) {
    let svc = &w.svcs[s];
    if needs_replication(config, w, s) {
        actions.push(Action::Replicate(s));
    }
    for (i, pod) in svc.pods.iter().enumerate() {
        match pod {
            // Assumed: none gets ready out of turn between a scale-down and the end of its pods; nothing could undo it.
            Pod::Starting | Pod::Passing | Pod::Stuck | Pod::Up { healthy: false, .. }
                if svc.owed.is_some() => {}
            Pod::Starting => {
                actions.push(Action::PodReady(s, i));
                // Only a resolver that holds requests probes.
                if w.res.iter().any(|r| r.routes[s].held > 0) {
                    actions.push(Action::PodPasses(s, i));
                }
            }
            Pod::Passing => actions.push(Action::PodReady(s, i)),
            Pod::Stuck if config.broken_image => {}
            Pod::Stuck => actions.push(Action::PodFixed(s, i)),
            Pod::Terminating => actions.push(Action::PodGone(s, i)),
            Pod::Up { healthy: false, .. } => actions.push(Action::PodWell(s, i)),
            Pod::Up { .. } | Pod::None => {}
        }
        if matches!(svc.kubelets[i], Kubelet::Sometime(_) | Kubelet::In(0)) {
            actions.push(Action::KubeletTick(s, i));
        }
    }
    if !svc.own.coming.is_empty() {
        actions.push(Action::Publish(s));
    }
    for n in 0..svc.pods_at.len() {
        if !svc.pods_at[n].coming.is_empty() {
            actions.push(Action::NodeSeesPods(s, n));
        }
        if !svc.resolvers_at[n].coming.is_empty() {
            actions.push(Action::NodeSeesResolvers(s, n));
        }
    }
    let Some(second) = &svc.second else {
        return;
    };
    if !second.own.coming.is_empty() {
        actions.push(Action::PublishSecond(s));
    }
    for n in 0..second.pods_at.len() {
        if !second.pods_at[n].coming.is_empty() {
            actions.push(Action::NodeSeesPodsOfSecond(s, n));
        }
        if !second.resolvers_at[n].coming.is_empty() {
            actions.push(Action::NodeSeesResolversOfSecond(s, n));
        }
    }
}

fn resolver(config: &Config, w: &World, r: usize, s: usize, actions: &mut Vec<Action>) {
    let route = &w.res[r].routes[s];
    let status = &w.svcs[s].status;
    let unknown = !route.listens && status.ports || !route.listens_second && status.second;
    if unknown && w.svcs[s].exists {
        actions.push(Action::Listen(r, s));
    }
    let waiting = route.held + route.held_again > 0;
    let usable = usable_pod(config, w, r, s).is_some() && !config.is(Mistake::MissesReadiness);
    if waiting && usable {
        actions.push(Action::Forward(r, s, Outcome::Answered));
    }
    if route.open > 0 && !config.endless_stream {
        actions.push(Action::StreamEnds(r, s));
    }
    if waiting && route.held_for >= HOLD && !config.is(Mistake::HoldsForever) {
        actions.push(Action::Expire(r, s));
    }
    let marked = w.svcs[s].pods.iter().any(|p| p.marked() && p.answers());
    let helps = w.svcs[s].replicas == Some(0) || marked;
    if waiting && !usable && helps && config.will_wake(route) {
        let awake = (0..w.ops.len()).filter(|op| w.ops[*op].up);
        actions.extend(awake.map(|op| Action::Wake(r, s, op)));
    }
}

/// What may happen besides in an unfair run.
pub fn unfair(config: &Config, w: &World, actions: &mut Vec<Action>) {
    for r in (0..w.res.len()).filter(|r| w.res[*r].up) {
        for s in 0..w.svcs.len() {
            let waiting = w.res[r].routes[s].held > 0;
            if waiting {
                actions.push(Action::Leave(r, s));
            }
            if waiting && usable_pod(config, w, r, s).is_some() {
                actions.push(Action::Forward(r, s, Outcome::Streams));
                if w.budget.faults > 0 {
                    actions.push(Action::Forward(r, s, Outcome::BreaksAfterFirstByte));
                }
            }
        }
    }
    let owed = (0..w.svcs.len()).filter(|s| w.svcs[*s].owed.is_some());
    actions.extend(owed.map(Action::ReplicateLate));
    for (s, svc) in w.svcs.iter().enumerate().filter(|(_, svc)| svc.exists) {
        if w.budget.clients > 0 {
            for n in 0..svc.pods_at.len() {
                actions.extend(
                    backends(w, s, n)
                        .into_iter()
                        .map(|b| Action::Arrive(s, n, b)),
                );
            }
        }
        if w.budget.readings > 0 {
            let others = [
                TriggerState::Quiet,
                TriggerState::Active,
                TriggerState::Unknown,
            ];
            let change = others.into_iter().filter(|said| *said != svc.reading);
            actions.extend(change.map(|said| Action::SetReading(s, said)));
        }
        if w.budget.outside > 0 && svc.replicas.is_some() {
            let all = u8::try_from(svc.pods.len()).unwrap();
            let other = if svc.replicas == Some(0) { all } else { 0 };
            actions.push(Action::OutsideScale(s, other));
            // As an HPA does that the spec does not name.
            if svc.replicas.is_some_and(|n| 0 < n && n < all) {
                actions.push(Action::OutsideScale(s, all));
            }
            // As a user does who wants fewer while a drain takes some away.
            let fewer = svc.replicas.filter(|n| 1 < *n && *n < all);
            actions.extend(fewer.map(|n| Action::OutsideScale(s, n - 1)));
        }
        if w.budget.user_requests > 0 {
            actions.extend([Action::RequestWake(s), Action::RequestSleep(s)]);
        }
        if w.budget.deletions > 0 {
            if svc.deleting.is_none() {
                actions.push(Action::Delete(s));
            } else if svc.replicas.is_some() {
                actions.push(Action::DeleteTarget(s));
            }
        }
    }
    if w.budget.faults > 0 {
        faults(config, w, actions);
    }
}

fn faults(config: &Config, w: &World, actions: &mut Vec<Action>) {
    for (op, operator) in w.ops.iter().enumerate().filter(|(_, operator)| operator.up) {
        if !config.no_crash {
            actions.push(Action::Crash(op));
        }
        if operator.pending.is_some() {
            actions.extend([Action::AnswerLost(op), Action::Refused(op)]);
        } else if operator.frozen.is_none() {
            actions.push(Action::Freeze(op));
        }
    }
    // Assumed: at least one other resolver lives, and every node routes to it or is about to. Under a `Local` policy a
    // node routes to its own alone, so that one lives while nodes may send to it.
    let redirects =
        |svc: &Svc| svc.slice.is_some() || svc.resolvers_at.iter().any(Pipe::has_anything);
    let needed = w.local && w.svcs.iter().any(redirects);
    for r in (0..w.res.len()).filter(|r| w.res[*r].up && !needed) {
        if w.local || (0..w.res.len()).any(|other| other != r && in_every_slice(w, other)) {
            actions.push(Action::ResolverDies(r));
        }
    }
    for (s, svc) in w.svcs.iter().enumerate() {
        for (i, pod) in svc.pods.iter().enumerate() {
            match pod {
                Pod::Starting => actions.push(Action::PodSticks(s, i)),
                // Assumed, as of a pod that gets ready: the controller would wait for it past a tick.
                Pod::Up { healthy: true, .. } if config.min_ready > 0 && svc.owed.is_some() => {}
                Pod::Up { healthy: true, .. } => actions.push(Action::PodSickens(s, i)),
                _ => {}
            }
            if pod.marked() && svc.replicas != Some(0) && svc.owed.is_none() {
                actions.push(Action::KubeletSyncs(s, i));
            }
        }
        let pinned = matches!(svc.keda, Some(Keda::Pinned | Keda::Left));
        if pinned && svc.replicas.is_some_and(|n| n > 0) {
            actions.push(Action::KedaActs(s));
        }
    }
}

/// This resolver is in every slice that is published, in transit, or about to be written.
fn in_every_slice(w: &World, r: usize) -> bool {
    let has = |mask: u8| mask & (1 << r) != 0;
    let pipe = |pipe: &Pipe| has(pipe.seen) && pipe.coming.iter().all(|(mask, _)| has(*mask));
    let about_to_be = |s: usize| {
        let pending = w
            .ops
            .iter()
            .flat_map(|op| &op.pending)
            .filter(|p| p.svc == s);
        let mut effects = pending.flat_map(|p| &p.effects);
        effects.all(|(effect, _)| !matches!(effect, Effect::EnsureSlice(mask) if !has(*mask)))
    };
    let is_in_slice = |s: usize| {
        let svc = &w.svcs[s];
        let known = svc.slice.is_some_and(has) && svc.resolvers_at.iter().all(pipe);
        svc.slice.is_none() || known && w.res[r].routes[s].listens
    };
    // A slice that does not exist yet may be about to.
    w.res[r].up && (0..w.svcs.len()).all(|s| is_in_slice(s) && about_to_be(s))
}

fn backends(w: &World, s: usize, n: usize) -> Vec<Backend> {
    let (pods, resolvers) = w.destinations(s, n);
    let resolvers = resolvers.into_iter().map(Backend::Resolver);
    let mut all: Vec<Backend> = pods
        .into_iter()
        .map(Backend::Pod)
        .chain(resolvers)
        .collect();
    if all.is_empty() {
        all.push(Backend::Nothing);
    }
    all
}

pub fn needs_replication(config: &Config, w: &World, s: usize) -> bool {
    let svc = &w.svcs[s];
    let wanted = usize::from(svc.replicas.unwrap_or(0));
    let living = svc.pods.iter().filter(|p| p.living()).count();
    !svc.stops(config.order(), wanted).is_empty()
        || wanted > living && svc.pods.contains(&Pod::None)
}

/// The world after an action; `None` if it changes nothing or cannot happen.
pub fn after(config: &Config, before: &World, action: Action) -> Option<World> {
    let mut w = before.clone();
    let happened = match action {
        Action::TimePasses => time_passes(config, &mut w),
        Action::PredecessorEnds => std::mem::take(&mut w.predecessor),
        Action::Reconcile(op, s) => reconciles(config, &mut w, op, s),
        Action::Apply(op) => applies(config, &mut w, op),
        Action::Crash(_)
        | Action::AnswerLost(_)
        | Action::Refused(_)
        | Action::Freeze(_)
        | Action::ResolverDies(_)
        | Action::PodSticks(..)
        | Action::PodSickens(..)
        | Action::KubeletSyncs(..)
        | Action::KedaActs(_) => fault(config, &mut w, action),
        Action::Arrive(s, n, backend) => arrives(config, &mut w, s, n, backend),
        Action::Forward(r, s, outcome) => forwards(config, &mut w, r, s, outcome),
        Action::Wake(r, s, op) => wakes(config, &mut w, r, s, op),
        other => kubernetes_acts(config, &mut w, other),
    };
    forget_generations(&mut w);
    (happened && w != *before).then_some(w)
}

/// A target's generation matters only to an operator that remembers one; a state with another is the same.
fn forget_generations(w: &mut World) {
    for s in 0..w.svcs.len() {
        if { w.ops.iter() }.all(|op| !op.memory[s].knows_generation()) {
            w.svcs[s].generation = 0;
        }
    }
}

/// Kubernetes' controllers and nodes.
fn kubernetes_acts(config: &Config, w: &mut World, action: Action) -> bool {
    match action {
        Action::Replicate(s) => {
            let wanted = w.svcs[s].replicas.unwrap_or(0);
            let for_us = w.svcs[s].by_us;
            replicate(config, w, s, wanted, for_us);
        }
        // It has seen the scale-down, and not yet that it was undone.
        Action::ReplicateLate(s) => {
            let Some((wanted, _)) = w.svcs[s].owed else {
                return false;
            };
            replicate(config, w, s, wanted, true);
        }
        Action::PodPasses(s, i) => set_pod(w, s, i, Pod::Passing),
        Action::PodReady(s, i) | Action::PodWell(s, i) => {
            set_pod(
                w,
                s,
                i,
                Pod::Up {
                    ready: true,
                    healthy: true,
                    marked: false,
                },
            );
        }
        Action::PodFixed(s, i) => set_pod(w, s, i, Pod::Starting),
        Action::PodGone(s, i) => set_pod(w, s, i, Pod::None),
        Action::KubeletTick(s, i) => {
            // Without a drain the time of the next tick does not matter.
            let up = matches!(w.svcs[s].pods[i], Pod::Up { .. });
            let redirected = w.svcs[s].slice.is_some_and(|slice| slice & NET == 0);
            let drains = w.svcs[s].pods[i].marked() || up && redirected;
            let next = if drains {
                Kubelet::In(config.tick_period())
            } else {
                Kubelet::Idle
            };
            w.svcs[s].kubelets[i] = next;
            undo_mark(w, s, i);
        }
        Action::Publish(s) => w.svcs[s].publish(),
        Action::NodeSeesPods(s, n) => return w.svcs[s].pods_at[n].apply(),
        Action::NodeSeesResolvers(s, n) => return w.svcs[s].resolvers_at[n].apply(),
        Action::PublishSecond(s) => w.svcs[s].second.iter_mut().for_each(Second::publish),
        Action::NodeSeesPodsOfSecond(s, n) => {
            return { w.svcs[s].second.iter_mut() }.any(|one| one.pods_at[n].apply());
        }
        Action::NodeSeesResolversOfSecond(s, n) => {
            return { w.svcs[s].second.iter_mut() }.any(|one| one.resolvers_at[n].apply());
        }
        other => return elasti_acts(config, w, other),
    }
    true
}

/// Elasti and its clients, where only one thing changes.
fn elasti_acts(config: &Config, w: &mut World, action: Action) -> bool {
    match action {
        Action::Renew(_) => w.lease.age = 0,
        Action::Acquire(op) => {
            w.lease.age = 0;
            // A follower does not reconcile, and what it observed before proves nothing later.
            let before = std::mem::replace(&mut w.lease.holder, op);
            w.ops[before].memory = config.operator().memory;
            w.ops[before].promised = config.operator().promised;
            forget_answers(w);
            w.svcs.iter_mut().for_each(|svc| svc.forget_seen(before));
        }
        Action::Restart(op) => w.ops[op].up = true,
        Action::Thaw(op) => w.ops[op].frozen = None,
        Action::Listen(r, s) => {
            w.res[r].routes[s].listens = true;
            w.res[r].routes[s].listens_second = w.svcs[s].status.second;
        }
        Action::ResolverStarts(r) => {
            w.res[r].up = true;
            for s in 0..w.svcs.len() {
                // It is ready only once it has loaded its routes.
                w.res[r].routes[s].listens = w.svcs[s].exists && w.svcs[s].status.ports;
                w.res[r].routes[s].listens_second = w.svcs[s].exists && w.svcs[s].status.second;
            }
        }
        Action::StreamEnds(r, s) => w.res[r].routes[s].open -= 1,
        Action::Leave(r, s) | Action::Expire(r, s) => one_less(w, r, s),
        other => return users_act(config, w, other),
    }
    true
}

/// Users and other controllers.
fn users_act(config: &Config, w: &mut World, action: Action) -> bool {
    match action {
        Action::SetReading(s, said) => {
            w.budget.readings -= 1;
            w.svcs[s].reading = said;
        }
        Action::OutsideScale(s, replicas) => {
            w.budget.outside -= 1;
            scale_from_outside(w, s, replicas);
        }
        Action::RequestWake(s) => {
            w.budget.user_requests -= 1;
            w.svcs[s].wake_request = Some(0);
            (
                w.svcs[s].wake_request_served,
                w.svcs[s].wake_request_answered,
            ) = (false, false);
        }
        Action::RequestSleep(s) => {
            w.budget.user_requests -= 1;
            w.svcs[s].sleep_request = Some(0);
        }
        Action::Delete(s) => {
            w.budget.deletions -= 1;
            w.svcs[s].deleting = Some(0);
            if !w.svcs[s].finalizer {
                w.svcs[s].exists = false;
            }
        }
        Action::DeleteTarget(s) => {
            w.budget.deletions -= 1;
            // Its pods go because someone deleted it, also those of a scale-down that was ours.
            (w.svcs[s].by_us, w.svcs[s].owed) = (false, None);
            w.svcs[s].replicas = None;
            w.svcs[s].excused = true;
            target_changed(w, s);
        }
        _ => unreachable!("{config:?} has an action without an effect: {action:?}"),
    }
    true
}

fn fault(config: &Config, w: &mut World, action: Action) -> bool {
    w.budget.faults -= 1;
    match action {
        Action::Crash(op) => {
            w.svcs.iter_mut().for_each(|svc| svc.forget_seen(op));
            w.ops[op] = config.operator();
            w.ops[op].up = false;
            forget_answers(w);
            remember_ports(w, op);
        }
        Action::AnswerLost(op) => answer_is_lost(config, w, op),
        Action::Refused(op) => {
            if let Some(pending) = w.ops[op].pending.take().filter(Pending::scales_down) {
                w.ops[op].memory[pending.svc].scale_down_refused();
            }
        }
        Action::Freeze(op) => w.ops[op].frozen = Some(w.svcs.clone()),
        Action::ResolverDies(r) => {
            w.res[r].up = false;
            for route in &mut w.res[r].routes {
                // Killed: it takes with it what it physically holds.
                (route.held, route.held_again, route.open) = (0, 0, 0);
                (route.listens, route.last, route.woke) = (false, None, false);
                route.listens_second = false;
                route.promise = None;
                route.held_for = 0;
            }
        }
        Action::PodSticks(s, i) => set_pod(w, s, i, Pod::Stuck),
        Action::PodSickens(s, i) => {
            // As of a pod that gets ready: the target's status counts it before a write that was decided before.
            if config.min_ready > 0 {
                target_changed(w, s);
            }
            let marked = w.svcs[s].pods[i].marked();
            w.svcs[s].pods_broken = true;
            set_pod(
                w,
                s,
                i,
                Pod::Up {
                    ready: false,
                    healthy: false,
                    marked,
                },
            );
        }
        Action::KubeletSyncs(s, i) => {
            undo_mark(w, s, i);
            target_changed(w, s);
        }
        Action::KedaActs(s) => scale_from_outside(w, s, 0),
        _ => return false,
    }
    true
}

/// After a restart the port allocator is restored from the statuses.
fn remember_ports(w: &mut World, op: usize) {
    for s in 0..w.svcs.len() {
        let wanted = [elasti_core::ports::WantedPort {
            name: String::new(),
            port: 80,
        }];
        let given = w.ops[op]
            .port_allocator
            .clone()
            .assign(&key(s), &wanted, now())
            .unwrap_or_default();
        if w.svcs[s].status.ports {
            w.ops[op].port_allocator.remember(&key(s), &given);
        }
        if w.svcs[s].status.second {
            let given = (w.ops[op].port_allocator.clone())
                .assign(&second_key(s), &wanted, now())
                .unwrap_or_default();
            (w.ops[op].port_allocator).remember(&second_key(s), &given);
        }
    }
}

/// The operator does not know whether its next effect came about; the others it does not try.
fn answer_is_lost(config: &Config, w: &mut World, op: usize) {
    let Some(pending) = w.ops[op].pending.clone() else {
        return;
    };
    let memory = w.ops[op].memory.clone();
    applies(config, w, op);
    (w.ops[op].pending, w.ops[op].memory) = (None, memory);
    if pending.effects[0].0.scales_down() {
        // Whose zero it finds, it cannot know either.
        forget_answers(w);
    } else if pending.scales_down() {
        w.ops[op].memory[pending.svc].scale_down_refused();
    }
}

/// Which came first, a request or the zero of others, a new leader knows only from the status.
fn forget_answers(w: &mut World) {
    for svc in &mut w.svcs {
        let recorded = svc.status.asleep && svc.status.sleep < svc.wake_request;
        svc.wake_request_answered &= recorded && svc.status.sleep.is_some();
        svc.wake_request_served = false;
    }
    let requests = w.ops.iter_mut().flat_map(|op| &mut op.wake_requests);
    for (_, answered) in requests.flatten() {
        *answered = false;
    }
}

fn scale_from_outside(w: &mut World, s: usize, replicas: u8) {
    if w.svcs[s].replicas.is_some_and(|n| 0 < n && n < replicas) {
        w.svcs[s].raised = Some(0);
    }
    w.svcs[s].replicas = Some(replicas);
    w.svcs[s].by_us = false;
    w.svcs[s].recorded &= replicas > 0;
    w.svcs[s].written = 0;
    w.svcs[s].lent = None;
    if replicas == 0 {
        w.svcs[s].pods_broken = true;
        w.svcs[s].wake_request_answered = w.svcs[s].wake_request_served;
        // What was up only between two reconciles, and not because of a wake of its own, an operator has never seen up.
        for op in &mut w.ops {
            let was_up = op.memory[s].replicas.is_some_and(|n| n > 0) || op.wakes[s].is_some();
            if let Some((_, answered)) = &mut op.wake_requests[s] {
                *answered |= was_up;
            }
        }
        // Someone else has undone our wake; there is none left to protect.
        (w.svcs[s].woken, w.svcs[s].served, w.svcs[s].raised) = (None, None, None);
    }
    target_changed(w, s);
}

pub fn target_changed(w: &mut World, s: usize) {
    w.svcs[s].generation = w.svcs[s].generation.wrapping_add(1);
    for pending in w.ops.iter_mut().filter_map(|op| op.pending.as_mut()) {
        pending.target_changed |= pending.svc == s;
    }
    for cached in w.ops.iter_mut().filter_map(|op| op.frozen.as_mut()) {
        cached[s].target_outdated = true;
    }
}

fn set_pod(w: &mut World, s: usize, i: usize, pod: Pod) {
    // A pod that becomes ready out of turn: assumed is that the target's own status counts it
    // before the nodes follow, so that a write which was decided before is refused.
    if pod.ready() {
        target_changed(w, s);
        let svc = &mut w.svcs[s];
        svc.served = svc.served.or(svc.woken.map(|_| 0));
        svc.ready_for[i] = 0;
    }
    w.svcs[s].pods[i] = pod;
    w.svcs[s].pod_changed(i);
}

fn undo_mark(w: &mut World, s: usize, i: usize) {
    if let Pod::Up {
        healthy,
        marked: true,
        ..
    } = w.svcs[s].pods[i]
    {
        w.svcs[s].pods[i] = Pod::Up {
            ready: healthy,
            healthy,
            marked: false,
        };
        w.svcs[s].pod_changed(i);
    }
}

/// The replica controller makes pods, or sends SIGTERM: from then on a pod refuses.
fn replicate(config: &Config, w: &mut World, s: usize, wanted: u8, for_us: bool) {
    let wanted = usize::from(wanted);
    w.svcs[s].owed = None;
    for i in w.svcs[s].stops(config.order(), wanted) {
        if for_us {
            let excused = w.svcs[s].excused || w.svcs[s].pods_broken;
            w.judge(&TraceEvent::PodStopped {
                in_rotation: w.svcs[s].in_rotation(i) && !excused,
                promised: w.is_promised(s, i),
            });
        } else {
            // It may have become ready since something else scaled down.
            w.svcs[s].pods_broken = true;
        }
        set_pod(w, s, i, Pod::Terminating);
    }
    for i in 0..w.svcs[s].pods.len() {
        let living = w.svcs[s].pods.iter().filter(|p| p.living()).count();
        if living < wanted && w.svcs[s].pods[i] == Pod::None {
            // A new pod has a new uid; the model keeps one uid for each pod index,
            // so what was known of the old pod is removed instead.
            for op in &mut w.ops {
                op.memory[s].marks.remove(&uid(i));
            }
            let routes = w.res.iter_mut().map(|r| &mut r.routes[s]);
            for (_, pods) in routes.flat_map(|route| &mut route.promise) {
                *pods &= !(1 << i);
            }
            set_pod(
                w,
                s,
                i,
                if config.broken_image {
                    Pod::Stuck
                } else {
                    Pod::Starting
                },
            );
        }
    }
}
