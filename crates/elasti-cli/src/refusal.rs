//! Errors of the API server, in sentences that say what to do.

use elasti_api::names;
use kube::runtime::watcher;
use thiserror::Error;

/// One call to the API server, as far as the text of an error needs it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// `get`, `list`, `watch`, `patch`, …
    pub verb: &'static str,
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Plural, for example `pods`.
    pub resource: &'a str,
    /// `None` for all namespaces.
    pub namespace: Option<&'a str>,
    /// `None` for a list.
    pub name: Option<&'a str>,
}

/// Why a call to the API server failed.
#[derive(Clone, Debug, Error)]
pub enum Refusal {
    /// The user lacks a permission.
    #[error("{0}")]
    Forbidden(String),
    /// The cluster does not know ElastiServices.
    #[error(
        "this cluster has no ElastiServices: Elasti is not installed, or this is the wrong cluster (see: kubectl config current-context)"
    )]
    NotInstalled,
    /// There is no such object.
    #[error("{0}")]
    NotFound(String),
    /// The credentials are not accepted.
    #[error(
        "the cluster does not accept your credentials: {0}; log in again, or choose another context: kubectl config get-contexts"
    )]
    Unauthorized(String),
    /// No answer came.
    #[error(
        "the cluster does not answer: {0}; is it running, and is this the right context? See: kubectl config current-context"
    )]
    NoAnswer(String),
    /// Everything else, in the server's words.
    #[error("{0}")]
    Other(String),
}

impl<'a> Call<'a> {
    /// About ElastiServices.
    pub fn services(verb: &'static str, namespace: Option<&'a str>, name: Option<&'a str>) -> Self {
        Self {
            verb,
            group: names::GROUP,
            resource: names::PLURAL,
            namespace,
            name,
        }
    }

    /// What an error means.
    pub fn refused(&self, error: &kube::Error) -> Refusal {
        let kube::Error::Api(status) = error else {
            return Refusal::of_connection(error);
        };
        match status.code {
            401 => Refusal::Unauthorized(status.message.clone()),
            403 if status.is_forbidden() => {
                Refusal::Forbidden(self.missing_permission(&status.message))
            }
            // For a missing object the server gives details, for a missing kind it does not.
            404 => match (
                self.name,
                status.details.is_some() || self.group != names::GROUP,
            ) {
                (Some(name), true) => Refusal::NotFound(self.not_found(name)),
                _ => Refusal::NotInstalled,
            },
            _ => Refusal::Other(status.message.clone()),
        }
    }

    fn not_found(&self, name: &str) -> String {
        let Self { resource, .. } = self;
        let place = self.place();
        let hint = match *resource == names::PLURAL {
            true => "; see: elasti list -A",
            false => "",
        };
        format!("{resource} {name:?} not found{place}{hint}")
    }

    fn place(&self) -> String {
        match self.namespace {
            Some(namespace) => format!(" in namespace {namespace}"),
            None => " in the cluster".to_owned(),
        }
    }

    /// Which permission is missing, and the rule that grants it.
    fn missing_permission(&self, message: &str) -> String {
        let Self {
            verb,
            group,
            resource,
            ..
        } = self;
        let role = match self.namespace {
            Some(namespace) => format!("a Role in namespace {namespace}"),
            None => "a ClusterRole".to_owned(),
        };
        // The server says the same at length; what it adds is the user.
        let user = message
            .split_once("User \"")
            .and_then(|(_, rest)| rest.split_once('"'));
        let user = user.map_or_else(String::new, |(user, _)| format!(" (you are {user})"));
        format!(
            "you may not {verb} {resource}{place}{user}\nAsk for {role} with this rule:\n  - apiGroups: [\"{group}\"]\n    resources: [\"{resource}\"]\n    verbs: [\"{verb}\"]",
            place = self.place(),
        )
    }
}

/// What the API server said to a watch of ElastiServices that failed; `None` for what is not its word.
pub(crate) fn of_watch(error: &watcher::Error, namespace: Option<&str>) -> Option<Refusal> {
    let source = match error {
        watcher::Error::InitialListFailed(source)
        | watcher::Error::WatchStartFailed(source)
        | watcher::Error::WatchFailed(source) => source,
        _ => return None,
    };
    Some(Call::services("watch", namespace, None).refused(source))
}

impl Refusal {
    /// The root cause says most: the errors above it name layers of the client.
    fn of_connection(error: &kube::Error) -> Self {
        let root = root(error);
        match error {
            kube::Error::Auth(_) => Self::Unauthorized(root),
            kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
                Self::NoAnswer(root)
            }
            _ => Self::Other(root),
        }
    }
}

/// The root cause in words, without the number that the system has for it.
pub(crate) fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    let text = root.to_string();
    match text.split_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{Call, root};

    #[test]
    fn a_missing_permission_is_said_once_with_the_user_and_the_rule() {
        let said = "elastiservices.elasti.truefoundry.com is forbidden: User \"eve\" cannot list resource \"elastiservices\"";
        let text = Call::services("list", Some("shop"), None).missing_permission(said);
        let (line, rule) = text.split_once('\n').unwrap_or_default();
        assert_eq!(
            line,
            "you may not list elastiservices in namespace shop (you are eve)"
        );
        assert!(
            rule.starts_with("Ask for a Role in namespace shop"),
            "{rule}"
        );
    }

    #[test]
    fn a_cause_has_words_and_no_number() {
        let refused = std::io::Error::from_raw_os_error(111);
        assert_eq!(root(&refused), "Connection refused");
    }
}
