//! One watch of one kind; whatever the number of browsers, there is one of each.

use std::time::Duration;

use elasti_runtime::watch::{Collection, Event, Watch};
use kube::Client;
use serde_json::Value;

/// A permission or a kind that is missing may be added, but not within the second.
const REFUSED_BACKOFF: Duration = Duration::from_secs(5);

/// What is followed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Followed {
    /// The collection's path.
    pub(crate) path: String,
    /// A field selector.
    pub(crate) fields: Option<String>,
}

/// What a watch tells.
pub(crate) enum Told {
    /// These, and no others.
    All(Vec<Value>),
    /// This one is new or changed.
    Set(Value),
    /// This one is gone.
    Gone(Value),
    /// Nothing can be told for now.
    Trouble(Trouble),
    /// It can again.
    Well,
}

/// Why nothing can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The user may not list this.
    Forbidden(String),
    /// The cluster does not know the kind.
    Absent,
    /// No answer, or none that can be used.
    Unreachable(String),
}

impl Trouble {
    fn of(error: &kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            return match status.code {
                401 | 403 => Self::Forbidden(status.message.clone()),
                404 => Self::Absent,
                _ => Self::Unreachable(status.message.clone()),
            };
        }
        // The root of an error says most: what lies above it names layers of the client.
        let mut root: &dyn std::error::Error = error;
        while let Some(source) = root.source() {
            root = source;
        }
        Self::Unreachable(root.to_string())
    }
}

/// Follows objects as long as the future lives.
pub(crate) async fn follow(client: Client, followed: Followed, mut tell: impl FnMut(Told)) {
    let Followed { path, fields } = followed;
    let collection = Collection {
        path,
        labels: None,
        fields,
    };
    let refused = |error: &kube::Error| {
        let refused = !matches!(Trouble::of(error), Trouble::Unreachable(_));
        refused.then_some(REFUSED_BACKOFF)
    };
    let watch = Watch::new(client, collection, version).backoff_for(refused);
    let on_event = |event, _: &str| match event {
        Event::Calling => {}
        Event::Listed(objects) => tell(Told::All(objects)),
        Event::Applied(object) => tell(Told::Set(object)),
        Event::Deleted(object) => tell(Told::Gone(object)),
        Event::Watching => tell(Told::Well),
        Event::Failed { error, .. } => tell(Told::Trouble(Trouble::of(&error))),
    };
    watch.run(on_event).await;
}

fn version(object: &Value) -> Option<&str> {
    object.pointer("/metadata/resourceVersion")?.as_str()
}
