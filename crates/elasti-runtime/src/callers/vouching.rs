//! How a token is checked: by TokenReview where that is allowed, else against the API server's published keys.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use super::keys::Keys;
use super::review::{self, NoReview};
use super::signed::Token;
use super::{CHECK_TIMEOUT, NotVouched, Owner};

/// How long after a failed question the next one comes, at the start.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// How a token is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// Kubernetes looks at the token itself, and knows also of pods and accounts that were deleted. Creating a review
    /// is a cluster-wide permission.
    Review,
    /// Signature, issuer, audience and time are checked here. Any service account may read the keys; but a token
    /// whose pod was deleted is good until it expires.
    Keys,
}

/// Checks tokens for one audience.
pub(super) struct Vouching {
    client: Client,
    audience: &'static str,
    method: Mutex<Option<Method>>,
    keys: Keys,
}

impl Vouching {
    pub(super) fn new(client: Client, audience: &'static str) -> Self {
        Self {
            keys: Keys::new(client.clone()),
            client,
            audience,
            method: Mutex::default(),
        }
    }

    pub(super) async fn prepare(&self) {
        while !matches!(timeout(CHECK_TIMEOUT, self.method()).await, Ok(Ok(_))) {
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// Whose token it is.
    pub(super) async fn owner(&self, token: &str) -> Result<Owner, NotVouched> {
        match self.method().await? {
            Method::Review => match review::owner(&self.client, self.audience, token).await {
                Ok(owner) => Ok(owner),
                Err(NoReview::Bad(flaw)) => Err(NotVouched::BadToken(flaw)),
                Err(NoReview::Failed(error)) => {
                    tracing::warn!(%error, "TokenReview failed");
                    if is_forbidden(&error) {
                        // The permission was revoked: the next call finds out what is left.
                        *self.method.lock().await = None;
                    }
                    Err(NotVouched::NotChecked)
                }
            },
            Method::Keys => {
                let token = Token::parse(token).map_err(NotVouched::BadToken)?;
                let issuer = self.keys.issuer_with(token.key_id()).await?;
                token
                    .owner(&issuer, self.audience, seconds_since_1970())
                    .map_err(NotVouched::BadToken)
            }
        }
    }

    /// The method to use; concurrent calls wait for the answer.
    async fn method(&self) -> Result<Method, NotVouched> {
        let mut known = self.method.lock().await;
        if let Some(method) = *known {
            return Ok(method);
        }
        let method = match may_review(&self.client).await {
            Ok(true) => Method::Review,
            Ok(false) => Method::Keys,
            // Not even this question is allowed.
            Err(error) if is_forbidden(&error) => Method::Keys,
            Err(error) => {
                tracing::warn!(%error, "token verification method not known yet");
                return Err(NotVouched::NotChecked);
            }
        };
        let audience = self.audience;
        match method {
            Method::Review => tracing::info!(audience, "tokens are verified by TokenReview"),
            Method::Keys => tracing::info!(
                audience,
                "tokens are verified with the API server's public keys, because TokenReview is not allowed; a token of a deleted pod is good until it expires"
            ),
        }
        *known = Some(method);
        Ok(method)
    }
}

/// Whether this process may create TokenReviews.
async fn may_review(client: &Client) -> Result<bool, kube::Error> {
    let question = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some("create".into()),
                group: Some("authentication.k8s.io".into()),
                resource: Some("tokenreviews".into()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &question).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// The system's own time: a token's times are Kubernetes' and outlive a machine that was suspended.
fn seconds_since_1970() -> i64 {
    let passed = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(passed.as_secs()).unwrap_or(i64::MAX)
}
