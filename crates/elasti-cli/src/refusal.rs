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
    #[error("the cluster does not accept your credentials: {0}")]
    Unauthorized(String),
    /// No answer came.
    #[error("the cluster does not answer: {0}")]
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
        format!(
            "you may not {verb} {resource}{place}: {message}\nAsk for {role} with this rule:\n  - apiGroups: [\"{group}\"]\n    resources: [\"{resource}\"]\n    verbs: [\"{verb}\"]",
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
        let mut root: &dyn std::error::Error = error;
        while let Some(source) = root.source() {
            root = source;
        }
        match error {
            kube::Error::Auth(_) => Self::Unauthorized(root.to_string()),
            kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
                Self::NoAnswer(root.to_string())
            }
            _ => Self::Other(root.to_string()),
        }
    }
}
