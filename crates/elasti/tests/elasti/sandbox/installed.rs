//! A simulated cluster with everything that the chart creates, and one sleeping service. No operator runs.

use elasti_api::names::{self, IpFamily};
use serde_json::{Value, json};

use super::Sandbox;

pub const OPERATOR: &str = "elasti-operator-controller-manager";
pub const ELASTI: &str = "/apis/apps/v1/namespaces/elasti/deployments";
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/elasti/leases";
pub const SERVICES: &str =
    "/apis/elasti.truefoundry.com/v1alpha1/namespaces/default/elastiservices";
pub const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// An installation that is well, with one sleeping service.
pub async fn installed() -> Sandbox {
    let sandbox = Sandbox::with_chart().await;
    // Nothing renews it, so it is as fresh as can be for a long time.
    sandbox
        .make(&json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": names::LEASE, "namespace": "elasti"},
            "spec": {"holderIdentity": "operator-1", "leaseDurationSeconds": 3600, "renewTime": now()},
        }))
        .await;
    asleep(&sandbox).await;
    sandbox
}

fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

/// The service `web`, routed to the resolvers.
async fn asleep(sandbox: &Sandbox) {
    sandbox
        .make(&json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": "web"},
            "spec": {
                "service": "web",
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "triggers": [{"type": "prometheus", "metadata": {
                    "query": "vector(0)", "threshold": "1", "serverAddress": "http://prometheus:9090"}}],
            },
        }))
        .await;
    let condition = json!({"type": "Ready", "status": "True", "reason": "Idle", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"mode": "proxy", "phase": "Asleep", "conditions": [condition]});
    sandbox
        .patch(
            &format!("{SERVICES}/web/status"),
            &json!({"status": status}),
        )
        .await;
    let pods = "/api/v1/namespaces/elasti/pods?labelSelector=app%3Delasti-resolver";
    let pods = sandbox.get(pods).await.unwrap();
    let addresses: Vec<Value> = pods["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| pod["status"]["podIP"].clone())
        .collect();
    assert_eq!(addresses.len(), 2);
    slice(sandbox, "web", &addresses).await;
}

pub async fn slice(sandbox: &Sandbox, service: &str, addresses: &[Value]) {
    let endpoints: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
        .collect();
    sandbox
        .make(&json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": names::resolver_slice(service, IpFamily::V4, 0), "labels": {
                names::SERVICE_NAME_LABEL: service,
                names::SLICE_MANAGED_BY_LABEL: names::SLICE_MANAGED_BY_ELASTI,
            }},
            "addressType": "IPv4", "ports": [{"port": 10000}], "endpoints": endpoints,
        }))
        .await;
}
