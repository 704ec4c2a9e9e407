//! Faults that users would feel: slow and hostile clients, pods that hang, ports that move to another service, thundering herds.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use elasti_api::names;
use elasti_core::waiting_room::ReleasePace;
use elasti_runtime::clock::to_std;
use elasti_testkit::fixture::{
    ELASTI, Fixture, HTTP, PODS, READER, TestService, http_get, service, small_steps, until,
};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// A pod that is ready at once and listens nowhere: the test listens in its place.
fn hollow(name: &'static str) -> TestService {
    let mut hollow = service(name);
    hollow.image = "never-ready:1";
    hollow.probed = false;
    hollow
}

/// Addresses behind port 80 of this many pods.
async fn pods(fixture: &Fixture, count: usize) -> Vec<SocketAddr> {
    let mut found: Vec<SocketAddr> = Vec::new();
    until("the pods have addresses", async || {
        let pods = fixture.api_client.items(PODS).await;
        let ips = pods
            .iter()
            .filter_map(|pod| pod["status"]["podIP"].as_str()?.parse::<IpAddr>().ok());
        found = ips
            .map(|ip| SocketAddr::new(ip, 8000 + HTTP.port))
            .collect();
        found.len() == count
    })
    .await;
    found
}

/// The resolver's own address of a service, for clients whose node is late.
fn direct(fixture: &Fixture) -> String {
    format!("{}:{}", fixture.address, HTTP.listen)
}

/// Answers every request in a pod's place; a connection without a request stays open.
fn answer_all(listener: TcpListener, body: &'static str) {
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut head = [0; 4096];
                while stream.read(&mut head).await.is_ok_and(|read| read > 0) {
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// A listener that never accepts and whose queue is full, so that the kernel drops new connections: they hang.
fn hang(address: SocketAddr) -> (TcpListener, Vec<std::net::TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    let listener = socket.listen(1).unwrap();
    let connect_timeout = Duration::from_millis(300);
    let mut queued = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, connect_timeout) {
        queued.push(stream);
        assert!(queued.len() < 100, "the queue never fills");
    }
    (listener, queued)
}

#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends_is_ended_and_no_other_request_waits_for_it() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    let mut slow = TcpStream::connect(direct(&fixture)).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n")
        .await
        .unwrap();
    let (mut reader, mut writer) = slow.into_split();
    let drip = tokio::spawn(async move {
        while writer.write_all(b"X-Slow: 1\r\n").await.is_ok() {
            sleep(Duration::from_secs(5)).await;
        }
    });
    assert_eq!(http_get(&direct(&fixture), "/other").await.code(), 200);
    let mut rest = Vec::new();
    let _ = reader.read_to_end(&mut rest).await;
    let text = String::from_utf8_lossy(&rest);
    assert!(
        text.is_empty() || text.starts_with("HTTP/1.1 408"),
        "{text}"
    );
    drip.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_arrives_whole_and_no_other_request_waits_for_it() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    let mut slow = TcpStream::connect(direct(&fixture)).await.unwrap();
    let head = b"POST /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 60\r\n\r\n";
    slow.write_all(head).await.unwrap();
    for _ in 0..60 {
        sleep(Duration::from_secs(60)).await;
        slow.write_all(b"x").await.unwrap();
    }
    assert_eq!(http_get(&direct(&fixture), "/other").await.code(), 200);
    let mut answer = String::new();
    slow.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\"bytes\":60"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_ready_pod_that_hangs_keeps_the_request_held_until_it_accepts() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let client = tokio::spawn(async move { http_get(&address, "/").await });
    // Between the start and here the pod refuses, which is held too.
    let (listener, queued) = hang(pods(&fixture, 1).await[0]);
    sleep(Duration::from_secs(20)).await;
    assert!(
        !client.is_finished(),
        "that the pod hangs is not the client's problem"
    );
    drop(queued);
    answer_all(listener, "hi");
    assert_eq!(client.await.unwrap().body, "hi");
}

#[tokio::test(start_paused = true)]
async fn when_one_ready_pod_hangs_and_one_refuses_every_request_goes_to_the_third() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let first = tokio::spawn(async move { http_get(&address, "/").await });
    pods(&fixture, 1).await;
    fixture.api_client.scale("cart", 3).await;
    let three = pods(&fixture, 3).await;
    let _hanging = hang(three[0]);
    answer_all(TcpListener::bind(three[2]).await.unwrap(), "third");
    assert_eq!(first.await.unwrap().body, "third");
    for _ in 0..10 {
        assert_eq!(http_get(&direct(&fixture), "/").await.body, "third");
    }
}

