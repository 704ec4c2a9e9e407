//! The kinds that services refer to: discovery, watches, and the scale of any workload among them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::AutoscalerType;
use elasti_core::facts::PodSelector;
use futures::future::join_all;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind, Request};
use kube::discovery::{self, ApiCapabilities};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::autoscalers::hpa::HpaView;
use crate::autoscalers::keda::ScaledObject;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::health::{Heartbeat, Heartbeats};
use crate::metrics::Metrics;
use crate::name::{KindName, TargetName};
use crate::slim::{FromObject, TargetView};
use crate::store::{CachedKind, Change, KindState, autoscaler_kind};
use crate::watch::{Filter, WatchSpec, watch};

/// How often to ask for a kind that the cluster does not have.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);
const DISCOVERY_RETRY_INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);

/// As long as a heartbeat can wait: 136 years.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The kinds that were found.
#[derive(Debug, Default)]
pub(crate) struct Kinds(Mutex<HashMap<KindName, ApiResource>>);

impl Kinds {
    pub(crate) fn get(&self, kind: &KindName) -> Option<ApiResource> {
        self.0.lock().get(kind).cloned()
    }
}

/// What the watches of discovered kinds need.
#[derive(Clone, Debug)]
pub(crate) struct Watches {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) heartbeats: Arc<Heartbeats>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Watches every kind that a service refers to, from when it first does so. The well-known ones stay, once they are listed.
pub(crate) async fn watch_kinds(watches: Watches) {
    let mut wanted = watches.cluster.store.wanted_kinds();
    let mut followed: HashMap<KindName, Followed> = HashMap::new();
    loop {
        let kinds = wanted.borrow_and_update().clone();
        let store = &watches.cluster.store;
        let stays = |kind: &KindName| kind.is_well_known() && store.is_kind_listed(kind);
        let is_wanted = |kind: &KindName| kinds.contains(kind) || stays(kind);
        let unwanted: Vec<KindName> = { followed.keys() }
            .filter(|kind| !is_wanted(kind))
            .cloned()
            .collect();
        for kind in unwanted {
            if let Some(one) = followed.remove(&kind) {
                one.end(&watches, &kind).await;
            }
        }
        for kind in kinds {
            let start = |kind: &KindName| Followed::start(&watches, kind);
            followed.entry(kind).or_insert_with_key(start);
        }
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

/// A kind that is followed.
struct Followed {
    task: JoinSet<()>,
    heartbeats: Arc<Heartbeats>,
}

impl Followed {
    fn start(watches: &Watches, kind: &KindName) -> Self {
        let heartbeats = watches.heartbeats.group();
        let own = Watches {
            heartbeats: heartbeats.clone(),
            ..watches.clone()
        };
        let mut task = JoinSet::new();
        task.spawn(watch_kind(own, kind.clone()));
        Self { task, heartbeats }
    }

    /// No service names the kind any more, or others go first.
    async fn end(mut self, watches: &Watches, kind: &KindName) {
        watches.heartbeats.end_group(&self.heartbeats);
        self.task.shutdown().await;
        let Cluster {
            kinds,
            store,
            queue,
            ..
        } = &*watches.cluster;
        kinds.0.lock().remove(kind);
        queue.add_all(&store.forget_kind(kind));
    }
}

/// Discovers one kind and watches it in every namespace that is watched.
async fn watch_kind(watches: Watches, kind: KindName) {
    let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
    let heartbeat = watches.heartbeats.register();
    let (resource, capabilities) = watches.discover(&kind, &gvk, &heartbeat).await;
    let Watches { cluster, .. } = &watches;
    cluster
        .kinds
        .0
        .lock()
        .insert(kind.clone(), resource.clone());
    let is = |type_| autoscaler_kind(type_) == kind;
    let (hpa, keda) = (is(AutoscalerType::Hpa), is(AutoscalerType::Keda));
    // From here on the watches have heartbeats of their own.
    heartbeat.beat_after(FOREVER);
    if !hpa && !keda && !can_scale(&capabilities) {
        tracing::warn!(%kind, "kind cannot be a target: it has no /scale subresource");
        let touched = cluster.store.set_kind(&kind, KindState::Absent);
        cluster.queue.add_all(&touched);
        return std::future::pending().await;
    }
    let scopes = cluster.store.scopes();
    let all = scopes.iter().map(async |scope| {
        let scope = scope.as_deref();
        let apply_targets = |change: Change<TargetView>| {
            let change = change.map(|view| with_known_scale(&kind, view));
            watches.apply_target_change(&kind, scope, change);
        };
        let apply_hpas = |change: Change<HpaView>| watches.apply_change(&kind, scope, change);
        let apply_scaled =
            |change: Change<ScaledObject>| watches.apply_change(&kind, scope, change);
        match (hpa, keda) {
            (true, _) => watches.watch(&resource, scope, apply_hpas).await,
            (_, true) => watches.watch(&resource, scope, apply_scaled).await,
            _ => watches.watch(&resource, scope, apply_targets).await,
        }
    });
    join_all(all).await;
}

impl Watches {
    /// Asks until the cluster serves the kind.
    async fn discover(
        &self,
        kind: &KindName,
        gvk: &GroupVersionKind,
        heartbeat: &Heartbeat,
    ) -> (ApiResource, ApiCapabilities) {
        let Cluster {
            client,
            store,
            queue,
            ..
        } = &*self.cluster;
        loop {
            heartbeat.beat_after(DISCOVERY_INTERVAL);
            match timeout(TIMEOUT, find(client, gvk)).await {
                Ok(Ok(Some(found))) => return found,
                Ok(Ok(None)) => {
                    queue.add_all(&store.set_kind(kind, KindState::Absent));
                    sleep(DISCOVERY_INTERVAL).await;
                }
                Ok(Err(_)) | Err(_) => {
                    tracing::warn!(%kind, "kind discovery failed; retrying");
                    sleep(DISCOVERY_RETRY_INTERVAL).await;
                }
            }
        }
    }

    async fn watch<K: FromObject>(
        &self,
        resource: &ApiResource,
        scope: Option<&str>,
        mut apply: impl FnMut(Change<K>),
    ) {
        let spec = WatchSpec {
            optional: true,
            ..WatchSpec::everything_at(path(resource, scope))
        };
        let _counted = self.metrics.watch_started(&resource.plural);
        let heartbeat = self.heartbeats.register();
        let client = self.cluster.client.clone();
        watch(client, spec, heartbeat, Filter::all(), |change, _| {
            apply(change)
        })
        .await;
    }

    /// Caches what the watch of a target's kind delivered.
    fn apply_target_change(
        &self,
        kind: &KindName,
        scope: Option<&str>,
        change: Change<TargetView>,
    ) {
        let Cluster { store, queue, .. } = &*self.cluster;
        let is_one = matches!(change, Change::Set(_));
        let touched = store.apply_target_change(kind, scope, change);
        if is_one {
            let cache = store.cache();
            let concerned = touched.iter().filter_map(|name| cache.declared.get(name));
            concerned.for_each(|me| self.metrics.target_changed(me));
        }
        queue.add_all(&touched);
    }

    /// Caches what the watch of an autoscaler's kind delivered.
    fn apply_change<K: CachedKind>(&self, kind: &KindName, scope: Option<&str>, change: Change<K>) {
        let Cluster { store, queue, .. } = &*self.cluster;
        self.metrics.change_received(K::RESOURCE, change.as_str());
        let (is_list, is_refusal) = (
            matches!(change, Change::All { .. }),
            matches!(change, Change::Refused),
        );
        queue.add_all(&store.apply_change(scope, change));
        if is_list {
            queue.add_all(&store.set_kind_listed(kind, scope));
        }
        if is_refusal {
            queue.add_all(&store.set_kind_refused(kind, scope));
        }
    }
}

/// The kind as the cluster serves it; `None` if it does not.
async fn find(
    client: &Client,
    gvk: &GroupVersionKind,
) -> Result<Option<(ApiResource, ApiCapabilities)>, kube::Error> {
    match discovery::pinned_kind(client, gvk).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

fn can_scale(capabilities: &ApiCapabilities) -> bool {
    let subresources = capabilities.subresources.iter();
    subresources
        .map(|(resource, _)| resource.plural.as_str())
        .any(|name| name == "scale" || name.ends_with("/scale"))
}

/// The path of a collection.
pub(crate) fn path(resource: &ApiResource, namespace: Option<&str>) -> String {
    let root = match resource.group.is_empty() {
        true => format!("/api/{}", resource.version),
        false => format!("/apis/{}/{}", resource.group, resource.version),
    };
    match namespace {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{}", resource.plural),
        None => format!("{root}/{}", resource.plural),
    }
}

/// The view with its replicas, if `spec.replicas` tells them for this kind.
fn with_known_scale(kind: &KindName, mut view: TargetView) -> TargetView {
    view.facts = view.facts.for_kind(&kind.group, &kind.kind);
    view
}

/// The target as it is now, past all caches; `None` if it does not exist.
pub(crate) async fn get(
    cluster: &Cluster,
    target: &TargetName,
) -> Result<Option<TargetView>, Error> {
    let Some(resource) = cluster.kinds.get(&target.kind) else {
        return Ok(None);
    };
    let path = path(&resource, Some(&target.name.namespace));
    let request = Request::new(path.as_str());
    let object = request
        .get(&target.name.name, &Default::default())
        .map_err(kube::Error::BuildRequest)?;
    let object = match cluster.send(object).await {
        Ok(object) => object,
        Err(Error::Missing(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let view = TargetView::from_object(object).map_err(kube::Error::SerdeError)?;
    let mut view = with_known_scale(&target.kind, view);
    if view.facts.replicas.is_none() {
        let scale = request
            .get_subresource("scale", &target.name.name)
            .map_err(kube::Error::BuildRequest)?;
        let scale = cluster.send(scale).await?;
        let text = |path: &str| scale.pointer(path).and_then(Value::as_str);
        view.version = text("/metadata/resourceVersion").unwrap_or_default().into();
        view.facts.replicas = Some(elasti_core::facts::replicas_of_scale(&scale));
        view.facts.selector = PodSelector::from_scale(&scale).or(view.facts.selector);
    }
    Ok(Some(view))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use elasti_fake_cluster::api_server::{ApiServer, ApiServerConfig};
    use elasti_fake_cluster::faults::{Calls, Fault};
    use serde_json::json;

    use super::*;
    use crate::slim::Declared;

    async fn until(what: &str, holds: impl Fn() -> bool) {
        let waited = timeout(Duration::from_secs(600), async {
            while !holds() {
                sleep(Duration::from_millis(20)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_may_not_be_read_is_asked_for_seldom_and_not_when_no_service_names_it() {
        let server = ApiServer::new(ApiServerConfig {
            check_service_accounts: false,
            ..ApiServerConfig::default()
        });
        let calls = || Calls::all().kind("replicasets");
        let faults = server.faults();
        faults.strike_randomly(1_000, calls(), Fault::Refuse);
        let cluster = Arc::new(Cluster::new(server.client(), vec![None], 1));
        let watches = Watches {
            cluster: cluster.clone(),
            heartbeats: Arc::default(),
            metrics: Arc::new(Metrics::new("elasti")),
        };
        let task = tokio::spawn(watch_kinds(watches));
        let target = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"});
        let me = Declared::from_object(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "web", "resourceVersion": "1"},
            "spec": {"service": "web", "scaleTargetRef": target},
        }))
        .unwrap();
        cluster.store.apply_change(None, Change::Set(me.clone()));
        let kind = KindName::new("apps", "v1", "ReplicaSet");
        let state = || cluster.store.cache().kind(&kind, "shop");
        until("it is refused", || state() == KindState::Refused).await;
        let asked = || {
            let journal = faults.journal();
            journal
                .iter()
                .filter(|call| call.kind == "replicasets")
                .count()
        };
        sleep(Duration::from_secs(600)).await;
        assert!(asked() <= 24, "{} calls in ten minutes", asked());
        let gone: Change<Declared> = Change::Gone(me.name);
        cluster.store.apply_change(None, gone);
        until("it is not followed", || cluster.kinds.get(&kind).is_none()).await;
        let before = asked();
        sleep(Duration::from_secs(600)).await;
        assert_eq!(asked(), before);
        task.abort();
    }
}
