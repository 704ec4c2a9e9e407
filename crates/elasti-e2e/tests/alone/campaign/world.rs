//! One run: an environment with a virtual clock of its own, which stands still while a task can run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use elasti_core::observed;
use elasti_e2e::{OPERATOR_USER, RESOLVER_USER, TestEnv};
use elasti_fake_cluster::FakeCluster;
use elasti_fake_cluster::faults::{Call, Faults};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::cases::Case;
use super::end_state::{self, differences};
use super::observer::Observer;
use super::scenario::{Scenario, poll};

/// What became of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) failure: Option<String>,
    pub(crate) struck: bool,
    pub(crate) calls: Vec<Call>,
    pub(crate) events: Vec<Arc<Call>>,
    pub(crate) end: Value,
}

/// A paused clock jumps to the next timer whenever no task can run at this very moment, also while bytes are on
/// their way between sockets. With this beat the next timer is never far: a hop costs at most so much.
const BEAT: Duration = Duration::from_millis(4);
/// How slow one of the two nodes is, below the settle time of two seconds.
const LAG: Duration = Duration::from_millis(1500);
/// How long a crashed process is away.
const RESTART: Duration = Duration::from_millis(500);

/// Runs a scenario from beginning to end.
pub(crate) fn run_scenario(
    scenario: Scenario,
    case: Option<&Case>,
    end: Option<&Value>,
) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let fake_cluster: Mutex<Option<Arc<FakeCluster>>> = Mutex::default();
    let mut outcome = Outcome::default();
    let run = AssertUnwindSafe(|| {
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::spawn(async {
                loop {
                    sleep(BEAT).await;
                }
            });
            run(scenario, case, end, &fake_cluster, &mut outcome).await;
        });
    });
    if let Err(panic) = catch_unwind(run) {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_else(|| "it panicked".to_owned());
        outcome.failure = Some(text);
        // What was called last tells most about why.
        if let Some(fake_cluster) = fake_cluster.lock().as_ref() {
            outcome.struck = !fake_cluster.server.faults().is_armed();
        }
    }
    // First whatever still runs there, then its addresses.
    drop(runtime);
    if let Some(fake_cluster) = fake_cluster.lock().take() {
        fake_cluster.server.faults().on_crash(|_| {});
    }
    outcome
}

async fn run(
    scenario: Scenario,
    case: Option<&Case>,
    end: Option<&Value>,
    keep: &Mutex<Option<Arc<FakeCluster>>>,
    outcome: &mut Outcome,
) {
    let env = TestEnv::with(|config| {
        config.times = observed::Settings::default();
        config.polling_interval = Duration::from_secs(1);
    })
    .await;
    *keep.lock() = Some(env.hand_over_fake_cluster());
    let app = scenario.prepare(&env).await;
    env.fake_cluster().nodes[1].set_proxy_lag(LAG);
    // Until the slow node knows what was prepared.
    sleep(Duration::from_secs(3)).await;
    let faults = env.fake_cluster().server.faults();
    restart_after_crashes(&env);

    let observer = Observer::new(&env, scenario);
    let (calls_before, events_before) = (faults.calls(), faults.delivered().len());
    if let Some(case) = case {
        case.arm(faults);
    }
    scenario.play(&env, &app, &observer).await;
    // The recording shows what a scenario is made of; a run shows that it ends like that.
    match end {
        None => outcome.end = rest(&env, &app).await,
        Some(end) => {
            until_struck(faults).await;
            poll("it ends as it would have", async || {
                let now = end_state::snapshot(&env, &app).await;
                differences(end, &now)
            })
            .await;
        }
    }
    outcome.calls = faults.journal();
    outcome
        .calls
        .retain(|call| call.number > calls_before && ours(call));
    outcome.events = faults.delivered().split_off(events_before);
    outcome.events.retain(|call| ours(call));
    outcome.struck = case.is_some() && !faults.is_armed();
    faults.heal();

    let since = Instant::now();
    let mut wrong = rest_without_writes(faults).await;
    let end = end.unwrap_or(&outcome.end);
    wrong.extend(differences(end, &end_state::snapshot(&env, &app).await));
    wrong.extend(observer.violations(&env, since));

    // A request that comes now is answered.
    scenario.last_visit(&env, &app).await;
    let lost = env.requests().lost();
    wrong.extend(
        lost.iter()
            .map(|entry| format!("lost: {:?}", entry.outcome)),
    );
    if !wrong.is_empty() {
        outcome.failure = Some(wrong.join("; "));
    }
}

/// Faults at calls that come by the clock may strike only after the scenario has arrived.
async fn until_struck(faults: &Faults) {
    let started = Instant::now();
    while faults.is_armed() && started.elapsed() < Duration::from_secs(45) {
        sleep(Duration::from_millis(500)).await;
    }
}

/// The operator stops writing, soon.
async fn rest_without_writes(faults: &Faults) -> Vec<String> {
    let mut written = Vec::new();
    for _ in 0..10 {
        let before = faults.calls();
        sleep(Duration::from_secs(5)).await;
        let calls = faults.journal().into_iter();
        let writes = calls.filter(|call| {
            call.number > before
                && call.user == OPERATOR_USER
                && call.verb.writes()
                && !call.kind.ends_with("reviews")
        });
        written = writes
            .map(|call| format!("written at rest: {call}"))
            .collect();
        if written.is_empty() {
            break;
        }
    }
    written
}

/// Waits until nothing changes any more, and gives that.
async fn rest(env: &TestEnv, app: &elasti_e2e::App) -> Value {
    let mut before = end_state::snapshot(env, app).await;
    loop {
        sleep(Duration::from_secs(15)).await;
        let now = end_state::snapshot(env, app).await;
        if now == before {
            return now;
        }
        before = now;
    }
}

fn ours(call: &Call) -> bool {
    call.user == OPERATOR_USER || call.user == RESOLVER_USER
}

/// A crash ends the operator at once; a new one starts with nothing but what is in the cluster.
fn restart_after_crashes(env: &TestEnv) {
    let (crashes, mut crashed) = tokio::sync::mpsc::unbounded_channel();
    let victim = env.clone();
    env.fake_cluster().server.faults().on_crash(move |_| {
        victim.crash_operator(0);
        let _ = crashes.send(());
    });
    let env = env.clone();
    tokio::task::spawn_local(async move {
        while crashed.recv().await.is_some() {
            env.kill_operator(0).await;
            sleep(RESTART).await;
            env.restart_operator(0).await;
        }
    });
}