/// How many requests or streams of the one service are open at the resolver.
async fn open(fixture: &Fixture) -> u32 {
    let report = fixture.activity().await;
    report.services.iter().map(|one| one.open).sum()
}

#[tokio::test(start_paused = true)]
async fn a_client_that_disconnects_while_its_pod_is_being_reached_is_not_forwarded() {
    let fixture =
        Fixture::with(|settings| settings.activity_readers = [READER.to_owned()].into()).await;
    let address = fixture.asleep(hollow("cart")).await;
    let first = tokio::spawn(async move { http_get(&address, "/").await });
    let pod = pods(&fixture, 1).await[0];
    let listener = TcpListener::bind(pod).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(answer).await.unwrap();
    assert_eq!(first.await.unwrap().code(), 200);
    drop((stream, listener));
    let (listener, queued) = hang(pod);
    // The kernel tries a hanging connection again after a second of its own clock, so ours must not run ahead.
    tokio::time::resume();
    let mut client = TcpStream::connect(direct(&fixture)).await.unwrap();
    // With more than one piece of a body buffered, hyper does not notice that the client has disconnected.
    let upload = b"POST /gone HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
    client.write_all(upload).await.unwrap();
    until("its pod is being reached", async || {
        open(&fixture).await == 1
    })
    .await;
    drop((client, queued));
    let received = Arc::new(AtomicUsize::new(0));
    let count = received.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let count = count.clone();
            tokio::spawn(async move {
                let read = stream.read(&mut [0; 4096]).await.unwrap_or(0);
                count.fetch_add(read, Ordering::Relaxed);
            });
        }
    });
    until("nothing is open", async || open(&fixture).await == 0).await;
    assert_eq!(
        received.load(Ordering::Relaxed),
        0,
        "its client has disconnected"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_late_on_its_connection_is_parsed_and_its_loss_is_a_502() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    // It has sent nothing, so a server that speaks first is given the chance.
    let listener = TcpListener::bind(pods(&fixture, 1).await[0]).await.unwrap();
    let (silent, _) = listener.accept().await.unwrap();
    client
        .write_all(b"GET /late HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let again = timeout(Duration::from_secs(60), listener.accept()).await;
    let (mut stream, _) = again.expect("a request gets its own connection").unwrap();
    let mut head = [0; 4096];
    let read = stream.read(&mut head).await.unwrap();
    let head = String::from_utf8_lossy(&head[..read]).into_owned();
    assert!(head.starts_with("GET /late HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("x-forwarded-for"), "{head}");
    drop((silent, stream));
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("x-elasti-reason: PodClosed"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_a_silent_connection_does_not_take_a_late_request_with_it() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    let listener = TcpListener::bind(pods(&fixture, 1).await[0]).await.unwrap();
    let (silent, _) = listener.accept().await.unwrap();
    drop(silent);
    client
        .write_all(b"GET /late HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    answer_all(listener, "hi");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_late_request_gets_a_response_when_no_pod_could_be_reached() {
    let fixture = Fixture::start().await;
    let mut refusing = hollow("cart");
    refusing.spec = json!({"hold": {"timeoutSeconds": 20}});
    let address = fixture.asleep(refusing).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    pods(&fixture, 1).await;
    // Ready, but not listening: the silent client waits for a pod that accepts.
    sleep(Duration::from_secs(10)).await;
    client
        .write_all(b"GET /late HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("x-elasti-reason: HoldDeadline"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_speaks_late_and_disconnects_while_held_frees_its_slot_and_is_not_forwarded()
{
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    let pod = pods(&fixture, 1).await[0];
    sleep(Duration::from_secs(10)).await;
    client
        .write_all(b"GET /gone HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    sleep(Duration::from_secs(1)).await;
    let left = Instant::now();
    drop(client);
    until("its slot is free", async || fixture.resolver().held() == 0).await;
    assert!(
        left.elapsed() < Duration::from_secs(10),
        "not at its deadline: {:?}",
        left.elapsed()
    );
    let listener = TcpListener::bind(pod).await.unwrap();
    let accepted = timeout(Duration::from_secs(60), listener.accept()).await;
    assert!(accepted.is_err(), "its client has disconnected");
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_closed_when_its_pod_closes_before_the_first_byte() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("db")).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    let listener = TcpListener::bind(pods(&fixture, 1).await[0]).await.unwrap();
    drop(listener.accept().await.unwrap());
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_herd_reaches_the_first_pod_in_growing_steps() {
    let fixture = Fixture::start().await;
    // Ready as soon as the test listens: a pod that refused before would slow the herd down.
    let mut late = hollow("cart");
    late.probed = true;
    let address = fixture.asleep(late).await;
    let mut herd = JoinSet::new();
    for _ in 0..100 {
        let address = address.clone();
        herd.spawn(async move { http_get(&address, "/").await });
    }
    until("all are held", async || fixture.resolver().held() == 100).await;
    let listener = TcpListener::bind(pods(&fixture, 1).await[0]).await.unwrap();
    let (arrived, may_answer) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(Semaphore::new(0)),
    );
    let (times, gate) = (arrived.clone(), may_answer.clone());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (times, gate) = (times.clone(), gate.clone());
            tokio::spawn(async move {
                let mut head = [0; 4096];
                if stream.read(&mut head).await.unwrap() == 0 {
                    return; // the kubelet's probe
                }
                times.lock().push(Instant::now());
                gate.acquire().await.unwrap().forget();
                let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            });
        }
    });
    // Nothing is answered: time alone lets twice as many go, step by step.
    until("all have arrived", async || arrived.lock().len() == 100).await;
    let arrived = arrived.lock().clone();
    for (step, most) in [(1, 8), (2, 8 + 16), (3, 8 + 16 + 32)] {
        let by = arrived[0] + to_std(ReleasePace::STEP) * step;
        let came = arrived.iter().filter(|at| **at < by).count();
        assert!(came <= most, "{came} in {step} steps");
    }
    may_answer.add_permits(100);
    while let Some(answer) = herd.join_next().await {
        assert_eq!(answer.unwrap().code(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_herd_of_tcp_connections_reaches_the_first_pod_in_growing_steps() {
    let fixture =
        Fixture::with(|settings| settings.activity_readers = [READER.to_owned()].into()).await;
    let mut late = hollow("db");
    late.probed = true;
    let address = fixture.asleep(late).await;
    let mut herd = Vec::new();
    for _ in 0..100 {
        let mut client = TcpStream::connect(&address).await.unwrap();
        client.write_all(b"SET a 1\r\n").await.unwrap();
        herd.push(client);
    }
    until("all are held", async || fixture.resolver().held() == 100).await;
    let listener = TcpListener::bind(pods(&fixture, 1).await[0]).await.unwrap();
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let times = arrived.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let times = times.clone();
            tokio::spawn(async move {
                let mut command = [0; 64];
                while stream.read(&mut command).await.is_ok_and(|read| read > 0) {
                    times.lock().push(Instant::now());
                }
            });
        }
    });
    // A connection alone tells nothing of how busy the pod is, so time alone lets more go.
    until("all have arrived", async || arrived.lock().len() == 100).await;
    let arrived = arrived.lock().clone();
    for (step, most) in [(1, 8), (2, 8 + 16), (3, 8 + 16 + 32)] {
        let by = arrived[0] + to_std(ReleasePace::STEP) * step;
        let came = arrived.iter().filter(|at| **at < by).count();
        assert!(came <= most, "{came} in {step} steps");
    }
    let report = fixture.activity().await;
    assert!(report.services[0].first_answer_millis_ago.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_for_pods_that_hang_ends_with_its_deadline_and_not_after_every_pod() {
    let fixture = Fixture::start().await;
    let mut hanging = hollow("cart");
    hanging.spec = json!({"hold": {"timeoutSeconds": 4}});
    let address = fixture.asleep(hanging).await;
    let mut clients = JoinSet::new();
    clients.spawn(async move { http_get(&address, "/").await });
    pods(&fixture, 1).await;
    fixture.api_client.scale("cart", 5).await;
    let five = pods(&fixture, 5).await;
    let _hanging: Vec<_> = five.into_iter().map(hang).collect();
    until("the first has ended", async || {
        clients.try_join_next().is_some()
    })
    .await;
    let asked = Instant::now();
    let answer = http_get(&direct(&fixture), "/").await;
    assert_eq!(answer.code(), 503, "{answer:?}");
    assert_eq!(answer.header(names::REASON_HEADER), Some("HoldDeadline"));
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(8), "4 s and one try: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_open_http2_connection_gets_goaway_once_pods_are_in_rotation_and_its_streams_finish() {
    let fixture = Fixture::start().await;
    tokio::spawn(small_steps());
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    let stream = TcpStream::connect(direct(&fixture)).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let ended = tokio::spawn(connection);
    let request = |path: &str| {
        Request::get(format!("http://cart.default{path}"))
            .body(Full::<Bytes>::default())
            .unwrap()
    };
    let answer = client.send_request(request("/1")).await.unwrap();
    drop(answer.collect().await.unwrap());
    assert!(!client.is_closed());
    fixture
        .status("cart", json!({"mode": "serve", "phase": "Serving"}))
        .await;
    until("the resolver has the new mode", async || {
        let metrics = fixture.admin("/metrics").await.body;
        metrics.contains("enabled=\"disabled\"} 1")
    })
    .await;
    let two = futures::future::join(
        client.send_request(request("/2")),
        client.clone().send_request(request("/3")),
    );
    let (second, third) = two.await;
    for answer in [second.unwrap(), third.unwrap()] {
        assert_eq!(answer.status(), 200);
        drop(answer.collect().await.unwrap());
    }
    // GOAWAY ends the connection without an error while the client would have kept it.
    ended.await.unwrap().unwrap();
    assert!(client.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_port_that_changes_hands_never_carries_an_old_clients_bytes_to_the_new_service() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service("old")).await;
    let mut kept = TcpStream::connect(&address).await.unwrap();
    let get = b"GET /kept HTTP/1.1\r\nHost: x\r\n\r\n";
    kept.write_all(get).await.unwrap();
    let mut answer = vec![0; 65_536];
    let read = kept.read(&mut answer).await.unwrap();
    assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
    fixture.api_client.delete(&format!("{ELASTI}/old")).await;
    let new = fixture.asleep(service("new")).await;
    let served = http_get(&new, "/new").await;
    assert!(served.json()["pod"].as_str().unwrap().starts_with("new-"));
    // It has ended by now, or ends with its next answer.
    let _ = kept.write_all(get).await;
    let mut rest = String::new();
    let _ = kept.read_to_string(&mut rest).await;
    let refused = rest.starts_with("HTTP/1.1 503") && rest.contains("ServiceDeleted");
    assert!(rest.is_empty() || refused, "{rest}");
}

#[tokio::test(start_paused = true)]
async fn each_way_a_pod_cannot_start_fails_fast_with_its_reason() {
    let fixture = Fixture::start().await;
    let mut never = service("cart");
    never.image = "never-ready:1";
    let address = fixture.asleep(never).await;
    for reason in [
        "ImagePull",
        "CrashLoop",
        "Unschedulable",
        "PodRefused",
        "NeverReady",
        "CannotStart",
    ] {
        let waiting = address.clone();
        fixture
            .status("cart", json!({"phase": "Waking", "reason": "Starting"}))
            .await;
        let client = tokio::spawn(async move { http_get(&waiting, "/").await });
        until("it is held", async || fixture.resolver().held() == 1).await;
        fixture
            .status("cart", json!({"phase": "Waking", "reason": reason}))
            .await;
        let answer = client.await.unwrap();
        assert_eq!(answer.code(), 503);
        assert_eq!(answer.header(names::REASON_HEADER), Some(reason));
        assert_eq!(answer.header("retry-after"), Some("30"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_by_itself_is_held() {
    let fixture = Fixture::start().await;
    let mut slow = service("cart");
    slow.start_seconds = "300";
    slow.spec = json!({"waitingPage": true});
    let address = fixture.asleep(slow).await;
    let waiting = address.clone();
    let client = tokio::spawn(async move { http_get(&waiting, "/").await });
    until("it is held", async || fixture.resolver().held() == 1).await;
    let page = "GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\nConnection: close\r\n\r\n";
    for (reason, words) in [
        ("NotScheduled", "waits for a node"),
        ("Pulling", "image could not be fetched"),
        ("Initializing", "being prepared"),
        ("Restarting", "started again"),
        ("NotReady", "not ready yet"),
        ("QuotaExceeded", "room in the quota"),
        ("WebhookFailed", "could not admit it"),
    ] {
        let status = json!({"phase": "Waking", "reason": reason});
        fixture.status("cart", status).await;
        until("the page says it", async || {
            let shown = elasti_testkit::fixture::send_raw(&address, page).await;
            shown.code() == 503 && shown.body.contains(words)
        })
        .await;
        assert!(!client.is_finished(), "{reason}");
    }
    assert_eq!(client.await.unwrap().code(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_long_stream_counts_as_activity_for_as_long_as_it_lives() {
    let fixture =
        Fixture::with(|settings| settings.activity_readers = [READER.to_owned()].into()).await;
    let mut tcp = service("db");
    tcp.image = "speaks-first:1";
    let address = fixture.asleep(tcp).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'h');
    sleep(Duration::from_secs(1800)).await;
    assert_eq!(
        fixture.activity().await.services[0].open,
        1,
        "half an hour later"
    );
    drop(client);
    until("it has ended", async || {
        fixture.activity().await.services[0].open == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_held_for_a_deleted_elastiservice_is_refused_at_once() {
    let fixture = Fixture::start().await;
    let mut never = service("cart");
    never.image = "never-ready:1";
    let address = fixture.asleep(never).await;
    let client = tokio::spawn(async move { http_get(&address, "/").await });
    until("it is held", async || fixture.resolver().held() == 1).await;
    fixture.api_client.delete(&format!("{ELASTI}/cart")).await;
    let answer = client.await.unwrap();
    assert_eq!(answer.code(), 503, "{answer:?}");
    assert_eq!(answer.header(names::REASON_HEADER), Some("ServiceDeleted"));
    assert_eq!(answer.header("retry-after"), Some("1"));
}

/// A pod's connection on which a request has begun and nothing more is read.
async fn stuck(pod: SocketAddr) -> TcpStream {
    let listener = TcpListener::bind(pod).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    assert!(stream.read(&mut [0; 64]).await.unwrap() > 0);
    stream
}

/// Uploads until no more is taken.
async fn upload_until_blocked(client: &mut TcpStream) {
    let head = b"POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n";
    client.write_all(head).await.unwrap();
    let piece = [7; 64 * 1024];
    while timeout(Duration::from_secs(1), client.write(&piece))
        .await
        .is_ok_and(|written| written.unwrap() > 0)
    {}
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_its_pod_does_not_take_ends_with_its_client() {
    let fixture =
        Fixture::with(|settings| settings.activity_readers = [READER.to_owned()].into()).await;
    fixture.asleep(hollow("cart")).await;
    let mut client = TcpStream::connect(direct(&fixture)).await.unwrap();
    let pod = pods(&fixture, 1).await[0];
    let (_stuck, ()) = tokio::join!(stuck(pod), upload_until_blocked(&mut client));
    assert_eq!(open(&fixture).await, 1);
    // Its end would wait behind what it has not sent yet; a reset does not.
    client.set_zero_linger().unwrap();
    drop(client);
    until("nothing is open", async || open(&fixture).await == 0).await;
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_its_pod_does_not_take_for_an_hour_is_a_502_and_counts_no_more() {
    let fixture =
        Fixture::with(|settings| settings.activity_readers = [READER.to_owned()].into()).await;
    let address = fixture.asleep(hollow("cart")).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    let pod = pods(&fixture, 1).await[0];
    let (_stuck, ()) = tokio::join!(stuck(pod), upload_until_blocked(&mut client));
    assert_eq!(open(&fixture).await, 1);
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 502");
    until("nothing is open", async || open(&fixture).await == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_carries_nothing_for_an_hour_ends_and_counts_no_more() {
    let fixture =
        Fixture::with(|settings| settings.activity_readers = [READER.to_owned()].into()).await;
    let mut tcp = service("db");
    tcp.image = "speaks-first:1";
    let address = fixture.asleep(tcp).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.unwrap();
    assert!(received.starts_with(b"hello from db-"), "{received:?}");
    until("nothing is open", async || {
        fixture.activity().await.services[0].open == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_browser_sees_a_page_that_refreshes_itself_wakes_the_service_and_then_the_service() {
    let fixture = Fixture::start().await;
    let mut shop = service("shop");
    shop.start_seconds = "30";
    shop.spec = json!({"waitingPage": true});
    let address = fixture.asleep(shop).await;
    let browser =
        "GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html,*/*;q=0.8\r\nConnection: close\r\n\r\n";
    for _ in 0..3 {
        let page = elasti_testkit::fixture::send_raw(&address, browser).await;
        assert_eq!(page.code(), 503);
        assert_eq!(
            page.header("content-type"),
            Some("text/html; charset=utf-8")
        );
        assert_eq!(page.header(names::REASON_HEADER), Some("Starting"));
        assert_eq!(page.header("retry-after"), Some("2"));
        assert!(
            page.body.contains("<h1>shop is starting</h1>"),
            "{}",
            page.body
        );
        assert!(page.body.contains("http-equiv=\"refresh\""));
        sleep(Duration::from_secs(2)).await;
    }
    assert!(
        fixture.resolver().held() <= 1,
        "one ticket stands for all pages"
    );
    let api = tokio::spawn({
        let address = address.clone();
        async move { http_get(&address, "/api").await }
    });
    assert_eq!(api.await.unwrap().code(), 200, "other clients wait as ever");
    assert!(!fixture.operator.wakes().is_empty());
    let page = elasti_testkit::fixture::send_raw(&direct(&fixture), browser).await;
    assert_eq!(page.code(), 200, "{page:?}");
    assert_eq!(fixture.resolver().held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_resolver_is_never_forwarded_to_even_if_a_services_slices_name_it() {
    let peers = elasti_core::ports::ServiceKey::new("default", "elasti-resolver-service");
    let fixture = Fixture::with(|settings| settings.peers = Some(peers)).await;
    let address = fixture.asleep(hollow("cart")).await;
    let client = tokio::spawn(async move { http_get(&address, "/").await });
    let pod = pods(&fixture, 1).await[0];
    // The pod turns out to be a resolver: the resolvers' own Service selects it too.
    let spec = json!({"selector": {"app": "cart"}, "ports": [{"port": 8013}]});
    let service = json!({"metadata": {"name": "elasti-resolver-service"}, "spec": spec});
    fixture
        .api_client
        .make(elasti_testkit::fixture::SERVICES, service)
        .await;
    until("its slices name the pod", async || {
        let slices = fixture
            .api_client
            .items(elasti_testkit::fixture::SLICES)
            .await;
        slices.iter().any(|slice| {
            slice["metadata"]["labels"][names::SERVICE_NAME_LABEL] == "elasti-resolver-service"
                && slice["endpoints"][0]["addresses"][0] == pod.ip().to_string()
        })
    })
    .await;
    sleep(Duration::from_secs(5)).await;
    let listener = TcpListener::bind(pod).await.unwrap();
    let reached = tokio::time::timeout(Duration::from_secs(60), listener.accept()).await;
    assert!(reached.is_err(), "nothing is sent to a resolver");
    assert!(!client.is_finished());
    fixture
        .api_client
        .delete(&format!(
            "{}/elasti-resolver-service",
            elasti_testkit::fixture::SERVICES
        ))
        .await;
    answer_all(listener, "a pod after all");
    assert_eq!(client.await.unwrap().body, "a pod after all");
}

#[tokio::test(start_paused = true)]
async fn a_connection_to_the_operator_is_open_before_the_first_wake_and_may_die_unnoticed() {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut operator = String::new();
    let fixture = Fixture::with(|settings| {
        let proxy = proxy.local_addr().unwrap().to_string();
        operator = std::mem::replace(&mut settings.operator, proxy);
    })
    .await;
    let address = fixture.asleep(service("cart")).await;
    // No request yet. What is behind this connection never responds.
    let early = tokio::time::timeout(Duration::from_secs(60), proxy.accept()).await;
    let (_dead, _) = early.expect("a connection without a request").unwrap();
    let client = tokio::spawn(async move { http_get(&address, "/").await });
    let (mut alive, _) = proxy.accept().await.unwrap();
    let mut behind = TcpStream::connect(operator).await.unwrap();
    let piped = tokio::io::copy_bidirectional(&mut alive, &mut behind);
    let answer = tokio::select! {
        answer = client => answer.unwrap(),
        _ = piped => panic!("the operator hung up before it was done"),
    };
    assert_eq!(answer.code(), 200);
    assert_eq!(fixture.operator.wakes().len(), 1);
}
