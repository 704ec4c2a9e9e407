//! The chart's objects in the simulated cluster, and the node whose pods are the operator and the resolver of this
//! process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use elasti_api::names;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::timeline::follow;

pub(crate) const NAMESPACE: &str = "elasti";
/// The Deployment and the service account of each have the same name.
pub(crate) const OPERATOR: &str = "elasti-operator-controller-manager";
pub(crate) const RESOLVER: &str = "elasti-resolver";
/// No kubelet of the simulated cluster has it.
const NODE: &str = "this-process";
/// A write that failed is repeated after this.
const RETRY: Duration = Duration::from_secs(1);

/// What `kubectl apply -k deploy/kustomize/overlays/default` makes, in order.
const CHART: [&str; 8] = [
    include_str!("../../../deploy/crd/elastiservices.yaml"),
    include_str!("../../../deploy/kustomize/base/namespace.yaml"),
    include_str!("../../../deploy/kustomize/base/serviceaccount.yaml"),
    include_str!("../../../deploy/kustomize/base/role.yaml"),
    include_str!("../../../deploy/kustomize/base/rolebinding.yaml"),
    include_str!("../../../deploy/kustomize/overlays/default/clusterrole.yaml"),
    include_str!("../../../deploy/kustomize/overlays/default/clusterrolebinding.yaml"),
    include_str!("../../../deploy/kustomize/base/service.yaml"),
];
const DEPLOYMENTS: &str = include_str!("../../../deploy/kustomize/base/deployment.yaml");

/// Where the two listen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodAddresses {
    pub(crate) operator: Ipv4Addr,
    pub(crate) resolver: Ipv4Addr,
}

/// Everything but the Deployments.
pub(crate) async fn create_chart(client: &Client) -> anyhow::Result<()> {
    for text in CHART {
        for object in documents(text)? {
            create(client, &object).await?;
        }
    }
    Ok(())
}

/// The Deployments, changed to what runs here: one of each, in this process, with the simulated Prometheus.
pub(crate) async fn create_deployments(
    client: &Client,
    prometheus: SocketAddr,
) -> anyhow::Result<()> {
    for mut object in documents(DEPLOYMENTS)? {
        adapt(&mut object, prometheus);
        create(client, &object).await?;
    }
    Ok(())
}

fn adapt(deployment: &mut Value, prometheus: SocketAddr) {
    set(deployment, "/spec", "replicas", json!(1));
    set(deployment, "/spec/template/spec", "nodeName", json!(NODE));
    let container = "/spec/template/spec/containers/0";
    if let Some(Value::Array(arguments)) = deployment.pointer_mut(&format!("{container}/args")) {
        arguments.retain(|one| one.as_str() != Some("--leader-elect"));
    }
    if let Some(Value::Array(variables)) = deployment.pointer_mut(&format!("{container}/env")) {
        let address = format!("http://{prometheus}");
        variables.push(json!({"name": "PROMETHEUS_TRIGGER_SERVER_ADDRESS", "value": address}));
    }
}

fn set(object: &mut Value, parent: &str, key: &str, value: Value) {
    if let Some(Value::Object(fields)) = object.pointer_mut(parent) {
        fields.insert(key.to_owned(), value);
    }
}

fn documents(yaml: &str) -> anyhow::Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(yaml).context("a file of the chart")?;
    Ok(all.into_iter().filter(|one| !one.is_null()).collect())
}

async fn create(client: &Client, object: &Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let types = object.types.clone().context("an object without a kind")?;
    let gvk = GroupVersionKind::try_from(types)?;
    let resource = ApiResource::from_gvk(&gvk);
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let made = api.create(&PostParams::default(), &object).await;
    made.with_context(|| format!("{} {}", gvk.kind, object.name_any()))?;
    Ok(())
}

/// Reports the pods of this process as running and ready, and lets deleted ones end. A Deployment replaces them, as it
/// would in a cluster.
pub(crate) struct ProcessNode {
    _tasks: JoinSet<()>,
}

