//! One shared watch for each kind, whatever the number of services: list, then watch, for ever, with time-outs that
//! notice a dead connection. Every change is delivered once and in order, and the whole list again when in doubt.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::names;
use futures::TryStreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::health::Heartbeat;
use crate::name::Name;
use crate::slim::Slim;
use crate::store::Change;

/// The server ends a watch after this; one that lives [`WATCH_GRACE`] longer is taken for dead: 18 + 2 = 20 s.
/// Six watches are then renewed 20 times a minute.
const WATCH_TIMEOUT: Duration = Duration::from_secs(18);
const WATCH_GRACE: Duration = Duration::from_secs(2);
/// For one page; then it is requested again.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// 250 pods of 20 KiB each are 5 MiB on the wire, and only one of them is ever held as a whole.
const PAGE_SIZE: u32 = 250;
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// So that an API server that returns is used within 2 s.
const BACKOFF_MAX: Duration = Duration::from_millis(1500);
/// A kind that does not exist any more may come back, but not soon.
const ABSENT_KIND_RETRY: Duration = Duration::from_secs(30);

/// What to watch.
#[derive(Clone, Debug)]
pub(crate) struct WatchSpec {
    /// The collection's path.
    pub(crate) path: String,
    /// Only those with these labels.
    pub(crate) labels: Option<String>,
    /// After so many watches in a row the whole list is read again, in case an event was lost; 0: never.
    pub(crate) relist_every: u32,
}

/// Watches as long as the future lives; each change is delivered with the version that the watch has reached.
pub(crate) async fn watch<K: Slim>(
    client: Client,
    spec: WatchSpec,
    heartbeat: Arc<Heartbeat>,
    mut on_change: impl FnMut(Change<K>, &str),
) {
    let mut pause = BACKOFF_MIN;
    loop {
        heartbeat.beat();
        match list::<K>(&client, &spec, &heartbeat).await {
            Ok((version, good, broken)) => {
                on_change(Change::All { good, broken }, &version);
                let watched = watch_from(&client, &spec, &heartbeat, version, &mut on_change);
                if watched.await {
                    pause = BACKOFF_MIN;
                }
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let (good, broken) = (Vec::new(), Vec::new());
                on_change(Change::All { good, broken }, "");
                heartbeat.beat_after(ABSENT_KIND_RETRY);
                sleep(ABSENT_KIND_RETRY).await;
            }
            Err(error) => {
                tracing::warn!(path = spec.path, %error, "list failed; retrying");
            }
        }
        // Half to whole, so that operators do not all come back at once.
        sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        pause = pause.saturating_mul(2).min(BACKOFF_MAX);
    }
}

/// Watches from a version on, one watch after the other, until only a new list helps. Tells whether a watch lived.
async fn watch_from<K: Slim>(
    client: &Client,
    spec: &WatchSpec,
    heartbeat: &Heartbeat,
    mut version: String,
    on_change: &mut impl FnMut(Change<K>, &str),
) -> bool {
    let (mut watches, mut lived) = (0, false);
    loop {
        heartbeat.beat();
        let started = Instant::now();
        match watch_once(client, spec, &version, on_change).await {
            End::Resume(newer) => {
                version = newer;
                // One that ends at once must not spin.
                if started.elapsed() >= BACKOFF_MIN {
                    lived = true;
                } else {
                    sleep(BACKOFF_MIN).await;
                }
                watches += 1;
                if watches == spec.relist_every {
                    return lived;
                }
            }
            End::Relist => return true,
            End::Failed => return lived,
        }
    }
}

