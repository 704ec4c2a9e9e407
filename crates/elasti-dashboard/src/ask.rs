//! The four wishes of a person: wake, sleep, pause, resume; each is one patch of the ElastiService with the user's rights.
//! Never scales anything: the operator does what is asked when it is safe.

use axum::http::StatusCode;
use elasti_api::{ElastiService, names};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::known::Name;

/// What a person wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UserRequest {
    Wake,
    Sleep,
    Pause,
    Resume,
}

/// Why it was not taken.
pub(crate) struct Refused {
    pub(crate) code: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl UserRequest {
    pub(crate) fn read(word: &str) -> Option<Self> {
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
        // The newer wish takes the older one back.
        let asked =
            |this: &str, that: &str| json!({"metadata": {"annotations": {this: now, that: null}}});
        match self {
            Self::Wake => asked(wake, sleep),
            Self::Sleep => asked(sleep, wake),
            Self::Pause => json!({"spec": {"paused": true}}),
            Self::Resume => json!({"spec": {"paused": null}}),
        }
    }

    fn taken(self, name: &str) -> String {
        match self {
            Self::Wake => format!("{name} is asked to wake."),
            Self::Sleep => format!("{name} is asked to sleep; it does when nobody uses it."),
            Self::Pause => format!("{name} is paused: it is not put to sleep."),
            Self::Resume => format!("{name} may sleep again."),
        }
    }
}

/// Asks, and gives the sentence for the person.
pub(crate) async fn ask(
    client: &Client,
    name: &Name,
    user_request: UserRequest,
) -> Result<String, Refused> {
    let services: Api<ElastiService> = Api::namespaced(client.clone(), &name.namespace);
    let params = PatchParams {
        field_manager: Some(names::CLI_FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(user_request.patch(Timestamp::now()));
    match services.patch(&name.name, &params, &patch).await {
        Ok(_) => Ok(user_request.taken(&name.name)),
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
