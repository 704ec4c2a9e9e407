//! One shared watch a kind, whatever the number of services: list, then watch, for ever, with time-outs that notice silence.
//! Never keeps an object and never decides: every change is told once, in order, and the whole list again when in doubt.

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

use crate::health::Pulse;
use crate::name::Name;
use crate::slim::Slim;
use crate::store::Change;

/// A watch ends by itself after this; one that is silent for [`GRACE`] longer is taken for dead: 18 + 2 = 20 s.
/// Six watches are then renewed 20 times a minute.
const CALM: Duration = Duration::from_secs(18);
const GRACE: Duration = Duration::from_secs(2);
/// A page of a list that takes longer is asked for again.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// 250 pods of 20 KiB each are 5 MiB on the wire, and only one of them is ever held as a whole.
const PAGE: u32 = 250;
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// So that an API server that returns is used within 2 s.
const BACKOFF_MAX: Duration = Duration::from_millis(1500);
/// A kind that does not exist any more may come back, but not soon.
const ABSENT_PAUSE: Duration = Duration::from_secs(30);

/// What to follow.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    /// The collection's path.
    pub(crate) path: String,
    /// Only those with these labels.
    pub(crate) labels: Option<String>,
    /// After so many watches in a row the whole list is told again, in case an event was lost; 0: never.
    pub(crate) relist_every: u32,
}

/// Follows objects as long as the future lives; each change is told with the version that it has brought.
pub(crate) async fn follow<K: Slim>(
    client: Client,
    followed: Followed,
    pulse: Arc<Pulse>,
    mut tell: impl FnMut(Change<K>, &str),
) {
    let mut pause = BACKOFF_MIN;
    loop {
        pulse.beat();
        match list::<K>(&client, &followed, &pulse).await {
            Ok((mut version, good, broken)) => {
                tell(Change::All { good, broken }, &version);
                let mut watches = 0;
                loop {
                    pulse.beat();
                    let started = Instant::now();
                    match watch_once(&client, &followed, &version, &mut tell).await {
                        // A watch that lived was worth it; one that ends at once must not spin.
                        End::Resume(newer) => {
                            version = newer;
                            if started.elapsed() >= BACKOFF_MIN {
                                pause = BACKOFF_MIN;
                            } else {
                                sleep(BACKOFF_MIN).await;
                            }
                            watches += 1;
                            if watches == followed.relist_every {
                                break;
                            }
                        }
                        End::Relist => break pause = BACKOFF_MIN,
                        End::Failed => break,
                    }
                }
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let (good, broken) = (Vec::new(), Vec::new());
                tell(Change::All { good, broken }, "");
                pulse.rest(ABSENT_PAUSE);
                sleep(ABSENT_PAUSE).await;
            }
            Err(error) => {
                tracing::warn!(path = followed.path, %error, "a list failed; it is tried again");
            }
        }
        // Half to whole, so that operators do not come back in one blow.
        sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        pause = pause.saturating_mul(2).min(BACKOFF_MAX);
    }
}

/// One list, page by page: its version, what could be read and what could not.
async fn list<K: Slim>(
    client: &Client,
    followed: &Followed,
    pulse: &Pulse,
) -> Result<(String, Vec<K>, Vec<Name>), kube::Error> {
    let (mut good, mut broken) = (Vec::new(), Vec::new());
    let mut params = ListParams {
        label_selector: followed.labels.clone(),
        limit: Some(PAGE),
        ..ListParams::default()
    };
    loop {
        pulse.beat();
        let page = read_page::<K>(client, &followed.path, &params).await?;
        for Item { read, .. } in page.items {
            match read {
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

async fn read_page<K: Slim>(
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

/// Everything that labels select, past the watch, and the version of that list.
pub(crate) async fn read_all<K: Slim>(
    client: &Client,
    path: &str,
    labels: &str,
) -> Result<(String, Vec<K>), kube::Error> {
    let followed = Followed {
        path: path.to_owned(),
        labels: Some(labels.to_owned()),
        relist_every: 0,
    };
    let (version, good, broken) = list::<K>(client, &followed, &Pulse::default()).await?;
    match broken.first() {
        // Without it the list would not be whole, and decisions on it not safe.
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
    /// Neither worked: pause, then a new list.
    Failed,
}

async fn watch_once<K: Slim>(
    client: &Client,
    followed: &Followed,
    version: &str,
    tell: &mut impl FnMut(Change<K>, &str),
) -> End {
    let params = WatchParams {
        label_selector: followed.labels.clone(),
        timeout: u32::try_from(CALM.as_secs()).ok(),
        bookmarks: true,
        ..WatchParams::default()
    };
    let Ok(request) = Request::new(followed.path.as_str()).watch(&params, version) else {
        return End::Failed;
    };
    let deadline = Instant::now() + CALM + GRACE;
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
                // What cannot be read stays as it was known.
                if let Ok(object) = item.read {
                    tell(Change::Set(object), &version);
                }
            }
            Some(Ok(WatchEvent::Deleted(item))) => {
                version = item.version.unwrap_or(version);
                let name = match item.read {
                    Ok(object) => object.name().clone(),
                    Err(name) => name,
                };
                tell(Change::Gone(name), &version);
            }
            Some(Ok(WatchEvent::Bookmark(mark))) => version = mark.metadata.resource_version,
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

/// One object, slimmed while it is read; if it cannot be read, its name.
#[derive(Clone)]
struct Item<K> {
    version: Option<String>,
    read: Result<K, Name>,
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
        let read = K::read(object).map_err(|error| {
            tracing::warn!(%name, %error, "an object cannot be read; the others are not affected");
            name
        });
        Ok(Self {
            version,
            read,
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
            .map(|item| item.read.map(|object| object.name))
            .collect();
        let named = |name| Name::new("shop", name);
        assert_eq!(read, [Ok(named("good")), Err(named("bad"))]);
    }
}
