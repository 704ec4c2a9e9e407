//! Whether the operator may mark pods, namespace by namespace, asked of the API server now and then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::names;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::Cluster;

/// While it may not somewhere, so that a role that was given is noticed, and until there is an answer.
const REFUSED_INTERVAL: Duration = Duration::from_secs(60);
/// While it may everywhere: that a role was taken shows with the first pod that cannot be marked.
const ALLOWED_INTERVAL: Duration = Duration::from_mins(5);
const TIMEOUT: Duration = Duration::from_secs(5);

/// The permission to patch `pods/status`, for each namespace that is watched by itself, or for all as one (`None`).
#[derive(Debug, Default)]
pub(crate) struct Permissions(Mutex<HashMap<Option<String>, bool>>);

impl Permissions {
    /// Allowed unless the API server said otherwise.
    pub(crate) fn may_mark(&self, namespace: &str) -> bool {
        let allowed = self.0.lock();
        let own = allowed.get(&Some(namespace.to_owned()));
        own.or_else(|| allowed.get(&None)).copied().unwrap_or(true)
    }

    /// The API server has just refused it.
    pub(crate) fn may_not_mark(&self, namespace: &str) {
        self.0.lock().insert(Some(namespace.to_owned()), false);
    }

    /// When to ask again.
    fn interval(&self) -> Duration {
        let answers = self.0.lock();
        match !answers.is_empty() && answers.values().all(|allowed| *allowed) {
            true => ALLOWED_INTERVAL,
            false => REFUSED_INTERVAL,
        }
    }

    /// Waits until it is time to ask again: sooner where the API server refuses meanwhile.
    async fn until_due(&self) {
        let asked = Instant::now();
        while asked.elapsed() < self.interval() {
            sleep(REFUSED_INTERVAL).await;
        }
    }

    /// Keeps an answer; tells whether it changes anything. One for all namespaces is newer than a refusal in one of
    /// them.
    fn record(&self, scope: &Option<String>, allowed: bool) -> bool {
        let mut answers = self.0.lock();
        let before = answers.clone();
        if scope.is_none() {
            answers.clear();
        }
        answers.insert(scope.clone(), allowed);
        let was = |scope| before.get(scope).copied().unwrap_or(true);
        was(scope) != allowed || before.values().any(|was| *was != allowed) && scope.is_none()
    }
}

/// Asks for each namespace, for ever; where an answer changes, every service is reconciled.
pub(crate) async fn poll(cluster: Arc<Cluster>, permissions: Arc<Permissions>) {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    loop {
        let mut changed = false;
        for scope in cluster.store.scopes() {
            let review = review(scope.clone());
            let answer = timeout(TIMEOUT, reviews.create(&params, &review)).await;
            if let Ok(Ok(answer)) = answer
                && let Some(status) = answer.status
            {
                changed |= permissions.record(&scope, status.allowed);
            }
        }
        if changed {
            cluster.enqueue_all();
        }
        permissions.until_due().await;
    }
}

fn review(namespace: Option<String>) -> SelfSubjectAccessReview {
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace,
                verb: Some("patch".into()),
                resource: Some("pods".into()),
                subresource: Some("status".into()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::{ALLOWED_INTERVAL, Permissions, REFUSED_INTERVAL};

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_asked_again_each_minute_and_what_is_allowed_each_five() {
        let permissions = Permissions::default();
        let pause = async || {
            let asked = Instant::now();
            permissions.until_due().await;
            asked.elapsed()
        };
        assert_eq!(pause().await, REFUSED_INTERVAL, "no answer yet");
        permissions.record(&None, true);
        assert_eq!(pause().await, ALLOWED_INTERVAL);
        let refusing = async {
            tokio::time::sleep(REFUSED_INTERVAL * 3 / 2).await;
            permissions.may_not_mark("shop");
        };
        let (paused, ()) = tokio::join!(pause(), refusing);
        assert_eq!(paused, REFUSED_INTERVAL * 2, "refused meanwhile");
        assert_eq!(pause().await, REFUSED_INTERVAL);
    }

    #[test]
    fn a_permission_may_be_missing_in_one_namespace_only() {
        let permissions = Permissions::default();
        let (shop, bank) = (Some("shop".to_owned()), Some("bank".to_owned()));
        assert!(permissions.may_mark("shop"), "not refused yet");
        assert!(!permissions.record(&shop, true));
        assert!(permissions.record(&bank, false));
        assert!(permissions.may_mark("shop") && !permissions.may_mark("bank"));
        permissions.may_not_mark("shop");
        assert!(!permissions.may_mark("shop"));
        assert!(permissions.record(&shop, true), "it was given back");
        assert!(permissions.may_mark("shop"));
    }

    #[test]
    fn an_answer_for_all_namespaces_replaces_the_refusal_in_one() {
        let permissions = Permissions::default();
        permissions.record(&None, true);
        permissions.may_not_mark("shop");
        assert!(!permissions.may_mark("shop") && permissions.may_mark("bank"));
        assert!(permissions.record(&None, true), "it changes for the one");
        assert!(permissions.may_mark("shop"));
        assert!(!permissions.record(&None, true));
    }
}
