//! Everything that can happen next in the modelled world, and what it changes.
//! It never decides for Elasti.

use std::cmp::Ordering;

use elasti_core::laws::{Deed, ScaledToZero};
use elasti_core::waiting_room::{Limits, WaitingRooms};
use elasti_core::{WakeDecision, wake};
use jiff::SignedDuration;

use crate::config::{COOLDOWN, Config, HOLD, LEASE, Mistake, PATIENCE, SETTLE, SHARED_WAITERS};
use crate::observe::{aged, key, look, observed, uid};
use crate::world::{Effect, Keda, Kubelet, Pending, Pipe, Pod, Said, World, now, older};

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
    // The API machinery and the nodes.
    Replicate(usize),
    PodReady(usize, usize),
    PodGone(usize, usize),
    PodFixed(usize, usize),
    PodWell(usize, usize),
    KubeletTick(usize, usize),
    Publish(usize),
    NodeSeesPods(usize, usize),
    NodeSeesResolvers(usize, usize),
    // Elasti.
    Look(usize, usize),
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
    // The rest of the world, within its budget.
    SetReading(usize, Said),
    OutsideScale(usize, u8),
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

/// What a fair world does without being asked, in the order in which a fair run tries it.
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
        let barred = config.is(Mistake::NobodyTakesOver) && !leads;
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
                actions.extend(exists.map(|s| Action::Look(op, s)));
            }
        }
    }
    for s in 0..w.svcs.len() {
        machinery(config, w, s, actions);
    }
    actions.push(Action::TimePasses);
}

