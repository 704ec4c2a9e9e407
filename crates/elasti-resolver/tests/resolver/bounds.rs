//! What one client can take away from the others: connections of the process, of the admin port, and of the probes.

use std::net::Ipv4Addr;
use std::time::Duration;

use elasti_testkit::fixture::{Fixture, HTTP, TestPort, http_get, service, small_steps, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::corpus::http2::{
    CONTINUATION, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, SETTINGS, frame, get,
    next_frame,
};

/// A connection from one of several clients.
async fn connect(from: u8, fixture: &Fixture, port: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let own = (Ipv4Addr::new(127, 0, 0, from), 0);
    socket.bind(own.into()).unwrap();
    let address = (fixture.address, port).into();
    socket.connect(address).await.unwrap()
}

/// The status line of a GET.
async fn ask(stream: &mut TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    // A connection that was refused is closed by now.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer.lines().next().unwrap_or_default().to_owned()
}

/// With a real clock: a paused one would run through the time that an idle connection has.
#[tokio::test]
async fn idle_connections_to_the_admin_port_fail_no_probe() {
    let fixture = Fixture::start().await;
    let mut idle = Vec::new();
    for from in 1..=9 {
        for _ in 0..40 {
            idle.push(connect(from, &fixture, 8013).await);
        }
    }
    for path in ["/readyz", "/healthz"] {
        let mut probe = connect(1, &fixture, 8011).await;
        assert_eq!(ask(&mut probe, path).await, "HTTP/1.1 200 OK", "{path}");
    }
    let mut other = connect(1, &fixture, 8011).await;
    let metrics = ask(&mut other, "/metrics").await;
    assert_eq!(metrics, "HTTP/1.1 404 Not Found", "probes only");
}

#[tokio::test]
async fn one_client_cannot_take_every_connection_of_the_admin_port() {
    let fixture = Fixture::start().await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(connect(1, &fixture, 8013).await);
    }
    let mut other = connect(2, &fixture, 8013).await;
    assert_eq!(ask(&mut other, "/metrics").await, "HTTP/1.1 200 OK");
}

/// With a real clock: a paused one would run through the time that a head has.
#[tokio::test]
async fn slow_heads_take_no_more_memory_than_their_bound_and_stop_no_usual_head() {
    let fixture = Fixture::start().await;
    let start = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX-A: {}",
        "a".repeat(60 * 1024)
    );
    let mut slow = JoinSet::new();
    for _ in 0..400 {
        let mut one = connect(1, &fixture, 8012).await;
        let start = start.clone();
        slow.spawn(async move {
            let _ = one.write_all(start.as_bytes()).await;
            let mut answer = [0; 12];
            one.read_exact(&mut answer).await.map(|_| answer)
        });
    }
    let mut answered = None;
    while let (None, Some(one)) = (answered, slow.join_next().await) {
        answered = one.unwrap().ok();
    }
    assert_eq!(answered, Some(*b"HTTP/1.1 503"));
    let mut usual = connect(2, &fixture, 8012).await;
    assert_eq!(ask(&mut usual, "/").await, "HTTP/1.1 404 Not Found");
}

/// The reason of the GOAWAY with which an HTTP/2 connection ends, if it comes with one.
async fn goaway(stream: &mut TcpStream) -> Option<u32> {
    loop {
        let (kind, payload) = next_frame(stream).await?;
        if kind == GOAWAY {
            return Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
    }
}

/// Says hello over HTTP/2, and begins a head that goes on in another frame.
async fn begin_head(from: u8, fixture: &Fixture) -> TcpStream {
    let mut stream = connect(from, fixture, 8012).await;
    let request = get(1, "/");
    let begun = frame(HEADERS, END_STREAM, 1, &request[9..]);
    let bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &begun].concat();
    stream.write_all(&bytes).await.unwrap();
    stream
}

/// With a real clock: a paused one would run through the time that a ping has.
#[tokio::test]
async fn heads_that_stop_between_two_frames_take_no_more_memory_than_their_bound() {
    const ENHANCE_YOUR_CALM: u32 = 11;
    let fixture = Fixture::start().await;
    let mut begun = JoinSet::new();
    for _ in 0..32 + 20 {
        let mut one = begin_head(1, &fixture).await;
        begun.spawn(async move { goaway(&mut one).await });
    }
    for _ in 0..20 {
        let ended = begun.join_next().await.unwrap();
        assert_eq!(ended.unwrap(), Some(ENHANCE_YOUR_CALM));
    }
    assert_eq!(begun.len(), 32);
    let mut whole = connect(2, &fixture, 8012).await;
    let hello = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &get(1, "/")].concat();
    whole.write_all(&hello).await.unwrap();
    while next_frame(&mut whole).await.expect("an answer").0 != HEADERS {}
    begun.shutdown().await;
    until("those that left made room", async || {
        let mut one = begin_head(2, &fixture).await;
        let rest = frame(CONTINUATION, END_HEADERS, 1, &[]);
        one.write_all(&rest).await.unwrap();
        loop {
            match next_frame(&mut one).await {
                Some((HEADERS, _)) => return true,
                Some((GOAWAY, _)) | None => return false,
                Some(_) => {}
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_stops_between_two_frames_is_not_kept_for_ever() {
    tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let mut begun = begin_head(1, &fixture).await;
    let ended = timeout(Duration::from_secs(60), goaway(&mut begun));
    ended.await.expect("it stays open");
}

#[tokio::test(start_paused = true)]
async fn one_services_connections_never_take_the_last_files_from_another() {
    // 20 connections for all.
    let fixture = Fixture::with(|settings| settings.open_files = 256 + 20).await;
    let mut noisy = service("noisy");
    noisy.image = "never-ready:1";
    let noisy = fixture.asleep(noisy).await;
    let mut quiet = service("quiet");
    quiet.ports = vec![TestPort {
        listen: 20_002,
        ..HTTP
    }];
    let quiet = fixture.asleep(quiet).await;
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = TcpStream::connect(&noisy).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        client.write_all(request).await.unwrap();
        clients.push(client);
    }
    until("most of them are held", async || {
        fixture.resolver().held() == 16
    })
    .await;
    assert_eq!(http_get(&quiet, "/first").await.code(), 200);
    assert_eq!(
        fixture.resolver().held(),
        16,
        "the others wait in the kernel"
    );
    clients.truncate(5);
    until("those that left make room", async || {
        fixture.resolver().held() == 5
    })
    .await;
}
