//! Clients: HTTP/1.1 on kept and on closed connections, h2c with several streams, raw TCP; some disconnect early. They
//! never retry: every request has its own entry in the ledger.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elasti_simulated_network::{Delivery, SimRng, TcpStream};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::ledger::{Ledger, Outcome};
use crate::world::World;

type Body = BoxBody<Bytes, Infallible>;

/// Longer than any hold; a client of a pod that hangs disconnects after this.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(100);

/// Some connect ahead of their first byte, as browsers do. A resolver connects a silent client to a pod after 200 ms; if
/// that pod closes, or the client is refused, the first byte has a second to come. This and two late links stay below.
const FIRST_BYTE_WITHIN_MILLIS: u64 = 500;

/// One client.
pub struct Client {
    pub world: Arc<World>,
    pub service: &'static str,
    pub port: u16,
    pub tcp: bool,
    pub name: String,
    pub rng: SimRng,
}

impl Client {
    pub async fn run(mut self) {
        let kind = self.rng.between(0, 9);
        match (self.tcp, kind) {
            (true, _) => self.tcp().await,
            (false, 0..=3) => self.http1(1).await,
            (false, 4..=7) => {
                let requests = self.rng.between(2, 6);
                self.http1(requests).await;
            }
            (false, _) => self.http2().await,
        }
    }

    fn ledger(&self) -> Arc<Ledger> {
        self.world.ledger.clone()
    }

    async fn connect(&mut self) -> Option<TcpStream> {
        let address = SocketAddr::new(self.world.instance(&mut self.rng)?, self.port);
        let from = IpAddr::V4(Ipv4Addr::new(10, 2, 0, 7));
        timeout(
            Duration::from_secs(60),
            TcpStream::connect_from(from, address),
        )
        .await
        .ok()?
        .ok()
    }

    /// When this request's client gives up.
    fn disconnects_at(&mut self) -> Instant {
        let span = if self.rng.percent(15) {
            self.rng.millis(0, 12_000)
        } else {
            CLIENT_TIMEOUT
        };
        Instant::now() + span
    }

    fn request(&mut self, id: &str, version: http::Version) -> Request<Body> {
        let bytes = if self.rng.percent(20) {
            self.rng.between(1, 200_000)
        } else {
            self.rng.between(0, 3000)
        };
        let posts = self.rng.percent(40);
        let bytes = if posts {
            usize::try_from(bytes).unwrap()
        } else {
            0
        };
        let body: Body = if posts && self.rng.percent(50) {
            let piece = Bytes::from(vec![b'c'; bytes / 2]);
            let rest = Bytes::from(vec![b'd'; bytes - bytes / 2]);
            let frames = [piece, rest]
                .into_iter()
                .filter(|one| !one.is_empty())
                .map(|one| Ok(Frame::data(one)));
            BoxBody::new(StreamBody::new(futures::stream::iter(
                frames.collect::<Vec<_>>(),
            )))
        } else {
            Full::new(Bytes::from(vec![b'b'; bytes])).boxed()
        };
        let uri = if version == http::Version::HTTP_2 {
            format!("http://{}.default/{id}", self.service)
        } else {
            format!("/{id}")
        };
        Request::builder()
            .method(if posts { "POST" } else { "GET" })
            .uri(uri)
            .version(version)
            .header("host", format!("{}.default", self.service))
            .header("x-bytes", bytes.to_string())
            .body(body)
            .unwrap()
    }

    async fn http1(&mut self, requests: u64) {
        let ledger = self.ledger();
        let mut open: Option<(http1::SendRequest<Body>, Task, Delivery, Instant)> = None;
        for at in 0..requests {
            let id = format!("{}-{at}", self.name);
            if let Some((sender, ..)) = &mut open
                && sender.ready().await.is_err()
            {
                open = None;
            }
            if open.is_none() {
                let since = Instant::now();
                // A slot may be taken before the client knows that its connection is made.
                let slots = Slots::take(&ledger, 1);
                let Some(stream) = self.connect().await else {
                    ledger.began(&id, self.service, false, since);
                    return ledger.end(&id, Outcome::NotAccepted);
                };
                let delivery = stream.delivery();
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
                let task = tokio::spawn(async move { drop((connection.await, slots)) });
                open = Some((sender, Task(task.abort_handle()), delivery, since));
            }
            let Some((sender, _, delivery, since)) = &mut open else {
                return;
            };
            let mut request = self.request(&id, http::Version::HTTP_11);
            if requests == 1 && self.rng.percent(70) {
                request
                    .headers_mut()
                    .insert("connection", "close".parse().unwrap());
            }
            let before = delivery.bytes();
            let mut began = Instant::now();
            if before == 0 && self.rng.percent(15) {
                ledger.count("first byte late");
                began = *since;
                let pause = self.rng.millis(0, FIRST_BYTE_WITHIN_MILLIS);
                sleep(pause).await;
            }
            let disconnects = self.disconnects_at();
            ledger.began(&id, self.service, false, began);
            let outcome = tokio::select! {
                outcome = send_http1(sender, request, &id) => outcome,
                () = sleep_until(disconnects) => Outcome::Disconnected(Some(delivery.clone())),
            };
            let outcome = match outcome {
                Outcome::Lost(_) if delivery.bytes() == 0 => Outcome::Undelivered(*since),
                Outcome::Lost(_) if delivery.bytes() == before => Outcome::Crossed,
                other => other,
            };
            let disconnected = matches!(outcome, Outcome::Disconnected(_));
            let unsent = matches!(outcome, Outcome::Unsent);
            ledger.end(&id, outcome);
            if unsent {
                open = None;
                continue;
            }
            if disconnected {
                return;
            }
            let pause = self.rng.millis(0, 6000);
            sleep(pause).await;
        }
    }

