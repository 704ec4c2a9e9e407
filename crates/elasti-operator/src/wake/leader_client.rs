//! Passes a wake that reached a follower on to the leader, in the same call: only the leader can promise something.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use elasti_api::{WakeAnswer, WakePromise, WakeRequest, names};
use elasti_runtime::peer_tls::ClientConfig;
use reqwest::{Client, StatusCode};
use tokio::sync::watch;
use tokio::time::timeout;

/// From the first packet to the last byte; a leader answers within milliseconds. The resolver waits for a second.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The leader closes an idle connection after 30 s; we close first, so that no wake is lost in between.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// A promise is at most 11 kB.
const MAX_BODY_BYTES: usize = 64 << 10;

/// The way to the leader, for followers.
#[derive(Clone, Debug)]
pub struct LeaderClient {
    /// Where the leader takes wakes; `None` while no other operator is known to lead.
    leader: watch::Receiver<Option<SocketAddr>>,
    http: Client,
    /// `http` or `https`.
    scheme: &'static str,
}

impl LeaderClient {
    /// Sends nothing yet.
    ///
    /// # Errors
    /// If no HTTP client can be made.
    pub fn new(
        leader: watch::Receiver<Option<SocketAddr>>,
        tls: Option<ClientConfig>,
    ) -> reqwest::Result<Self> {
        elasti_runtime::tls::install_provider();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let builder = Client::builder();
        let builder = match tls {
            Some(tls) => builder.tls_backend_preconfigured(tls),
            // Without TLS no certificate authority is needed.
            None => builder.tls_certs_only([]),
        };
        let http = builder
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(TIMEOUT)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .build()?;
        Ok(Self {
            leader,
            http,
            scheme,
        })
    }

    /// What the leader promises to the caller who shows this token; `None` if there is no other leader, or it promises
    /// nothing in time.
    pub(super) async fn promise(
        &self,
        wake: &WakeRequest,
        authorization: Option<&HeaderValue>,
    ) -> Option<WakePromise> {
        let leader = (*self.leader.borrow())?;
        let answer = timeout(TIMEOUT, self.ask(leader, wake, authorization)).await;
        if answer.is_err() {
            tracing::warn!(%leader, "the leader did not answer a wake that was passed on");
        }
        answer.ok()??.promise
    }

    async fn ask(
        &self,
        leader: SocketAddr,
        wake: &WakeRequest,
        authorization: Option<&HeaderValue>,
    ) -> Option<WakeAnswer> {
        let mut request = self
            .http
            .post(format!("{}://{leader}{}", self.scheme, names::WAKE_PATH))
            .header(names::PASSED_ON_HEADER, "1")
            .header(CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(wake).ok()?);
        if let Some(shown) = authorization {
            request = request.header(AUTHORIZATION, shown);
        }
        let mut response = request.send().await.ok()?;
        if response.status() != StatusCode::OK {
            return None;
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                return None;
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).ok()
    }
}
