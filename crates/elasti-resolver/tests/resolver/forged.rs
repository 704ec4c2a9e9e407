//! EndpointSlices that a tenant forged (CVE-2021-25740): an address gets requests only if the pod that the slice names
//! has it, whatever labels and references say.

use std::net::Ipv4Addr;
use std::time::Duration;

use elasti_api::names;
use elasti_fake_cluster::faults::{Call, Calls, Fault, Verb};
use elasti_testkit::fixture::{
    Fixture, PODS, SLICES, STRATEGIC, http_get, own_address, service, until,
};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

const PORT: u16 = 8080;

/// A service whose slices are ours alone: the endpoint-slice controller would write them anew.
async fn fixture() -> (Fixture, String) {
    let fixture = Fixture::start().await;
    fixture.asleep(service("cart")).await;
    let lags = &fixture.fake_cluster.controllers.lags;
    lags.set_endpoint_slices(Duration::from_secs(36_000));
    let listen_port = format!("{}:20001", fixture.address);
    (fixture, listen_port)
}

/// A slice as of the endpoint-slice controller, which says that this pod is ready at this address.
async fn forge(fixture: &Fixture, pod: &str, uid: &str, address: Ipv4Addr) {
    let private = names::private_service("cart");
    let labels = json!({names::SERVICE_NAME_LABEL: private, names::ELASTI_SERVICE_LABEL: "cart",
        names::SLICE_MANAGED_BY_LABEL: names::SLICE_MANAGED_BY_KUBERNETES});
    let target = json!({"kind": "Pod", "namespace": "default", "name": pod, "uid": uid});
    let endpoint =
        json!({"addresses": [address], "conditions": {"ready": true}, "targetRef": target});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "forged", "labels": labels},
        "addressType": "IPv4", "ports": [{"name": "http", "port": PORT, "protocol": "TCP"}], "endpoints": [endpoint],
    });
    let path = format!("{SLICES}/forged");
    if fixture.api_client.exists(&path).await {
        fixture.api_client.delete(&path).await;
    }
    fixture.api_client.make(SLICES, slice).await;
    // The resolver's watch brings it at once.
    sleep(Duration::from_secs(5)).await;
}

/// A pod of the tenant's own that no kubelet of this cluster has, with its address; gives its uid.
async fn make_pod(fixture: &Fixture, name: &str, address: Ipv4Addr) -> String {
    let pod = json!({"metadata": {"name": name, "labels": {"app": "other"}},
        "spec": {"nodeName": "elsewhere", "containers": [{"name": "app", "image": "local"}]}});
    let made = fixture.api_client.make(PODS, pod).await;
    let status =
        json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}});
    let path = format!("{PODS}/{name}/status");
    fixture.api_client.patch(&path, STRATEGIC, status).await;
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

async fn listen(address: Ipv4Addr) -> TcpListener {
    TcpListener::bind((address, PORT)).await.unwrap()
}

async fn gets_nothing(listener: &TcpListener, why: &str) {
    let reached = timeout(Duration::from_secs(1), listener.accept()).await;
    assert!(reached.is_err(), "{why}");
}

/// Whether a request through the resolver arrives here.
async fn arrives(listener: &TcpListener, listen_port: &str) -> bool {
    let address = listen_port.to_owned();
    let client = tokio::spawn(async move { http_get(&address, "/").await });
    let reached = timeout(Duration::from_secs(3), listener.accept()).await;
    let Ok(reached) = reached else {
        client.abort();
        return false;
    };
    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    reached.unwrap().0.write_all(answer).await.unwrap();
    client.await.unwrap().code() == 200
}

/// How often the resolver has asked for one pod.
fn lookups(fixture: &Fixture) -> usize {
    let journal = fixture.fake_cluster.server.faults().journal();
    let is_one = |call: &&Call| call.kind == "pods" && call.verb == Verb::List;
    journal.iter().filter(is_one).count()
}

#[tokio::test(start_paused = true)]
async fn the_address_of_a_neighbours_pod_in_a_forged_slice_gets_nothing_s8() {
    let (fixture, listen_port) = fixture().await;
    let (own, neighbour) = (own_address(), own_address());
    let uid = make_pod(&fixture, "own", own).await;
    let victim = listen(neighbour).await;
    for (pod, uid) in [
        ("own", uid.as_str()),
        ("own", "another"),
        ("own", ""),
        ("none", "1"),
        // More than a name: read as a selector it would find every pod.
        ("x,metadata.namespace=default", uid.as_str()),
    ] {
        forge(&fixture, pod, uid, neighbour).await;
        // Its own pods are woken, and answer it.
        let answer = timeout(Duration::from_secs(60), http_get(&listen_port, "/")).await;
        assert_eq!(answer.expect("no answer").code(), 200, "{pod}");
        gets_nothing(&victim, pod).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_slice_is_asked_for_once_and_used_for_as_long_as_it_has_its_address() {
    let (fixture, listen_port) = fixture().await;
    let own = own_address();
    let pod = listen(own).await;
    let uid = make_pod(&fixture, "own", own).await;
    let before = lookups(&fixture);
    forge(&fixture, "own", &uid, own).await;
    for _ in 0..5 {
        assert!(arrives(&pod, &listen_port).await);
    }
    assert_eq!(lookups(&fixture), before + 1);
    // It ends, and its address may go to a neighbour's. The first request after a minute makes it known.
    let path = format!("{PODS}/own/status");
    let ended = json!({"status": {"phase": "Succeeded"}});
    fixture.api_client.patch(&path, STRATEGIC, ended).await;
    sleep(Duration::from_secs(61)).await;
    arrives(&pod, &listen_port).await;
    sleep(Duration::from_secs(1)).await;
    assert!(!arrives(&pod, &listen_port).await);
}

#[tokio::test(start_paused = true)]
async fn without_the_api_server_a_pod_that_was_checked_is_used_and_no_other() {
    let (fixture, listen_port) = fixture().await;
    let (own, neighbour) = (own_address(), own_address());
    let (pod, victim) = (listen(own).await, listen(neighbour).await);
    let uid = make_pod(&fixture, "own", own).await;
    forge(&fixture, "own", &uid, own).await;
    // No request has come yet: it was checked ahead.
    until("it was checked", async || lookups(&fixture) > 0).await;
    sleep(Duration::from_secs(1)).await;
    let faults = fixture.fake_cluster.server.faults();
    faults.strike_randomly(
        1000,
        Calls::all().kind("pods").verb(Verb::List),
        Fault::InternalError,
    );
    // What was known is older than a minute.
    sleep(Duration::from_secs(120)).await;
    for _ in 0..3 {
        assert!(arrives(&pod, &listen_port).await);
    }
    forge(&fixture, "none", "1", neighbour).await;
    assert!(!arrives(&victim, &listen_port).await);
    let new = own_address();
    let (later, uid) = (listen(new).await, make_pod(&fixture, "new", new).await);
    forge(&fixture, "new", &uid, new).await;
    let address = listen_port.clone();
    let client = tokio::spawn(async move { http_get(&address, "/").await });
    gets_nothing(&later, "it was never checked").await;
    fixture.fake_cluster.server.faults().heal();
    let reached = timeout(Duration::from_secs(20), later.accept()).await;
    let (mut stream, _) = reached.expect("it is checked now").unwrap();
    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(answer).await.unwrap();
    assert_eq!(client.await.unwrap().code(), 200, "no request is lost");
}