fn machinery(config: &Config, w: &World, s: usize, actions: &mut Vec<Action>) {
    let svc = &w.svcs[s];
    if needs_replication(w, s) {
        actions.push(Action::Replicate(s));
    }
    for (i, pod) in svc.pods.iter().enumerate() {
        match pod {
            Pod::Starting => actions.push(Action::PodReady(s, i)),
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
}

fn resolver(config: &Config, w: &World, r: usize, s: usize, actions: &mut Vec<Action>) {
    let carried = &w.res[r].carried[s];
    if !carried.listens && w.svcs[s].status.ports && w.svcs[s].exists {
        actions.push(Action::Listen(r, s));
    }
    let waiting = carried.held + carried.held_again > 0;
    let usable = usable_pod(config, w, s).is_some() && !config.is(Mistake::MissesReadiness);
    if waiting && usable {
        actions.push(Action::Forward(r, s, Outcome::Answered));
    }
    if carried.open > 0 && !config.endless_stream {
        actions.push(Action::StreamEnds(r, s));
    }
    if waiting && carried.held_for >= HOLD && !config.is(Mistake::HoldsForEver) {
        actions.push(Action::Expire(r, s));
    }
    if waiting && !usable && w.svcs[s].replicas == Some(0) && config.will_wake(carried) {
        let awake = (0..w.ops.len()).filter(|op| w.ops[*op].up);
        actions.extend(awake.map(|op| Action::Wake(r, s, op)));
    }
}

/// What an unfair world may do besides.
pub fn unfair(config: &Config, w: &World, actions: &mut Vec<Action>) {
    for r in (0..w.res.len()).filter(|r| w.res[*r].up) {
        for s in 0..w.svcs.len() {
            let waiting = w.res[r].carried[s].held > 0;
            if waiting {
                actions.push(Action::Leave(r, s));
            }
            if waiting && usable_pod(config, w, s).is_some() {
                actions.push(Action::Forward(r, s, Outcome::Streams));
                if w.budget.faults > 0 {
                    actions.push(Action::Forward(r, s, Outcome::BreaksAfterFirstByte));
                }
            }
        }
    }
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
            let others = [Said::Quiet, Said::Active, Said::Unknown];
            let change = others.into_iter().filter(|said| *said != svc.reading);
            actions.extend(change.map(|said| Action::SetReading(s, said)));
        }
        if w.budget.outside > 0 && svc.replicas.is_some() {
            let all = u8::try_from(svc.pods.len()).unwrap();
            let other = if svc.replicas == Some(0) { all } else { 0 };
            actions.push(Action::OutsideScale(s, other));
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
        faults(w, actions);
    }
}

fn faults(w: &World, actions: &mut Vec<Action>) {
    for (op, operator) in w.ops.iter().enumerate().filter(|(_, operator)| operator.up) {
        actions.push(Action::Crash(op));
        if operator.pending.is_some() {
            actions.extend([Action::AnswerLost(op), Action::Refused(op)]);
        } else if operator.frozen.is_none() {
            actions.push(Action::Freeze(op));
        }
    }
    // Assumed: at least one other resolver lives, and every node knows of it or is about to.
    for r in (0..w.res.len()).filter(|r| w.res[*r].up) {
        if (0..w.res.len()).any(|other| other != r && everyone_knows(w, other)) {
            actions.push(Action::ResolverDies(r));
        }
    }
    for (s, svc) in w.svcs.iter().enumerate() {
        for (i, pod) in svc.pods.iter().enumerate() {
            match pod {
                Pod::Starting => actions.push(Action::PodSticks(s, i)),
                Pod::Up { healthy: true, .. } => actions.push(Action::PodSickens(s, i)),
                _ => {}
            }
            if pod.marked() && w.svcs[s].replicas != Some(0) {
                actions.push(Action::KubeletSyncs(s, i));
            }
        }
        if svc.keda == Some(Keda::Pinned) && svc.replicas.is_some_and(|n| n > 0) {
            actions.push(Action::KedaActs(s));
        }
    }
}

/// This resolver is in every slice that is published, on its way, or about to be written.
fn everyone_knows(w: &World, r: usize) -> bool {
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
    w.res[r].up
        && (0..w.svcs.len())
            .filter(|s| w.svcs[*s].slice.is_some())
            .all(|s| {
                let known =
                    w.svcs[s].slice.is_some_and(has) && w.svcs[s].resolvers_at.iter().all(pipe);
                known && about_to_be(s) && w.res[r].carried[s].listens
            })
}

fn backends(w: &World, s: usize, n: usize) -> Vec<Backend> {
    let svc = &w.svcs[s];
    let pods = (0..svc.pods.len()).filter(|i| svc.pods_at[n].seen & (1 << i) != 0);
    let resolvers = (0..w.res.len()).filter(|r| svc.resolvers_at[n].seen & (1 << r) != 0);
    let mut all: Vec<Backend> = pods
        .map(Backend::Pod)
        .chain(resolvers.map(Backend::Resolver))
        .collect();
    if all.is_empty() {
        all.push(Backend::Nothing);
    }
    all
}

fn needs_replication(w: &World, s: usize) -> bool {
    let svc = &w.svcs[s];
    let wanted = usize::from(svc.replicas.unwrap_or(0));
    let living = svc.pods.iter().filter(|p| p.living()).count();
    wanted < living || wanted > living && svc.pods.contains(&Pod::None)
}

/// A pod that a resolver may forward to, and whether that is right.
fn usable_pod(config: &Config, w: &World, s: usize) -> Option<(bool, bool)> {
    let other = if config.is(Mistake::ForwardsToAnyService) {
        (s + 1) % w.svcs.len()
    } else {
        s
    };
    let ready = w.svcs[other].pods.iter().any(|p| p.ready() && p.answers());
    let marked = w.svcs[other].pods.iter().any(|p| p.marked() && p.answers());
    if ready {
        return Some((other == s, true));
    }
    (config.is(Mistake::ForwardsToMarkedPods) && marked).then_some((other == s, false))
}

/// The world after an action; `None` if it changes nothing or cannot happen.
pub fn after(config: &Config, before: &World, action: Action) -> Option<World> {
    let mut w = before.clone();
    let happened = match action {
        Action::TimePasses => time_passes(config, &mut w),
        Action::Look(op, s) => looks(config, &mut w, op, s),
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
        other => simple(config, &mut w, other),
    };
    (happened && w != *before).then_some(w)
}

/// Actions that change one thing.
fn simple(config: &Config, w: &mut World, action: Action) -> bool {
    match action {
        Action::Replicate(s) => replicate(config, w, s),
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
            // Without a drain nobody knows or cares when the next tick comes.
            let up = matches!(w.svcs[s].pods[i], Pod::Up { .. });
            let drains = w.svcs[s].pods[i].marked() || up && w.svcs[s].slice.is_some();
            let next = if drains {
                Kubelet::In(config.tick_period())
            } else {
                Kubelet::Calm
            };
            w.svcs[s].kubelets[i] = next;
            undo_mark(w, s, i);
        }
        Action::Publish(s) => w.svcs[s].publish(),
        Action::NodeSeesPods(s, n) => return w.svcs[s].pods_at[n].apply(),
        Action::NodeSeesResolvers(s, n) => return w.svcs[s].resolvers_at[n].apply(),
        Action::Renew(_) => w.lease.age = 0,
        Action::Acquire(op) => {
            w.lease.age = 0;
            // Who does not lead does not look, and what it saw before proves nothing later.
            let before = std::mem::replace(&mut w.lease.holder, op);
            w.ops[before].memory = config.operator().memory;
            w.svcs
                .iter_mut()
                .for_each(|svc| svc.news[before] = (true, true));
        }
        Action::Restart(op) => w.ops[op].up = true,
        Action::Thaw(op) => w.ops[op].frozen = None,
        Action::Listen(r, s) => w.res[r].carried[s].listens = true,
        Action::ResolverStarts(r) => {
            w.res[r].up = true;
            for s in 0..w.svcs.len() {
                // It is ready only once it has loaded its routes.
                w.res[r].carried[s].listens = w.svcs[s].exists && w.svcs[s].status.ports;
            }
        }
        Action::StreamEnds(r, s) => w.res[r].carried[s].open -= 1,
        Action::Leave(r, s) | Action::Expire(r, s) => one_less(w, r, s),
        Action::SetReading(s, said) => {
            w.budget.readings -= 1;
            w.svcs[s].reading = said;
        }
        Action::OutsideScale(s, replicas) => {
            w.budget.outside -= 1;
            scale_from_outside(w, s, replicas);
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
            w.svcs
                .iter_mut()
                .for_each(|svc| svc.news[op] = (true, true));
            w.ops[op] = config.operator();
            w.ops[op].up = false;
            remember_ports(w, op);
        }
        Action::AnswerLost(op) => {
            applies(config, w, op);
            w.ops[op].pending = None;
        }
        Action::Refused(op) => w.ops[op].pending = None,
        Action::Freeze(op) => w.ops[op].frozen = Some(w.svcs.clone()),
        Action::ResolverDies(r) => {
            w.res[r].up = false;
            for carried in &mut w.res[r].carried {
                // Killed: it takes with it what it physically holds.
                (carried.held, carried.held_again, carried.open) = (0, 0, 0);
                (carried.listens, carried.last, carried.woke) = (false, None, false);
                carried.held_for = 0;
            }
        }
        Action::PodSticks(s, i) => set_pod(w, s, i, Pod::Stuck),
        Action::PodSickens(s, i) => {
            let marked = w.svcs[s].pods[i].marked();
            w.svcs[s].excused = true;
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

/// After a restart the port book is made from what the statuses remember.
fn remember_ports(w: &mut World, op: usize) {
    for s in 0..w.svcs.len() {
        let wanted = [elasti_core::ports::WantedPort {
            name: String::new(),
            port: 80,
        }];
        let given = w.ops[op]
            .book
            .clone()
            .assign(&key(s), &wanted, now())
            .unwrap_or_default();
        if w.svcs[s].status.ports {
            w.ops[op].book.remember(&key(s), &given);
        }
    }
}

fn scale_from_outside(w: &mut World, s: usize, replicas: u8) {
    w.svcs[s].replicas = Some(replicas);
    w.svcs[s].by_us = false;
    w.svcs[s].written = 0;
    if replicas == 0 {
        w.svcs[s].excused = true;
        // Someone else has undone our wake; there is none left to protect.
        w.svcs[s].woken = None;
    }
    target_changed(w, s);
}

fn target_changed(w: &mut World, s: usize) {
    for pending in w.ops.iter_mut().filter_map(|op| op.pending.as_mut()) {
        pending.target_changed |= pending.svc == s;
    }
}

fn set_pod(w: &mut World, s: usize, i: usize, pod: Pod) {
    // A pod that becomes ready out of turn: assumed is that the target's own status counts it
    // before the nodes follow, so that a write which was decided before is refused.
    if pod.ready() {
        target_changed(w, s);
    }
    w.svcs[s].pods[i] = pod;
    w.svcs[s].pods_changed();
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
        w.svcs[s].pods_changed();
    }
}

/// The replica controller makes pods, or sends SIGTERM: from then on a pod refuses.
fn replicate(config: &Config, w: &mut World, s: usize) {
    let wanted = usize::from(w.svcs[s].replicas.unwrap_or(0));
    for i in 0..w.svcs[s].pods.len() {
        let living = w.svcs[s].pods.iter().filter(|p| p.living()).count();
        let pod = w.svcs[s].pods[i];
        if living < wanted && pod == Pod::None {
            // A new pod has a uid that nobody has seen; the model keeps one uid for each place,
            // so what was known of the old pod is taken away instead.
            for op in &mut w.ops {
                op.memory[s].marks.remove(&uid(i));
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
        } else if living > wanted && pod.living() {
            set_pod(w, s, i, Pod::Terminating);
        }
    }
}

fn one_less(w: &mut World, r: usize, s: usize) {
    let carried = &mut w.res[r].carried[s];
    if carried.held > 0 {
        carried.held -= 1;
    } else {
        carried.held_again = carried.held_again.saturating_sub(1);
    }
    if carried.held + carried.held_again == 0 {
        carried.held_for = 0;
        carried.woke = false;
    }
}

/// One unit of time, unless something would then be later than the world promises.
fn time_passes(config: &Config, w: &mut World) -> bool {
    for s in 0..w.svcs.len() {
        let svc = &w.svcs[s];
        let pipes = || {
            std::iter::once(&svc.own)
                .chain(&svc.pods_at)
                .chain(&svc.resolvers_at)
        };
        let overdue = pipes().any(|pipe| !pipe.may_wait(SETTLE));
        let tick_due = svc.kubelets.iter().any(|k| match k {
            Kubelet::In(left) => *left == 0,
            Kubelet::Sometime(age) => age + 1 >= config.tick_period(),
            Kubelet::Calm => false,
        });
        if overdue || tick_due || needs_replication(w, s) {
            return false;
        }
    }
    // A single operator renews in time; only a second one could take over.
    if config.operators > 1 {
        w.lease.age = older(w.lease.age, LEASE);
    }
    for s in 0..w.svcs.len() {
        age_service(w, s);
    }
    for carried in w.res.iter_mut().flat_map(|r| &mut r.carried) {
        carried.last = carried.last.map(|age| older(age, COOLDOWN.max(SETTLE)));
        if carried.held + carried.held_again > 0 {
            carried.held_for = older(carried.held_for, HOLD);
        }
    }
    for op in &mut w.ops {
        op.memory = std::mem::take(&mut op.memory)
            .into_iter()
            .map(|m| aged(config, m, 1))
            .collect();
        for (_, valid_for) in op.pending.iter_mut().flat_map(|p| &mut p.effects) {
            *valid_for = valid_for.map(|left| left.saturating_sub(1));
        }
    }
    true
}

fn age_service(w: &mut World, s: usize) {
    // An excuse ends when every node sees what is published, and all of it answers.
    let svc = &w.svcs[s];
    let mut pipes = std::iter::once(&svc.own)
        .chain(&svc.pods_at)
        .chain(&svc.resolvers_at);
    let calm = pipes.all(|pipe| pipe.coming.is_empty());
    let healed = calm
        && w.node_views(s).iter().all(|view| {
            !view.pods.contains(&false)
                && (view.pods.contains(&true) || view.resolvers.contains(&true))
        });
    let svc = &mut w.svcs[s];
    if healed {
        svc.excused = false;
    }
    svc.created = older(svc.created, COOLDOWN);
    svc.written = older(svc.written, COOLDOWN);
    svc.woken = svc.woken.map(|age| older(age, COOLDOWN));
    svc.deleting = svc.deleting.map(|age| older(age, PATIENCE));
    let status = &mut svc.status;
    let order = status.wake.cmp(&status.sleep);
    status.quiet = status.quiet.map(|age| older(age, COOLDOWN));
    let oldest = COOLDOWN + 1;
    for age in [&mut status.wake, &mut status.sleep] {
        *age = age.map(|age| older(age, oldest));
    }
    // Two stamps that are both too old to matter otherwise still keep their order.
    if status.wake == Some(oldest) && status.sleep == Some(oldest) {
        match order {
            Ordering::Less => status.wake = Some(COOLDOWN),
            Ordering::Greater => status.sleep = Some(COOLDOWN),
            Ordering::Equal => {}
        }
    }
    for pipe in std::iter::once(&mut svc.own)
        .chain(&mut svc.pods_at)
        .chain(&mut svc.resolvers_at)
    {
        pipe.tick();
    }
    for kubelet in &mut svc.kubelets {
        *kubelet = match *kubelet {
            Kubelet::Calm => Kubelet::Calm,
            Kubelet::Sometime(age) => Kubelet::Sometime(age + 1),
            Kubelet::In(left) => Kubelet::In(left.saturating_sub(1)),
        };
    }
}

fn looks(config: &Config, w: &mut World, op: usize, s: usize) -> bool {
    let leads = w.lease.holder == op && w.lease.age < LEASE;
    if w.ops[op].pending.is_some() || !leads && !config.is(Mistake::OldLeaderGoesOn) {
        return false;
    }
    let seen = look(config, w, op, s);
    w.ops[op] = seen.op;
    if seen.fresh {
        w.svcs[s].news[op] = (false, false);
    }
    if !seen.effects.is_empty() {
        w.ops[op].pending = Some(Pending {
            svc: s,
            effects: seen.effects,
            target_changed: false,
            stale_pods: w.ops[op]
                .frozen
                .as_ref()
                .filter(|_| !seen.fresh)
                .map(|f| f[s].pods.clone()),
            evidence: seen.evidence,
        });
    }
    true
}

/// The operator carries out its next effect.
fn applies(config: &Config, w: &mut World, op: usize) -> bool {
    let Some(mut pending) = w.ops[op].pending.take() else {
        return false;
    };
    let (effect, valid_for) = pending.effects.remove(0);
    let s = pending.svc;
    let too_late = valid_for == Some(0) && !config.is(Mistake::OldLeaderGoesOn);
    if too_late || !w.svcs[s].exists {
        return true;
    }
    judge_write(config, w, s, &effect);
    let accepted = apply_effect(config, w, op, &pending, effect);
    if accepted && !pending.effects.is_empty() {
        w.ops[op].pending = Some(pending);
    }
    true
}

fn judge_write(config: &Config, w: &mut World, s: usize, effect: &Effect) {
    if matches!(
        effect,
        Effect::Status(_) | Effect::AddFinalizer | Effect::RemoveFinalizer
    ) {
        return;
    }
    let ours = matches!(effect, Effect::EnsurePrivate | Effect::EnsureSlice(_));
    let foreign = ours && w.svcs[s].foreign;
    w.judge(&Deed::Wrote {
        foreign,
        in_charge: !(config.rivals && s > 0),
    });
}

fn apply_effect(
    config: &Config,
    w: &mut World,
    op: usize,
    pending: &Pending,
    effect: Effect,
) -> bool {
    let s = pending.svc;
    match effect {
        Effect::AddFinalizer => w.svcs[s].finalizer = true,
        Effect::EnsurePrivate => w.svcs[s].private = true,
        Effect::DeletePrivate => w.svcs[s].private = false,
        Effect::EnsureSlice(mask) => w.svcs[s].set_slice(Some(mask)),
        Effect::RemoveSlice => {
            // A deletion that has waited its patience out may leave a service without pods.
            w.svcs[s].excused |= pending.evidence.pointless;
            w.svcs[s].set_slice(None);
        }
        Effect::Keda(keda) => w.svcs[s].keda = Some(keda),
        // A write to a pod is conditional on its version.
        Effect::Mark(_) | Effect::Unmark(_) if pods_moved_on(w, op, pending) => return false,
        Effect::Mark(pods) => pods.into_iter().for_each(|i| mark(w, s, i)),
        Effect::Unmark(pods) => pods.into_iter().for_each(|i| unmark(w, s, i)),
        Effect::Zero { by_redirect } => {
            return scale_to_zero(config, w, op, pending, by_redirect);
        }
        Effect::Wake(n) => return scale_up(config, w, s, n, pending.evidence.wake_justified),
        Effect::RemoveFinalizer => let_go(w, pending),
        Effect::Status(status) => {
            w.judge(&Deed::Stated {
                proxy: status.proxy,
                slice_was_there: pending.evidence.slice,
                asleep: status.asleep,
                was_zero: pending.evidence.zero,
            });
            w.svcs[s].status = status;
        }
    }
    true
}

/// A pod is no longer as it was when the plan was made.
fn pods_moved_on(w: &World, op: usize, pending: &Pending) -> bool {
    let svc = &w.svcs[pending.svc];
    pending
        .stale_pods
        .as_ref()
        .map_or(svc.news[op].1, |pods| *pods != svc.pods)
}

fn mark(w: &mut World, s: usize, i: usize) {
    if let Pod::Up { healthy, .. } = w.svcs[s].pods[i] {
        w.svcs[s].pods[i] = Pod::Up {
            ready: false,
            healthy,
            marked: true,
        };
        if w.svcs[s].kubelets[i] == Kubelet::Calm {
            w.svcs[s].kubelets[i] = Kubelet::Sometime(0);
        }
        w.svcs[s].pods_changed();
    }
}

fn unmark(w: &mut World, s: usize, i: usize) {
    if let Pod::Up {
        healthy,
        marked: true,
        ..
    } = w.svcs[s].pods[i]
    {
        w.judge(&Deed::Unmarked {
            ready_by_itself: healthy,
        });
        w.svcs[s].pods[i] = Pod::Up {
            ready: true,
            healthy,
            marked: false,
        };
        w.svcs[s].kubelets[i] = Kubelet::Calm;
        w.svcs[s].pods_changed();
    }
}

fn scale_to_zero(
    config: &Config,
    w: &mut World,
    op: usize,
    pending: &Pending,
    by_redirect: bool,
) -> bool {
    let s = pending.svc;
    let reckless = config.is(Mistake::OldLeaderGoesOn);
    let refused = pending.target_changed;
    if w.svcs[s].replicas.is_none_or(|n| n == 0) || refused && !reckless {
        return false;
    }
    let facts = ScaledToZero {
        nodes: w.node_views(s),
        pods_in_slices: w.svcs[s].own.seen != 0,
        busy_when_decided: pending.evidence.busy,
        resolver_silent_when_decided: pending.evidence.silent,
        quiet_when_decided: pending.evidence.reading == Said::Quiet,
        since_wake: pending
            .evidence
            .since_wake
            .map(|a| SignedDuration::from_secs(i64::from(a))),
        cooldown: SignedDuration::from_secs(i64::from(COOLDOWN)),
        writer_leads: w.lease.holder == op && w.lease.age < LEASE,
        by_redirect,
    };
    w.judge(&Deed::ScaledToZero(facts));
    w.svcs[s].replicas = Some(0);
    w.svcs[s].by_us = true;
    w.svcs[s].written = 0;
    if by_redirect {
        // The user chose the way that can lose a connection at the edge.
        w.svcs[s].excused = true;
    }
    target_changed(w, s);
    true
}

fn scale_up(config: &Config, w: &mut World, s: usize, n: u8, justified: bool) -> bool {
    let Some(from) = w.svcs[s].replicas else {
        return false;
    };
    // The write is conditional: from zero only.
    if from != 0 && !config.is(Mistake::WakeLowers) {
        return false;
    }
    w.judge(&Deed::Woke {
        from: u32::from(from),
        to: u32::from(n),
        justified,
    });
    let svc = &mut w.svcs[s];
    (svc.replicas, svc.by_us, svc.written, svc.woken) = (Some(n), true, 0, Some(0));
    target_changed(w, s);
    true
}

fn let_go(w: &mut World, pending: &Pending) {
    let s = pending.svc;
    let svc = &w.svcs[s];
    let deed = Deed::LetGo {
        leftovers: svc.slice.is_some() || svc.private,
        awake_or_pointless: svc.replicas != Some(0) || pending.evidence.pointless || !svc.by_us,
        keda_paused_by_us: matches!(svc.keda, Some(Keda::Held | Keda::Pinned)),
    };
    w.judge(&deed);
    w.svcs[s].finalizer = false;
    w.svcs[s].exists = false;
    for r in 0..w.res.len() {
        w.res[r].carried[s].listens = false;
    }
}

fn arrives(config: &Config, w: &mut World, s: usize, _node: usize, backend: Backend) -> bool {
    w.budget.clients -= 1;
    let excused = w.svcs[s].excused;
    match backend {
        Backend::Nothing => w.judge(&Deed::Connected {
            answered: false,
            excused,
        }),
        Backend::Pod(i) => {
            // A sick pod that its own kubelet took out of rotation answers for itself until nodes follow;
            // one that is ready only because we said so is our fault.
            let answered = match w.svcs[s].pods[i] {
                Pod::Up { ready, healthy, .. } => healthy || !ready,
                _ => false,
            };
            w.judge(&Deed::Connected { answered, excused });
        }
        // Assumed: connections to a killed resolver are lost until the nodes follow.
        Backend::Resolver(r) if !w.res[r].up => {}
        Backend::Resolver(r) => {
            let listens = w.res[r].carried[s].listens;
            w.judge(&Deed::Connected {
                answered: listens,
                excused,
            });
            w.res[r].carried[s].last = Some(0);
            admit(config, w, r, s);
        }
    }
    true
}

/// A resolver takes a request in, by the real waiting rooms.
fn admit(config: &Config, w: &mut World, r: usize, s: usize) {
    let mut rooms = rooms(config, w, r);
    let room = if config.is(Mistake::OnePoolForAll) {
        0
    } else {
        s
    };
    match rooms.admit(&key(room), &limits().room(None), 0, now()) {
        Ok(_) => w.res[r].carried[s].held += 1,
        Err(_) => {
            let first = w.res[r].carried[s].held + w.res[r].carried[s].held_again == 0;
            w.judge(&Deed::RefusedFull {
                first_of_its_service: first,
            });
        }
    }
}

/// The waiting rooms of one resolver as they stand.
fn rooms(config: &Config, w: &World, r: usize) -> WaitingRooms {
    let mut rooms = WaitingRooms::new(&limits());
    for (s, carried) in w.res[r].carried.iter().enumerate() {
        let room = if config.is(Mistake::OnePoolForAll) {
            0
        } else {
            s
        };
        for _ in 0..carried.held + carried.held_again {
            rooms.admit(&key(room), &limits().room(None), 0, now()).ok();
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

fn forwards(config: &Config, w: &mut World, r: usize, s: usize, outcome: Outcome) -> bool {
    let Some((right_service, pod_usable)) = usable_pod(config, w, s) else {
        return false;
    };
    let again = w.res[r].carried[s].held == 0;
    let room = if config.is(Mistake::OnePoolForAll) {
        0
    } else {
        s
    };
    if rooms(config, w, r).release(&key(room), 1).is_empty() {
        return false;
    }
    let times = if again { 2 } else { 1 };
    w.judge(&Deed::Delivered {
        times,
        right_service,
        pod_usable,
    });
    one_less(w, r, s);
    match outcome {
        Outcome::Answered => {}
        Outcome::Streams => w.res[r].carried[s].open += 1,
        Outcome::BreaksAfterFirstByte => {
            w.budget.faults -= 1;
            if config.is(Mistake::SendsTwice) {
                w.res[r].carried[s].held_again += 1;
            }
        }
    }
    true
}

/// A resolver's wake reaches an operator, which decides with the real `wake` on fresh facts.
fn wakes(config: &Config, w: &mut World, r: usize, s: usize, op: usize) -> bool {
    w.res[r].carried[s].woke = true;
    let mut book = w.ops[op].book.clone();
    let o = observed(config, w, op, s, &w.svcs[s], &mut book);
    if let WakeDecision::Scale(n) = wake(&config.spec(), &o) {
        scale_up(config, w, s, u8::try_from(n).unwrap(), true);
    }
    true
}
