//! The API server's published keys, fetched on demand at a limited rate and cached.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::NotVouched;
use super::issuer::Issuer;

/// Any service account may read these, by the cluster role `system:service-account-issuer-discovery`.
const CONFIGURATION: &str = "/.well-known/openid-configuration";
const KEY_SET: &str = "/openid/v1/jwks";
/// A key has about 500 bytes.
const MAX_BYTES: usize = 64 * 1024;
/// A key that Kubernetes has withdrawn is believed for so long.
const KEYS_TTL: Duration = Duration::from_secs(300);
/// A new key is found so long after the last reading.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Why the keys cannot be read.
#[derive(Debug, thiserror::Error)]
enum NoKeys {
    #[error("{0}")]
    Kubernetes(#[from] kube::Error),
    #[error("the answer to {path} has the code {code}")]
    Code { path: &'static str, code: u16 },
    #[error("the answer to {0} breaks off or is too long")]
    Body(&'static str),
    #[error("the answers cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
}

#[derive(Clone, Debug)]
struct CachedIssuer {
    issuer: Arc<Issuer>,
    since: Instant,
}

/// The keys of one API server.
pub(super) struct Keys {
    client: Client,
    cached: Mutex<Option<CachedIssuer>>,
    /// Not before this they are read again. Held while they are.
    next: tokio::sync::Mutex<Option<Instant>>,
}

impl Keys {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            cached: Mutex::default(),
            next: tokio::sync::Mutex::default(),
        }
    }

    /// The issuer, with this key if there is such a key at all.
    pub(super) async fn issuer_with(&self, key: &str) -> Result<Arc<Issuer>, NotVouched> {
        let has_key = |issuer: &Arc<Issuer>| issuer.key(key).is_some();
        if let Some(issuer) = self.fresh().filter(has_key) {
            return Ok(issuer);
        }
        let mut next = self.next.lock().await;
        // Another task may have fetched them while we waited.
        let fresh = self.fresh();
        if let Some(issuer) = fresh.clone().filter(has_key) {
            return Ok(issuer);
        }
        if next.is_some_and(|next| Instant::now() < next) {
            return fresh.ok_or(NotVouched::NotChecked);
        }
        // Counts also if the caller goes away in between.
        *next = Some(Instant::now() + RETRY_INTERVAL);
        let since = Instant::now();
        let issuer = self.fetch().await.map_err(|error| {
            tracing::warn!(%error, "the API server's keys cannot be read");
            NotVouched::NotChecked
        })?;
        *next = Some(since + MIN_REFRESH_INTERVAL);
        let issuer = Arc::new(issuer);
        *self.cached.lock() = Some(CachedIssuer {
            issuer: issuer.clone(),
            since,
        });
        Ok(issuer)
    }

    fn fresh(&self) -> Option<Arc<Issuer>> {
        let cached = self.cached.lock().clone();
        cached
            .filter(|cached| cached.since.elapsed() < KEYS_TTL)
            .map(|cached| cached.issuer)
    }

    async fn fetch(&self) -> Result<Issuer, NoKeys> {
        let configuration = self.document(CONFIGURATION).await?;
        let keys = self.document(KEY_SET).await?;
        Ok(Issuer::parse(&configuration, &keys)?)
    }

    async fn document(&self, path: &'static str) -> Result<Vec<u8>, NoKeys> {
        let mut request = http::Request::new(Body::empty());
        *request.uri_mut() = http::Uri::from_static(path);
        let response = self.client.send(request).await?;
        let code = response.status().as_u16();
        if code != 200 {
            return Err(NoKeys::Code { path, code });
        }
        let body = Limited::new(response.into_body(), MAX_BYTES);
        let whole = body.collect().await.map_err(|_| NoKeys::Body(path))?;
        Ok(whole.to_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests;