    async fn http2(&mut self) {
        let ledger = self.ledger();
        let streams = self.rng.between(1, 5);
        // A connection that waits unread has its deadline from its start on.
        let since = Instant::now();
        let slots = Arc::new(Slots::take(&ledger, usize::try_from(streams).unwrap()));
        let Some(stream) = self.connect().await else {
            return;
        };
        let delivery = stream.delivery();
        let Ok((sender, connection)) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await
        else {
            return;
        };
        // After GOAWAY the connection takes no new stream, but those that are open may still be held.
        let of_connection = slots.clone();
        let task = tokio::spawn(async move { drop((connection.await, of_connection)) });
        let requests_in_flight = (0..streams).map(|at| {
            let id = format!("{}-{at}", self.name);
            let request = self.request(&id, http::Version::HTTP_2);
            let (disconnects, pause) = (self.disconnects_at(), self.rng.millis(0, 8000));
            let (ledger, service, mut sender) = (ledger.clone(), self.service, sender.clone());
            let delivery = delivery.clone();
            async move {
                sleep(pause).await;
                if sender.ready().await.is_err() {
                    return;
                }
                ledger.began(&id, service, false, since);
                let outcome = tokio::select! {
                    outcome = send_http2(&mut sender, request, &id) => outcome,
                    () = sleep_until(disconnects + pause) => Outcome::Disconnected(None),
                };
                let outcome = match outcome {
                    Outcome::Lost(_) if delivery.bytes() == 0 => Outcome::Undelivered(since),
                    other => other,
                };
                ledger.end(&id, outcome);
            }
        });
        let requests_in_flight: Vec<_> = requests_in_flight.collect();
        drop(sender);
        futures::future::join_all(requests_in_flight).await;
        drop(slots);
        // Dropping the last sender ends the connection in order; a moment later it is cut.
        sleep(Duration::from_secs(1)).await;
        task.abort();
    }

    async fn tcp(&mut self) {
        let (ledger, id) = (self.ledger(), self.name.clone());
        ledger.begin(&id, self.service, true);
        // Such a client may have disconnected or still read, so its slot may stay taken.
        ledger.take_slots(1);
        let stream = self.connect().await;
        let Some(stream) = stream else {
            return ledger.end(&id, Outcome::NotAccepted);
        };
        let delivery = stream.delivery();
        let disconnects = self.disconnects_at();
        let (pause, half_closes) = (self.rng.millis(0, 300), self.rng.percent(30));
        let outcome = tokio::select! {
            outcome = send_line(stream, &id, pause, half_closes) => outcome,
            () = sleep_until(disconnects) => Outcome::Disconnected(Some(delivery.clone())),
        };
        ledger.end(&id, outcome);
    }
}

/// A connection's task; dropped, the connection is.
struct Task(tokio::task::AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The slots that a connection may hold.
struct Slots(Arc<Ledger>, usize);

impl Slots {
    fn take(ledger: &Arc<Ledger>, count: usize) -> Self {
        ledger.take_slots(count);
        Self(ledger.clone(), count)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        self.0.free_slots(self.1);
    }
}

async fn send_line(stream: TcpStream, id: &str, pause: Duration, half_closes: bool) -> Outcome {
    let mut stream = BufReader::new(stream);
    sleep(pause).await;
    if stream
        .write_all(format!("\x17{id}\n").as_bytes())
        .await
        .is_err()
    {
        return Outcome::Closed;
    }
    if half_closes {
        let _ = stream.shutdown().await;
    }
    let mut line = String::new();
    match stream.read_line(&mut line).await {
        Ok(_) if line.ends_with('\n') => match line.trim_end().split_once(' ') {
            Some((pod, echoed)) if echoed == id => Outcome::Whole(pod.to_owned()),
            _ => Outcome::Lost(format!("got {line:?}")),
        },
        Ok(_) | Err(_) => Outcome::Closed,
    }
}

async fn send_http1(
    sender: &mut http1::SendRequest<Body>,
    request: Request<Body>,
    id: &str,
) -> Outcome {
    match sender.try_send_request(request).await {
        Ok(answer) => read_response(answer, id).await,
        Err(mut error) => match error.take_message() {
            Some(_) => Outcome::Unsent,
            None => Outcome::Lost(format!("{:?}", error.into_error())),
        },
    }
}

async fn send_http2(
    sender: &mut http2::SendRequest<Body>,
    request: Request<Body>,
    id: &str,
) -> Outcome {
    match sender.try_send_request(request).await {
        Ok(answer) => read_response(answer, id).await,
        Err(mut error) => match error.take_message() {
            Some(_) => Outcome::Unsent,
            None => {
                let error = format!("{:?}", error.into_error());
                // With this code and no answer the stream's number lies above the last that counts.
                if error.contains("GoAway(b\"\", NO_ERROR, Remote)") {
                    Outcome::GoAway
                } else {
                    Outcome::Lost(error)
                }
            }
        },
    }
}

async fn read_response(answer: Response<Incoming>, id: &str) -> Outcome {
    let header = |name: &str| {
        answer
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let (pod, reason, retry) = (
        header("x-pod"),
        header("x-elasti-reason"),
        header("retry-after"),
    );
    let status = answer.status().as_u16();
    let Ok(body) = answer.into_body().collect().await else {
        return Outcome::Cut;
    };
    let body = body.to_bytes();
    match pod {
        Some(pod) if body.ends_with(format!(" end:{id}").as_bytes()) => Outcome::Whole(pod),
        // A response that ends in order must be complete: its client could not notice the difference.
        Some(_) => Outcome::Lost(format!("{} bytes of another response", body.len())),
        None => Outcome::Refused {
            status,
            reason: reason.unwrap_or_default(),
            retry_after: retry.is_some(),
        },
    }
}
