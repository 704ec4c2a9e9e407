//! Thousands of held connections, then a pod: all answered, and what they cost in memory is printed.
//! Never asserts on memory: the allocator and the test's own clients share the process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod fixture;

use fixture::{HTTP, PODS, Scene, ask, service, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Two descriptors each, in one process that may have 20,000.
const MANY: usize = 6_000;

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test(start_paused = true)]
async fn thousands_that_are_held_are_all_answered_once_a_pod_is_ready() {
    let scene = Scene::start().await;
    let mut slow = service("cart");
    slow.start_seconds = "300";
    scene.asleep(slow).await;
    let direct = (scene.address, HTTP.listen);
    let before = resident_bytes();
    let mut clients = Vec::with_capacity(MANY);
    for at in 0..MANY {
        let mut client = TcpStream::connect(direct).await.unwrap();
        let request = format!("GET /{at} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        clients.push(client);
    }
    until("all are held", async || scene.resolver().held() == MANY).await;
    let held = resident_bytes().saturating_sub(before);
    println!(
        "{MANY} held: {} bytes each, client and resolver together",
        held / MANY
    );
    let mut answered = 0;
    for (at, mut client) in clients.into_iter().enumerate() {
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{at}: {answer}");
        assert!(answer.contains(&format!("\"path\":\"/{at}\"")), "{at}");
        answered += 1;
    }
    println!(
        "{answered} answered; {} MiB resident",
        resident_bytes() / 1024 / 1024
    );
    assert_eq!((answered, scene.resolver().held()), (MANY, 0));
    assert_eq!(
        scene.operator.wakes().first().map(String::as_str),
        Some("cart")
    );
}

/// On several threads and in real time, so that releases, departures and arrivals truly cross each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_that_leave_in_the_moment_of_their_release_leak_nothing_r5() {
    let scene = Scene::start().await;
    let address = scene.asleep(service("cart")).await;
    let direct = format!("{}:{}", scene.address, HTTP.listen);
    for round in 0..3 {
        let mut staying = tokio::task::JoinSet::new();
        let mut leaving = tokio::task::JoinSet::new();
        for at in 0..200 {
            let to = if round == 0 {
                address.clone()
            } else {
                direct.clone()
            };
            let asking = async move { ask(&to, &format!("/{at}")).await };
            if at % 2 == 0 {
                staying.spawn(asking);
            } else {
                leaving.spawn(asking);
            }
        }
        // The first answer shows that the release has begun: now the others leave, each wherever it is.
        let first = staying.join_next().await.unwrap().unwrap();
        assert_eq!(first.code(), 200, "{first:?}");
        leaving.abort_all();
        while let Some(answer) = staying.join_next().await {
            let answer = answer.unwrap();
            assert_eq!(answer.code(), 200, "{answer:?}");
        }
        until("no place is left behind", async || {
            scene.resolver().held() == 0
        })
        .await;
        scene.teller.scale("cart", 0).await;
        until("no pod is left", async || {
            scene.teller.items(PODS).await.is_empty()
        })
        .await;
    }
    assert!(scene.operator.wakes().len() >= 3);
}
