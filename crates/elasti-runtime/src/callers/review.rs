//! Verifies a token by TokenReview.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::timeout;

use super::Owner;
use super::signed::Flaw;

/// A caller waits for the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no owner.
#[derive(Debug)]
pub(super) enum NoReview {
    /// The token is not good.
    Bad(Flaw),
    /// Kubernetes did not say.
    Failed(kube::Error),
}

/// Whose token it is.
pub(super) async fn owner(client: &Client, audience: &str, token: &str) -> Result<Owner, NoReview> {
    let question = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token.to_owned()),
            audiences: Some(vec![audience.to_owned()]),
        },
        ..TokenReview::default()
    };
    let reviews: Api<TokenReview> = Api::all(client.clone());
    let params = PostParams::default();
    let answer = match timeout(TIMEOUT, reviews.create(&params, &question)).await {
        Ok(answer) => answer,
        Err(late) => Err(kube::Error::Service(late.into())),
    };
    let status = answer.map_err(NoReview::Failed)?.status;
    judge(status.unwrap_or_default(), audience).map_err(NoReview::Bad)
}

fn judge(status: TokenReviewStatus, audience: &str) -> Result<Owner, Flaw> {
    // A server that does not know audiences says nothing about them, and the token may be for anyone.
    let audiences = status.audiences.unwrap_or_default();
    let for_us = audiences.iter().any(|one| one == audience);
    if status.authenticated != Some(true) || !for_us {
        return Err(Flaw::Refused);
    }
    let user = status.user.and_then(|user| user.username);
    Ok(Owner {
        user: user.ok_or(Flaw::Refused)?,
        good_for: None,
    })
}
