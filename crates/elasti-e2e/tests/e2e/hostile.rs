//! The hostile tenant suite (docs/security.md): what the admin of one namespace can do, while a neighbour in another one
//! sleeps and wakes. Nothing of the neighbour's is lost, and it costs at most twice the work that it costs alone.

mod attacks;
mod switched_off;

use std::time::Duration;

use elasti_e2e::{App, OPERATOR_USER, TestEnv};
use elasti_fake_cluster::faults::Call;
use tokio::time::Instant;

use attacks::{Tenant, WAVES};

/// What one sleep and one wake of the neighbour took.
struct Cycle {
    /// The API calls that the operator made for it: conflicts, retries and steps that were undone all show here, and no
    /// clock is in it.
    calls: usize,
    /// From the request that woke it to its answer; only printed.
    wake: Duration,
}

async fn cycle(env: &TestEnv, web: &App) -> Cycle {
    let faults = env.fake_cluster().server.faults();
    let before = faults.calls();
    web.fall_asleep().await;
    let sent = Instant::now();
    web.visit().await;
    let wake = sent.elapsed();
    web.busy();
    web.until_serving().await;
    let for_neighbour = |call: &&Call| {
        call.number > before && call.user == OPERATOR_USER && call.namespace == "default"
    };
    let calls = faults.journal().iter().filter(for_neighbour).count();
    Cycle { calls, wake }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attack_of_one_namespace_costs_a_neighbour_more_than_twice_the_work_or_a_request() {
    // A reading counts for three rounds: with rounds of 200 ms a busy machine alone would make them too old.
    let env = TestEnv::with(|config| config.polling_interval = Duration::from_secs(1)).await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    let mut alone = 0;
    for _ in 0..2 {
        let Cycle { calls, wake } = cycle(&env, &web).await;
        println!("alone: {calls} calls, answered after {wake:?}");
        alone = alone.max(calls);
    }
    let mut tenant = Tenant::start(&env).await;
    for wave in WAVES {
        // None ends before the last one: the later ones come on top of all before.
        for attack in wave {
            attack.begin(&mut tenant).await;
        }
        let Cycle { calls, wake } = cycle(&env, &web).await;
        println!("{wave:?}: {calls} calls, answered after {wake:?}");
        assert!(calls <= 2 * alone, "{wave:?}: {calls}, alone {alone}");
        tenant.assert_goes_on();
    }
    env.requests().assert_nothing_lost();
}
