//! The kinds that services refer to, found by discovery, and the scale of any workload among them.
//! Never writes: `apply.rs` does.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use elasti_api::AutoscalerType;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind, Request};
use kube::discovery::{self, ApiCapabilities};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::autoscalers::hpa::HpaView;
use crate::autoscalers::keda::ScaledObject;
use crate::error::Error;
use crate::name::{KindName, TargetName};
use crate::operator::Operator;
use crate::slim::{Slim as _, TargetView};
use crate::store::{Change, KindState, autoscaler_kind};
use crate::watch::{Followed, follow};

/// How often to look for a kind that the cluster does not have.
const LOOK_FOR_KIND: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);

/// The kinds that were found.
#[derive(Debug, Default)]
pub(crate) struct Kinds(Mutex<HashMap<KindName, ApiResource>>);

impl Kinds {
    pub(crate) fn get(&self, kind: &KindName) -> Option<ApiResource> {
        self.0.lock().get(kind).cloned()
    }
}

/// Follows every kind that a service refers to, from when it does so.
pub(crate) async fn follow_kinds(operator: Arc<Operator>) {
    let mut wanted = operator.store.wanted_kinds();
    let mut followed: HashMap<KindName, ()> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let kinds = wanted.borrow_and_update().clone();
        for (kind, version) in kinds {
            if followed.insert(kind.clone(), ()).is_none() {
                tasks.spawn(follow_kind(operator.clone(), kind, version));
            }
        }
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            Some(_) = tasks.join_next() => {}
        }
    }
}

async fn follow_kind(operator: Arc<Operator>, kind: KindName, version: String) {
    let gvk = GroupVersionKind::gvk(&kind.group, &version, &kind.kind);
    let pulse = operator.pulses.one_more();
    let found = loop {
        pulse.rest(LOOK_FOR_KIND);
        match timeout(TIMEOUT, find(&operator.client, &gvk)).await {
            Ok(Ok(Some(found))) => break found,
            Ok(Ok(None)) => operator.look_at(&operator.store.set_kind(&kind, KindState::Absent)),
            Ok(Err(_)) | Err(_) => {
                tracing::warn!(%kind, "a kind cannot be looked up; it is tried again");
                sleep(Duration::from_secs(1)).await;
                continue;
            }
        }
        sleep(LOOK_FOR_KIND).await;
    };
    let (resource, capabilities) = found;
    operator
        .kinds
        .0
        .lock()
        .insert(kind.clone(), resource.clone());
    let is = |type_| autoscaler_kind(type_).0 == kind;
    let (hpa, keda) = (is(AutoscalerType::Hpa), is(AutoscalerType::Keda));
    if !hpa && !keda && !can_scale(&capabilities) {
        tracing::warn!(%kind, "this kind has no /scale subresource, so it cannot be a target");
        operator.look_at(&operator.store.set_kind(&kind, KindState::Absent));
        pulse.rest(Duration::from_secs(u64::from(u32::MAX)));
        return std::future::pending().await;
    }
    let mut scopes = JoinSet::new();
    for scope in operator.scopes() {
        let followed = Followed {
            path: path(&resource, scope.as_deref()),
            labels: None,
            relist_every: 0,
        };
        operator.metrics.watching(&resource.plural);
        let (operator, kind) = (operator.clone(), kind.clone());
        let pulse = operator.pulses.one_more();
        let client = operator.client.clone();
        scopes.spawn(async move {
            let scope = scope.as_deref();
            if hpa {
                let tell =
                    |change: Change<HpaView>, _: &str| operator.take_in_of(&kind, scope, change);
                follow(client, followed, pulse, tell).await;
            } else if keda {
                let tell = |change: Change<ScaledObject>, _: &str| {
                    operator.take_in_of(&kind, scope, change);
                };
                follow(client, followed, pulse, tell).await;
            } else {
                let tell = |change: Change<TargetView>, _: &str| {
                    let change = change.map(|view| known_scale(&kind, view));
                    operator.look_at(&operator.store.take_in_targets(&kind, scope, change));
                };
                follow(client, followed, pulse, tell).await;
            }
        });
    }
    // The watches have pulses of their own from here on.
    pulse.rest(Duration::from_secs(u64::from(u32::MAX)));
    while scopes.join_next().await.is_some() {}
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
fn known_scale(kind: &KindName, mut view: TargetView) -> TargetView {
    view.facts = view.facts.for_group(&kind.group);
    view
}

/// The target as it is now, past all caches; `None` if it does not exist.
pub(crate) async fn read(
    operator: &Operator,
    target: &TargetName,
) -> Result<Option<TargetView>, Error> {
    let Some(resource) = operator.kinds.get(&target.kind) else {
        return Ok(None);
    };
    let path = path(&resource, Some(&target.name.namespace));
    let request = Request::new(path.as_str());
    let object = request
        .get(&target.name.name, &Default::default())
        .map_err(kube::Error::BuildRequest)?;
    let object = match ask(&operator.client, object).await {
        Ok(object) => object,
        Err(Error::Missing(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let view = TargetView::read(object).map_err(kube::Error::SerdeError)?;
    let mut view = known_scale(&target.kind, view);
    if view.facts.replicas.is_none() {
        let scale = request
            .get_subresource("scale", &target.name.name)
            .map_err(kube::Error::BuildRequest)?;
        let scale = ask(&operator.client, scale).await?;
        let text = |path: &str| scale.pointer(path).and_then(Value::as_str);
        view.version = text("/metadata/resourceVersion").unwrap_or_default().into();
        view.facts.replicas = Some(elasti_core::facts::replicas_of_scale(&scale));
    }
    Ok(Some(view))
}

/// One read with a limit.
pub(crate) async fn ask(client: &Client, request: http::Request<Vec<u8>>) -> Result<Value, Error> {
    match timeout(TIMEOUT, client.request::<Value>(request)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::NoAnswer(
            "the API server did not answer in 10 s".into(),
        )),
    }
}
