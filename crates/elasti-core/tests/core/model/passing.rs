//! How time passes in the modelled cluster: everything ages, and nothing is later than the assumptions allow.

use std::cmp::Ordering;

use crate::model::actions::needs_replication;
use crate::model::config::{COOLDOWN, Config, HOLD, LEASE, SETTLE, TIMEOUT};
use crate::model::observe::aged;
use crate::model::world::{Effect, Kubelet, Second, Status, Svc, World, older};

/// One unit of time, unless something would then be later than the assumptions allow.
pub fn time_passes(config: &Config, w: &mut World) -> bool {
    for s in 0..w.svcs.len() {
        let svc = &w.svcs[s];
        let pipes = || {
            std::iter::once(&svc.own)
                .chain(&svc.pods_at)
                .chain(&svc.resolvers_at)
                .chain(svc.second.iter().flat_map(Second::pipes))
        };
        let overdue = pipes().any(|pipe| !pipe.may_wait(SETTLE));
        let tick_due = svc.kubelets.iter().any(|k| match k {
            Kubelet::In(left) => *left == 0,
            Kubelet::Sometime(age) => age + 1 >= config.tick_period(),
            Kubelet::Idle => false,
        });
        if overdue || tick_due || needs_replication(config, w, s) {
            return false;
        }
    }
    // A single operator renews in time; only a second one could take over.
    if config.operators > 1 {
        w.lease.age = older(w.lease.age, LEASE);
    }
    for s in 0..w.svcs.len() {
        age_service(config, w, s);
    }
    for route in w.res.iter_mut().flat_map(|r| &mut r.routes) {
        route.last = route.last.map(|age| older(age, COOLDOWN.max(SETTLE)));
        if route.held + route.held_again > 0 {
            route.held_for = older(route.held_for, HOLD);
        }
        let ended = |(left, pods): (u8, u8)| (left > 1).then(|| (left - 1, pods));
        route.promise = route.promise.and_then(ended);
    }
    for op in &mut w.ops {
        op.memory = std::mem::take(&mut op.memory)
            .into_iter()
            .map(|m| aged(config, m, 1))
            .collect();
        for asked in &mut op.wake_requests {
            *asked = { *asked }
                .map(|(age, answered)| (age + 1, answered))
                .filter(|(age, _)| *age <= COOLDOWN);
        }
        for woken in &mut op.wakes {
            *woken = { *woken }.map(|age| age + 1).filter(|age| *age <= COOLDOWN);
        }
        for left in &mut op.promised {
            *left = left.saturating_sub(1);
        }
        // What a cache has that stopped following the store, and what is about to be written, has its times all the same:
        // otherwise what a user requested before a zero would move past it, and be a new request.
        { op.frozen.iter_mut().flatten() }.for_each(|svc| age_times(config, svc));
        for (effect, valid_for) in op.pending.iter_mut().flat_map(|p| &mut p.effects) {
            *valid_for = valid_for.map(|left| left.saturating_sub(1));
            if let Effect::Status(status) = effect {
                age_status(status);
            }
        }
    }
    true
}

fn age_service(config: &Config, w: &mut World, s: usize) {
    // An excuse ends when every node has applied what is published, and all of it answers.
    let svc = &w.svcs[s];
    let up_to_date = std::iter::once(&svc.own)
        .chain(&svc.pods_at)
        .chain(&svc.resolvers_at)
        .chain(svc.second.iter().flat_map(Second::pipes))
        .all(|pipe| pipe.coming.is_empty());
    let healed = up_to_date
        && w.node_views(s)
            .iter()
            .chain(&w.second_views(s))
            .all(|view| {
                !view.pods.contains(&false)
                    && (view.pods.contains(&true) || view.resolvers.contains(&true))
            });
    let svc = &mut w.svcs[s];
    if healed {
        (svc.excused, svc.pods_broken, svc.net_gone) = (false, false, false);
        { svc.second.iter_mut() }.for_each(|one| one.net_gone = false);
    }
    // The replica controller follows within the settle time, like every other.
    svc.owed = { svc.owed }
        .map(|(to, age)| (to, age + 1))
        .filter(|(_, age)| *age < SETTLE);
    age_times(config, svc);
    for pipe in std::iter::once(&mut svc.own)
        .chain(&mut svc.pods_at)
        .chain(&mut svc.resolvers_at)
        .chain(svc.second.iter_mut().flat_map(Second::pipes_mut))
    {
        pipe.tick();
    }
    for kubelet in &mut svc.kubelets {
        *kubelet = match *kubelet {
            Kubelet::Idle => Kubelet::Idle,
            Kubelet::Sometime(age) => Kubelet::Sometime(age + 1),
            Kubelet::In(left) => Kubelet::In(left.saturating_sub(1)),
        };
    }
}

/// Every time that an object of the service tells is one unit longer ago.
fn age_times(config: &Config, svc: &mut Svc) {
    for age in &mut svc.ready_for {
        *age = older(*age, config.most_ready());
    }
    svc.created = older(svc.created, COOLDOWN);
    svc.written = older(svc.written, COOLDOWN);
    // Longer ago than the oldest request for sleep that counts: which of the two was first stays known.
    for age in [&mut svc.woken, &mut svc.raised] {
        *age = age.map(|age| older(age, COOLDOWN + 1));
    }
    svc.served = svc.served.map(|age| older(age, SETTLE + COOLDOWN));
    // A request as old as a cooldown has no effect beyond the cooldown's.
    for user_request in [&mut svc.wake_request, &mut svc.sleep_request] {
        *user_request = user_request
            .map(|age| age + 1)
            .filter(|age| *age <= COOLDOWN);
    }
    svc.wake_request_answered &= svc.wake_request.is_some();
    svc.wake_request_served &= svc.wake_request.is_some();
    svc.deleting = svc.deleting.map(|age| older(age, TIMEOUT));
    age_status(&mut svc.status);
}

fn age_status(status: &mut Status) {
    let order = status.wake.cmp(&status.sleep);
    status.quiet = status.quiet.map(|age| older(age, COOLDOWN));
    let oldest = COOLDOWN + 1;
    status.contended = status.contended.map(|age| older(age, oldest));
    for age in [&mut status.wake, &mut status.sleep] {
        *age = age.map(|age| older(age, oldest));
    }
    // Two times that are both too old to matter otherwise still keep their order.
    if status.wake == Some(oldest) && status.sleep == Some(oldest) {
        match order {
            Ordering::Less => status.wake = Some(COOLDOWN),
            Ordering::Greater => status.sleep = Some(COOLDOWN),
            Ordering::Equal => {}
        }
    }
}
