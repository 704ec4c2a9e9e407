//! Follows a collection of Kubernetes objects: list, then watch, for ever, with time-outs that notice silence.
//!
//! Not kube's `watcher`: that one waits out a silent watch, and neither renews watches faster while a request is held
//! nor lists again now and then in case an event was lost.

use std::time::Duration;

use futures::{AsyncReadExt as _, TryStreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// A page of a list that takes longer is asked for again.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// A watch that is not open by then is asked for again.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// 250 pods of 20 KiB each are 5 MiB on the wire.
const PAGE_SIZE: u32 = 250;
/// A page with more is not read to its end, but asked for again with fewer objects: a client that may create objects can
/// make them as large as the API server allows, which is a megabyte and more.
const PAGE_BYTES_MAX: u64 = 8 << 20;
/// By how much such a page is made smaller.
const PAGE_SHRINKS_BY: u32 = 4;
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// So that an API server that returns is used within 2 s.
const BACKOFF_MAX: Duration = Duration::from_millis(1500);
/// For a server that is overloaded and does not say how long.
const OVERLOADED_BACKOFF: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that is honoured.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// Which objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collection {
    /// The path of the collection.
    pub path: String,
    /// A label selector.
    pub labels: Option<String>,
    /// A field selector.
    pub fields: Option<String>,
    /// Only the metadata of each object is sent.
    pub metadata_only: bool,
}

impl Collection {
    fn list(&self, params: &ListParams) -> Result<http::Request<Vec<u8>>, kube::Error> {
        let request = Request::new(self.path.as_str());
        let request = match self.metadata_only {
            true => request.list_metadata(params),
            false => request.list(params),
        };
        request.map_err(kube::Error::BuildRequest)
    }

    fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> Result<http::Request<Vec<u8>>, kube::Error> {
        let request = Request::new(self.path.as_str());
        let request = match self.metadata_only {
            true => request.watch_metadata(params, version),
            false => request.watch(params, version),
        };
        request.map_err(kube::Error::BuildRequest)
    }
}

/// How long one watch lasts, and how long it may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// What the server is asked for, in seconds; then it ends the watch.
    pub seconds: u32,
    /// One that brings nothing for so long, not even a bookmark, is renewed: it may be dead.
    pub silence: Duration,
}

impl Lifetime {
    /// Watches of eight kinds cost five calls a minute. API servers send a bookmark every minute, so that silence says
    /// that a server sends nothing though it keeps its connections; one that is dead is noticed sooner, by TCP
    /// (`kube_client.rs`). Each watch goes on from the last event, so one that was lost comes after this time.
    pub const DEFAULT: Self = Self {
        seconds: 95,
        silence: Duration::from_secs(75),
    };

    /// For what must be known sooner and is not watched for long: 18 + 2 = 20 s.
    pub const SHORT: Self = Self {
        seconds: 18,
        silence: Duration::from_secs(20),
    };
}

/// What happened.
#[derive(Debug)]
pub enum Event<K> {
    /// The API server is about to be called.
    Calling,
    /// A list begins: its first page is about to be asked for.
    Listing,
    /// These exist, and no others but those that are not kept.
    Listed(Vec<K>),
    /// A watch is open.
    Watching,
    /// Nothing has changed, and the watch lives.
    Alive,
    /// This one is new or changed.
    Applied(K),
    /// This one is gone.
    Deleted(K),
    /// A list or a watch failed; it is tried again after `retry_after`.
    Failed {
        /// Why.
        error: kube::Error,
        /// The pause.
        retry_after: Duration,
    },
}

/// How long the next watch lasts while something is urgent.
type UrgentLifetime = dyn Fn() -> Lifetime + Send + Sync;

/// Follows one collection.
pub struct Watch<K> {
    client: Client,
    collection: Collection,
    version_of: fn(&K) -> Option<&str>,
    lifetime: Lifetime,
    urgent: Option<(watch::Receiver<bool>, Box<UrgentLifetime>)>,
    relist_every: u32,
    backoff_for: fn(&kube::Error) -> Option<Duration>,
    refused_backoff_max: Duration,
    keep: Box<dyn Fn(&K) -> bool + Send + Sync>,
}

