//! Watches one collection: list, then watch, for ever. All browsers share it.

use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// A watch ends by itself after this; the client takes one that is silent for 20 s for dead.
const WATCH_TIMEOUT: Duration = Duration::from_secs(18);
const WATCH_GRACE: Duration = Duration::from_secs(2);
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
const PAGE_LIMIT: u32 = 250;
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
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
    let mut pause = BACKOFF_MIN;
    loop {
        match list(&client, &collection).await {
            Ok((version, items)) => {
                pause = BACKOFF_MIN;
                on_update(WatchUpdate::Replace(items));
                watch(&client, &collection, version, &mut on_update).await;
            }
            Err(error) => {
                let trouble = WatchError::from_kube(&error);
                if !matches!(trouble, WatchError::Unreachable(_)) {
                    pause = REFUSED_BACKOFF;
                }
                on_update(WatchUpdate::Failed(trouble));
            }
        }
        sleep(pause).await;
        pause = pause.saturating_mul(2).min(BACKOFF_MAX);
    }
}

async fn list(
    client: &Client,
    collection: &Collection,
) -> Result<(String, Vec<Value>), kube::Error> {
    let mut items = Vec::new();
    let mut params = ListParams {
        field_selector: collection.fields.clone(),
        limit: Some(PAGE_LIMIT),
        ..ListParams::default()
    };
    loop {
        let request = Request::new(collection.path.as_str())
            .list(&params)
            .map_err(kube::Error::BuildRequest)?;
        let page: Page = match timeout(LIST_TIMEOUT, client.request(request)).await {
            Ok(page) => page?,
            Err(late) => return Err(kube::Error::Service(late.into())),
        };
        items.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok((page.metadata.resource_version.unwrap_or_default(), items)),
        }
    }
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Vec<Value>,
}

/// Watches from a version on, one watch after the other, until only a new list helps.
async fn watch(
    client: &Client,
    collection: &Collection,
    mut version: String,
    on_update: &mut impl FnMut(WatchUpdate),
) {
    loop {
        let started = Instant::now();
        match watch_once(client, collection, &version, on_update).await {
            Ok(newer) => version = newer,
            Err(Ended::Relist) => return,
            Err(Ended::Failed(error)) => {
                on_update(WatchUpdate::Failed(WatchError::from_kube(&error)));
                return;
            }
        }
        // One that ends at once must not spin.
        if started.elapsed() < BACKOFF_MIN {
            sleep(BACKOFF_MIN).await;
        }
    }
}

enum Ended {
    Relist,
    Failed(kube::Error),
}

async fn watch_once(
    client: &Client,
    collection: &Collection,
    version: &str,
    on_update: &mut impl FnMut(WatchUpdate),
) -> Result<String, Ended> {
    let params = WatchParams {
        field_selector: collection.fields.clone(),
        timeout: u32::try_from(WATCH_TIMEOUT.as_secs()).ok(),
        bookmarks: true,
        ..WatchParams::default()
    };
    let request = Request::new(collection.path.as_str())
        .watch(&params, version)
        .map_err(|error| Ended::Failed(kube::Error::BuildRequest(error)))?;
    let deadline = Instant::now() + WATCH_TIMEOUT + WATCH_GRACE;
    let stream = match timeout_at(deadline, client.request_events::<Value>(request)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Err(Ended::Relist),
        Ok(Err(error)) => return Err(Ended::Failed(error)),
        Err(late) => return Err(Ended::Failed(kube::Error::Service(late.into()))),
    };
    on_update(WatchUpdate::Recovered);
    let mut stream = std::pin::pin!(stream);
    let mut version = version.to_owned();
    loop {
        let Ok(event) = timeout_at(deadline, stream.try_next()).await else {
            return Ok(version);
        };
        match event.map_err(Ended::Failed)? {
            Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                version = version_of(&object).unwrap_or(version);
                on_update(WatchUpdate::Set(object));
            }
            Some(WatchEvent::Deleted(object)) => {
                version = version_of(&object).unwrap_or(version);
                on_update(WatchUpdate::Removed(object));
            }
            Some(WatchEvent::Bookmark(mark)) => version = mark.metadata.resource_version,
            Some(WatchEvent::Error(_)) => return Err(Ended::Relist),
            None => return Ok(version),
        }
    }
}

fn version_of(object: &Value) -> Option<String> {
    let version = object.pointer("/metadata/resourceVersion");
    version.and_then(Value::as_str).map(str::to_owned)
}
