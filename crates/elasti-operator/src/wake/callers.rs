//! Who asks for a wake, by Kubernetes' word, remembered for a minute.
//! Never keeps a token: only its hash.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::names;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, timeout};

use super::pace::Pace;
use super::refusal::Refusal;

/// What Kubernetes said is taken as true for this long.
const TRUST: Duration = Duration::from_secs(60);
const REVIEW_PATIENCE: Duration = Duration::from_secs(2);
/// One token for each resolver pod, two while it is renewed.
const MOST_TOKENS: usize = 1024;
/// A service account token has about 1 KiB.
const LONGEST_TOKEN: usize = 16 * 1024;
/// Reviews for one peer: a resolver needs one a minute, so guessing is slow and loads Kubernetes little.
const REVIEW_PACE: (f64, f64) = (1.0, 10.0);
const MOST_PEERS: usize = 1024;

type TokenHash = [u8; 32];

/// Whose pace counts: each token, or each address where there is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Caller {
    /// Kubernetes vouches for this token.
    Vouched(TokenHash),
    /// A caller without a token.
    Anonymous(IpAddr),
}

/// All callers with tokens.
#[derive(Debug)]
pub(super) struct Callers {
    reviews: Api<TokenReview>,
    allowed: BTreeSet<String>,
    /// Tokens that are good, and since when. Only Kubernetes lets one in here, so guesses cannot fill it.
    trusted: Mutex<HashMap<TokenHash, Instant>>,
    /// Tokens that are being reviewed; one for each open connection at most.
    under_review: Mutex<HashMap<TokenHash, Arc<tokio::sync::Mutex<()>>>>,
    pace: Pace<IpAddr>,
}

impl Callers {
    pub(super) fn new(client: Client, allowed: BTreeSet<String>) -> Self {
        Self {
            reviews: Api::all(client),
            allowed,
            trusted: Mutex::default(),
            under_review: Mutex::default(),
            pace: Pace::new(REVIEW_PACE, MOST_PEERS),
        }
    }

    /// The caller, if Kubernetes vouches for the token and its user may wake.
    pub(super) async fn vouched(&self, peer: IpAddr, token: &str) -> Result<Caller, Refusal> {
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Err(Refusal::BadToken);
        }
        let hash: TokenHash = Sha256::digest(token.as_bytes()).into();
        let is_trusted = || {
            let trusted = self.trusted.lock();
            trusted.get(&hash).is_some_and(|at| at.elapsed() < TRUST)
        };
        if is_trusted() {
            return Ok(Caller::Vouched(hash));
        }
        // Whoever comes with the same token meanwhile waits for the same review.
        let turn = self.under_review.lock().entry(hash).or_default().clone();
        let reviewed = {
            let _turn = turn.lock().await;
            if is_trusted() {
                Ok(())
            } else {
                self.review_and_remember(peer, hash, token).await
            }
        };
        drop(turn);
        self.under_review
            .lock()
            .retain(|_, turn| Arc::strong_count(turn) > 1);
        reviewed.map(|()| Caller::Vouched(hash))
    }

    async fn review_and_remember(
        &self,
        peer: IpAddr,
        hash: TokenHash,
        token: &str,
    ) -> Result<(), Refusal> {
        if !self.pace.allows(&peer) {
            return Err(Refusal::TooOften);
        }
        let asked = Instant::now();
        timeout(REVIEW_PATIENCE, self.review(token))
            .await
            .unwrap_or(Err(Refusal::NotReviewed))?;
        let mut trusted = self.trusted.lock();
        trusted.retain(|_, at| at.elapsed() < TRUST);
        if trusted.len() < MOST_TOKENS {
            trusted.insert(hash, asked);
        }
        Ok(())
    }

    async fn review(&self, token: &str) -> Result<(), Refusal> {
        let question = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                audiences: Some(vec![names::WAKE_AUDIENCE.to_owned()]),
            },
            ..TokenReview::default()
        };
        let answer = self.reviews.create(&PostParams::default(), &question).await;
        let status = answer.map_err(|error| {
            tracing::warn!(%error, "a caller's token cannot be reviewed");
            Refusal::NotReviewed
        })?;
        self.judge(&status.status.unwrap_or_default())
    }

    fn judge(&self, status: &TokenReviewStatus) -> Result<(), Refusal> {
        // A server that does not know audiences says nothing about them, and the token may be for anyone.
        let audiences = status.audiences.as_deref().unwrap_or_default();
        let for_us = audiences.iter().any(|one| one == names::WAKE_AUDIENCE);
        if status.authenticated != Some(true) || !for_us {
            return Err(Refusal::BadToken);
        }
        let user = status.user.as_ref().and_then(|user| user.username.as_ref());
        if user.is_some_and(|user| self.allowed.contains(user)) {
            Ok(())
        } else {
            Err(Refusal::Stranger)
        }
    }
}
