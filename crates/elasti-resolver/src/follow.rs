//! Follows one kind of object; watches are renewed faster while something is held.

use std::fmt::Debug;
use std::time::Duration;

use elasti_runtime::watch::{Collection, Event, Lifetime, Watch};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// What happened.
#[derive(Debug)]
pub(crate) enum Change<K> {
    /// These and no others exist.
    All(Vec<K>),
    /// This one exists, and this is its state.
    Set(K),
    /// This one was deleted.
    Deleted(K),
}

/// 15 + 5 = 20 s.
const WATCH_LIFETIME: Lifetime = Lifetime {
    seconds: 15,
    grace: Duration::from_secs(5),
};
/// While something is held: 1 + 1 = 2 s.
const URGENT_LIFETIME: Lifetime = Lifetime {
    seconds: 1,
    grace: Duration::from_secs(1),
};

/// Follows the objects that `labels` select, as long as the future lives.
pub(crate) async fn follow<K>(
    api: Api<K>,
    labels: Option<String>,
    urgent: watch::Receiver<bool>,
    mut on_change: impl FnMut(Change<K>),
) where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let collection = Collection {
        path: api.resource_url().to_owned(),
        labels,
        fields: None,
    };
    let watch = Watch::new(api.into_client(), collection, version)
        .lifetime(WATCH_LIFETIME)
        .while_urgent(urgent, URGENT_LIFETIME);
    let on_event = |event, _: &str| match event {
        Event::Listed(objects) => on_change(Change::All(objects)),
        Event::Applied(object) => on_change(Change::Set(object)),
        Event::Deleted(object) => on_change(Change::Deleted(object)),
        Event::Failed { error, .. } => tracing::debug!(%error, "list or watch failed"),
        Event::Calling | Event::Listing | Event::Watching => {}
    };
    watch.run(on_event).await;
}

fn version<K: Resource>(object: &K) -> Option<&str> {
    object.meta().resource_version.as_deref()
}
