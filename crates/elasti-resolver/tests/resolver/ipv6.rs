//! A service of IPv6 alone: client, resolver and pod meet on `::1`, by a slice that the test makes.
//! The simulated cluster has only IPv4, so the slice carries what the endpoint-slice controller of a dual-stack cluster would write.

use std::net::Ipv6Addr;

use elasti_api::names;
use elasti_testkit::fixture::{
    ELASTI, Fixture, PODS, SERVICES, SLICES, STRATEGIC, http_get, until,
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A port that is free on `::1`, where all tests of a machine meet.
async fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test(start_paused = true)]
async fn a_service_of_ipv6_alone_is_held_and_forwarded_r4() {
    let fixture = Fixture::with(|settings| settings.bind = Ipv6Addr::LOCALHOST.into()).await;
    let listen = free_port().await;
    let private = names::private_service("cart");
    let labels =
        json!({names::ELASTI_SERVICE_LABEL: "cart", names::MANAGED_BY_LABEL: names::MANAGED_BY});
    // The simulated cluster's own controller knows IPv4 only and would remove our slice; it is late by more than the test takes.
    let lags = &fixture.fake_cluster.controllers.lags;
    lags.set_endpoint_slices(std::time::Duration::from_secs(36_000));
    let service = json!({"metadata": {"name": private, "labels": labels}, "spec": {"ports": [{"name": "http", "port": 80}]}});
    fixture.api_client.make(SERVICES, service).await;
    let spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart"}, "service": "cart",
        "triggers": [{"type": "prometheus", "metadata": {"query": "x", "threshold": "1", "serverAddress": "http://p"}}],
    });
    let object = json!({"apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService", "metadata": {"name": "cart"}, "spec": spec});
    fixture.api_client.make(ELASTI, object).await;
    let ports = json!([{"name": "http", "port": 80, "listenPort": listen}]);
    fixture
        .status(
            "cart",
            json!({"mode": "proxy", "phase": "Asleep", "ports": ports}),
        )
        .await;
    let address = format!("[::1]:{listen}");
    until("the resolver listens", async || {
        TcpListener::bind((Ipv6Addr::LOCALHOST, listen))
            .await
            .is_err()
    })
    .await;
    // The operator's stub need not scale anything here.
    fixture
        .operator
        .code
        .store(503, std::sync::atomic::Ordering::Relaxed);
    let target = address.clone();
    let client = tokio::spawn(async move { http_get(&target, "/six").await });
    until("it is held", async || fixture.resolver().held() == 1).await;
    until("the operator got the wake", async || {
        !fixture.operator.wakes().is_empty()
    })
    .await;

    let pod = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    let object = json!({"metadata": {"name": "cart-1"}, "spec": {"nodeName": "elsewhere", "containers": [{"name": "app", "image": "local"}]}});
    let uid = { fixture.api_client.make(PODS, object).await }["metadata"]["uid"].clone();
    let status = json!({"status": {"phase": "Running", "podIP": "::1", "podIPs": [{"ip": "::1"}]}});
    let path = format!("{PODS}/cart-1/status");
    fixture.api_client.patch(&path, STRATEGIC, status).await;
    let labels = json!({names::SERVICE_NAME_LABEL: private, names::ELASTI_SERVICE_LABEL: "cart", names::SLICE_MANAGED_BY_LABEL: names::SLICE_MANAGED_BY_KUBERNETES});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": format!("{private}-six"), "labels": labels},
        "addressType": "IPv6", "ports": [{"name": "http", "port": pod.local_addr().unwrap().port(), "protocol": "TCP"}],
        "endpoints": [{"addresses": ["::1"], "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "namespace": "default", "name": "cart-1", "uid": uid}}],
    });
    fixture.api_client.make(SLICES, slice).await;
    let (mut stream, _) = pod.accept().await.unwrap();
    let mut head = vec![0; 4096];
    let read = stream.read(&mut head).await.unwrap();
    let head = String::from_utf8_lossy(&head[..read]).to_lowercase();
    assert!(head.starts_with("get /six http/1.1\r\n"), "{head}");
    assert!(head.contains("x-forwarded-for: ::1\r\n"), "{head}");
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nsix")
        .await
        .unwrap();
    assert_eq!(client.await.unwrap().body, "six");
    drop(TcpStream::connect(&address).await.unwrap());
}
