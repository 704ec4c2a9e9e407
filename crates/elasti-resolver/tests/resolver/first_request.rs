//! The first request to a sleeping service: held, woken, answered, over the Service's own cluster address.

use elasti_testkit::fixture::{Fixture, TestPort, http_get, service};

#[tokio::test(start_paused = true)]
async fn the_first_request_is_held_wakes_the_service_and_is_answered_by_its_pod() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    let answer = http_get(&address, "/basket?x=1").await;
    assert_eq!(answer.code(), 200, "{answer:?}");
    let echo = answer.json();
    assert!(echo["pod"].as_str().unwrap().starts_with("cart-"), "{echo}");
    assert_eq!(
        (&echo["path"], &echo["query"]),
        (&"/basket".into(), &"x=1".into())
    );
    assert_eq!(echo["headers"]["x-forwarded-proto"], "http");
    assert_eq!(echo["headers"]["x-forwarded-host"], "test");
    assert!(echo["headers"]["x-forwarded-for"].is_string());
    assert_eq!(fixture.operator.wakes(), ["cart"]);
}

#[tokio::test(start_paused = true)]
async fn every_port_of_a_service_works_r4() {
    let fixture = Fixture::start().await;
    let mut two = service("cart");
    two.ports.push(TestPort {
        name: "admin",
        port: 81,
        listen: 20_002,
        app_protocol: None,
    });
    let first = fixture.asleep(two).await;
    let second = first.replace(":80", ":81");
    let (first, second) = tokio::join!(http_get(&first, "/one"), http_get(&second, "/two"));
    assert_eq!((first.code(), second.code()), (200, 200));
    assert_eq!(first.json()["path"], "/one");
    assert_eq!(second.json()["path"], "/two");
    assert_eq!(fixture.operator.wakes(), ["cart"], "one wake for both");
}