/// One list, page by page: its version, what could be read and what could not.
async fn list<K: Slim>(
    client: &Client,
    spec: &WatchSpec,
    heartbeat: &Heartbeat,
) -> Result<(String, Vec<K>, Vec<Name>), kube::Error> {
    let (mut good, mut broken) = (Vec::new(), Vec::new());
    let mut params = ListParams {
        label_selector: spec.labels.clone(),
        limit: Some(PAGE_SIZE),
        ..ListParams::default()
    };
    loop {
        heartbeat.beat();
        let page = get_page::<K>(client, &spec.path, &params).await?;
        for Item { object, .. } in page.items {
            match object {
                Ok(object) => good.push(object),
                Err(name) => broken.push(name),
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => {
                let version = page.metadata.resource_version.unwrap_or_default();
                return Ok((version, good, broken));
            }
        }
    }
}

async fn get_page<K: Slim>(
    client: &Client,
    path: &str,
    params: &ListParams,
) -> Result<Page<K>, kube::Error> {
    let request = Request::new(path)
        .list(params)
        .map_err(kube::Error::BuildRequest)?;
    match timeout(LIST_TIMEOUT, client.request(request)).await {
        Ok(page) => page,
        Err(late) => Err(kube::Error::Service(late.into())),
    }
}

/// Everything that labels select, beside the watch, and the version of that list.
pub(crate) async fn list_all<K: Slim>(
    client: &Client,
    path: &str,
    labels: &str,
) -> Result<(String, Vec<K>), kube::Error> {
    let spec = WatchSpec {
        path: path.to_owned(),
        labels: Some(labels.to_owned()),
        relist_every: 0,
    };
    let (version, good, broken) = list::<K>(client, &spec, &Heartbeat::default()).await?;
    match broken.first() {
        // Without it the list would not be complete, and decisions on it not safe.
        Some(name) => {
            let error = serde::de::Error::custom(format!("{name} cannot be read"));
            Err(kube::Error::SerdeError(error))
        }
        None => Ok((version, good)),
    }
}

/// Why a watch ended.
enum End {
    /// It ended in order: go on from this version.
    Resume(String),
    /// Only a new list helps.
    Relist,
    /// Pause, then a new list.
    Failed,
}

async fn watch_once<K: Slim>(
    client: &Client,
    spec: &WatchSpec,
    version: &str,
    on_change: &mut impl FnMut(Change<K>, &str),
) -> End {
    let params = WatchParams {
        label_selector: spec.labels.clone(),
        timeout: u32::try_from(WATCH_TIMEOUT.as_secs()).ok(),
        bookmarks: true,
        ..WatchParams::default()
    };
    let Ok(request) = Request::new(spec.path.as_str()).watch(&params, version) else {
        return End::Failed;
    };
    let deadline = Instant::now() + WATCH_TIMEOUT + WATCH_GRACE;
    let stream = match timeout_at(deadline, client.request_events::<Item<K>>(request)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(kube::Error::Api(status))) if status.code == 410 => return End::Relist,
        Ok(Err(_)) | Err(_) => return End::Failed,
    };
    let mut stream = std::pin::pin!(stream);
    let mut version = version.to_owned();
    loop {
        let event = tokio::select! {
            event = stream.try_next() => event.transpose(),
            () = sleep_until(deadline) => return End::Resume(version),
        };
        match event {
            Some(Ok(WatchEvent::Added(item) | WatchEvent::Modified(item))) => {
                version = item.version.unwrap_or(version);
                // What cannot be read stays as it was cached.
                if let Ok(object) = item.object {
                    on_change(Change::Set(object), &version);
                }
            }
            Some(Ok(WatchEvent::Deleted(item))) => {
                version = item.version.unwrap_or(version);
                let name = match item.object {
                    Ok(object) => object.name().clone(),
                    Err(name) => name,
                };
                on_change(Change::Gone(name), &version);
            }
            Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                version = bookmark.metadata.resource_version;
            }
            Some(Ok(WatchEvent::Error(status))) if status.code == 410 => return End::Relist,
            Some(Ok(WatchEvent::Error(_)) | Err(_)) => return End::Failed,
            None => return End::Resume(version),
        }
    }
}

/// One page of a list.
#[derive(Deserialize)]
#[serde(bound = "")]
struct Page<K: Slim> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default = "Vec::new")]
    items: Vec<Item<K>>,
}

/// One object, reduced to what is cached; if it cannot be parsed, its name.
#[derive(Clone)]
struct Item<K> {
    version: Option<String>,
    object: Result<K, Name>,
    _kind: PhantomData<K>,
}

impl<'de, K: Slim> Deserialize<'de> for Item<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        let version = text("/metadata/resourceVersion").map(str::to_owned);
        let name = Name::new(
            text("/metadata/namespace").unwrap_or_default(),
            text("/metadata/name").unwrap_or_default(),
        );
        let object = K::read(object).map_err(|error| {
            tracing::warn!(%name, %error, "object ignored: cannot be parsed");
            name
        });
        Ok(Self {
            version,
            object,
            _kind: PhantomData,
        })
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
        let list = serde_json::json!({"metadata": {"resourceVersion": "9"}, "items": [good, bad]});
        let page: Page<Declared> = serde_json::from_value(list).unwrap();
        let read: Vec<Result<Name, Name>> = page
            .items
            .into_iter()
            .map(|item| item.object.map(|object| object.name))
            .collect();
        let named = |name| Name::new("shop", name);
        assert_eq!(read, [Ok(named("good")), Err(named("bad"))]);
    }
}
