//! Authenticates callers by their service account tokens; what was found out is cached for a minute.
//! Never keeps a token, only its hash.

mod issuer;
mod keys;
#[cfg(test)]
mod mint;
mod review;
mod signed;
mod vouching;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout};

use crate::rate_limit::RateLimiter;
pub use signed::Flaw;
use vouching::Vouching;

/// What was found out about a token is taken as true for this long.
const TRUST_TTL: Duration = Duration::from_secs(60);
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// One token for each pod that calls, two while it is renewed.
const MAX_TOKENS: usize = 1024;
/// A service account token has about 1 KiB.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Checks for one peer: a caller needs one a minute, so guessing is slow and loads Kubernetes little.
const CHECK_RATE: (f64, f64) = (1.0, 10.0);
const MAX_PEERS: usize = 1024;

/// A token that is known without keeping it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

/// Why a caller is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotVouched {
    /// The token is not good: the caller needs another.
    #[error("Kubernetes does not vouch for this token: {0}.")]
    BadToken(Flaw),
    /// The token is good, and its owner is not an allowed user.
    #[error("This caller is not known here.")]
    Stranger,
    /// This address has had too many tokens checked; it may try again later.
    #[error("Too many tokens from this address; try again later.")]
    TooOften,
    /// Kubernetes could not be asked; trying again may help.
    #[error("Kubernetes cannot say whose token this is; try again.")]
    NotChecked,
}

/// Whose token it is, and until when that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    user: String,
    /// `None`: as long as Kubernetes says so.
    good_for: Option<Duration>,
}

/// The callers that present a token for one audience.
pub struct Callers {
    vouching: Vouching,
    allowed: BTreeSet<String>,
    /// Tokens that are good, and until when. Only a check lets one in here, so guesses cannot fill it.
    trusted: Mutex<HashMap<TokenHash, Instant>>,
    /// Tokens that are being checked; one for each open connection at most.
    under_check: Mutex<HashMap<TokenHash, Arc<tokio::sync::Mutex<()>>>>,
    rate: RateLimiter<IpAddr>,
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers")
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

impl Callers {
    /// Lets in these users, if they show a token for this audience.
    #[must_use]
    pub fn new(client: Client, audience: &'static str, allowed: BTreeSet<String>) -> Self {
        Self {
            vouching: Vouching::new(client, audience),
            allowed,
            trusted: Mutex::default(),
            under_check: Mutex::default(),
            rate: RateLimiter::new(CHECK_RATE, MAX_PEERS),
        }
    }

    /// Finds out how tokens are checked here, and says so in one log line. Earlier calls wait for it.
    pub async fn prepare(&self) {
        self.vouching.prepare().await;
    }

    /// The caller, if the token is good and its owner is let in.
    ///
    /// # Errors
    /// If the token is not good, its owner is not let in, or it cannot be checked.
    pub async fn vouched(&self, peer: IpAddr, token: &str) -> Result<TokenHash, NotVouched> {
        if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
            return Err(NotVouched::BadToken(Flaw::Malformed));
        }
        let hash = TokenHash(Sha256::digest(token.as_bytes()).into());
        if self.is_trusted(&hash) {
            return Ok(hash);
        }
        // Requests with the same token wait for the same check.
        let turn = self
            .under_check
            .lock()
            .entry(hash.clone())
            .or_default()
            .clone();
        let checked = {
            let _turn = turn.lock().await;
            match self.is_trusted(&hash) {
                true => Ok(()),
                false => self.check_and_remember(peer, &hash, token).await,
            }
        };
        drop(turn);
        self.under_check
            .lock()
            .retain(|_, turn| Arc::strong_count(turn) > 1);
        checked.map(|()| hash)
    }

    fn is_trusted(&self, hash: &TokenHash) -> bool {
        let trusted = self.trusted.lock();
        trusted
            .get(hash)
            .is_some_and(|until| Instant::now() < *until)
    }

    async fn check_and_remember(
        &self,
        peer: IpAddr,
        hash: &TokenHash,
        token: &str,
    ) -> Result<(), NotVouched> {
        if !self.rate.allows(&peer) {
            return Err(NotVouched::TooOften);
        }
        let asked = Instant::now();
        let owner = timeout(CHECK_TIMEOUT, self.vouching.owner(token))
            .await
            .unwrap_or(Err(NotVouched::NotChecked))?;
        if !self.allowed.contains(&owner.user) {
            return Err(NotVouched::Stranger);
        }
        let mut trusted = self.trusted.lock();
        let now = Instant::now();
        trusted.retain(|_, until| now < *until);
        if trusted.len() < MAX_TOKENS {
            let trust = owner.good_for.map_or(TRUST_TTL, |left| left.min(TRUST_TTL));
            trusted.insert(hash.clone(), asked + trust);
        }
        Ok(())
    }
}
