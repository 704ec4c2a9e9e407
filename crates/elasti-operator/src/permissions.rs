//! Whether pods may be marked, namespace by namespace, asked for again and again.
//! Never takes a right for granted after the API server has refused it.

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
use tokio::time::{sleep, timeout};

use crate::name::Name;
use crate::operator::Operator;

/// How often the right is asked for anew, so that a role that was given or taken is noticed.
const ASK_AGAIN: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(5);

/// The right to patch `pods/status`, for each namespace that is watched by itself, or for all as one (`None`).
#[derive(Debug, Default)]
pub(crate) struct Permissions(Mutex<HashMap<Option<String>, bool>>);

impl Permissions {
    /// Unless it was heard otherwise.
    pub(crate) fn may_mark(&self, namespace: &str) -> bool {
        let known = self.0.lock();
        let of = known.get(&Some(namespace.to_owned()));
        of.or_else(|| known.get(&None)).copied().unwrap_or(true)
    }

    /// The API server has just said so.
    pub(crate) fn may_not_mark(&self, namespace: &str) {
        self.0.lock().insert(Some(namespace.to_owned()), false);
    }

    /// What was asked and heard; tells whether that is news for anyone. An answer for all namespaces is newer than
    /// what was heard in one of them.
    fn heard(&self, scope: &Option<String>, allowed: bool) -> bool {
        let mut known = self.0.lock();
        let before = known.clone();
        if scope.is_none() {
            known.clear();
        }
        known.insert(scope.clone(), allowed);
        let was = |scope| before.get(scope).copied().unwrap_or(true);
        was(scope) != allowed || before.values().any(|was| *was != allowed) && scope.is_none()
    }
}

/// Asks for each namespace, for ever.
pub(crate) async fn ask_for_rights(operator: Arc<Operator>) {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(operator.client.clone());
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    loop {
        let mut news = false;
        for scope in operator.scopes() {
            let question = question(scope.clone());
            let asked = timeout(TIMEOUT, reviews.create(&params, &question)).await;
            if let Ok(Ok(answer)) = asked
                && let Some(status) = answer.status
            {
                news |= operator.permissions.heard(&scope, status.allowed);
            }
        }
        if news {
            let all: Vec<Name> = operator.store.known().declared.keys().cloned().collect();
            operator.look_at(&all);
        }
        sleep(ASK_AGAIN).await;
    }
}

fn question(namespace: Option<String>) -> SelfSubjectAccessReview {
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
    use super::Permissions;

    #[test]
    fn a_right_that_is_missing_in_one_namespace_is_there_in_the_other() {
        let permissions = Permissions::default();
        let (shop, bank) = (Some("shop".to_owned()), Some("bank".to_owned()));
        assert!(permissions.may_mark("shop"), "nobody has refused it yet");
        assert!(!permissions.heard(&shop, true));
        assert!(permissions.heard(&bank, false));
        assert!(permissions.may_mark("shop") && !permissions.may_mark("bank"));
        permissions.may_not_mark("shop");
        assert!(!permissions.may_mark("shop"));
        assert!(permissions.heard(&shop, true), "it was given back");
        assert!(permissions.may_mark("shop"));
    }

    #[test]
    fn an_answer_for_all_namespaces_replaces_what_one_of_them_said() {
        let permissions = Permissions::default();
        permissions.heard(&None, true);
        permissions.may_not_mark("shop");
        assert!(!permissions.may_mark("shop") && permissions.may_mark("bank"));
        assert!(permissions.heard(&None, true), "news for the one");
        assert!(permissions.may_mark("shop"));
        assert!(!permissions.heard(&None, true));
    }
}
