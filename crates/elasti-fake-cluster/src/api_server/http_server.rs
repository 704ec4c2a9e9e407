//! The sockets of the API server, and the same server without sockets for clients in the process.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use super::ApiServer;
use super::serve::{Body, ConnectionDropped, body_too_large};

/// Kubernetes' limit on a request's body.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// A listening server; dropping it closes the listener and all connections.
#[derive(Debug)]
pub struct Listening {
    /// Where it listens.
    pub address: SocketAddr,
    task: AbortHandle,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ApiServer {
    /// Listens on a loopback port; 0 takes any.
    ///
    /// # Errors
    /// When the port cannot be bound.
    pub async fn listen(&self, port: u16) -> io::Result<Listening> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let server = self.clone();
        let task = tokio::spawn(async move { server.accept(listener).await }).abort_handle();
        Ok(Listening { address, task })
    }

    async fn accept(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    // A failed accept is the client's loss; the listener lives on.
                    let Ok((stream, _)) = accepted else { continue };
                    let server = self.clone();
                    connections.spawn(async move {
                        let service = service_fn(move |request| server.clone().answer(request));
                        let mut http = auto::Builder::new(TokioExecutor::new());
                        http.http2().max_concurrent_streams(10_000);
                        // An error here is a dropped connection, which is what it stands for.
                        let _ = http.serve_connection(TokioIo::new(stream), service).await;
                    });
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn answer<B>(self, request: Request<B>) -> Result<Response<Body>, ConnectionDropped>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        match Limited::new(body, BODY_LIMIT).collect().await {
            Ok(body) => {
                self.serve(Request::from_parts(parts, body.to_bytes()))
                    .await
            }
            Err(_) => Ok(body_too_large()),
        }
    }

    /// A client of the administrator that needs no socket: the way to run on a paused clock.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.client_with_token(&self.admin_token)
    }

    /// A client without sockets that carries `token`.
    #[must_use]
    pub fn client_with_token(&self, token: &str) -> kube::Client {
        let service = InProcess {
            server: self.clone(),
            bearer: format!("Bearer {token}"),
        };
        kube::Client::new(service, "default")
    }
}

/// The server as a service.
#[derive(Clone, Debug)]
struct InProcess {
    server: ApiServer,
    bearer: String,
}

impl tower::Service<Request<kube::client::Body>> for InProcess {
    type Response = Response<Body>;
    type Error = ConnectionDropped;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let Self { server, bearer } = self.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let body = body
                .collect()
                .await
                .map_err(|_| ConnectionDropped)?
                .to_bytes();
            if let Ok(value) = bearer.parse() {
                parts.headers.insert(http::header::AUTHORIZATION, value);
            }
            let request = Request::from_parts(parts, body);
            server.serve(request).await
        })
    }
}
