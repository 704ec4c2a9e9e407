//! Loads the live objects around one service: itself, its target, Service, pods, events, and the resolvers.
//! Only a missing ElastiService is an error: the rest counts as not looked up where the user lacks a permission.

use std::collections::BTreeSet;

use elasti_api::{AutoscalerType, ElastiService, names};
use elasti_core::facts;
use elasti_view::explanation::LiveObjects;
use elasti_view::view::Lookup;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Pod, Service};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::access::Cluster;
use crate::fleet::Kind;
use crate::refusal::Call;
use elasti_runtime::exit::Failed;

/// Events are listed for this many pods at most: one stuck pod is like the next.
const MAX_OBJECTS: usize = 5;

pub(crate) async fn load(
    cluster: &Cluster,
    name: &str,
    now: Timestamp,
) -> Result<LiveObjects, Failed> {
    let namespace = cluster.namespace.as_str();
    let me = cluster.services_in(namespace).get(name).await;
    let asked = Call::services("get", Some(namespace), Some(name));
    let me = me.map_err(|error| asked.refused(&error))?;
    let (target, service, neighbours, resolvers, autoscaler) = tokio::join!(
        target(cluster, &me),
        one::<Service>(cluster, namespace, &me.spec.service),
        neighbours(cluster, &me),
        resolvers(cluster),
        autoscaler(cluster, &me),
    );
    let pods = match &service {
        Lookup::Found(service) => pods(cluster, namespace, service).await,
        Lookup::Unknown | Lookup::Missing => Vec::new(),
    };
    let events = events(cluster, namespace, &me, &pods).await;
    Ok(LiveObjects {
        me,
        others: neighbours,
        target,
        pods,
        events,
        nodes: nodes(cluster, &service).await,
        resolvers,
        autoscaler,
        service,
        now,
    })
}

/// What an answer says about an object that may not be there, or not for everyone.
fn looked<T>(answer: kube::Result<T>) -> Lookup<T> {
    match answer {
        Ok(found) => Lookup::Found(found),
        Err(kube::Error::Api(status)) if status.code == 404 => Lookup::Missing,
        Err(_) => Lookup::Unknown,
    }
}

async fn one<K>(cluster: &Cluster, namespace: &str, name: &str) -> Lookup<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(cluster.client.clone(), namespace);
    looked(api.get(name).await)
}

async fn target(cluster: &Cluster, me: &ElastiService) -> Lookup<Value> {
    let target = &me.spec.scale_target_ref;
    let resource = match Kind::from(target).resource(&cluster.client).await {
        Ok(Some(resource)) => resource,
        Ok(None) => return Lookup::Missing,
        Err(_) => return Lookup::Unknown,
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource);
    json(looked(api.get(&target.name).await))
}

/// The other ElastiServices here; without permission to list them, none.
async fn neighbours(cluster: &Cluster, me: &ElastiService) -> Vec<ElastiService> {
    let services = cluster.services_in(&cluster.namespace);
    let listed = services.list(&ListParams::default()).await;
    let listed = listed.map(|list| list.items).unwrap_or_default();
    let others = listed.into_iter();
    others
        .filter(|one| one.metadata.uid != me.metadata.uid)
        .collect()
}

/// The resolvers, wherever Elasti is installed.
async fn resolvers(cluster: &Cluster) -> Lookup<Vec<Pod>> {
    let pods: Api<Pod> = Api::all(cluster.client.clone());
    let labels = format!("{}={}", names::RESOLVER_LABEL, names::RESOLVER_LABEL_VALUE);
    match pods.list(&ListParams::default().labels(&labels)).await {
        Ok(list) => Lookup::Found(list.items),
        Err(_) => Lookup::Unknown,
    }
}

/// The nodes, which matter only to a Service that sends within a node.
async fn nodes(cluster: &Cluster, service: &Lookup<Service>) -> Lookup<Vec<String>> {
    let spec = service.found().and_then(|service| service.spec.as_ref());
    let policy = spec.and_then(|spec| spec.internal_traffic_policy.as_deref());
    if policy != Some("Local") {
        return Lookup::Unknown;
    }
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    match nodes.list_metadata(&ListParams::default()).await {
        Ok(list) => Lookup::Found(list.items.iter().map(|node| node.name_any()).collect()),
        Err(_) => Lookup::Unknown,
    }
}

async fn autoscaler(cluster: &Cluster, me: &ElastiService) -> Lookup<Value> {
    let Some(named) = &me.spec.autoscaler else {
        return Lookup::Unknown;
    };
    let kind = match named.type_ {
        AutoscalerType::Hpa => {
            GroupVersionKind::gvk("autoscaling", "v2", "HorizontalPodAutoscaler")
        }
        AutoscalerType::Keda => GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject"),
    };
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource);
    json(looked(api.get(&named.name).await))
}

/// The object as the readers of any kind take it.
fn json(found: Lookup<DynamicObject>) -> Lookup<Value> {
    match found {
        Lookup::Found(object) => {
            serde_json::to_value(object).map_or(Lookup::Unknown, Lookup::Found)
        }
        Lookup::Missing => Lookup::Missing,
        Lookup::Unknown => Lookup::Unknown,
    }
}

/// The pods that the Service selects; without a selector, none.
async fn pods(cluster: &Cluster, namespace: &str, service: &Service) -> Vec<Pod> {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone());
    let labels: Vec<String> = selector
        .unwrap_or_default()
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if labels.is_empty() {
        return Vec::new();
    }
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let listed = pods
        .list(&ListParams::default().labels(&labels.join(",")))
        .await;
    listed.map(|list| list.items).unwrap_or_default()
}

/// Events of the target and of the pods that are not ready.
async fn events(
    cluster: &Cluster,
    namespace: &str,
    me: &ElastiService,
    pods: &[Pod],
) -> Vec<Event> {
    let stuck = pods.iter().filter(|pod| !facts::is_ready(pod));
    let mut objects: BTreeSet<String> = stuck.take(MAX_OBJECTS).map(|pod| pod.name_any()).collect();
    objects.insert(me.spec.scale_target_ref.name.clone());
    let api: Api<Event> = Api::namespaced(cluster.client.clone(), namespace);
    let lists = objects.iter().map(async |name| {
        let of_object = format!("involvedObject.name={name}");
        let listed = api.list(&ListParams::default().fields(&of_object)).await;
        listed.map(|list| list.items).unwrap_or_default()
    });
    join_all(lists).await.concat()
}
