//! Pods that behave in ways the sample apps do not: trailers, slow streams, refusals, closed connections.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use elasti_testkit::fixture::{
    Fixture, HTTP, PODS, TestService, http_get, send_raw, service, small_steps, until,
};
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// A pod that is ready at once and listens nowhere: the test listens in its place.
pub fn hollow(name: &'static str) -> TestService {
    let mut hollow = service(name);
    hollow.image = "never-ready:1";
    hollow.probed = false;
    hollow
}

/// Wakes a hollow service and gives the address behind its port 80.
pub async fn pod_address(fixture: &Fixture) -> (IpAddr, u16) {
    let mut address = None;
    until("a pod has an address", async || {
        let pods = fixture.api_client.items(PODS).await;
        address = pods
            .first()
            .and_then(|pod| pod["status"]["podIP"].as_str()?.parse().ok());
        address.is_some()
    })
    .await;
    (address.unwrap(), 8000 + HTTP.port)
}

#[tokio::test(start_paused = true)]
async fn a_ready_pod_that_refuses_keeps_the_request_held_until_it_accepts() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let client = tokio::spawn(async move { http_get(&address, "/").await });
    let pod = pod_address(&fixture).await;
    sleep(Duration::from_secs(5)).await;
    assert!(
        !client.is_finished(),
        "refused connections are not the client's problem"
    );
    let listener = TcpListener::bind(pod).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = [0; 1024];
    let read = stream.read(&mut head).await.unwrap();
    assert!(head[..read].starts_with(b"GET / HTTP/1.1\r\n"));
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        .await
        .unwrap();
    assert_eq!(client.await.unwrap().body, "hi");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_a_pod_may_have_seen_is_delivered_once_and_its_loss_is_a_502_s7() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let client = tokio::spawn(async move { http_get(&address, "/pay").await });
    let listener = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = [0; 1024];
    assert!(stream.read(&mut head).await.unwrap() > 0);
    drop(stream);
    let answer = client.await.unwrap();
    assert_eq!(answer.code(), 502, "{answer:?}");
    assert_eq!(answer.header("x-elasti-reason"), Some("PodClosed"));
    assert_eq!(answer.header("retry-after"), None);
    let again = tokio::time::timeout(Duration::from_secs(5), listener.accept()).await;
    assert!(again.is_err(), "nothing is sent twice");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_the_pod_closed_while_idle_is_not_used_again() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let direct = format!("{}:{}", fixture.address, HTTP.listen);
    let first = tokio::spawn(async move { http_get(&address, "/").await });
    let listener = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    for client in [
        first,
        tokio::spawn(async move { http_get(&direct, "/").await }),
    ] {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 1024];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            .await
            .unwrap();
        assert_eq!(client.await.unwrap().code(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_one_after_the_other_use_one_connection_to_their_pod() {
    const ANSWERS: [&str; 6] = [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone",
    ];
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let direct = format!("{}:{}", fixture.address, HTTP.listen);
    let first = tokio::spawn(async move { http_get(&address, "/").await });
    let listener = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    // The clock must not reach the end of an idle connection between two requests.
    tokio::time::resume();
    let pod = tokio::spawn(async move {
        for answer in ANSWERS {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let clients = tokio::spawn(async move {
        assert_eq!(first.await.unwrap().body, "hi");
        for _ in &ANSWERS[1..] {
            http_get(&direct, "/").await;
        }
    });
    // It fails at the end of its only connection.
    pod.await.unwrap();
    clients.await.unwrap();
}

pub type PodBody = BoxBody<Bytes, Infallible>;

/// Serves HTTP/1.1 and h2c in the pod's place.
pub async fn serve_in_place<F, A>(pod: (IpAddr, u16), answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<PodBody>> + Send + 'static,
{
    let listener = TcpListener::bind(pod).await.unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            tokio::spawn(async move {
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                drop(server.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
}

#[tokio::test(start_paused = true)]
async fn grpc_trailers_come_back_through_a_wake() {
    let fixture = Fixture::start().await;
    tokio::spawn(small_steps());
    let address = fixture.asleep(hollow("cart")).await;
    let stream = TcpStream::connect(&address).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::post("http://cart.default/shop.Cart/Get")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from_static(b"question")))
        .unwrap();
    let call = tokio::spawn(async move { client.send_request(request).await.unwrap() });
    serve_in_place(
        pod_address(&fixture).await,
        |request: Request<Incoming>| async move {
            let question = request.collect().await.unwrap().to_bytes();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let frames = [Ok(Frame::data(question)), Ok(Frame::trailers(trailers))];
            let mut response =
                Response::new(StreamBody::new(futures::stream::iter(frames)).boxed());
            response
                .headers_mut()
                .insert("content-type", "application/grpc".parse().unwrap());
            response
        },
    )
    .await;
    let answer = call.await.unwrap().collect().await.unwrap();
    assert_eq!(answer.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(answer.to_bytes(), "question");
}

#[tokio::test(start_paused = true)]
async fn events_arrive_one_by_one_and_are_never_collected_r9() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    client
        .write_all(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let (say, said) = mpsc::channel::<Bytes>(1);
    let said = Arc::new(parking_lot::Mutex::new(Some(said)));
    serve_in_place(pod_address(&fixture).await, move |_| {
        let said = said.lock().take().unwrap();
        let events = futures::stream::unfold(said, async |mut said| {
            let event = said.recv().await?;
            Some((Ok(Frame::data(event)), said))
        });
        let mut response = Response::new(BoxBody::new(StreamBody::new(events)));
        response
            .headers_mut()
            .insert("content-type", "text/event-stream".parse().unwrap());
        async move { response }
    })
    .await;
    for event in ["data: one\n\n", "data: two\n\n", "data: three\n\n"] {
        say.send(Bytes::from_static(event.as_bytes()))
            .await
            .unwrap();
        let mut received = Vec::new();
        while !received.ends_with(event.as_bytes()) {
            received.push(client.read_u8().await.unwrap());
        }
    }
    assert_eq!(fixture.resolver().held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_slows_the_pod_down_r9() {
    const PIECE: usize = 64 * 1024;
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let mut client = TcpStream::connect(&address).await.unwrap();
    client
        .write_all(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    serve_in_place(pod_address(&fixture).await, move |_| {
        let counter = counter.clone();
        let endless = futures::stream::unfold(counter, async |counter| {
            counter.fetch_add(PIECE, Ordering::Relaxed);
            Some((Ok(Frame::data(Bytes::from_static(&[7; PIECE]))), counter))
        });
        let body = BoxBody::new(StreamBody::new(endless));
        async move { Response::new(body) }
    })
    .await;
    let mut before = usize::MAX;
    until("the pod stands still", async || {
        let now = sent.load(Ordering::Relaxed);
        let still = now == before && now > 0;
        before = now;
        sleep(Duration::from_millis(100)).await;
        still
    })
    .await;
    // What the kernel buffers of three connections hold, and one frame each.
    assert!(before < 64 * 1024 * 1024, "{before}");
    let mut some = vec![0; 1024 * 1024];
    client.read_exact(&mut some).await.unwrap();
    until("it goes on", async || sent.load(Ordering::Relaxed) > before).await;
}

#[tokio::test(start_paused = true)]
async fn a_large_upload_streams_to_the_pod() {
    const SIZE: usize = 100 * 1024 * 1024;
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let client = tokio::spawn(async move {
        let mut client = TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: {SIZE}\r\nConnection: close\r\n\r\n"
        );
        client.write_all(head.as_bytes()).await.unwrap();
        let piece = vec![1; 1024 * 1024];
        for _ in 0..SIZE / piece.len() {
            client.write_all(&piece).await.unwrap();
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    });
    serve_in_place(
        pod_address(&fixture).await,
        |request: Request<Incoming>| async move {
            let mut body = request.into_body();
            let mut received = 0;
            while let Some(Ok(frame)) = body.frame().await {
                received += frame.data_ref().map_or(0, Bytes::len);
            }
            Response::new(Full::new(Bytes::from(received.to_string())).boxed())
        },
    )
    .await;
    assert!(client.await.unwrap().ends_with(&SIZE.to_string()));
}

/// Heads that two parsers could read differently, or that are past a bound. None may reach the pod as two requests.
const HOSTILE: &[&str] = &[
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4, 5\r\n\r\nabcd",
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd",
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4x\r\n\r\nabcd",
    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: x\r\nBad\0Name: y\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
    "GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
];

#[tokio::test(start_paused = true)]
async fn hostile_heads_are_refused_and_never_reach_the_pod() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(hollow("cart")).await;
    let delivered = Arc::new(AtomicUsize::new(0));
    let counter = delivered.clone();
    let first = tokio::spawn(async move { http_get(&address, "/").await });
    serve_in_place(pod_address(&fixture).await, move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        async { Response::new(Empty::new().boxed()) }
    })
    .await;
    assert_eq!(first.await.unwrap().code(), 200);
    let direct = format!("{}:{}", fixture.address, HTTP.listen);
    let many: String = (0..200).map(|at| format!("h{at}: x\r\n")).collect();
    let giant = "x".repeat(100 * 1024);
    let bounds = [
        format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n"),
        format!("GET / HTTP/1.1\r\nHost: x\r\nGiant: {giant}\r\n\r\n"),
    ];
    for text in HOSTILE
        .iter()
        .copied()
        .chain(bounds.iter().map(String::as_str))
    {
        let answer = send_raw(&direct, text).await;
        let code = answer.code();
        assert!(
            (400..500).contains(&code),
            "{code} for {:?}",
            text.get(..60)
        );
    }
    assert_eq!(delivered.load(Ordering::Relaxed), 1, "only the first one");
}

#[tokio::test(start_paused = true)]
async fn quick_requests_do_not_wait_for_the_answers_of_slow_ones_before_them() {
    let fixture = Fixture::start().await;
    // Ready as soon as the test listens: none is released before.
    let mut late = hollow("cart");
    late.probed = true;
    let address = fixture.asleep(late).await;
    let ask = |path: &'static str, count: usize| {
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..count {
            let address = address.clone();
            all.spawn(async move { http_get(&address, path).await.code() });
        }
        all
    };
    let mut slow = ask("/slow", 40);
    until("the slow are held", async || {
        fixture.resolver().held() == 40
    })
    .await;
    let quick = ask("/quick", 10);
    until("all are held", async || fixture.resolver().held() == 50).await;
    serve_in_place(pod_address(&fixture).await, async |request| {
        if request.uri().path() == "/slow" {
            sleep(Duration::from_secs(10)).await;
        }
        Response::new(Empty::new().boxed())
    })
    .await;
    assert_eq!(quick.join_all().await, [200; 10]);
    assert!(
        slow.try_join_next().is_none(),
        "no slow one was answered before"
    );
    assert_eq!(slow.join_all().await, [200; 40]);
}

/// Clients that hold a slot of their service and send no whole request.
async fn slow_clients(address: &str, start: &[u8]) -> Vec<TcpStream> {
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(start).await.unwrap();
        slow.push(client);
    }
    slow
}

#[tokio::test(start_paused = true)]
async fn clients_that_send_no_whole_request_delay_no_request_behind_them() {
    tokio::spawn(small_steps());
    let half = b"GET / HTTP/1.1\r\nHost: x\r\n".as_slice();
    for (start, declared) in [(half, None), (b"G", None), (b"", Some("http"))] {
        let fixture = Fixture::start().await;
        let mut late = hollow("cart");
        late.probed = true;
        late.ports[0].app_protocol = declared;
        let address = fixture.asleep(late).await;
        let slow = slow_clients(&address, start).await;
        until("the slow are held", async || fixture.resolver().held() == 8).await;
        let mut quick = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let address = address.clone();
            quick.spawn(async move { http_get(&address, "/").await.code() });
        }
        until("all are held", async || fixture.resolver().held() == 18).await;
        serve_in_place(pod_address(&fixture).await, async |_| {
            Response::new(Empty::new().boxed())
        })
        .await;
        until("the first are released", async || {
            fixture.resolver().held() < 18
        })
        .await;
        let released = Instant::now();
        assert_eq!(quick.join_all().await, [200; 10]);
        let waited = released.elapsed();
        assert!(waited < Duration::from_secs(3), "{waited:?} for {start:?}");
        drop(slow);
    }
}
