//! The four buttons: wake, sleep, pause, resume; each is one patch of the ElastiService with the user's permissions.
//! Never scales anything: the operator does, when it is safe.

use axum::http::StatusCode;
use elasti_api::{ElastiService, names};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::state::Name;

/// What the user requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserRequest {
    Wake,
    Sleep,
    Pause,
    Resume,
}

/// Why it was refused.
pub(crate) struct Refused {
    pub(crate) code: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl UserRequest {
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "wake" => Self::Wake,
            "sleep" => Self::Sleep,
            "pause" => Self::Pause,
            "resume" => Self::Resume,
            _ => return None,
        })
    }

    fn patch(self, now: Timestamp) -> Value {
        let (wake, sleep) = (
            names::WAKE_REQUESTED_ANNOTATION,
            names::SLEEP_REQUESTED_ANNOTATION,
        );
        // The newer request replaces the older one.
        let requested =
            |this: &str, that: &str| json!({"metadata": {"annotations": {this: now, that: null}}});
        match self {
            Self::Wake => requested(wake, sleep),
            Self::Sleep => requested(sleep, wake),
            Self::Pause => json!({"spec": {"paused": true}}),
            Self::Resume => json!({"spec": {"paused": null}}),
        }
    }

    fn confirmation(self, name: &str) -> String {
        match self {
            Self::Wake => format!("Wake of {name} requested."),
            Self::Sleep => {
                format!("Sleep of {name} requested; it sleeps when no request is in flight.")
            }
            Self::Pause => format!("{name} is paused: it stays awake."),
            Self::Resume => format!("{name} may sleep again."),
        }
    }

    /// Patches the ElastiService; returns a sentence for the user.
    pub(crate) async fn submit(self, client: &Client, name: &Name) -> Result<String, Refused> {
        let services: Api<ElastiService> = Api::namespaced(client.clone(), &name.namespace);
        let params = PatchParams {
            field_manager: Some(names::CLI_FIELD_MANAGER.into()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(self.patch(Timestamp::now()));
        match services.patch(&name.name, &params, &patch).await {
            Ok(_) => Ok(self.confirmation(&name.name)),
            Err(kube::Error::Api(status)) => {
                let (code, reason) = match status.code {
                    401 | 403 => (StatusCode::FORBIDDEN, "Forbidden"),
                    404 => (StatusCode::NOT_FOUND, "NotFound"),
                    _ => (StatusCode::BAD_GATEWAY, "Refused"),
                };
                let message = status.message.clone();
                Err(Refused {
                    code,
                    reason,
                    message,
                })
            }
            Err(_) => Err(Refused {
                code: StatusCode::BAD_GATEWAY,
                reason: "Unreachable",
                message: "The cluster does not answer.".into(),
            }),
        }
    }
}