impl ProcessNode {
    pub(crate) fn start(client: &Client, addresses: PodAddresses) -> Self {
        let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
        let changed = Arc::new(Notify::new());
        let seen = changed.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(follow(pods.clone(), move |_: &Pod, _| seen.notify_one()));
        tasks.spawn(async move {
            loop {
                let settled = settle(&pods, addresses).await;
                let limit = settled.map_or(RETRY, |()| Duration::MAX);
                let _ = timeout(limit, changed.notified()).await;
            }
        });
        Self { _tasks: tasks }
    }
}

async fn settle(pods: &Api<Pod>, addresses: PodAddresses) -> kube::Result<()> {
    let on_node = ListParams::default().fields(&format!("spec.nodeName={NODE}"));
    let all = pods.list(&on_node).await?.items;
    let (deleted, alive): (Vec<&Pod>, Vec<&Pod>) = all
        .iter()
        .partition(|pod| pod.metadata.deletion_timestamp.is_some());
    for pod in deleted {
        let at_once = DeleteParams::default().grace_period(0);
        pods.delete(&pod.name_any(), &at_once).await?;
    }
    for (is_resolver, address) in [(true, addresses.resolver), (false, addresses.operator)] {
        // The process has one of each: a second pod stays pending.
        let mut own: Vec<&&Pod> = alive
            .iter()
            .filter(|pod| has_resolver_label(pod) == is_resolver)
            .collect();
        own.sort_by_key(|pod| pod.creation_timestamp());
        if let Some(first) = own.first().filter(|pod| !elasti_core::facts::is_ready(pod)) {
            let status = running(first, address);
            let params = PatchParams::default();
            pods.patch_status(&first.name_any(), &params, &Patch::Strategic(status))
                .await?;
        }
    }
    Ok(())
}

fn has_resolver_label(pod: &Pod) -> bool {
    let label = pod.labels().get(names::RESOLVER_LABEL);
    label.is_some_and(|value| value == names::RESOLVER_LABEL_VALUE)
}

/// The status of a pod that runs and is ready.
fn running(pod: &Pod, address: Ipv4Addr) -> Value {
    let now = format!("{:.0}", jiff::Timestamp::now());
    let yes = |type_| json!({"type": type_, "status": "True", "lastTransitionTime": now});
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let containers: Vec<Value> = containers
        .map(|one| {
            json!({
                "name": one.name, "image": one.image, "imageID": "", "ready": true, "started": true,
                "restartCount": 0, "state": {"running": {"startedAt": now}},
            })
        })
        .collect();
    json!({"status": {
        "phase": "Running",
        "startTime": now,
        "podIP": address.to_string(),
        "podIPs": [{"ip": address.to_string()}],
        "conditions": [yes("Initialized"), yes("Ready"), yes("ContainersReady"), yes("PodScheduled")],
        "containerStatuses": containers,
    }})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::{DEPLOYMENTS, adapt, documents};

    #[test]
    fn the_deployments_say_what_runs_in_this_process() {
        let all = documents(DEPLOYMENTS).unwrap();
        assert_eq!(all.len(), 2);
        for mut one in all {
            adapt(&mut one, "127.0.0.1:9090".parse().unwrap());
            assert_eq!(one["spec"]["replicas"], 1);
            let pod = &one["spec"]["template"]["spec"];
            assert_eq!(pod["nodeName"], "this-process");
            let text = pod["containers"][0].to_string();
            assert!(!text.contains("--leader-elect"), "{text}");
            let variable = json!({"name": "PROMETHEUS_TRIGGER_SERVER_ADDRESS", "value": "http://127.0.0.1:9090"});
            let variables = pod["containers"][0]["env"].as_array().unwrap();
            assert!(variables.contains(&variable), "{text}");
        }
    }
}