/// How far a watch has come.
struct Seen {
    /// What the server has told of, also by a bookmark.
    latest: String,
    /// The last event or list. A watch goes on from here: what a bookmark passes over may be an event that was lost.
    event: String,
}

impl Seen {
    fn event(&mut self, newer: Option<&str>) {
        if let Some(newer) = newer {
            newer.clone_into(&mut self.latest);
            newer.clone_into(&mut self.event);
        }
    }

    /// The server does not know the last event any more.
    fn forgotten(&mut self) -> End {
        if self.event == self.latest {
            return End::Relist;
        }
        self.event.clone_from(&self.latest);
        End::Resume
    }
}

/// How a watch ended.
enum End {
    /// In order, in silence, or because something became urgent: go on from the last version.
    Resume,
    /// Only a new list helps.
    Relist,
}

impl<K: DeserializeOwned + Clone> Watch<K> {
    /// `version_of` gives the `resourceVersion` of an object.
    #[must_use]
    pub fn new(client: Client, collection: Collection, version_of: fn(&K) -> Option<&str>) -> Self {
        Self {
            client,
            collection,
            version_of,
            lifetime: Lifetime::DEFAULT,
            urgent: None,
            relist_every: 0,
            backoff_for: |_| None,
            refused_backoff_max: BACKOFF_MAX,
            keep: Box::new(|_| true),
        }
    }

    /// Of each page of a list only these are kept, so that a list of everything in a cluster is never in memory whole.
    #[must_use]
    pub fn keep_only(mut self, keep: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        self.keep = Box::new(keep);
        self
    }

    /// How long a watch lasts.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// How long a watch lasts while `urgent` is true; when it becomes true the watch is renewed at once.
    #[must_use]
    pub fn while_urgent(
        mut self,
        urgent: watch::Receiver<bool>,
        lifetime: impl Fn() -> Lifetime + Send + Sync + 'static,
    ) -> Self {
        self.urgent = Some((urgent, Box::new(lifetime)));
        self
    }

    /// Lists again after so many watches, in case an event was lost; 0: never.
    #[must_use]
    pub fn relist_every(mut self, watches: u32) -> Self {
        self.relist_every = watches;
        self
    }

    /// Errors that need a longer pause than the usual backoff.
    #[must_use]
    pub fn backoff_for(mut self, pause: fn(&kube::Error) -> Option<Duration>) -> Self {
        self.backoff_for = pause;
        self
    }

    /// The longest pause while the caller is not allowed to read these, which may last until someone changes that.
    #[must_use]
    pub fn refused_backoff_max(mut self, pause: Duration) -> Self {
        self.refused_backoff_max = pause;
        self
    }

    /// Follows the collection as long as the future lives. Each event comes with the version that it brought.
    pub async fn run(mut self, mut on_event: impl FnMut(Event<K>, &str)) {
        let mut backoff = BACKOFF_MIN;
        loop {
            on_event(Event::Listing, "");
            let before_page = || on_event(Event::Calling, "");
            let listed = list_kept(&self.client, &self.collection, &self.keep, before_page);
            let failed = match listed.await {
                Ok((version, objects)) => {
                    on_event(Event::Listed(objects), &version);
                    self.watch_from(version, &mut backoff, &mut on_event).await
                }
                Err(error) => Some(error),
            };
            match failed {
                Some(error) => self.pause_after(error, &mut backoff, &mut on_event).await,
                None => sleep(next_pause(&mut backoff, BACKOFF_MAX)).await,
            }
        }
    }

    /// Waits as long as the backoff, the error and the server ask for.
    async fn pause_after(
        &self,
        error: kube::Error,
        backoff: &mut Duration,
        on_event: &mut impl FnMut(Event<K>, &str),
    ) {
        let longer = retry_after(&error).max((self.backoff_for)(&error));
        let longest = match &error {
            kube::Error::Api(status) if status.code == 403 => self.refused_backoff_max,
            _ => BACKOFF_MAX,
        };
        let retry_after = next_pause(backoff, longest).max(longer.unwrap_or_default());
        on_event(Event::Failed { error, retry_after }, "");
        sleep(retry_after).await;
    }

