//! The four buttons: wake, sleep, pause, resume; each is one patch of the ElastiService with the user's permissions.
//! Never scales anything: the operator does, when it is safe.

use axum::http::StatusCode;
use elasti_api::{ElastiService, names};
use elasti_view::progress::{self, Progress};
use elasti_view::view::View;
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

    /// What speaks against it, as `elasti sleep` says it: a request that cannot be fulfilled now must not be fulfilled
    /// later, when it is no longer expected.
    fn refusal(self, view: &View) -> Option<Refused> {
        let message = match (self, progress::of_sleep(view, false)) {
            (Self::Sleep, Progress::Done) => format!("{} is already asleep.", view.name),
            (Self::Sleep, Progress::Failed(sentence)) => format!("cannot sleep now: {sentence}"),
            _ => return None,
        };
        Some(Refused {
            code: StatusCode::CONFLICT,
            reason: "CannotSleep",
            message,
        })
    }

    /// Patches the ElastiService, which is shown as `view`; returns a sentence for the user.
    pub(crate) async fn submit(
        self,
        client: &Client,
        name: &Name,
        view: &View,
    ) -> Result<String, Refused> {
        if let Some(refused) = self.refusal(view) {
            return Err(refused);
        }
        let services: Api<ElastiService> = Api::namespaced(client.clone(), &name.namespace);
        let params = PatchParams {
            field_manager: Some(names::CLI_FIELD_MANAGER.into()),
            ..PatchParams::default()
        };
        let now = Timestamp::now();
        let at = match self {
            Self::Sleep => progress::sleep_asked_at(view, now),
            Self::Wake | Self::Pause | Self::Resume => now,
        };
        let patch = Patch::Merge(self.patch(at));
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use elasti_view::view::{Facts, Lookup, View, view};
    use serde_json::json;

    use super::UserRequest;

    fn shown(phase: &str, reading: &str) -> View {
        let me = serde_json::from_value(json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": "web", "namespace": "shop", "generation": 1},
            "spec": {
                "service": "web", "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "triggers": [{"type": "prometheus", "metadata": {"query": "q", "threshold": "1"}}],
            },
            "status": {
                "phase": phase, "reason": "CoolingDown", "replicas": i32::from(phase != "Asleep"), "observedGeneration": 1,
                "quietSince": "2026-03-02T07:59:00Z",
                "triggers": [{"type": "prometheus", "reading": reading, "since": "2026-03-02T07:00:00Z", "threshold": "1"}],
            },
        }))
        .unwrap();
        view(Facts {
            me: &me,
            target: &Lookup::Unknown,
            held: None,
            now: "2026-03-02T08:00:00Z".parse().unwrap(),
        })
    }

    #[test]
    fn sleep_is_refused_where_the_command_line_refuses_it() {
        let refused = |view: &View| UserRequest::Sleep.refusal(view).map(|one| one.message);
        assert_eq!(refused(&shown("Serving", "quiet")), None);
        let busy = refused(&shown("Serving", "active")).unwrap();
        assert!(
            busy.starts_with("cannot sleep now: Trigger 0 is at or above"),
            "{busy}"
        );
        let asleep = refused(&shown("Asleep", "quiet"));
        assert_eq!(asleep.as_deref(), Some("web is already asleep."));
        assert!(
            UserRequest::Wake
                .refusal(&shown("Serving", "active"))
                .is_none()
        );
    }
}
