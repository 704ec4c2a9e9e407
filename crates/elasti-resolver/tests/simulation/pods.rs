//! Pods: they serve well, start late, refuse, black-hole, reset, close idle connections, break off, hang or crash.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use elasti_simulated_network::{SimRng, TcpListener, TcpStream, listen};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::ledger::Ledger;

/// The path of a readiness probe.
pub const PROBE: &str = "healthz";

/// How a pod behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    Good,
    /// It is ready this long before it listens.
    Late(Duration),
    /// Ready, and listens nowhere.
    Refuses,
    /// Ready, and nothing that is sent to it ever arrives.
    BlackHole,
    /// The first connections are reset as they are accepted.
    ResetsFirst(u32),
    /// Connections that are idle for this long are closed.
    ClosesIdle(Duration),
    /// This request is read, then its connection ends.
    Breaks(u32),
    /// The same, in the middle of the answer.
    Cuts(u32),
    /// The same, and the pod crashes.
    Dies(u32),
    /// It receives and never answers.
    Hangs,
}

/// How a pod ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    #[default]
    Not,
    /// It finishes what it has.
    InOrder,
    /// It ends at once.
    Crash,
}

/// A running pod.
#[derive(Debug)]
pub struct Pod {
    pub name: String,
    pub service: &'static str,
    pub address: SocketAddr,
    pub behaviour: Behaviour,
    pub tcp: bool,
    pub stop: watch::Sender<Stop>,
    /// Its readiness probe passes. Before that it accepts connections, and no request may come.
    pub well: AtomicBool,
    /// Its kubelet says that it is ready.
    pub ready: AtomicBool,
    ledger: Arc<Ledger>,
    received: AtomicU32,
    rng: Mutex<SimRng>,
}

