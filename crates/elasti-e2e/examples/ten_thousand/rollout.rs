//! A rollout of the resolvers while everything sleeps: how long it takes, and what clients see of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use elasti_e2e::{TestEnv, get};
use tokio::time::{Instant, sleep};

use crate::objects;
use crate::processes::{Installation, Kind};
use crate::rest;

/// Clients that wake one sleeping service after the other, each as fast as it is answered, with this pause.
const CLIENTS: usize = 4;
const PAUSE: Duration = Duration::from_millis(500);
/// The longest that the slices may take to follow.
const LIMIT: Duration = Duration::from_mins(10);

/// As a Deployment with `maxUnavailable: 0` does it: a new one is ready, then an old one ends.
pub(crate) async fn tell(env: &TestEnv, installation: &mut Installation, services: usize) {
    let ends = Arc::new(AtomicBool::new(false));
    let next = Arc::new(AtomicUsize::new(services - 1));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let visit = visit(env.clone(), next.clone(), services / 2, ends.clone());
            tokio::spawn(visit)
        })
        .collect();
    let started = Instant::now();
    let mut shutdowns = Vec::new();
    let old: Vec<usize> = { 0..installation.processes.len() }
        .filter(|index| installation.processes[*index].kind == Kind::Resolver)
        .collect();
    for index in old.into_iter().rev() {
        installation.add(Kind::Resolver).await;
        let old = installation.processes.remove(index);
        env.delete_pod(&old.pod).await;
        let ending = Instant::now();
        let pod = old.pod.clone();
        old.end().await;
        shutdowns.push(ending.elapsed());
        env.remove_pod(&pod).await;
    }
    let left: Vec<String> = installation.each(|process| process.address.to_string());
    let current = |slices: &[Vec<String>]| {
        slices
            .iter()
            .flatten()
            .all(|address| left.contains(address))
    };
    while !current(&rest::slices(env).await) {
        assert!(
            started.elapsed() < LIMIT,
            "slices name resolvers that have ended"
        );
        sleep(Duration::from_millis(200)).await;
    }
    let took = started.elapsed();
    ends.store(true, Ordering::Relaxed);
    let (mut answered, mut lost) = (0, Vec::new());
    for client in clients {
        let (good, bad) = client.await.unwrap();
        answered += good;
        lost.extend(bad);
    }
    println!(
        "rollout of the resolvers: {took:.1?}, shutdowns {shutdowns:.1?}; clients: {answered} answered, {} lost {lost:?}",
        lost.len()
    );
}

/// Visits services downwards to `least`; gives how many answered, and what the others saw.
async fn visit(
    env: TestEnv,
    next: Arc<AtomicUsize>,
    least: usize,
    ends: Arc<AtomicBool>,
) -> (usize, Vec<String>) {
    let (mut answered, mut lost) = (0, Vec::new());
    while !ends.load(Ordering::Relaxed) {
        let number = next.fetch_sub(1, Ordering::Relaxed);
        if number < least {
            // The others are left to the wakes.
            break;
        }
        let address = objects::address(&env, number).await;
        match get(&address, "/rollout").await {
            Ok(answer) if answer.code() == 200 => answered += 1,
            other => lost.push(format!("{}: {other:?}", objects::name(number))),
        }
        sleep(PAUSE).await;
    }
    (answered, lost)
}
