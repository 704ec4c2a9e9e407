//! A connection to a pod that speaks HTTP/1.1, driven by the task of the request that it carries: a task of its own would
//! have to be woken for each step of each request. Between two requests nothing drives it.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::task::AtomicWaker;
use http::{Request, Response};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;

use super::body::RequestBody;
use super::connect;
use super::pod_stream::PodStream;

/// What of an upload may wait for its pod; also the largest head of a response.
const BUFFER: usize = 64 * 1024;

type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// One connection.
pub(crate) struct Http1 {
    sender: http1::SendRequest<RequestBody>,
    /// Until it has ended.
    connection: Option<Connection>,
    owner: Arc<Owner>,
    waker: Waker,
}

impl std::fmt::Debug for Http1 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1").finish_non_exhaustive()
    }
}

impl Http1 {
    /// A new one, or nothing: why does not matter, the next pod is tried.
    pub(super) async fn open(address: SocketAddr, idle_timeout: Option<Duration>) -> Option<Self> {
        let stream = PodStream::new(connect(address).await?, idle_timeout);
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .ok()?;
        let owner = Arc::<Owner>::default();
        Some(Self {
            sender,
            connection: Some(Box::pin(connection.with_upgrades())),
            waker: Waker::from(owner.clone()),
            owner,
        })
    }

    /// Sends a request, and drives the connection until the response begins.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        let response = quietly(|| self.sender.try_send_request(request));
        let mut response = pin!(response);
        poll_fn(|context| {
            self.drive(context);
            response.as_mut().poll(&mut ignored())
        })
        .await
    }

    /// The next frame of its response.
    pub(super) fn poll_frame(
        &mut self,
        incoming: &mut Incoming,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.drive(context);
        quietly(|| Pin::new(incoming).poll_frame(&mut ignored()))
    }

    /// Lets the connection read and write. What it then has for its request is asked for right after that, and never
    /// waited for.
    fn drive(&mut self, context: &Context<'_>) {
        self.owner.0.register(context.waker());
        let Some(connection) = &mut self.connection else {
            return;
        };
        let mut context = Context::from_waker(&self.waker);
        if connection.as_mut().poll(&mut context).is_ready() {
            self.connection = None;
        }
    }

    /// Its response has ended. `None` if it takes no other request, or not yet: then it ends by itself after this one.
    pub(super) fn into_idle(mut self) -> Option<Self> {
        if self.connection.is_some() && !self.sender.is_ready() {
            self.run();
            return None;
        }
        // Whose request it carried is not to be woken when the pod closes it.
        self.owner.0.take();
        self.connection.is_some().then_some(self)
    }

    /// Gives it a task of its own, for one request whose response may wait for its client while its upload goes on.
    pub(super) fn run(&mut self) {
        if let Some(connection) = self.connection.take() {
            tokio::spawn(async move { drop(connection.await) });
        }
    }
}

/// For what is there after each time that the connection was driven, or not at all.
fn ignored() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Gives something to a connection, or takes something from it, before it is driven anyway: the task that does so need
/// not wake itself for that.
fn quietly<R>(act: impl FnOnce() -> R) -> R {
    struct Quiet;
    impl Drop for Quiet {
        fn drop(&mut self) {
            QUIET.set(false);
        }
    }
    QUIET.set(true);
    let _quiet = Quiet;
    act()
}

/// The task that drives a connection.
#[derive(Debug, Default)]
struct Owner(AtomicWaker);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !QUIET.get() {
            self.0.wake();
        }
    }
}
