//! gRPC as its clients and servers speak it: messages with their lengths, a status in trailers, calls of many messages.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use elasti_testkit::fixture::{Fixture, service, small_steps, until};
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::channels::{MIB, late};
use crate::pods::{PodBody, pod_address, serve_in_place};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

type Channel = SendRequest<PodBody>;

async fn channel(address: &str) -> Channel {
    let stream = TcpStream::connect(address).await.unwrap();
    let builder = http2::Builder::new(TokioExecutor::new());
    let (client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// A message as it is sent: not compressed, its length, its bytes.
fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap());
    bytes.put_slice(message);
    bytes.freeze()
}

/// Takes the first whole message out of what has come.
fn next_message(came: &mut BytesMut) -> Option<Bytes> {
    let length: [u8; 4] = came.get(1..5)?.try_into().ok()?;
    let end = 5 + u32::from_be_bytes(length) as usize;
    assert_eq!(came[0], 0, "no message is compressed");
    (came.len() >= end).then(|| came.split_to(end).freeze().slice(5..))
}

/// A call, which ends when its messages do.
fn call(method: &str, mut messages: mpsc::Receiver<Bytes>) -> Request<PodBody> {
    let frames = futures::stream::poll_fn(move |context| messages.poll_recv(context));
    let body = StreamBody::new(frames.map(|message| Ok(Frame::data(framed(&message)))));
    Request::post(format!("http://cart.default/shop.Cart/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(BoxBody::new(body))
        .unwrap()
}

/// A call of one message.
fn unary(method: &str, message: impl Into<Bytes>) -> Request<PodBody> {
    let (say, messages) = mpsc::channel(1);
    say.try_send(message.into()).unwrap();
    call(method, messages)
}

fn status(code: &'static str) -> HeaderMap {
    HeaderMap::from_iter([
        (STATUS, HeaderValue::from_static(code)),
        (MESSAGE, HeaderValue::from_static("as the pod says")),
    ])
}

fn answer<S>(frames: S) -> Response<PodBody>
where
    S: futures::Stream<Item = Frame<Bytes>> + Send + Sync + 'static,
{
    let body = StreamBody::new(frames.map(Ok::<_, Infallible>));
    let mut answer = Response::new(BoxBody::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    answer.headers_mut().insert("content-type", grpc);
    answer
}

/// Echoes messages as they come. `Large` says more than any window has room for; `Missing` is an error without a
/// message, `Aborted` one after a message.
async fn shop(request: Request<Incoming>) -> Response<PodBody> {
    let headers = request.headers();
    let is_call = headers["te"] == "trailers" && headers["content-type"] == "application/grpc";
    let end = |code| futures::stream::iter([Frame::trailers(status(code))]);
    let message = |bytes: &[u8]| futures::stream::iter([Frame::data(framed(bytes))]);
    match request.uri().path() {
        _ if !is_call => answer(end("13")),
        "/shop.Cart/Large" => answer(message(&vec![b'x'; 8 * MIB]).chain(end("0"))),
        "/shop.Cart/Aborted" => answer(message(b"half of it").chain(end("10"))),
        "/shop.Cart/Missing" => {
            let mut missing = Response::new(BoxBody::default());
            *missing.headers_mut() = status("5");
            let grpc = HeaderValue::from_static("application/grpc");
            missing.headers_mut().insert("content-type", grpc);
            missing
        }
        _ => {
            // The end of what a client says often comes as a frame without data, of which nothing is to be echoed: h2
            // ends a connection after 100 of them.
            let said = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(|data| !data.is_empty());
            let came = BodyStream::new(request.into_body());
            let echo = came.filter_map(move |frame| std::future::ready(frame.ok().filter(said)));
            answer(echo.chain(end("0")))
        }
    }
}

/// What came back of a call.
#[derive(Debug, PartialEq)]
struct Outcome {
    messages: Vec<Bytes>,
    status: HeaderMap,
}

async fn outcome(answer: Response<Incoming>) -> Outcome {
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/grpc");
    let (parts, body) = answer.into_parts();
    if body.is_end_stream() {
        let (messages, status) = (Vec::new(), parts.headers);
        return Outcome { messages, status };
    }
    let body = body.collect().await.unwrap();
    let status = body.trailers().unwrap().clone();
    let mut came = BytesMut::from(&*body.to_bytes());
    let messages = std::iter::from_fn(|| next_message(&mut came)).collect();
    assert!(came.is_empty(), "half a message");
    Outcome { messages, status }
}

/// Says this message three times, each after the echo of the one before; gives what came back.
async fn converse(mut channel: Channel, message: Bytes) -> Outcome {
    let (say, said) = mpsc::channel(1);
    let asked = channel.send_request(call("Talk", said));
    say.send(message.clone()).await.unwrap();
    let mut body = asked.await.unwrap().into_body();
    let (mut came, mut messages, mut say) = (BytesMut::new(), Vec::new(), Some(say));
    loop {
        match body.frame().await.unwrap().unwrap().into_data() {
            Ok(data) => came.extend_from_slice(&data),
            Err(end) => {
                assert!(came.is_empty(), "half a message");
                let status = end.into_trailers().unwrap();
                return Outcome { messages, status };
            }
        }
        while let Some(echo) = next_message(&mut came) {
            messages.push(echo);
            say = say.filter(|_| messages.len() < 3);
            if let Some(say) = &say {
                say.send(message.clone()).await.unwrap();
            }
        }
    }
}

/// With a real clock: a paused one would run through the time that a ping has.
#[tokio::test]
async fn two_thousand_held_calls_on_twenty_channels_are_answered_beside_one_that_never_reads() {
    let message = Bytes::from(vec![b'm'; 64 * 1024]);
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let mut stuck = channel(&address).await;
    let stuck = tokio::spawn(async move { stuck.send_request(unary("Large", "")).await });
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let channel = channel(&address).await;
        for of_channel in 0..100 {
            let (mut channel, message) = (channel.clone(), message.clone());
            calls.spawn(async move {
                if of_channel % 10 == 0 {
                    let expected = vec![message.clone(); 3];
                    return (converse(channel, message).await, expected);
                }
                let asked = channel.send_request(unary("Echo", message.clone()));
                (outcome(asked.await.unwrap()).await, vec![message])
            });
        }
    }
    until("all are held", async || fixture.resolver().held() == 2001).await;
    serve_in_place(pod_address(&fixture).await, shop).await;
    let answers = timeout(Duration::from_secs(120), calls.join_all());
    for (outcome, messages) in answers.await.unwrap() {
        assert!(outcome.messages == messages, "what was said comes back");
        assert_eq!(outcome.status, status("0"));
    }
    let never_read = stuck.await.unwrap().unwrap();
    assert_eq!(never_read.headers()["content-type"], "application/grpc");
}

#[tokio::test(start_paused = true)]
async fn a_pods_own_error_comes_back_with_and_without_a_message_before_it() {
    tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let channel = channel(&address).await;
    let mut calls = ["Missing", "Aborted"].map(|method| {
        let mut channel = channel.clone();
        tokio::spawn(async move {
            outcome(channel.send_request(unary(method, "")).await.unwrap()).await
        })
    });
    until("both are held", async || fixture.resolver().held() == 2).await;
    serve_in_place(pod_address(&fixture).await, shop).await;
    let missing = (&mut calls[0]).await.unwrap();
    assert_eq!(
        (missing.messages.len(), &missing.status[STATUS]),
        (0, &HeaderValue::from_static("5"))
    );
    assert_eq!(missing.status[MESSAGE], "as the pod says");
    let aborted = (&mut calls[1]).await.unwrap();
    assert_eq!(aborted.messages, ["half of it"]);
    assert_eq!(aborted.status, status("10"));
}

#[tokio::test(start_paused = true)]
async fn a_held_call_whose_time_has_passed_gets_deadline_exceeded_without_a_message() {
    tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let mut never = service("cart");
    never.image = "never-ready:1";
    let address = fixture.asleep(never).await;
    let mut channel = channel(&address).await;
    let mut call = unary("Echo", "hello");
    let time = HeaderValue::from_static("3000m");
    call.headers_mut().insert("grpc-timeout", time);
    let answer = channel.send_request(call).await.unwrap();
    assert!(answer.body().is_end_stream(), "the status comes alone");
    let exceeded = outcome(answer).await.status;
    assert_eq!(exceeded[STATUS], "4");
    assert_eq!(exceeded["x-elasti-reason"], "GrpcTimeout");
    assert_eq!(fixture.resolver().held(), 0);
}

/// A pod that refuses the first stream of all, and answers every other.
async fn refuse_the_first(pod: (IpAddr, u16)) {
    let listener = TcpListener::bind(pod).await.unwrap();
    tokio::spawn(async move {
        let first = Arc::new(AtomicBool::new(true));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let first = first.clone();
            tokio::spawn(async move {
                let mut server = h2::server::handshake(stream).await.ok()?;
                while let Some(Ok((_, mut respond))) = server.accept().await {
                    if first.swap(false, Ordering::Relaxed) {
                        respond.send_reset(h2::Reason::REFUSED_STREAM);
                        continue;
                    }
                    let mut alone = Response::new(());
                    *alone.headers_mut() = status("0");
                    let grpc = HeaderValue::from_static("application/grpc");
                    alone.headers_mut().insert("content-type", grpc);
                    respond.send_response(alone, true).ok()?;
                }
                Some(())
            });
        }
    });
}

/// As gRPC clients do without being asked: what was refused was not begun.
async fn retried_once(mut channel: Channel) -> (bool, Outcome) {
    let refused = channel.send_request(unary("Echo", "hello")).await;
    let error = refused.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap();
    let cause = cause.downcast_ref::<h2::Error>().unwrap();
    let may = cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM);
    let again = channel.send_request(unary("Echo", "hello")).await;
    (may, outcome(again.unwrap()).await)
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_pod_refuses_is_answered_when_its_client_sends_it_again() {
    tokio::spawn(small_steps());
    let fixture = Fixture::start().await;
    let address = fixture.asleep(late("cart")).await;
    let channel = channel(&address).await;
    let call = tokio::spawn(retried_once(channel));
    until("it is held", async || fixture.resolver().held() == 1).await;
    refuse_the_first(pod_address(&fixture).await).await;
    let (may_retry, outcome) = call.await.unwrap();
    assert!(may_retry, "REFUSED_STREAM, on a connection that goes on");
    assert_eq!(outcome.status[STATUS], "0");
}
