//! A service's whole life, as its users feel it.

use elasti_api::Phase;
use elasti_e2e::{TestEnv, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_app_falls_asleep_and_the_first_visitor_wakes_it_without_noticing_more_than_a_wait()
{
    let env = TestEnv::start().await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.visit().await;

    web.fall_asleep().await;
    assert_eq!(web.resolver_slices().await.len(), 1);

    let answer = web.visit().await;
    assert!(answer.body.contains("/web/"), "{answer:?}");
    assert!(web.replicas().await > 0);

    web.busy();
    web.until_serving().await;
    until("the resolvers are out of the path", async || {
        web.resolver_slices().await.is_empty()
    })
    .await;
    web.visit().await;

    web.fall_asleep().await;
    assert_eq!(web.phase().await, Some(Phase::Asleep));
    env.requests().assert_nothing_lost();
}
