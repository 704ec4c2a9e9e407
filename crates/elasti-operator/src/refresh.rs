//! Reads objects again, past all caches, into the store. A read never removes an object: only the watch may say that
//! it is gone, because a read may come from an API server that lags, and nothing would bring back what it hides.

use std::time::Duration;

use elasti_api::{ElastiService, names};
use futures::future::{join, join_all};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::GetParams;
use kube::core::Request;
use kube::{Api, Client, Resource as _};
use tokio::time::timeout;

use crate::activity::{Reports, ResolverAddress};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::memories::Memories;
use crate::name::Name;
use crate::observe::Snapshot;
use crate::slim::{Declared, PodView, ServiceView, SliceView};
use crate::store::{CachedKind, Change, Lists, first_slices, target_of};
use crate::targets;
use crate::watch::list_all;

const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads what existed before this service was managed, also objects of others that have our names.
pub(crate) async fn first_read(cluster: &Cluster, me: &Declared) -> Result<(), Error> {
    let services = cluster.store.cache().services_of(me);
    let path = EndpointSlice::url_path(&(), Some(&*me.name.namespace));
    let slices: Vec<Name> = services.iter().flat_map(first_slices).collect();
    let slices = slices
        .iter()
        .map(|slice| one::<SliceView>(cluster, path.clone(), slice));
    let (workload, slices) = join(workload(cluster, me), join_all(slices)).await;
    workload.and(slices.into_iter().collect())
}

/// The target, and the pods and slices of all its Services.
pub(crate) async fn workload(cluster: &Cluster, me: &Declared) -> Result<(), Error> {
    let services = cluster.store.cache().services_of(me);
    let all = services
        .iter()
        .map(|service| pods_and_slices(cluster, service));
    let (target, all) = join(target(cluster, me), join_all(all)).await;
    target.and(all.into_iter().collect())
}

async fn pods_and_slices(cluster: &Cluster, service: &Name) -> Result<(), Error> {
    let baseline = cluster.store.begin_refresh(service);
    let lists = lists(cluster, service).await;
    let (lists, error) = match lists {
        Ok(lists) => (Some(lists), None),
        Err(error) => (None, Some(error)),
    };
    // Also after an error: the store counts the refreshes in flight.
    let accepted = cluster.store.end_refresh(service, &baseline, lists);
    match error {
        Some(error) => Err(error),
        None if accepted => Ok(()),
        None => Err(Error::Conflict("a list is older than the watch".into())),
    }
}

pub(crate) async fn target(cluster: &Cluster, me: &Declared) -> Result<(), Error> {
    let name = target_of(me);
    match targets::get(cluster, &name).await? {
        Some(view) => {
            cluster.store.put_target(&name, view);
            Ok(())
        }
        None => missing(
            cluster.store.cache().target(&name).is_some(),
            "the target is cached, but a read does not find it".into(),
        ),
    }
}

/// The ElastiService and its Services: a user may have changed them just now.
pub(crate) async fn declaration(cluster: &Cluster, me: &Declared) -> Result<(), Error> {
    let namespace = Some(&*me.name.namespace);
    let services = cluster.store.cache().services_of(me);
    let path = Service::url_path(&(), namespace);
    let services = services
        .iter()
        .map(|service| one::<ServiceView>(cluster, path.clone(), service));
    let (declared, services) = join(
        one::<Declared>(cluster, ElastiService::url_path(&(), namespace), &me.name),
        join_all(services),
    )
    .await;
    declared.and(services.into_iter().collect())
}

/// What every resolver that may get traffic has seen of this service.
pub(crate) async fn reports(reports: &Reports, memories: &Memories, snapshot: &Snapshot) {
    let ready = snapshot.observed.ready_resolvers();
    let resolvers: Vec<ResolverAddress> = ready
        .filter_map(|resolver| {
            let ip = *resolver.addresses.first()?;
            let name = resolver.name.clone();
            Some(ResolverAddress { name, ip })
        })
        .collect();
    let service = snapshot.service();
    let others: Vec<&str> = { snapshot.observed.others.iter() }
        .map(|other| other.name.as_str())
        .collect();
    let answers = reports
        .ask(&resolvers, &service.namespace, &service.name, &others)
        .await;
    memories.set_reports(&snapshot.me.name, answers);
}

/// Whether a namespace is being deleted, or gone; no if that cannot be found out.
pub(crate) async fn is_terminating(client: &Client, namespace: &str) -> bool {
    let api: Api<Namespace> = Api::all(client.clone());
    match timeout(NAMESPACE_TIMEOUT, api.get(namespace)).await {
        Ok(Ok(object)) => object.metadata.deletion_timestamp.is_some(),
        Ok(Err(kube::Error::Api(status))) => status.code == 404,
        Ok(Err(_)) | Err(_) => false,
    }
}

/// A read found nothing; that is an error if the object is cached.
fn missing(cached: bool, message: String) -> Result<(), Error> {
    match cached {
        true => Err(Error::Conflict(message)),
        false => Ok(()),
    }
}

async fn one<K: CachedKind>(cluster: &Cluster, path: String, name: &Name) -> Result<(), Error> {
    let request = Request::new(path)
        .get(&name.name, &GetParams::default())
        .map_err(kube::Error::BuildRequest)?;
    match cluster.send(request).await {
        Ok(object) => {
            let object = K::from_object(object).map_err(kube::Error::SerdeError)?;
            cluster.apply_change(Change::Set(object));
            Ok(())
        }
        Err(Error::Missing(message)) => {
            let cached = K::names(&cluster.store.cache()).contains(name);
            missing(cached, message)
        }
        Err(error) => Err(error),
    }
}

/// All pods that the Service selects, and all its slices, ours among them.
async fn lists(cluster: &Cluster, service: &Name) -> Result<Lists, Error> {
    let view = cluster.store.cache().service(service).cloned();
    let selector = view
        .map(|view| view.facts.service.selector.clone())
        .unwrap_or_default();
    let labels: Vec<String> = selector.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let labels = labels.join(",");
    let (namespace, client) = (Some(&*service.namespace), &cluster.client);
    let path = Pod::url_path(&(), namespace);
    let pods = async {
        match labels.is_empty() {
            // Without a selector the Service has no pods, and every pod would match.
            true => Ok((None, Vec::new())),
            false => {
                let listed = list_all::<PodView>(client, &path, &labels).await;
                listed.map(|(version, pods)| (Some(version), pods))
            }
        }
    };
    let path = EndpointSlice::url_path(&(), namespace);
    let service_label = format!("{}={}", names::SERVICE_NAME_LABEL, service.name);
    let slices = list_all::<SliceView>(client, &path, &service_label);
    let (pods, slices) = join(pods, slices).await;
    let ((pods_version, pods), (slices_version, slices)) = (pods?, slices?);
    Ok(Lists {
        selector,
        pods_version,
        slices_version,
        pods,
        slices,
    })
}