    /// After a watch has failed: whether the next one can go on from `version`. A list of everything, by every replica at
    /// once, is what a server that struggles needs least. One that was restored from a backup has lower versions than
    /// ours, and would be silent until it has reached them.
    async fn can_go_on(
        &self,
        mut error: kube::Error,
        version: &str,
        backoff: &mut Duration,
        on_event: &mut impl FnMut(Event<K>, &str),
    ) -> Result<bool, kube::Error> {
        loop {
            if !is_passing(&error) {
                return Err(error);
            }
            self.pause_after(error, backoff, on_event).await;
            on_event(Event::Calling, version);
            match latest_version(&self.client, &self.collection).await {
                Ok(latest) => return Ok(!is_older(&latest, version)),
                Err(failed) => error = failed,
            }
        }
    }

    /// One watch after the other, until a new list is needed or one fails.
    async fn watch_from(
        &mut self,
        version: String,
        backoff: &mut Duration,
        on_event: &mut impl FnMut(Event<K>, &str),
    ) -> Option<kube::Error> {
        let mut seen = Seen {
            event: version.clone(),
            latest: version,
        };
        let mut watches = 0;
        loop {
            let started = Instant::now();
            match self.watch_once(&mut seen, on_event).await {
                Ok(End::Resume) => {}
                Ok(End::Relist) => {
                    *backoff = BACKOFF_MIN;
                    return None;
                }
                Err(error) => {
                    let latest = &seen.latest;
                    match self.can_go_on(error, latest, backoff, on_event).await {
                        Ok(true) => {}
                        Ok(false) => return None,
                        Err(error) => return Some(error),
                    }
                }
            }
            // A watch that ends at once must not spin.
            if started.elapsed() >= BACKOFF_MIN {
                *backoff = BACKOFF_MIN;
            } else {
                sleep(BACKOFF_MIN).await;
            }
            watches += 1;
            if watches == self.relist_every {
                return None;
            }
        }
    }

    async fn watch_once(
        &mut self,
        seen: &mut Seen,
        on_event: &mut impl FnMut(Event<K>, &str),
    ) -> Result<End, kube::Error> {
        let (lifetime, mut becomes_urgent) = match &mut self.urgent {
            Some((urgent, short)) if *urgent.borrow() => (short(), None),
            Some((urgent, _)) => (self.lifetime, Some(urgent)),
            None => (self.lifetime, None),
        };
        let version_of = self.version_of;
        let params = WatchParams {
            label_selector: self.collection.labels.clone(),
            field_selector: self.collection.fields.clone(),
            timeout: Some(lifetime.seconds),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = self.collection.watch(&params, &seen.event)?;
        on_event(Event::Calling, &seen.latest);
        let opened = self.client.request_events::<K>(request);
        let stream = match timeout(lifetime.silence.min(OPEN_TIMEOUT), opened).await {
            Ok(Err(kube::Error::Api(status))) if status.code == 410 => return Ok(seen.forgotten()),
            Ok(stream) => stream?,
            Err(late) => return Err(kube::Error::Service(late.into())),
        };
        on_event(Event::Watching, &seen.latest);
        let mut stream = std::pin::pin!(stream);
        loop {
            let event = tokio::select! {
                event = stream.try_next() => event?,
                () = sleep(lifetime.silence) => return Ok(End::Resume),
                () = is_true(&mut becomes_urgent) => return Ok(End::Resume),
            };
            let event = match event {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    seen.event(version_of(&object));
                    Event::Applied(object)
                }
                Some(WatchEvent::Deleted(object)) => {
                    seen.event(version_of(&object));
                    Event::Deleted(object)
                }
                Some(WatchEvent::Bookmark(mark)) => {
                    seen.latest = mark.metadata.resource_version;
                    Event::Alive
                }
                Some(WatchEvent::Error(status)) if status.code == 410 => {
                    return Ok(seen.forgotten());
                }
                Some(WatchEvent::Error(status)) => return Err(kube::Error::Api(status)),
                None => return Ok(End::Resume),
            };
            on_event(event, &seen.latest);
        }
    }
}

/// Waits for the moment; without a sender it never comes.
async fn is_true(flag: &mut Option<&mut watch::Receiver<bool>>) {
    if let Some(flag) = flag
        && flag.wait_for(|value| *value).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Half to whole, so that a thousand clients do not come back at the same moment; the next one is longer.
fn next_pause(backoff: &mut Duration, longest: Duration) -> Duration {
    let pause = (*backoff).min(longest);
    *backoff = pause.saturating_mul(2).min(longest);
    pause.mul_f64(rand::random_range(0.5..1.0))
}

/// The server or the way to it failed, not the request: the same one may succeed later.
fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => true,
        _ => false,
    }
}