impl Pod {
    pub fn new(
        name: String,
        service: &'static str,
        address: SocketAddr,
        behaviour: Behaviour,
        tcp: bool,
        ledger: Arc<Ledger>,
        rng: SimRng,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            service,
            address,
            behaviour,
            tcp,
            stop: watch::Sender::default(),
            well: AtomicBool::new(true),
            ready: AtomicBool::new(false),
            ledger,
            received: AtomicU32::new(0),
            rng: Mutex::new(rng),
        })
    }

    /// Serves until it is stopped or crashes; returns which.
    pub async fn serve(self: Arc<Self>) -> Stop {
        if let Behaviour::Late(span) = self.behaviour {
            sleep(span).await;
        }
        if matches!(self.behaviour, Behaviour::Refuses | Behaviour::BlackHole) {
            return self.stopped().await;
        }
        let mut connections = JoinSet::new();
        let listener = listen(self.address).unwrap();
        let stop = tokio::select! {
            stop = self.stopped() => stop,
            () = self.accept(&listener, &mut connections) => Stop::Crash,
        };
        drop(listener);
        if stop == Stop::InOrder {
            while connections.join_next().await.is_some() {}
            self.ledger.broke_a_connection(self.service);
        } else {
            self.ledger.breaks(&self.name, None);
            self.ledger.broke_a_connection(self.service);
        }
        stop
    }

    async fn stopped(&self) -> Stop {
        let mut stop = self.stop.subscribe();
        let _ = stop.wait_for(|stop| *stop != Stop::Not).await;
        *self.stop.borrow()
    }

    async fn accept(self: &Arc<Self>, listener: &TcpListener, connections: &mut JoinSet<()>) {
        let mut accepted = 0;
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            accepted += 1;
            if let Behaviour::ResetsFirst(most) = self.behaviour
                && accepted <= most
            {
                self.ledger.broke_a_connection(self.service);
                stream.reset();
                continue;
            }
            let pod = self.clone();
            connections.spawn(async move {
                if pod.tcp {
                    pod.echo(stream).await;
                } else {
                    pod.http(stream).await;
                }
            });
        }
    }

    async fn http(self: Arc<Self>, stream: TcpStream) {
        let connection_state = Arc::new(PodConnection::default());
        let (pod, inside) = (self.clone(), connection_state.clone());
        let service = service_fn(move |request| {
            let (pod, connection_state) = (pod.clone(), inside.clone());
            async move { Ok::<_, Infallible>(pod.respond(request, &connection_state).await) }
        });
        let mut server = auto::Builder::new(TokioExecutor::new());
        let idle = match self.behaviour {
            Behaviour::ClosesIdle(span) => span,
            _ => Duration::from_secs(3600),
        };
        server
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(idle);
        let mut connection = std::pin::pin!(server.serve_connection(TokioIo::new(stream), service));
        let mut stopping = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if ended.is_err() && matches!(self.behaviour, Behaviour::ClosesIdle(_)) {
                        self.ledger.broke_a_connection(self.service);
                    }
                    return;
                }
                () = connection_state.broken.notified() => {
                    connection_state.was_broken.store(true, Ordering::Relaxed);
                    self.ledger.breaks(&self.name, Some(&connection_state.ids.lock()));
                    self.ledger.broke_a_connection(self.service);
                    return;
                }
                _ = self.stopped(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
        connection_state: &PodConnection,
    ) -> Response<BoxBody<Bytes, io::Error>> {
        let id = request.uri().path().trim_start_matches('/').to_owned();
        if id == PROBE {
            return self.probed();
        }
        self.check_is_well(&id);
        self.ledger.received(&id, &self.name, self.service);
        connection_state.ids.lock().push(id.clone());
        // A stream of HTTP/2 is a task of its own, which may begin in the very moment in which its pod or connection ends.
        if connection_state.was_broken.load(Ordering::Relaxed) || *self.stop.borrow() == Stop::Crash
        {
            self.ledger.breaks(&self.name, Some(&[id]));
            return std::future::pending().await;
        }
        let nth = self.received.fetch_add(1, Ordering::Relaxed) + 1;
        match self.behaviour {
            Behaviour::Breaks(bad) if nth == bad => {
                connection_state.broken.notify_one();
                return std::future::pending().await;
            }
            Behaviour::Dies(bad) if nth == bad => {
                self.stop.send_replace(Stop::Crash);
                return std::future::pending().await;
            }
            Behaviour::Hangs => return std::future::pending().await,
            Behaviour::Cuts(bad) if nth == bad => {
                self.ledger
                    .breaks(&self.name, Some(std::slice::from_ref(&id)));
                self.ledger.broke_a_connection(self.service);
                let frames = [
                    Ok(Frame::data(Bytes::from_static(b"half of it"))),
                    Err(io::Error::other("cut")),
                ];
                return self.answer(BoxBody::new(StreamBody::new(futures::stream::iter(frames))));
            }
            _ => {}
        }
        let expected = request
            .headers()
            .get("x-bytes")
            .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if let Ok(body) = request.into_body().collect().await
            && Some(body.to_bytes().len()) != expected
        {
            self.ledger
                .report_violation(format!("{id} arrived at {} incomplete", self.name));
        }
        let (think, filler) = {
            let mut rng = self.rng.lock();
            let think = if rng.percent(20) {
                rng.millis(0, 2000)
            } else {
                rng.millis(0, 30)
            };
            let filler = if rng.percent(15) {
                rng.between(0, 300_000)
            } else {
                rng.between(0, 2000)
            };
            (think, filler)
        };
        sleep(think).await;
        let mut body = vec![b'.'; usize::try_from(filler).unwrap()];
        body.extend_from_slice(format!(" end:{id}").as_bytes());
        self.answer(
            Full::new(Bytes::from(body))
                .map_err(|never| match never {})
                .boxed(),
        )
    }

    fn probed(&self) -> Response<BoxBody<Bytes, io::Error>> {
        self.ledger.count("probes");
        let mut answer = self.answer(BoxBody::default());
        if !self.well.load(Ordering::Relaxed) {
            *answer.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        }
        answer
    }

    /// A request may come before its kubelet calls the pod ready, but not before its probe passes.
    fn check_is_well(&self, id: &str) {
        if !self.well.load(Ordering::Relaxed) {
            let violation = format!("S8: {id} arrived at {} before its probe passed", self.name);
            self.ledger.report_violation(violation);
        }
        if !self.ready.load(Ordering::Relaxed) {
            self.ledger.count("requests ahead of the kubelet");
        }
    }

    fn answer(&self, body: BoxBody<Bytes, io::Error>) -> Response<BoxBody<Bytes, io::Error>> {
        Response::builder()
            .header("x-pod", &self.name)
            .body(body)
            .unwrap()
    }

    /// One line comes, one line goes back, then every byte until the end.
    async fn echo(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        if stream.read_line(&mut line).await.is_err() || line.is_empty() {
            return;
        }
        let id = line.trim_start_matches('\x17').trim_end().to_owned();
        self.ledger.received(&id, &self.name, self.service);
        let nth = self.received.fetch_add(1, Ordering::Relaxed) + 1;
        let breaks = || {
            self.ledger
                .breaks(&self.name, Some(std::slice::from_ref(&id)));
            self.ledger.broke_a_connection(self.service);
        };
        match self.behaviour {
            Behaviour::Breaks(bad) | Behaviour::Cuts(bad) if nth == bad => {
                breaks();
                return stream.into_inner().reset();
            }
            Behaviour::Dies(bad) if nth == bad => {
                breaks();
                self.stop.send_replace(Stop::Crash);
                return;
            }
            // A relay cannot know that its client has disconnected for good, so even this pod gives up in the end.
            Behaviour::Hangs => return sleep(Duration::from_secs(150)).await,
            _ => {}
        }
        let _ = stream
            .write_all(format!("{} {id}\n", self.name).as_bytes())
            .await;
        let mut rest = Vec::new();
        tokio::select! {
            _ = stream.read_to_end(&mut rest) => {}
            _ = self.stopped() => {}
        }
        let _ = stream.write_all(&rest).await;
        let _ = stream.shutdown().await;
    }
}

/// The requests of one connection.
#[derive(Debug, Default)]
struct PodConnection {
    ids: Mutex<Vec<String>>,
    broken: Notify,
    /// It was broken.
    was_broken: AtomicBool,
}
