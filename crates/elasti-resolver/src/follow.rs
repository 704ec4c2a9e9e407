//! Follows one kind of object: list, then watch, for ever, with time-outs that notice a silent watch.
//! Changes are reported in order, and the whole list again whenever in doubt.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{self, Instant, sleep, sleep_until};

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

/// A watch ends by itself after this; one that is silent for [`WATCH_GRACE`] longer is taken for dead: 15 + 5 = 20 s.
const WATCH_TIMEOUT: Duration = Duration::from_secs(15);
const WATCH_GRACE: Duration = Duration::from_secs(5);
/// While something is held: 1 + 1 = 2 s.
const URGENT_WATCH_TIMEOUT: Duration = Duration::from_secs(1);
const URGENT_WATCH_GRACE: Duration = Duration::from_secs(1);
/// A list that takes longer is retried.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// So that an API server that returns is used within 2 s.
const BACKOFF_MAX: Duration = Duration::from_millis(1500);

/// Why a watch ended.
enum End {
    /// It ended in order, or something became urgent: go on from this version.
    Resume(String),
    /// Only a new list helps.
    Relist,
    /// It failed: back off, then list again.
    Failed,
}

/// Follows the objects that `labels` select, as long as the future lives.
pub(crate) async fn follow<K>(
    api: Api<K>,
    labels: Option<String>,
    mut urgent: watch::Receiver<bool>,
    mut on_change: impl FnMut(Change<K>),
) where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut backoff = BACKOFF_MIN;
    loop {
        let mut params = ListParams::default();
        params.label_selector.clone_from(&labels);
        if let Ok(Ok(list)) = time::timeout(LIST_TIMEOUT, api.list(&params)).await {
            let mut version = list.metadata.resource_version.unwrap_or_default();
            on_change(Change::All(list.items));
            loop {
                let started = Instant::now();
                match watch_once(&api, &labels, &version, &mut urgent, &mut on_change).await {
                    // A watch that lived was worth it; one that ends at once must not spin.
                    End::Resume(newer) => {
                        version = newer;
                        if started.elapsed() >= BACKOFF_MIN {
                            backoff = BACKOFF_MIN;
                        } else {
                            sleep(BACKOFF_MIN).await;
                        }
                    }
                    End::Relist => break backoff = BACKOFF_MIN,
                    End::Failed => break,
                }
            }
        }
        // Half to whole, so that a thousand resolvers do not come back all at once.
        sleep(backoff.mul_f64(rand::random_range(0.5..1.0))).await;
        backoff = backoff.saturating_mul(2).min(BACKOFF_MAX);
    }
}

async fn watch_once<K>(
    api: &Api<K>,
    labels: &Option<String>,
    version: &str,
    urgent: &mut watch::Receiver<bool>,
    on_change: &mut impl FnMut(Change<K>),
) -> End
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let is_urgent = *urgent.borrow_and_update();
    let (timeout, grace) = if is_urgent {
        (URGENT_WATCH_TIMEOUT, URGENT_WATCH_GRACE)
    } else {
        (WATCH_TIMEOUT, WATCH_GRACE)
    };
    let params = WatchParams {
        label_selector: labels.clone(),
        timeout: u32::try_from(timeout.as_secs()).ok(),
        bookmarks: true,
        ..WatchParams::default()
    };
    let deadline = Instant::now() + timeout + grace;
    let stream = match time::timeout_at(deadline, api.watch(&params, version)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(kube::Error::Api(status))) if status.code == 410 => return End::Relist,
        Ok(Err(_)) | Err(_) => return End::Failed,
    };
    let mut stream = std::pin::pin!(stream);
    let mut version = version.to_owned();
    loop {
        let event = tokio::select! {
            event = stream.next() => event,
            () = sleep_until(deadline) => return End::Resume(version),
            () = becomes_urgent(urgent), if !is_urgent => return End::Resume(version),
        };
        match event {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                version = object.resource_version().unwrap_or(version);
                on_change(Change::Set(object));
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                version = object.resource_version().unwrap_or(version);
                on_change(Change::Deleted(object));
            }
            Some(Ok(WatchEvent::Bookmark(mark))) => version = mark.metadata.resource_version,
            Some(Ok(WatchEvent::Error(status))) if status.code == 410 => return End::Relist,
            Some(Ok(WatchEvent::Error(_)) | Err(_)) => return End::Failed,
            None => return End::Resume(version),
        }
    }
}

async fn becomes_urgent(urgent: &mut watch::Receiver<bool>) {
    // Without a sender nothing is ever held again.
    if urgent.wait_for(|urgent| *urgent).await.is_err() {
        std::future::pending::<()>().await;
    }
}
