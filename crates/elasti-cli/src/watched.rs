//! All services and their targets, kept up to date by watches: for `top` and `list --watch`.

use std::collections::{BTreeMap, BTreeSet};

use elasti_api::ElastiService;
use elasti_view::view::Lookup;
use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};

use crate::access::Cluster;
use crate::fleet::{Fleet, Kind, key, workload};
use crate::refusal::{self, Refusal};
use elasti_runtime::exit::Failed;

/// Watches end by themselves before the client gives them up.
const WATCH_SECONDS: u32 = 15;

/// One change in the cluster.
enum Event {
    Service(Box<watcher::Event<ElastiService>>),
    Target(Kind, Box<watcher::Event<DynamicObject>>),
}

type Feed = SelectAll<BoxStream<'static, Result<Event, Refusal>>>;

/// A fleet that watches keep up to date.
pub(crate) struct Watched {
    cluster: Cluster,
    namespace: Option<String>,
    labels: Option<String>,
    pub(crate) fleet: Fleet,
    feed: Feed,
    followed: BTreeSet<Kind>,
    /// What a list that is under way has shown of each kind; the ElastiServices are the kind `None`.
    listing: BTreeMap<Option<Kind>, BTreeSet<(String, String)>>,
}

impl Watched {
    /// Loads everything, and watches it from then on.
    pub(crate) async fn start(
        cluster: &Cluster,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Self, Failed> {
        let fleet = Fleet::load(cluster, namespace, labels).await?;
        let mut watched = Self {
            cluster: cluster.clone(),
            namespace: namespace.map(str::to_owned),
            labels: labels.map(str::to_owned),
            fleet,
            feed: SelectAll::new(),
            followed: BTreeSet::new(),
            listing: BTreeMap::new(),
        };
        watched.follow_services();
        watched.follow_targets().await;
        Ok(watched)
    }

    fn follow_services(&mut self) {
        let client = self.cluster.client.clone();
        let services: Api<ElastiService> = match &self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        let namespace = self.namespace.clone();
        let mut config = watcher::Config::default().timeout(WATCH_SECONDS);
        config.label_selector.clone_from(&self.labels);
        let events = watcher(services, config);
        let events = events
            .default_backoff()
            .map_ok(|event| Event::Service(Box::new(event)));
        let events = events.filter_map(move |event| {
            let kept = match event {
                Ok(event) => Some(Ok(event)),
                Err(error) => lost_permission(&error, namespace.as_deref()).map(Err),
            };
            async move { kept }
        });
        self.feed.push(events.boxed());
    }

    /// Follows each kind of target that is named and may be seen. What cannot be watched stays as it was read.
    async fn follow_targets(&mut self) {
        for kind in self.fleet.kinds() {
            let unseen = matches!(self.fleet.targets.get(&kind), Some(Lookup::Unknown));
            if unseen || self.followed.contains(&kind) {
                continue;
            }
            let Ok(Some(resource)) = kind.resource(&self.cluster.client).await else {
                continue;
            };
            self.followed.insert(kind.clone());
            let client = self.cluster.client.clone();
            let targets: Api<DynamicObject> = match &self.namespace {
                Some(namespace) => Api::namespaced_with(client, namespace, &resource),
                None => Api::all_with(client, &resource),
            };
            let events = watcher(targets, watcher::Config::default().timeout(WATCH_SECONDS));
            let events = events.default_backoff().filter_map(move |event| {
                let event = event
                    .ok()
                    .map(|event| Ok(Event::Target(kind.clone(), Box::new(event))));
                async move { event }
            });
            self.feed.push(events.boxed());
        }
    }

    /// Takes in the next change.
    pub(crate) async fn next(&mut self) -> Result<(), Failed> {
        match self.feed.next().await {
            Some(Ok(Event::Service(event))) => {
                self.take_service(*event);
                self.follow_targets().await;
                Ok(())
            }
            Some(Ok(Event::Target(kind, event))) => {
                self.take_target(kind, *event);
                Ok(())
            }
            Some(Err(refusal)) => Err(refusal.into()),
            // A watcher never ends by itself.
            None => std::future::pending().await,
        }
    }

    fn take_service(&mut self, event: watcher::Event<ElastiService>) {
        let key = |one: &ElastiService| (one.namespace().unwrap_or_default(), one.name_any());
        let listing = self.listing.entry(None).or_default();
        let services = &mut self.fleet.services;
        match event {
            watcher::Event::Init => listing.clear(),
            watcher::Event::InitApply(me) => {
                listing.insert(key(&me));
                put(services, me);
            }
            // What a new list does not show was deleted while the watch was down.
            watcher::Event::InitDone => services.retain(|one| listing.contains(&key(one))),
            watcher::Event::Apply(me) => put(services, me),
            watcher::Event::Delete(me) => services.retain(|one| key(one) != key(&me)),
        }
    }

    fn take_target(&mut self, kind: Kind, event: watcher::Event<DynamicObject>) {
        let listing = self.listing.entry(Some(kind.clone())).or_default();
        let all = self.fleet.targets.entry(kind).or_insert(Lookup::Missing);
        if !matches!(all, Lookup::Found(_)) {
            *all = Lookup::Found(BTreeMap::new());
        }
        let Lookup::Found(all) = all else { return };
        match event {
            watcher::Event::Init => listing.clear(),
            watcher::Event::InitApply(object) => {
                listing.insert(key(&object));
                all.insert(key(&object), workload(&object));
            }
            watcher::Event::InitDone => all.retain(|one, _| listing.contains(one)),
            watcher::Event::Apply(object) => {
                all.insert(key(&object), workload(&object));
            }
            watcher::Event::Delete(object) => {
                all.remove(&key(&object));
            }
        }
    }
}

fn put(services: &mut Vec<ElastiService>, me: ElastiService) {
    let is = |one: &&mut ElastiService| {
        one.namespace() == me.namespace() && one.name_any() == me.name_any()
    };
    match services.iter_mut().find(is) {
        Some(known) => *known = me,
        None => services.push(me),
    }
}

/// Only a missing permission is fatal: the watcher retries everything else.
fn lost_permission(error: &watcher::Error, namespace: Option<&str>) -> Option<Refusal> {
    refusal::of_watch(error, namespace).filter(|one| matches!(one, Refusal::Forbidden(_)))
}
