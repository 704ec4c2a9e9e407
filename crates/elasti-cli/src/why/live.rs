//! Loads the live objects around one service: itself, its target, Service, pods, events, and the resolvers.
//! Only a missing ElastiService is an error: the rest counts as not looked up where the user lacks a permission.

use std::collections::BTreeSet;

use elasti_api::{AutoscalerType, ElastiService, names};
use elasti_core::explanation::Live;
use elasti_core::view::Looked;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Event, Pod, Service};
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

pub(crate) async fn load(cluster: &Cluster, name: &str, now: Timestamp) -> Result<Live, Failed> {
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
        Looked::Found(service) => pods(cluster, namespace, service).await,
        Looked::NotLooked | Looked::Missing => Vec::new(),
    };
    let events = events(cluster, namespace, &me, &pods).await;
    Ok(Live {
        me,
        neighbours,
        target,
        service,
        pods,
        events,
        resolvers,
        autoscaler,
        now,
    })
}

/// What an answer says about an object that may not be there, or not for everyone.
fn looked<T>(answer: kube::Result<T>) -> Looked<T> {
    match answer {
        Ok(found) => Looked::Found(found),
        Err(kube::Error::Api(status)) if status.code == 404 => Looked::Missing,
        Err(_) => Looked::NotLooked,
    }
}

async fn one<K>(cluster: &Cluster, namespace: &str, name: &str) -> Looked<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(cluster.client.clone(), namespace);
    looked(api.get(name).await)
}

async fn target(cluster: &Cluster, me: &ElastiService) -> Looked<Value> {
    let target = &me.spec.scale_target_ref;
    let resource = match Kind::from(target).resource(&cluster.client).await {
        Ok(Some(resource)) => resource,
        Ok(None) => return Looked::Missing,
        Err(_) => return Looked::NotLooked,
    };
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource);
    match looked(api.get(&target.name).await) {
        Looked::Found(object) => {
            serde_json::to_value(object).map_or(Looked::NotLooked, Looked::Found)
        }
        Looked::Missing => Looked::Missing,
        Looked::NotLooked => Looked::NotLooked,
    }
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
async fn resolvers(cluster: &Cluster) -> Looked<Vec<Pod>> {
    let pods: Api<Pod> = Api::all(cluster.client.clone());
    let labels = format!("{}={}", names::RESOLVER_LABEL, names::RESOLVER_LABEL_VALUE);
    match pods.list(&ListParams::default().labels(&labels)).await {
        Ok(list) => Looked::Found(list.items),
        Err(_) => Looked::NotLooked,
    }
}

async fn autoscaler(cluster: &Cluster, me: &ElastiService) -> Looked<()> {
    let Some(named) = &me.spec.autoscaler else {
        return Looked::NotLooked;
    };
    match named.type_ {
        AutoscalerType::Hpa => {
            match one::<HorizontalPodAutoscaler>(cluster, &cluster.namespace, &named.name).await {
                Looked::Found(_) => Looked::Found(()),
                Looked::Missing => Looked::Missing,
                Looked::NotLooked => Looked::NotLooked,
            }
        }
        AutoscalerType::Keda => {
            let kind = GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject");
            let api: Api<DynamicObject> = Api::namespaced_with(
                cluster.client.clone(),
                &cluster.namespace,
                &ApiResource::from_gvk(&kind),
            );
            looked(api.get(&named.name).await.map(|_| ()))
        }
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
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|one| one.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one.type_ == "Ready" && one.status == "True")
    };
    let stuck = pods.iter().filter(|pod| !is_ready(pod));
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
