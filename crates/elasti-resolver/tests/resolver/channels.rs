//! HTTP/2 and gRPC: many streams on few connections, of which none stops another, and what becomes of those that wait.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use elasti_core::waiting_room::Limits;
use elasti_testkit::fixture::{
    ELASTI, Fixture, HTTP, TestService, http_get, service, small_steps, until,
};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::corpus::http2::{PREFACE, SETTINGS, frame};
use crate::pods::{hollow, pod_address};

pub const MIB: usize = 1024 * 1024;

/// Ready as soon as the test listens in its pod's place: nothing is released before.
pub fn late(name: &'static str) -> TestService {
    let mut late = hollow(name);
    late.probed = true;
    late
}

pub type Client = SendRequest<Full<Bytes>>;

pub async fn client(address: &str) -> Client {
    let stream = TcpStream::connect(address).await.unwrap();
    let builder = http2::Builder::new(TokioExecutor::new());
    let (client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

pub fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("http://cart.default{path}"))
        .body(Full::new(body.into()))
        .unwrap()
}

/// Serves HTTP/2 in the pod's place, with at most this many streams on a connection.
async fn serve<F, A>(pod: (IpAddr, u16), streams: u32, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Bytes> + Send + 'static,
{
    let listener = TcpListener::bind(pod).await.unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(Response::new(Full::new(answer.await))) }
            });
            tokio::spawn(async move {
                let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                server.max_concurrent_streams(streams);
                drop(server.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
}

/// `/large` is answered with more than any window; all others with the length of what they sent.
async fn large_or_length(request: Request<Incoming>) -> Bytes {
    if request.uri().path() == "/large" {
        return Bytes::from(vec![b'x'; 8 * MIB]);
    }
    let sent = request.into_body().collect().await.unwrap().to_bytes();
    Bytes::from(sent.len().to_string())
}

/// With a real clock: a paused one would run through the time that a ping has.
#[tokio::test]
async fn a_client_that_stops_to_read_stops_no_other_stream_of_its_pod() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let (mut stuck, mut other) = (client(&address).await, client(&address).await);
    let unread = tokio::spawn(async move { stuck.send_request(post("/large", "")).await });
    serve(pod_address(&fixture).await, 200, large_or_length).await;
    let _unread = unread.await.unwrap().unwrap();
    sleep(Duration::from_secs(1)).await;
    let read = async {
        let answer = other.send_request(post("/large", "")).await.unwrap();
        answer.collect().await.unwrap().to_bytes().len()
    };
    assert_eq!(timeout(Duration::from_secs(60), read).await, Ok(8 * MIB));
}

/// With a real clock: a paused one would run through the time that a ping has.
#[tokio::test]
async fn more_streams_than_a_pod_allows_on_a_connection_get_another_one() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let channel = client(&address).await;
    let mut calls = JoinSet::new();
    for _ in 0..30 {
        let mut channel = channel.clone();
        calls.spawn(async move { channel.send_request(post("/", "")).await.unwrap().status() });
    }
    let (arrived, may_answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (count, gate) = (arrived.clone(), may_answer.clone());
    serve(pod_address(&fixture).await, 10, move |_| {
        let (count, gate) = (count.clone(), gate.clone());
        async move {
            let answered = gate.notified();
            count.fetch_add(1, Ordering::Relaxed);
            answered.await;
            Bytes::new()
        }
    })
    .await;
    until("all are with the pod at once", async || {
        arrived.load(Ordering::Relaxed) == 30
    })
    .await;
    may_answer.notify_waiters();
    assert_eq!(calls.join_all().await, [200; 30]);
}

/// A pod that answers the first request of each connection with this frame.
async fn answer_with(pod: (IpAddr, u16), answer: Vec<u8>) {
    let listener = TcpListener::bind(pod).await.unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            tokio::spawn(async move {
                stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
                let mut preface = [0; PREFACE.len()];
                if stream.read_exact(&mut preface).await.is_err() {
                    return; // the kubelet's probe
                }
                let mut head = [0; 9];
                while stream.read_exact(&mut head).await.is_ok() {
                    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                    let mut payload = vec![0; length as usize];
                    stream.read_exact(&mut payload).await.unwrap();
                    if head[3] == 1 {
                        stream.write_all(&answer).await.unwrap();
                    }
                }
            });
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_refused_stream_is_passed_on_so_that_clients_retry() {
    tokio::spawn(small_steps());
    let refused = frame(3, 0, 1, &[0, 0, 0, 7]);
    let left = frame(7, 0, 0, &[0; 8]);
    for answer in [refused, left] {
        let fixture = Fixture::start().await;
        let address = fixture.asleep(late("cart")).await;
        let mut client = client(&address).await;
        let call = tokio::spawn(async move { client.send_request(post("/", "")).await });
        answer_with(pod_address(&fixture).await, answer).await;
        let error = call.await.unwrap().unwrap_err();
        let cause = std::error::Error::source(&error).unwrap();
        let cause = cause.downcast_ref::<h2::Error>().unwrap();
        assert_eq!(cause.reason(), Some(h2::Reason::REFUSED_STREAM));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_speaks_no_http2_is_not_waited_for() {
    tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let mut client = client(&address).await;
    let call = tokio::spawn(async move { client.send_request(post("/", "")).await });
    let listener = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 24]).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let answer = call.await.unwrap().unwrap();
    assert_eq!(answer.status(), 502);
    assert_eq!(answer.headers()["x-elasti-reason"], "PodClosed");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_closes_before_it_speaks_http2_has_seen_nothing_and_is_tried_again() {
    tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let mut client = client(&address).await;
    let call = tokio::spawn(async move { client.send_request(post("/", "")).await });
    let listener = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    tokio::spawn(async move {
        let mut came = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let read = stream.peek(&mut [0]).await;
            came += i32::from(read.is_ok_and(|read| read > 0)); // and not the kubelet's probe
            if came > 2 {
                let answer = async |_: Request<Incoming>| {
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
                };
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let served = server.serve_connection(TokioIo::new(stream), service_fn(answer));
                drop(tokio::spawn(served));
            }
        }
    });
    assert_eq!(call.await.unwrap().unwrap().status(), 200);
}

/// Accepts connections in the pod's place and says nothing on them; counts those on which something came.
async fn stay_silent(pod: (IpAddr, u16)) -> Arc<AtomicUsize> {
    let listener = TcpListener::bind(pod).await.unwrap();
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let count = count.clone();
            tokio::spawn(async move {
                let came = stream.read(&mut [0; 24]).await;
                if came.is_ok_and(|came| came > 0) {
                    count.fetch_add(1, Ordering::Relaxed); // and not the kubelet's probe
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                }
            });
        }
    });
    tries
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_accepts_and_stays_silent_is_tried_three_times_and_blamed() {
    tokio::spawn(small_steps());
    for (grpc, expected) in [(true, (200, Some("14"))), (false, (503, None))] {
        let fixture = Fixture::start().await;
        let address = fixture.asleep(late("cart")).await;
        let mut client = client(&address).await;
        let mut call = post("/shop.Cart/Get", "");
        if grpc {
            let content = "application/grpc".parse().unwrap();
            call.headers_mut().insert("content-type", content);
        }
        let call = tokio::spawn(async move { client.send_request(call).await });
        let tries = stay_silent(pod_address(&fixture).await).await;
        let answer = call.await.unwrap().unwrap();
        let headers = answer.headers();
        assert_eq!(headers["x-elasti-reason"], "PodSilent");
        assert_eq!(
            headers["retry-after"], "5",
            "the pod has seen nothing of it"
        );
        let status = headers.get("grpc-status").map(|it| it.to_str().unwrap());
        assert_eq!((answer.status().as_u16(), status), expected);
        assert_eq!(tries.load(Ordering::Relaxed), 3);
        let metrics = fixture.admin("/metrics").await.body;
        assert!(metrics.contains("PodSilent"), "{metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_http2_client_gets_settings_while_its_call_is_held() {
    tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let mut never = service("cart");
    never.image = "never-ready:1";
    let address = fixture.asleep(never).await;
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let hello = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    stream.write_all(&hello).await.unwrap();
    let mut head = [0; 9];
    let read = timeout(Duration::from_secs(20), stream.read_exact(&mut head));
    read.await.expect("no SETTINGS").unwrap();
    assert_eq!(head[3], SETTINGS);
}

#[tokio::test(start_paused = true)]
async fn a_held_call_ends_with_its_own_timeout() {
    tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let mut never = service("cart");
    never.image = "never-ready:1";
    let address = fixture.asleep(never).await;
    let mut client = client(&address).await;
    let mut call = post("/shop.Cart/Get", "");
    let headers = call.headers_mut();
    headers.insert("content-type", "application/grpc".parse().unwrap());
    headers.insert("grpc-timeout", "3S".parse().unwrap());
    let asked = Instant::now();
    let answer = client.send_request(call).await.unwrap();
    let waited = asked.elapsed();
    assert_eq!(answer.headers()["grpc-status"], "4");
    assert_eq!(answer.headers()["x-elasti-reason"], "GrpcTimeout");
    assert!(
        waited >= Duration::from_secs(3) && waited < Duration::from_secs(4),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_held_call_counts_with_as_much_of_its_body_as_may_be_in_memory() {
    tokio::spawn(small_steps());
    const LARGE: usize = 100 * 1024;
    let limits = Limits {
        service_bytes: 7 * 32 * 1024,
        ..Limits::default()
    };
    let fixture = Fixture::with(|settings| settings.limits = limits).await;
    let mut never = service("cart");
    never.image = "never-ready:1";
    let address = fixture.asleep(never).await;
    let mut client = client(&address).await;
    let mut calls = JoinSet::new();
    let mut call = |body| {
        let mut client = client.clone();
        calls.spawn(async move { client.send_request(post("/", body)).await });
    };
    for _ in 0..3 {
        call(vec![b'm'; LARGE]);
    }
    until("three are held", async || fixture.resolver().held() == 3).await;
    call(b"small".to_vec());
    until("a small one too", async || fixture.resolver().held() == 4).await;
    let refused = client.send_request(post("/", vec![b'm'; LARGE])).await;
    let refused = refused.unwrap();
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["x-elasti-reason"], "ServiceBytes");
    assert_eq!(fixture.resolver().held(), 4);
}

/// A request whose head has this many empty lines.
fn lines(count: usize) -> Request<Full<Bytes>> {
    let mut request = post("/", "");
    for _ in 0..count {
        let empty = http::HeaderValue::from_static("");
        request.headers_mut().append("a", empty);
    }
    request
}

#[tokio::test(start_paused = true)]
async fn a_head_of_many_small_lines_counts_with_the_memory_that_they_take() {
    tokio::spawn(small_steps());
    let limits = Limits {
        service_bytes: 128 * 1024,
        ..Limits::default()
    };
    let fixture = Fixture::with(|settings| settings.limits = limits).await;
    let mut never = service("cart");
    never.image = "never-ready:1";
    never.spec = json!({"hold": {"timeoutSeconds": 30}});
    let address = fixture.asleep(never).await;
    let mut client = client(&address).await;
    let refused = client.send_request(lines(1_400)).await.unwrap();
    assert_eq!(refused.headers()["x-elasti-reason"], "HeadTooLarge");
    for held in 1..=4 {
        let mut client = client.clone();
        tokio::spawn(async move { client.send_request(lines(230)).await });
        until("it is held", async || fixture.resolver().held() == held).await;
    }
    let refused = client.send_request(lines(230)).await.unwrap();
    assert_eq!(refused.headers()["x-elasti-reason"], "ServiceBytes");
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_with_its_own_timeout_while_its_pod_sends_no_settings() {
    tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let mut client = client(&address).await;
    let mut held = client.clone();
    tokio::spawn(async move { held.send_request(post("/", "")).await });
    let listener = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    let mut silent = Vec::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let comes = stream.peek(&mut [0]).await.is_ok_and(|read| read > 0);
        silent.push(stream);
        if comes {
            break; // and not the kubelet's probe
        }
    }
    let mut call = post("/shop.Cart/Get", "");
    let headers = call.headers_mut();
    headers.insert("content-type", "application/grpc".parse().unwrap());
    headers.insert("grpc-timeout", "1S".parse().unwrap());
    let asked = Instant::now();
    let answer = client.send_request(call).await.unwrap();
    let waited = asked.elapsed();
    assert_eq!(answer.headers()["x-elasti-reason"], "GrpcTimeout");
    assert!(waited < Duration::from_secs(2), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_what_is_left_of_a_held_calls_timeout() {
    tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let mut client = client(&address).await;
    let mut call = post("/shop.Cart/Get", "");
    let timeout = "600S".parse().unwrap();
    call.headers_mut().insert("grpc-timeout", timeout);
    let call = tokio::spawn(async move { client.send_request(call).await });
    until("it is held", async || fixture.resolver().held() == 1).await;
    sleep(Duration::from_secs(10)).await;
    serve(pod_address(&fixture).await, 200, async |request| {
        Bytes::copy_from_slice(request.headers()["grpc-timeout"].as_bytes())
    })
    .await;
    let answer = call.await.unwrap().unwrap().collect().await.unwrap();
    let left = String::from_utf8(answer.to_bytes().to_vec()).unwrap();
    let millis: u32 = left.strip_suffix('m').unwrap().parse().unwrap();
    assert!((500_000..=590_000).contains(&millis), "{left}");
}

/// A direct connection: the nodes lead new ones to the pods.
async fn woken(fixture: &Fixture) -> String {
    let address = fixture.asleep(service("cart")).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    format!("{}:{}", fixture.address, HTTP.listen)
}

/// How many holds have ended.
async fn holds(fixture: &Fixture) -> u64 {
    let metrics = fixture.admin("/metrics").await.body;
    let counts = metrics
        .lines()
        .filter(|line| line.starts_with("elasti_resolver_hold_seconds_count"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    counts.sum()
}

/// Serves what a pod speaks in its place: HTTP/1.1 and, with at most one stream on a connection, HTTP/2. `/slow` has to
/// wait for a permit.
async fn serve_narrow(pod: (IpAddr, u16), http2: bool) -> (Arc<AtomicUsize>, Arc<Semaphore>) {
    let listener = TcpListener::bind(pod).await.unwrap();
    let (arrived, permits) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (count, gate) = (arrived.clone(), permits.clone());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (count, gate) = (count.clone(), gate.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (count, gate) = (count.clone(), gate.clone());
                async move {
                    if request.uri().path() == "/slow" {
                        count.fetch_add(1, Ordering::Relaxed);
                        gate.acquire().await.unwrap().forget();
                    }
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
                }
            });
            tokio::spawn(async move {
                let io = TokioIo::new(stream);
                if http2 {
                    let mut server = auto::Builder::new(TokioExecutor::new());
                    server.http2().max_concurrent_streams(1);
                    drop(server.serve_connection(io, service).await);
                } else {
                    let server = hyper::server::conn::http1::Builder::new();
                    drop(server.serve_connection(io, service).await);
                }
            });
        }
    });
    (arrived, permits)
}

/// A hollow service that was woken once; gives its direct address and its pod's.
async fn woken_hollow(
    fixture: &Fixture,
    http2: bool,
) -> (String, Arc<AtomicUsize>, Arc<Semaphore>) {
    let address = fixture.asleep(hollow("cart")).await;
    let first = tokio::spawn(async move { http_get(&address, "/").await.code() });
    let (arrived, permits) = serve_narrow(pod_address(fixture).await, http2).await;
    assert_eq!(first.await.unwrap(), 200);
    let direct = format!("{}:{}", fixture.address, HTTP.listen);
    (direct, arrived, permits)
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_pod_that_speaks_no_http2_delays_no_other_request() {
    tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let (direct, _, _) = woken_hollow(&fixture, false).await;
    let before = holds(&fixture).await;
    let mut client = client(&direct).await;
    let calls = tokio::spawn(async move {
        for _ in 0..5 {
            let answer = client.send_request(post("/", "")).await.unwrap();
            assert_eq!(answer.status(), 502);
            assert_eq!(answer.headers()["x-elasti-reason"], "PodClosed");
        }
    });
    while !calls.is_finished() {
        assert_eq!(http_get(&direct, "/").await.code(), 200);
        // The paused clock moves only while there is nothing to do.
        sleep(Duration::from_millis(20)).await;
    }
    calls.await.unwrap();
    assert_eq!(holds(&fixture).await, before, "no request waits");
}

/// With a real clock: a paused one would run through the time that a ping has.
#[tokio::test]
async fn a_call_for_which_its_pod_has_no_stream_left_delays_no_other_request() {
    let fixture = Fixture::start().await;
    let (direct, arrived, permits) = woken_hollow(&fixture, true).await;
    let before = holds(&fixture).await;
    let channel = client(&direct).await;
    let mut calls = JoinSet::new();
    for _ in 0..70 {
        let mut channel = channel.clone();
        calls.spawn(async move {
            channel
                .send_request(post("/slow", ""))
                .await
                .unwrap()
                .status()
        });
    }
    until("every stream is taken", async || {
        arrived.load(Ordering::Relaxed) == 64
    })
    .await;
    for _ in 0..20 {
        assert_eq!(http_get(&direct, "/").await.code(), 200);
        sleep(Duration::from_millis(20)).await;
    }
    permits.add_permits(70);
    assert_eq!(calls.join_all().await, [200; 70]);
    assert_eq!(holds(&fixture).await, before, "no request was held");
}

/// With a real clock: a paused one would run through the time that a ping has.
#[tokio::test]
async fn of_the_calls_that_wait_for_room_at_a_pod_only_512_wait_outside_of_the_waiting_rooms() {
    let fixture = Fixture::start().await;
    let (direct, arrived, permits) = woken_hollow(&fixture, true).await;
    let before = holds(&fixture).await;
    let mut calls = JoinSet::new();
    let mut begin = async |count: usize| {
        // A channel has at most 200 streams.
        let channel = client(&direct).await;
        for _ in 0..count {
            let mut channel = channel.clone();
            calls.spawn(async move {
                let answer = channel.send_request(post("/slow", "")).await;
                answer.unwrap().status()
            });
        }
    };
    for count in [64, 192, 192, 128] {
        begin(count).await;
    }
    until("every stream is taken", async || {
        arrived.load(Ordering::Relaxed) == 64
    })
    .await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(fixture.resolver().held(), 0);
    assert_eq!(holds(&fixture).await, before, "512 wait, and none is held");
    begin(5).await;
    until("five more are held", async || {
        fixture.resolver().held() == 5
    })
    .await;
    permits.add_permits(64 + 512 + 5);
    assert_eq!(calls.join_all().await, [200; 64 + 512 + 5]);
    assert_eq!(fixture.resolver().held(), 0);
}

#[tokio::test(start_paused = true)]
async fn connections_end_in_order_when_their_route_goes() {
    tokio::spawn(small_steps());
    for deleted in [true, false] {
        let fixture = Fixture::start().await;
        let direct = woken(&fixture).await;
        let mut http2 = client(&direct).await;
        let answer = http2.send_request(post("/", "")).await.unwrap();
        drop(answer.collect().await.unwrap());
        let mut http1 = TcpStream::connect(&direct).await.unwrap();
        let get = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        http1.write_all(get).await.unwrap();
        let mut answer = vec![0; 65_536];
        let read = http1.read(&mut answer).await.unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
        if deleted {
            fixture.api_client.delete(&format!("{ELASTI}/cart")).await;
        } else {
            let moved = json!([{"name": "http", "port": 80, "listenPort": 20_007}]);
            fixture.status("cart", json!({"ports": moved})).await;
        }
        until("HTTP/2 got GOAWAY", async || http2.is_closed()).await;
        let ended = timeout(Duration::from_secs(5), http1.read(&mut answer));
        assert_eq!(ended.await.unwrap().unwrap(), 0, "HTTP/1 is idle, and ends");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_http2_connection_to_a_pod_is_closed() {
    let steps = tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let mut client = client(&address).await;
    let call = tokio::spawn(async move { client.send_request(post("/", "")).await });
    let listener = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    let served = loop {
        let (stream, _) = listener.accept().await.unwrap();
        if stream.peek(&mut [0]).await.is_ok_and(|read| read > 0) {
            break stream; // and not the kubelet's probe
        }
    };
    let answer =
        async |_: Request<Incoming>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()));
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let ended = tokio::spawn(server.serve_connection(TokioIo::new(served), service_fn(answer)));
    assert_eq!(call.await.unwrap().unwrap().status(), 200);
    steps.abort();
    let ended = timeout(Duration::from_secs(300), ended).await;
    ended.expect("it stays open").unwrap().unwrap();
}
