//! What each node's kube-proxy does with endpoints that are ready, dying, on another node, or in two slices.

use std::net::SocketAddr;

use crate::fixture::{
    ApiClient, DEPLOYMENTS, MERGE, PODS, SERVICES, STRATEGIC, a_fake_cluster, a_service,
    deployment, items, until,
};
use elasti_fake_cluster::FakeCluster;
use serde_json::{Value, json};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

type Routes = Option<Vec<SocketAddr>>;

/// Where each node sends new connections.
fn routes(cluster: &FakeCluster, address: &str) -> Vec<Routes> {
    let address = address.parse().unwrap();
    let nodes = cluster.nodes.iter();
    nodes.map(|node| node.routes(address)).collect()
}

async fn until_routed(cluster: &FakeCluster, address: &str, wanted: &[Routes]) {
    until(&format!("routes are {wanted:?}"), async || {
        routes(cluster, address) == wanted
    })
    .await;
}

fn address_of(pod: &Value) -> SocketAddr {
    let ip = pod["status"]["podIP"].as_str().unwrap_or_default();
    format!("{ip}:8080").parse().unwrap()
}

/// A Deployment of one pod that closes its listener at SIGTERM and lives on; gives the ready pod.
async fn a_pod_that_ends_slowly(api_client: &ApiClient, seconds: &str) -> Value {
    let mut object = deployment("web", 1);
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{"name": "END_SECONDS", "value": seconds}]);
    container["readinessProbe"] = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1});
    api_client.make(DEPLOYMENTS, object).await;
    until("the pod is ready", async || {
        api_client.get(&format!("{DEPLOYMENTS}/web")).await.1["status"]["readyReplicas"] == 1
    })
    .await;
    items(api_client, PODS).await.remove(0)
}

/// A slice of ours for the Service, with one endpoint.
fn slice(name: &str, address: SocketAddr, conditions: &Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "ports": [{"name": "http", "port": address.port(), "protocol": "TCP"}],
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": conditions}],
    })
}

fn net() -> Value {
    json!({"ready": false, "serving": true, "terminating": true})
}

fn ready() -> Value {
    json!({"ready": true, "serving": true, "terminating": false})
}

async fn scale_to_zero(api_client: &ApiClient) {
    let zero = json!({"spec": {"replicas": 0}});
    let scale = format!("{DEPLOYMENTS}/web/scale");
    api_client.patch(&scale, MERGE, zero).await;
}

async fn conditions(api_client: &ApiClient) -> Value {
    let slices = items(api_client, SLICES).await;
    let theirs = slices
        .iter()
        .find(|slice| slice["endpoints"][0]["targetRef"].is_object());
    theirs.map_or(Value::Null, |slice| {
        slice["endpoints"][0]["conditions"].clone()
    })
}

#[tokio::test(start_paused = true)]
async fn a_dying_pod_serves_again_although_it_was_marked_and_mixes_with_the_net() {
    let (cluster, api_client) = a_fake_cluster().await;
    let address = a_service(&api_client, "web").await;
    let pod = a_pod_that_ends_slowly(&api_client, "20").await;
    let (name, pod) = (pod["metadata"]["name"].as_str().unwrap(), address_of(&pod));
    until_routed(&cluster, &address, &[Some(vec![pod]), Some(vec![pod])]).await;
    let resolver: SocketAddr = "127.0.0.9:9000".parse().unwrap();
    api_client
        .make(SLICES, slice("ours", resolver, &net()))
        .await;

    let mark = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Draining"}]}});
    api_client
        .patch(&format!("{PODS}/{name}/status"), STRATEGIC, mark)
        .await;
    let caught = [Some(vec![resolver]), Some(vec![resolver])];
    until_routed(&cluster, &address, &caught).await;

    scale_to_zero(&api_client).await;
    until("the dying pod serves again", async || {
        conditions(&api_client).await == net()
    })
    .await;
    let mut both = vec![pod, resolver];
    both.sort();
    until_routed(&cluster, &address, &[Some(both.clone()), Some(both)]).await;
    // Its probe fails three times, and only then is it out.
    until_routed(&cluster, &address, &caught).await;
    assert_eq!(
        conditions(&api_client).await,
        json!({"ready": false, "serving": false, "terminating": true})
    );
}