/// Whether a server that is at `latest` has not reached `version`; versions that are no numbers cannot be compared.
fn is_older(latest: &str, version: &str) -> bool {
    match (latest.parse::<u64>(), version.parse::<u64>()) {
        (Ok(latest), Ok(version)) => latest < version,
        _ => true,
    }
}

/// The version that the server is at, for the price of one object.
async fn latest_version(client: &Client, collection: &Collection) -> Result<String, kube::Error> {
    let params = ListParams {
        limit: Some(1),
        ..list_params(collection)
    };
    let page = read_page::<Page<IgnoredAny>>(client, collection, &params).await?;
    let version = page.and_then(|(page, _)| page.metadata.resource_version);
    Ok(version.unwrap_or_default())
}

/// How long an overloaded server asks to be left alone.
fn retry_after(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let details = status.details.as_ref();
    let seconds = details.map_or(0, |details| details.retry_after_seconds);
    match (seconds, status.code) {
        (0, 429) => Some(OVERLOADED_BACKOFF),
        (0, _) => None,
        (seconds, _) => Some(Duration::from_secs(seconds.into()).min(RETRY_AFTER_MAX)),
    }
}

/// The whole collection, page by page, and its version. `before_page` is called before each request.
///
/// # Errors
/// If a page cannot be read in time.
pub async fn list<K: DeserializeOwned>(
    client: &Client,
    collection: &Collection,
    before_page: impl FnMut(),
) -> Result<(String, Vec<K>), kube::Error> {
    list_kept(client, collection, &|_: &K| true, before_page).await
}

async fn list_kept<K: DeserializeOwned>(
    client: &Client,
    collection: &Collection,
    keep: &(impl Fn(&K) -> bool + ?Sized),
    mut before_page: impl FnMut(),
) -> Result<(String, Vec<K>), kube::Error> {
    let mut objects = Vec::new();
    let mut params = list_params(collection);
    let mut size = PAGE_SIZE;
    loop {
        before_page();
        params.limit = Some(size);
        let Some((page, bytes)) = read_page::<Page<K>>(client, collection, &params).await? else {
            size = smaller(size)?;
            continue;
        };
        if bytes < PAGE_BYTES_MAX / 4 {
            size = (size * 2).min(PAGE_SIZE);
        }
        objects.extend(page.items.into_iter().filter(|object| keep(object)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok((page.metadata.resource_version.unwrap_or_default(), objects)),
        }
    }
}

/// The size of the page to ask for in place of one that was too large.
fn smaller(size: u32) -> Result<u32, kube::Error> {
    match size {
        0 | 1 => Err(kube::Error::Service(
            "one object is larger than a page may be".into(),
        )),
        size => Ok((size / PAGE_SHRINKS_BY).max(1)),
    }
}

fn list_params(collection: &Collection) -> ListParams {
    ListParams {
        label_selector: collection.labels.clone(),
        field_selector: collection.fields.clone(),
        limit: Some(PAGE_SIZE),
        ..ListParams::default()
    }
}

/// One page and its size in bytes; `None` if it is too large.
async fn read_page<P: DeserializeOwned>(
    client: &Client,
    collection: &Collection,
    params: &ListParams,
) -> Result<Option<(P, u64)>, kube::Error> {
    let request = collection.list(params)?;
    let read = async {
        let body = client.request_stream(request).await?;
        let mut bytes = Vec::new();
        let read = body.take(PAGE_BYTES_MAX + 1).read_to_end(&mut bytes).await;
        read.map_err(kube::Error::ReadEvents)?;
        let length = bytes.len() as u64;
        if length > PAGE_BYTES_MAX {
            return Ok(None);
        }
        let page = serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError)?;
        Ok(Some((page, length)))
    };
    match timeout(LIST_TIMEOUT, read).await {
        Ok(page) => page,
        Err(late) => Err(kube::Error::Service(late.into())),
    }
}

#[derive(Deserialize)]
#[serde(bound = "K: DeserializeOwned")]
struct Page<K> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default = "Vec::new")]
    items: Vec<K>,
}
