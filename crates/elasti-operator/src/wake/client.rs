//! Whom a service was woken for, where a resolver told it: remembered for the status, with the pod that has its address.

use std::net::IpAddr;
use std::time::Duration;

use elasti_api::WakeClient;
use elasti_core::facts::own_addresses;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::observe::Snapshot;
use crate::operator::Operator;

/// The API server answers from memory within a few milliseconds. The pods start meanwhile, but the resolver waits for an
/// answer.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(100);
/// Namespaces that are asked, where the operator serves only some.
const MOST_SCOPES: usize = 16;

/// Remembers whom a service was woken for, after the scale was written: nothing may wait for this.
pub(super) async fn remember(
    operator: &Operator,
    snapshot: &Snapshot,
    client: Option<WakeClient>,
) -> Option<WakeClient> {
    let (name, slept) = (
        &snapshot.me.name,
        snapshot.observed.me.remembered.last_sleep,
    );
    let client = client.filter(|_| !operator.memories.knows_wake_client(name, slept))?;
    let client = located(&operator.cluster, client).await;
    let memories = &operator.memories;
    memories.set_wake_client(name, client.clone(), slept);
    Some(client)
}

/// The same client with its pod, if exactly one is known to have its address. Where many services are woken at once, only a
/// few clients are looked for.
async fn located(cluster: &Cluster, mut client: WakeClient) -> WakeClient {
    let address = client.address.as_deref().and_then(|text| text.parse().ok());
    if let Some(address) = address
        && let Ok(_lookup) = cluster.client_lookups.try_acquire()
        && let Ok(Some(pod)) = timeout(LOOKUP_TIMEOUT, pod_at(cluster, address)).await
    {
        client.namespace = pod.namespace();
        client.pod = Some(pod.name_any());
    }
    client
}

async fn pod_at(cluster: &Cluster, address: IpAddr) -> Option<Pod> {
    let wanted = ListParams::default()
        .match_any()
        .fields(&format!("status.podIP={address}"));
    let scopes = cluster.store.scopes().into_iter().take(MOST_SCOPES);
    let lists = scopes.map(|scope| {
        let api: Api<Pod> = match scope {
            Some(namespace) => Api::namespaced(cluster.client.clone(), &namespace),
            None => Api::all(cluster.client.clone()),
        };
        let wanted = wanted.clone();
        async move { api.list(&wanted).await.map(|list| list.items) }
    });
    let found = join_all(lists).await.into_iter().flatten().flatten();
    let mut found = found.filter(|pod| own_addresses(pod).contains(&address));
    let first = found.next();
    first.filter(|_| found.next().is_none())
}
