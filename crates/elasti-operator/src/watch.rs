//! One shared watch for each kind, whatever the number of services; every object is reduced while it is parsed.

use std::sync::Arc;
use std::time::Duration;

use elasti_api::names;
use elasti_runtime::watch::{Collection, Event, Lifetime, Watch, list};
use kube::Client;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::sync;

use crate::health::Heartbeat;
use crate::name::Name;
use crate::slim::FromObject;
use crate::store::Change;

/// A kind that does not exist any more may come back, but not soon.
const ABSENT_KIND_RETRY: Duration = Duration::from_secs(30);
/// A permission that is missing usually stays so until someone reads what is missing.
const REFUSED_KIND_RETRY_MAX: Duration = Duration::from_secs(120);

/// What to watch.
#[derive(Clone, Debug)]
pub(crate) struct WatchSpec {
    /// The collection's path.
    pub(crate) path: String,
    /// Only those with these labels.
    pub(crate) labels: Option<String>,
    /// Nothing but the metadata matters.
    pub(crate) metadata_only: bool,
    /// After so many watches in a row everything is listed again, in case an event was lost; 0: never.
    pub(crate) relist_every: u32,
    /// How long each watch lasts.
    pub(crate) lifetime: Lifetime,
    /// How long while this is true, if it is ever.
    pub(crate) urgent: Option<(sync::watch::Receiver<bool>, Lifetime)>,
    /// The operator can go on without: while it may not read them, it asks less and less often.
    pub(crate) optional: bool,
}

impl WatchSpec {
    /// Everything there, listed once and then watched.
    pub(crate) fn everything_at(path: String) -> Self {
        Self {
            path,
            labels: None,
            metadata_only: false,
            relist_every: 0,
            lifetime: Lifetime::DEFAULT,
            urgent: None,
            optional: false,
        }
    }

    fn collection(self) -> Collection {
        Collection {
            path: self.path,
            labels: self.labels,
            fields: None,
            metadata_only: self.metadata_only,
        }
    }
}

/// What of a list is kept.
pub(crate) struct Filter<K> {
    /// Called when a list begins.
    pub(crate) begin: Box<dyn Fn() + Send + Sync>,
    /// Whether an object of a page is kept.
    pub(crate) keep: Box<dyn Fn(&K) -> bool + Send + Sync>,
}

impl<K> Filter<K> {
    /// Everything is kept.
    pub(crate) fn all() -> Self {
        Self {
            begin: Box::new(|| {}),
            keep: Box::new(|_| true),
        }
    }
}

/// Watches as long as the future lives; each change comes with the version that the watch has reached.
pub(crate) async fn watch<K: FromObject>(
    client: Client,
    spec: WatchSpec,
    heartbeat: Arc<Heartbeat>,
    Filter { begin, keep }: Filter<K>,
    mut on_change: impl FnMut(Change<K>, &str),
) {
    let path = spec.path.clone();
    let WatchSpec {
        relist_every,
        lifetime,
        optional,
        ..
    } = spec;
    let urgent = spec.urgent.clone();
    // One that cannot be read has a name that counts.
    let keep = move |item: &Item<K>| item.object.as_ref().map_or(true, &keep);
    let mut watch = Watch::new(client, spec.collection(), Item::version)
        .keep_only(keep)
        .lifetime(lifetime)
        .relist_every(relist_every)
        .backoff_for(|error| is_absent(error).then_some(ABSENT_KIND_RETRY));
    if let Some((urgent, lifetime)) = urgent {
        watch = watch.while_urgent(urgent, move || lifetime);
    }
    if optional {
        watch = watch.refused_backoff_max(REFUSED_KIND_RETRY_MAX);
    }
    let on_event = |event, version: &str| match event {
        Event::Calling | Event::Alive => heartbeat.beat(),
        Event::Listing => begin(),
        Event::Watching => {}
        Event::Listed(items) => on_change(all(items, version), version),
        // What cannot be read stays as it was known.
        Event::Applied(Item { object, .. }) => {
            heartbeat.beat();
            if let Ok(object) = object {
                on_change(Change::Set(object), version);
            }
        }
        Event::Deleted(Item { object, .. }) => {
            let name = object.map_or_else(|name| name, |object| object.name().clone());
            on_change(Change::Gone(name), version);
        }
        Event::Failed { error, retry_after } => {
            heartbeat.beat_after(retry_after);
            if is_absent(&error) {
                on_change(all(Vec::new(), ""), "");
            } else if is_refused(&error) {
                tracing::warn!(path, %error, "list or watch refused");
                on_change(Change::Refused, "");
            } else {
                tracing::warn!(path, %error, "list or watch failed");
            }
        }
    };
    watch.run(on_event).await;
}

fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

fn all<K>(items: Vec<Item<K>>, version: &str) -> Change<K> {
    let (mut good, mut broken) = (Vec::new(), Vec::new());
    for Item { object, .. } in items {
        match object {
            Ok(object) => good.push(object),
            Err(name) => broken.push(name),
        }
    }
    Change::All {
        version: version.to_owned(),
        good,
        broken,
    }
}

/// Everything that labels select, beside the watch, and the version of that list.
pub(crate) async fn list_all<K: FromObject>(
    client: &Client,
    path: &str,
    labels: &str,
) -> Result<(String, Vec<K>), kube::Error> {
    let collection = Collection {
        path: path.to_owned(),
        labels: Some(labels.to_owned()),
        ..Collection::default()
    };
    let (version, items) = list::<Item<K>>(client, &collection, || {}).await?;
    let whole: Result<Vec<K>, Name> = items.into_iter().map(|item| item.object).collect();
    // Without the broken one the list would not be whole, and decisions on it not safe.
    let whole = whole.map_err(|name| {
        kube::Error::SerdeError(serde::de::Error::custom(format!("{name} cannot be read")))
    })?;
    Ok((version, whole))
}

/// One object, reduced to what is cached; if it cannot be parsed, its name.
#[derive(Clone)]
struct Item<K> {
    version: Option<String>,
    object: Result<K, Name>,
}

impl<K> Item<K> {
    fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}

impl<'de, K: FromObject> Deserialize<'de> for Item<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let version = text("/metadata/resourceVersion").map(str::to_owned);
        let name = Name::new(
            text("/metadata/namespace").unwrap_or_default(),
            text("/metadata/name").unwrap_or_default(),
        );
        let object = K::from_object(object).map_err(|error| {
            tracing::warn!(%name, %error, "object ignored: cannot be parsed");
            name
        });
        Ok(Self { version, object })
    }
}

/// The labels of resolver pods.
pub(crate) fn resolver_labels() -> String {
    format!("{}={}", names::RESOLVER_LABEL, names::RESOLVER_LABEL_VALUE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::slim::Declared;

    #[test]
    fn one_malformed_object_does_not_hide_the_others() {
        let good = serde_json::json!({
            "metadata": {"name": "good", "namespace": "shop", "resourceVersion": "3"},
            "spec": {"service": "cart", "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart"}},
        });
        let bad = serde_json::json!({
            "metadata": {"name": "bad", "namespace": "shop", "resourceVersion": "4"},
            "spec": {"service": 7},
        });
        let items: Vec<Item<Declared>> = [good, bad]
            .into_iter()
            .map(|object| serde_json::from_value(object).unwrap())
            .collect();
        let read: Vec<Result<Name, Name>> = items
            .into_iter()
            .map(|item| item.object.map(|object| object.name))
            .collect();
        let named = |name| Name::new("shop", name);
        assert_eq!(read, [Ok(named("good")), Err(named("bad"))]);
    }
}
