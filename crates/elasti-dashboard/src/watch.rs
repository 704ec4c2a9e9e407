//! One watch for each collection, shared by all browsers.

use std::time::Duration;

use elasti_runtime::watch::{self, Event, Watch};
use kube::Client;
use serde_json::Value;

/// A missing permission or kind may be added, but not within the second.
const REFUSED_BACKOFF: Duration = Duration::from_secs(5);

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Collection {
    /// The collection's path.
    pub(crate) path: String,
    /// A field selector.
    pub(crate) fields: Option<String>,
}

/// A change of the collection.
pub(crate) enum WatchUpdate {
    /// The whole collection.
    Replace(Vec<Value>),
    /// This one is new or changed.
    Set(Value),
    /// This one is gone.
    Removed(Value),
    /// The watch is down.
    Failed(WatchError),
    /// The watch is up again.
    Recovered,
}

/// Why a watch is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchError {
    /// The user may not list this.
    Forbidden(String),
    /// The cluster does not know the kind.
    Absent,
    /// No answer, or none that can be used.
    Unreachable(String),
}

impl WatchError {
    fn from_kube(error: &kube::Error) -> Self {
        if let kube::Error::Api(status) = error {
            return match status.code {
                401 | 403 => Self::Forbidden(status.message.clone()),
                404 => Self::Absent,
                _ => Self::Unreachable(status.message.clone()),
            };
        }
        // The root cause says most: the errors above it name layers of the client.
        let mut root: &dyn std::error::Error = error;
        while let Some(source) = root.source() {
            root = source;
        }
        Self::Unreachable(root.to_string())
    }
}

/// Watches for ever.
pub(crate) async fn watch_forever(
    client: Client,
    collection: Collection,
    mut on_update: impl FnMut(WatchUpdate),
) {
    let Collection { path, fields } = collection;
    let collection = watch::Collection {
        path,
        fields,
        ..watch::Collection::default()
    };
    let refused = |error: &kube::Error| {
        let refused = !matches!(WatchError::from_kube(error), WatchError::Unreachable(_));
        refused.then_some(REFUSED_BACKOFF)
    };
    let watch = Watch::new(client, collection, version).backoff_for(refused);
    let on_event = |event, _: &str| match event {
        Event::Calling | Event::Listing | Event::Alive => {}
        Event::Listed(objects) => on_update(WatchUpdate::Replace(objects)),
        Event::Applied(object) => on_update(WatchUpdate::Set(object)),
        Event::Deleted(object) => on_update(WatchUpdate::Removed(object)),
        Event::Watching => on_update(WatchUpdate::Recovered),
        Event::Failed { error, .. } => {
            on_update(WatchUpdate::Failed(WatchError::from_kube(&error)))
        }
    };
    watch.run(on_event).await;
}

fn version(object: &Value) -> Option<&str> {
    object.pointer("/metadata/resourceVersion")?.as_str()
}
