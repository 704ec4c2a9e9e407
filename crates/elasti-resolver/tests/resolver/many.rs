//! Clients that connect, wait and disconnect at the same time, on several threads.

use elasti_testkit::fixture::{Fixture, HTTP, PODS, http_get, service, until};

/// On several threads and in real time, so that releases, disconnects and arrivals truly race.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_that_disconnect_in_the_moment_of_their_release_leak_nothing_r5() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    let direct = format!("{}:{}", fixture.address, HTTP.listen);
    for round in 0..3 {
        let mut staying = tokio::task::JoinSet::new();
        let mut leaving = tokio::task::JoinSet::new();
        for at in 0..200 {
            let to = if round == 0 {
                address.clone()
            } else {
                direct.clone()
            };
            let asking = async move { http_get(&to, &format!("/{at}")).await };
            if at % 2 == 0 {
                staying.spawn(asking);
            } else {
                leaving.spawn(asking);
            }
        }
        // The first response shows that the release has begun: now the others disconnect, each wherever it is.
        let first = staying.join_next().await.unwrap().unwrap();
        assert_eq!(first.code(), 200, "{first:?}");
        leaving.abort_all();
        while let Some(answer) = staying.join_next().await {
            let answer = answer.unwrap();
            assert_eq!(answer.code(), 200, "{answer:?}");
        }
        until("nothing is held", async || fixture.resolver().held() == 0).await;
        fixture.api_client.scale("cart", 0).await;
        until("no pod is left", async || {
            fixture.api_client.items(PODS).await.is_empty()
        })
        .await;
    }
    assert!(fixture.operator.wakes().len() >= 3);
}