#[tokio::test(start_paused = true)]
async fn a_ready_endpoint_keeps_dying_pods_out_on_every_node() {
    let (cluster, api_client) = a_fake_cluster().await;
    let address = a_service(&api_client, "web").await;
    let pod = address_of(&a_pod_that_ends_slowly(&api_client, "20").await);
    let resolver: SocketAddr = "127.0.0.9:9000".parse().unwrap();
    api_client
        .make(SLICES, slice("ours", resolver, &ready()))
        .await;
    let mut both = vec![pod, resolver];
    both.sort();
    until_routed(&cluster, &address, &[Some(both.clone()), Some(both)]).await;
    scale_to_zero(&api_client).await;
    let redirected = [Some(vec![resolver]), Some(vec![resolver])];
    until_routed(&cluster, &address, &redirected).await;
    until("the pod is gone", async || {
        assert_eq!(routes(&cluster, &address), redirected);
        items(&api_client, PODS).await.is_empty()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn local_policies_are_decided_on_each_node_by_itself() {
    let (cluster, api_client) = a_fake_cluster().await;
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let service = json!({"metadata": {"name": "web"}, "spec": {
        "type": "NodePort", "selector": {"app": "web"}, "ports": ports,
        "internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local",
    }});
    let service = api_client.make(SERVICES, service).await;
    let inside = format!("{}:80", service["spec"]["clusterIP"].as_str().unwrap());
    let outside = format!("127.0.0.1:{}", service["spec"]["ports"][0]["nodePort"]);
    let pod = a_pod_that_ends_slowly(&api_client, "20").await;
    let (node, pod) = (&pod["spec"]["nodeName"], address_of(&pod));
    let nodes = cluster.nodes.iter();
    let local: Vec<Routes> = nodes
        .map(|one| Some(if one.name == *node { vec![pod] } else { vec![] }))
        .collect();
    for address in [&inside, &outside] {
        until_routed(&cluster, address, &local).await;
    }
    // A dying pod still gets what its own node gets, beside a ready endpoint elsewhere.
    let resolver: SocketAddr = "127.0.0.9:9000".parse().unwrap();
    let mut elsewhere = slice("ours", resolver, &ready());
    elsewhere["endpoints"][0]["nodeName"] = json!("node-9");
    api_client.make(SLICES, elsewhere).await;
    scale_to_zero(&api_client).await;
    until("the pod is dying", async || {
        conditions(&api_client).await == net()
    })
    .await;
    for address in [&inside, &outside] {
        until_routed(&cluster, address, &local).await;
    }
    let spec = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
    api_client
        .patch(&format!("{SERVICES}/web"), MERGE, spec)
        .await;
    let anywhere = [Some(vec![resolver]), Some(vec![resolver])];
    until_routed(&cluster, &outside, &anywhere).await;
    until_routed(&cluster, &inside, &[Some(vec![]), Some(vec![])]).await;
    api_client.delete(&format!("{SLICES}/ours")).await;
    for address in [&inside, &outside] {
        until_routed(&cluster, address, &[None, None]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_in_two_slices_is_not_merged() {
    let (cluster, api_client) = a_fake_cluster().await;
    let address = a_service(&api_client, "web").await;
    let resolver: SocketAddr = "127.0.0.9:9000".parse().unwrap();
    let dark = json!({"ready": false, "serving": false, "terminating": false});
    api_client.make(SLICES, slice("a", resolver, &dark)).await;
    api_client
        .make(SLICES, slice("b", resolver, &ready()))
        .await;
    let other: SocketAddr = "127.0.0.8:9000".parse().unwrap();
    api_client.make(SLICES, slice("c", other, &ready())).await;
    until_routed(&cluster, &address, &[Some(vec![other]), Some(vec![other])]).await;
}

#[tokio::test(start_paused = true)]
async fn endpoints_carry_the_zone_of_their_node() {
    let (cluster, api_client) = a_fake_cluster().await;
    a_service(&api_client, "web").await;
    for node in &cluster.nodes {
        let labels = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "west"}}});
        let path = format!("/api/v1/nodes/{}", node.name);
        api_client.patch(&path, MERGE, labels).await;
    }
    let pod = a_pod_that_ends_slowly(&api_client, "0").await;
    until("the zone is in the slice", async || {
        let slices = items(&api_client, SLICES).await;
        let endpoint = &slices[0]["endpoints"][0];
        endpoint["zone"] == "west" && endpoint["nodeName"] == pod["spec"]["nodeName"]
    })
    .await;
}
