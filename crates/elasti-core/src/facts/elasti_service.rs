//! An ElastiService's own metadata: age, finalizer, what people asked for by annotations.

use elasti_api::{ElastiServiceStatus, names};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::observed::{Me, Remembered, UserRequest};

/// The ElastiService as a decision takes it.
#[must_use]
pub fn me(metadata: &ObjectMeta, status: &ElastiServiceStatus) -> Me {
    let request = |annotation: &str| {
        let annotations = metadata.annotations.as_ref();
        user_request(annotations.and_then(|all| all.get(annotation)))
    };
    Me {
        created: created(metadata),
        generation: metadata.generation.unwrap_or_default(),
        deleting_since: metadata.deletion_timestamp.as_ref().map(|t| t.0),
        finalizer: has_finalizer(metadata.finalizers.as_deref().unwrap_or_default()),
        wake_request: request(names::WAKE_REQUESTED_ANNOTATION),
        sleep_request: request(names::SLEEP_REQUESTED_ANNOTATION),
        remembered: Remembered::from(status),
    }
}

pub(super) fn created(metadata: &ObjectMeta) -> Timestamp {
    let created = metadata.creation_timestamp.as_ref();
    created.map_or(Timestamp::UNIX_EPOCH, |t| t.0)
}

/// Our finalizer is among these.
#[must_use]
pub fn has_finalizer(finalizers: &[String]) -> bool {
    finalizers.iter().any(|one| one == names::FINALIZER)
}

/// What a person asked for by an annotation.
#[must_use]
pub fn user_request(annotation: Option<&String>) -> UserRequest {
    match annotation.map(|text| text.trim()) {
        None | Some("") => UserRequest::None,
        Some(text) => text
            .parse()
            .map_or(UserRequest::Unreadable, UserRequest::At),
    }
}
