//! The same attacks where the protection is switched off by a setting: each does harm the neighbour, so the suite can fail.

use elasti_e2e::{App, OPERATOR_USER, TestEnv, blueprint, until};

use super::attacks::{AAA, Tenant, wake};

/// An environment whose one operator differs.
async fn env_with(change: impl FnOnce(&mut elasti_operator::Settings)) -> (TestEnv, App) {
    let env = TestEnv::with(|config| config.operators = 0).await;
    let client = env.client_as("elasti-operator-controller-manager").await;
    env.add_operator_with(client, change).await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    (env, web)
}

/// How many writes of the operator in the attacker's namespace have hung.
fn hung(env: &TestEnv) -> usize {
    let journal = env.fake_cluster().server.faults().journal();
    let hangs = |call: &&elasti_fake_cluster::faults::Call| {
        call.user == OPERATOR_USER && call.namespace == AAA && call.verb.writes()
    };
    journal.iter().filter(hangs).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_worker_the_hanging_writes_of_one_namespace_keep_a_neighbour_awake() {
    let (env, web) = env_with(|settings| settings.concurrency = 1).await;
    let tenant = Tenant::start(&env).await;
    tenant.hanging_writes();
    let mut slow = blueprint("slow");
    slow.namespace = AAA;
    env.build(slow).await;
    until("the first write hangs", async || hung(&env) > 0).await;
    web.idle();
    // With workers to share it sleeps meanwhile: see the suite.
    until("two more hang", async || hung(&env) >= 3).await;
    assert!(web.replicas().await > 0, "the attack has done no harm");
    env.fake_cluster().server.faults().heal();
    web.until_asleep().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_anonymous_wakes_anybody_wakes_a_neighbour() {
    let (env, web) = env_with(|settings| settings.allow_anonymous_wakes = true).await;
    web.fall_asleep().await;
    let address = format!("{}:8013", env.operator_address(0));
    assert_eq!(wake(&address, "").await, Some(200));
    until("the neighbour is awake", async || web.replicas().await > 0).await;
}
