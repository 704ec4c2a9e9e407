//! Clients that connect, wait and disconnect at the same time, on several threads.

use std::sync::atomic::Ordering;
use std::time::Duration;

use elasti_api::MOST_WAKES_AT_ONCE;
use elasti_testkit::fixture::{Fixture, HTTP, PODS, TestPort, http_get, service, until};
use futures::future::join_all;
use tokio::time::sleep;

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

/// More than the connections that an operator takes from one address: it closes the others at once, and each would be
/// opened again, and closed again.
const SERVICES: u16 = 80;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resolver_that_wakes_many_services_at_once_opens_no_more_connections_than_an_operator_takes()
 {
    let fixture = Fixture::start().await;
    let listen = |number| HTTP.listen + number;
    join_all((0..SERVICES).map(|number| {
        let mut web = service(format!("web-{number}").leak());
        web.ports = vec![TestPort {
            listen: listen(number),
            ..HTTP
        }];
        fixture.asleep(web)
    }))
    .await;
    fixture.operator.hangs.send_replace(true);
    let clients = (0..SERVICES).map(|number| {
        let address = format!("{}:{}", fixture.address, listen(number));
        tokio::spawn(async move { http_get(&address, "/").await.code() })
    });
    let clients: Vec<_> = clients.collect();
    until("every request is held", async || {
        fixture.resolver().held() == usize::from(SERVICES)
    })
    .await;
    // Whatever it would open it opens now.
    sleep(Duration::from_millis(500)).await;
    fixture.operator.hangs.send_replace(false);
    for client in clients {
        assert_eq!(client.await.unwrap(), 200);
    }
    let most = fixture.operator.connections.most.load(Ordering::Relaxed);
    assert!(most <= MOST_WAKES_AT_ONCE, "{most} connections at once");
}
