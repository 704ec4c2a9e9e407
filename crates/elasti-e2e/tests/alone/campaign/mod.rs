//! The crash campaign: six end-to-end tests, each again with one fault at every call that it makes and every event that it receives.
//! Time is virtual: the clock of a run stands still while a task of it can run.
//!
//! `ELASTI_CAMPAIGN_RUNS` is how many runs to choose (`all` for every one), `ELASTI_CAMPAIGN_SEED` chooses them,
//! `ELASTI_CAMPAIGN_ONLY` runs those whose names contain it.

mod cases;
mod end_state;
mod observer;
mod scenario;
mod world;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use elasti_fake_cluster::random::Randomness;
use parking_lot::Mutex;

use cases::{Case, Recording, all_cases};
use scenario::Scenario;
use world::{Outcome, run_scenario};

/// Enough for every change of a build; the whole campaign is `cargo xtask campaign`.
const SAMPLE: usize = 60;

/// A run takes less than a second; a machine that is busy with something else may take many times that.
const NEVER: Duration = Duration::from_secs(240);

fn variable(name: &str) -> Option<String> {
    std::env::var(name)
        .ok()
        .filter(|user_request| !user_request.is_empty())
}

/// Runs everything, two at a time on two cores, and gives the outcomes in order.
fn run_all(cases: &[Case], recordings: &BTreeMap<Scenario, Recording>) -> Vec<Outcome> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let under_way = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let end = &recordings[&case.scenario].end;
                    under_way.lock().insert(case.to_string(), Instant::now());
                    let outcome = run_scenario(case.scenario, Some(case), Some(end));
                    under_way.lock().remove(&case.to_string());
                    if let Some(why) = &outcome.failure {
                        println!("FAILED {case}: {why}");
                    }
                    let mut outcomes = outcomes.lock();
                    outcomes.push(outcome);
                    if outcomes.len() % 100 == 0 {
                        println!("{} runs", outcomes.len());
                    }
                }
            });
        }
        scope.spawn(|| {
            while outcomes.lock().len() < cases.len() {
                fail_if_one_never_ends(&under_way.lock());
                std::thread::sleep(Duration::from_millis(200));
            }
        });
    });
    outcomes.into_inner()
}

/// The virtual clock moves only while no task can run, so a busy loop stops it: no timeout inside of the run would pass,
/// and nothing outside would say which run it was.
fn fail_if_one_never_ends(under_way: &BTreeMap<String, Instant>) {
    for (case, since) in under_way {
        if since.elapsed() > NEVER {
            println!("FAILED {case}: it never ends: a task in it runs without a pause");
            std::process::exit(1);
        }
    }
}

/// The cases to run: all, or as many as variable, chosen by a seed.
fn choose(mut all: Vec<Case>) -> Vec<Case> {
    if let Some(part) = variable("ELASTI_CAMPAIGN_ONLY") {
        all.retain(|case| case.to_string().contains(&part));
        return all;
    }
    let count = match variable("ELASTI_CAMPAIGN_RUNS").as_deref() {
        Some("all") => return all,
        Some(number) => number.parse().expect("a number or `all`"),
        None => SAMPLE,
    };
    let seed = variable("ELASTI_CAMPAIGN_SEED").map(|seed| seed.parse().expect("a number"));
    let seed = seed.unwrap_or(1);
    println!("chosen by ELASTI_CAMPAIGN_SEED={seed}");
    let random = Randomness::seeded(seed);
    let mut chosen = Vec::new();
    while chosen.len() < count && !all.is_empty() {
        chosen.push(all.swap_remove(random.below(all.len())));
    }
    chosen
}

fn record(scenario: Scenario) -> Recording {
    let outcome = run_scenario(scenario, None, None);
    assert_eq!(outcome.failure, None, "{scenario} without any fault");
    let Outcome {
        calls, events, end, ..
    } = outcome;
    println!("{scenario}: {} calls, {} events", calls.len(), events.len());
    Recording { calls, events, end }
}

#[test]
fn an_app_whose_service_a_late_read_does_not_show_falls_asleep_all_the_same() {
    let _alone = crate::ALONE.blocking_lock();
    let recording = record(Scenario::GoingToSleep);
    let mut cases = all_cases(Scenario::GoingToSleep, &recording);
    cases.retain(|case| {
        let name = case.to_string();
        name.contains("get services/") && name.contains("StaleRead { versions_back: 40 }")
    });
    assert!(!cases.is_empty());
    for case in cases {
        let outcome = run_scenario(case.scenario, Some(&case), Some(&recording.end));
        assert_eq!(outcome.failure, None, "{case}");
        assert!(outcome.struck, "{case}");
    }
}

#[test]
fn whatever_goes_wrong_at_any_call_everything_ends_as_it_would_have_and_no_client_notices() {
    let _alone = crate::ALONE.blocking_lock();
    let started = Instant::now();
    let mut recordings = BTreeMap::new();
    for scenario in Scenario::ALL {
        recordings.insert(scenario, record(scenario));
    }
    let all: Vec<Case> = recordings
        .iter()
        .flat_map(|(scenario, recording)| all_cases(*scenario, recording))
        .collect();
    let total = all.len();
    let chosen = choose(all);
    let outcomes = run_all(&chosen, &recordings);
    let struck = outcomes.iter().filter(|outcome| outcome.struck).count();
    let failed = outcomes.iter().filter(|outcome| outcome.failure.is_some());
    let failed = failed.count();
    println!(
        "{} runs of {total}: {failed} failed, the fault struck in {struck}, {:.0} s",
        outcomes.len(),
        started.elapsed().as_secs_f32()
    );
    assert_eq!(failed, 0);
    assert!(
        struck * 10 >= outcomes.len() * 9,
        "a campaign whose faults do not strike shows nothing"
    );
}
