//! The windows of HTTP/2: as large for a connection as for all its streams, so that what stays unread stops nothing else.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use elasti_testkit::fixture::{Fixture, HTTP, http_get, small_steps, until};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::channels::{MIB, client, late, post};
use crate::corpus::http2::{PREFACE, SETTINGS, WINDOW_UPDATE, frame, next_frame};
use crate::pods::pod_address;

const STREAM: u32 = 64 * 1024;
/// What a connection has before it says more.
const INITIAL: u32 = 65_535;

/// The window of each stream and that of the connection, as a peer says them.
async fn windows(stream: &mut TcpStream) -> (u32, u32) {
    let (mut of_stream, mut of_connection) = (None, None);
    while of_stream.is_none() || of_connection.is_none() {
        match next_frame(stream).await.unwrap() {
            (SETTINGS, settings) if !settings.is_empty() => {
                let mut all = settings.chunks(6);
                let found = all.find(|one| one[..2] == [0, 4]).unwrap();
                of_stream = Some(u32::from_be_bytes(found[2..].try_into().unwrap()));
            }
            (WINDOW_UPDATE, more) => {
                let more = u32::from_be_bytes(more.try_into().unwrap());
                of_connection = Some(INITIAL + more);
            }
            _ => {}
        }
    }
    (of_stream.unwrap(), of_connection.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_connections_window_is_as_large_as_those_of_all_its_streams() {
    tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let hello = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let mut as_client = TcpStream::connect(&address).await.unwrap();
    as_client.write_all(&hello).await.unwrap();
    let of_clients = windows(&mut as_client).await;
    assert_eq!(of_clients, (STREAM, 200 * STREAM), "200 streams");

    let mut client = client(&address).await;
    tokio::spawn(async move { client.send_request(post("/", "")).await });
    let listener = TcpListener::bind(pod_address(&fixture).await)
        .await
        .unwrap();
    let of_pods = loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut preface = [0; PREFACE.len()];
        // Else it is the kubelet's probe.
        if stream.read_exact(&mut preface).await.is_ok() {
            let settings = frame(SETTINGS, 0, 0, &[]);
            stream.write_all(&settings).await.unwrap();
            break windows(&mut stream).await;
        }
    };
    assert_eq!(of_pods, (STREAM, 100 * STREAM), "100 streams");
}

/// A pod of HTTP/1.1 and HTTP/2: `/large` is answered with more than any window, `/unread` never and unread, all others
/// with the length of what they sent.
struct Pod {
    /// On how many connections HTTP/2 came.
    http2: Arc<Mutex<BTreeSet<usize>>>,
    unread: Arc<AtomicUsize>,
}

impl Pod {
    async fn serve(address: (IpAddr, u16)) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let pod = Self {
            http2: Arc::default(),
            unread: Arc::default(),
        };
        let (http2, unread) = (pod.http2.clone(), pod.unread.clone());
        tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (http2, unread) = (http2.clone(), unread.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    if request.version() == http::Version::HTTP_2 {
                        http2.lock().insert(connection);
                    }
                    let unread = unread.clone();
                    async move {
                        let answer = match request.uri().path() {
                            "/large" => Bytes::from(vec![b'x'; 8 * MIB]),
                            "/unread" => {
                                unread.fetch_add(1, Ordering::Relaxed);
                                let _request = request;
                                std::future::pending().await
                            }
                            _ => {
                                let sent = request.into_body().collect().await.unwrap();
                                Bytes::from(sent.to_bytes().len().to_string())
                            }
                        };
                        Ok::<_, Infallible>(Response::new(Full::new(answer)))
                    }
                });
                tokio::spawn(async move {
                    let mut server = auto::Builder::new(TokioExecutor::new());
                    server
                        .http2()
                        .initial_stream_window_size(STREAM)
                        .initial_connection_window_size(200 * STREAM);
                    drop(server.serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        pod
    }
}

/// With a real clock: a paused one would run through the time that a ping has.
#[tokio::test]
async fn ninety_nine_unread_answers_stop_no_other_on_the_same_connection_to_their_pod() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let (stuck, mut other) = (client(&address).await, client(&address).await);
    let mut unread = tokio::task::JoinSet::new();
    for _ in 0..99 {
        let mut stuck = stuck.clone();
        unread.spawn(async move { stuck.send_request(post("/large", "")).await });
    }
    until("all are held", async || fixture.resolver().held() == 99).await;
    let pod = Pod::serve(pod_address(&fixture).await).await;
    let _unread = unread.join_all().await;
    let direct = format!("{}:{}", fixture.address, HTTP.listen);
    let read = async {
        let answer = other.send_request(post("/large", "")).await.unwrap();
        answer.collect().await.unwrap().to_bytes().len()
    };
    assert_eq!(timeout(Duration::from_secs(60), read).await, Ok(8 * MIB));
    let read = timeout(Duration::from_secs(60), http_get(&direct, "/large"));
    assert_eq!(read.await.unwrap().body.len(), 8 * MIB, "over HTTP/1.1");
    assert_eq!(pod.http2.lock().len(), 1, "connections of HTTP/2");
}

/// With a real clock: a paused one would run through the time that a ping has.
#[tokio::test]
async fn a_hundred_bodies_that_their_pod_does_not_read_stop_no_other_of_the_same_client() {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let client = client(&address).await;
    let mut unread = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let mut client = client.clone();
        let body = vec![b'm'; 8 * STREAM as usize];
        unread.spawn(async move { client.send_request(post("/unread", body)).await });
    }
    until("all are held", async || fixture.resolver().held() == 100).await;
    let pod = Pod::serve(pod_address(&fixture).await).await;
    until("the pod has all", async || {
        pod.unread.load(Ordering::Relaxed) == 100
    })
    .await;
    let mut other = client;
    let sent = async {
        let body = vec![b'm'; 8 * MIB];
        let answer = other.send_request(post("/", body)).await.unwrap();
        answer.collect().await.unwrap().to_bytes()
    };
    let sent = timeout(Duration::from_secs(60), sent).await.unwrap();
    assert_eq!(sent, (8 * MIB).to_string());
}
