//! What 10,000 sleeping services cost, with 2 operators and 2 resolvers in processes of their own: memory, API calls at
//! rest, restarts, a rollout of the resolvers under clients, and many wakes at once.
//! It prints figures: `cargo run --release -p elasti-e2e --example ten_thousand [-- SERVICES]` on the simulated cluster,
//! `cargo xtask bench ten-thousand` on a real API server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss
)]

mod calls;
mod objects;
mod pods;
mod processes;
mod rest;
mod rollout;
mod wakes;

use std::path::Path;

use elasti_e2e::TestEnv;
use elasti_fake_cluster::prometheus::Reading;
use tokio::time::Instant;

use crate::calls::Calls;
use crate::objects::LOAD;
use crate::processes::{Installation, Kind, Process};

/// The memory of a process without services is measured with these few, which are among the many.
const FEW: usize = 20;
const MANY: usize = 10_000;

#[tokio::main]
async fn main() {
    // Each service is a socket of its own in several places.
    elasti_runtime::file_limit::raise();
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [kind, rest @ ..] if Kind::from_word(kind).is_some() => {
            processes::run(Kind::from_word(kind).unwrap(), rest).await;
        }
        [] => on_fake_cluster(MANY).await,
        [many] => on_fake_cluster(number(many)).await,
        [many, kubeconfig, audit_log] => {
            let env = TestEnv::on_api_server(Path::new(kubeconfig)).await;
            tokio::spawn(pods::run(env.clone()));
            measure(&env, &Calls::AuditLog(audit_log.into()), number(many)).await;
        }
        _ => panic!("usage: ten_thousand [SERVICES [KUBECONFIG AUDIT_LOG]]"),
    }
}

fn number(word: &str) -> usize {
    word.parse().expect("how many services")
}

async fn on_fake_cluster(many: usize) {
    let env = TestEnv::with(|config| {
        (config.operators, config.resolvers, config.nodes) = (0, 0, 1);
    })
    .await;
    measure(&env, &Calls::Journal(env.clone()), many).await;
}

async fn measure(env: &TestEnv, calls: &Calls, many: usize) {
    env.set_reading(LOAD, Reading::Value(0.0));
    let mut installation = Installation::new(env).await;
    for kind in [
        Kind::Operator,
        Kind::Operator,
        Kind::Resolver,
        Kind::Resolver,
    ] {
        installation.add(kind).await;
    }
    objects::declare(env, 0..FEW).await;
    rest::until_written(env, calls, FEW).await;
    let before: Vec<usize> = installation.each(Process::resident_kib);

    let started = Instant::now();
    objects::declare(env, FEW..many).await;
    rest::until_written(env, calls, many).await;
    println!(
        "{many} services created, all asleep and redirected after {:.1?}",
        started.elapsed()
    );
    for (process, before) in installation.processes.iter().zip(&before) {
        tell_memory(process, *before, many - FEW);
    }
    rest::tell(
        calls,
        installation.count(Kind::Operator),
        installation.count(Kind::Resolver),
    )
    .await;
    tell_restarts(&mut installation, &before, many - FEW).await;
    rollout::tell(env, &mut installation, many).await;
    // Together they are fewer than half of all: the rollout has woken some of the others.
    for at_once in [1, 100.min(many / 8), 1_000.min(many / 3)] {
        wakes::tell(env, at_once).await;
    }
}

fn tell_memory(process: &Process, before: usize, many: usize) {
    let each = |kib: usize| kib.saturating_sub(before) as f64 / many as f64;
    let (now, most) = (process.resident_kib(), process.most_resident_kib());
    println!(
        "{}: {before} KiB without them, {now} KiB now ({:.1} KiB each), at most {most} KiB ({:.1} KiB each)",
        process.name(),
        each(now),
        each(most),
    );
}

/// One of each is killed and started again with the same address.
async fn tell_restarts(installation: &mut Installation, before: &[usize], many: usize) {
    for index in [0, 2] {
        let took = installation.restart(index).await;
        let process = &installation.processes[index];
        println!(
            "{} killed and started: ready after {took:.1?}",
            process.name()
        );
        tell_memory(process, before[index], many);
    }
}
