//! Runs a resolver in a simulated world, seed by seed, and checks the ledger of every request at the end of each.
//! Time is simulated: a minute of it takes milliseconds.
//!
//! `ELASTI_SIM_SEEDS=N` runs so many seeds (500 by default), from `ELASTI_SIM_FIRST` (0 by default) on;
//! `ELASTI_SIM_SEED=k` runs one, twenty times and with its counts.
//! A seed fixes the world and the network; the order in which tokio runs what is ready, and of hash maps, stays free, so
//! a rare failure may need its seed more than once.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value
)]

mod clients;
mod kubernetes;
mod ledger;
mod pods;
mod world;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clients::Client;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use world::World;

type Counts = BTreeMap<&'static str, u64>;

/// What must have happened somewhere, or the run shows nothing.
const MUST_HAPPEN: [&str; 19] = [
    "API outages",
    "clients disconnected",
    "closed without a response",
    "drains",
    "first byte late",
    "held at once",
    "operator outages",
    "pod broke it (502)",
    "pods crashed",
    "probes",
    "requests ahead of the kubelet",
    "pods passed over",
    "refusals (503)",
    "sleeps",
    "sleeps cancelled",
    "stalls",
    "wakes",
    "wakes late",
    "wakes lost",
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number"))
    })
}

#[test]
fn every_accepted_request_ends_as_promised_in_every_seed() {
    if let Some(seed) = number("ELASTI_SIM_SEED") {
        for _ in 0..20 {
            let (counts, violations) = run(seed);
            println!("seed {seed}: {counts:?}");
            assert!(violations.is_empty(), "{}", violations.join("\n"));
        }
        return;
    }
    let seeds = number("ELASTI_SIM_SEEDS").unwrap_or(500);
    let first = number("ELASTI_SIM_FIRST").unwrap_or(0);
    let (next, total, failed) = (
        AtomicU64::new(first),
        Mutex::new(Counts::new()),
        Mutex::new(Vec::new()),
    );
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let (counts, violations) = run(seed);
                    failed.lock().extend(
                        violations
                            .into_iter()
                            .map(|one| format!("seed {seed}: {one}")),
                    );
                    for (what, count) in counts {
                        *total.lock().entry(what).or_default() += count;
                    }
                }
            });
        }
    });
    let (total, failed) = (total.into_inner(), failed.into_inner());
    println!("{seeds} seeds from {first} on:");
    for (what, count) in &total {
        println!("  {count:8} {what}");
    }
    assert!(
        failed.is_empty(),
        "{} violations:\n{}",
        failed.len(),
        failed
            .iter()
            .take(20)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    );
    if seeds >= 100 {
        let missing: Vec<_> = MUST_HAPPEN
            .iter()
            .filter(|what| total.get(*what).copied().unwrap_or(0) == 0)
            .collect();
        assert!(missing.is_empty(), "never happened: {missing:?}");
    }
}

fn run(seed: u64) -> (Counts, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(one_seed(seed))
}

async fn one_seed(seed: u64) -> (Counts, Vec<String>) {
    let world = World::start(seed);
    world.ready().await;
    let mut rng = world.fork();
    let mut clients = JoinSet::new();
    for at in 0..rng.between(8, 30) {
        let plan = &world.plans[usize::try_from(rng.between(0, 2)).unwrap()];
        let client = Client {
            world: world.clone(),
            service: plan.name,
            port: plan.listen_port,
            tcp: plan.tcp,
            name: format!("c{at}"),
            rng: rng.fork(),
        };
        // Half of them come in herds.
        let start = if rng.percent(50) {
            rng.millis(0, 200) * u32::try_from(rng.between(1, 100)).unwrap()
        } else {
            rng.millis(0, 40_000)
        };
        clients.spawn(async move {
            sleep(start).await;
            client.run().await;
        });
    }
    let sampled = world.clone();
    let sampler = tokio::spawn(async move {
        let mut most = 0;
        loop {
            sleep(Duration::from_millis(100)).await;
            let (held, most_held) = (sampled.held(), sampled.ledger.most_held());
            if held > most_held {
                let what = format!("R8: {held} held, at most {most_held} can be");
                return sampled.ledger.report_violation(what);
            }
            for _ in most..held {
                sampled.ledger.count("held at once");
            }
            most = most.max(held);
        }
    });
    let mut violations = Vec::new();
    let all = timeout(Duration::from_secs(900), async {
        while let Some(ended) = clients.join_next().await {
            if let Err(error) = ended {
                violations.push(format!("a client: {error}"));
            }
        }
    });
    let hung = all.await.is_err();
    if hung {
        violations.push("clients never ended".to_owned());
    }
    violations.extend(world.slots_are_free().await.err());
    violations.extend(world.drains_end().await.err());
    sampler.abort();
    for _ in 0..world.network.refused() {
        world.ledger.count("pods passed over");
    }
    violations.extend(world.ledger.violations());
    (world.ledger.counts(), violations)
}
