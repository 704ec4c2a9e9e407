//! The objects of one service: a Deployment at zero, its Service and its ElastiService.

use std::ops::Range;

use elasti_e2e::TestEnv;
use futures::StreamExt as _;
use serde_json::{Value, json};

pub(crate) const ELASTI_SERVICES: &str =
    "/apis/elasti.truefoundry.com/v1alpha1/namespaces/default/elastiservices";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SERVICES: &str = "/api/v1/namespaces/default/services";
/// What every trigger reads: idle.
pub(crate) const LOAD: &str = "load";
/// As many clients create objects.
const CREATORS: usize = 8;

pub(crate) fn name(number: usize) -> String {
    format!("web-{number:05}")
}

pub(crate) async fn declare(env: &TestEnv, numbers: Range<usize>) {
    let prometheus = format!("http://{}", env.fake_cluster().prometheus.address);
    let make = |number: usize| {
        let [deployment, service, elasti_service] = objects(&name(number), &prometheus);
        async move {
            env.api().make(DEPLOYMENTS, deployment).await;
            env.api().make(SERVICES, service).await;
            env.api().make(ELASTI_SERVICES, elasti_service).await;
        }
    };
    let all = futures::stream::iter(numbers.map(make));
    all.for_each_concurrent(CREATORS, |one| one).await;
}

/// Where clients reach a service.
pub(crate) async fn address(env: &TestEnv, number: usize) -> String {
    let service = env.api().get(&format!("{SERVICES}/{}", name(number))).await;
    format!("{}:80", service["spec"]["clusterIP"].as_str().unwrap())
}

fn objects(name: &str, prometheus: &str) -> [Value; 3] {
    let labels = json!({"app": name});
    let container = json!({
        "name": "app", "image": "echo:1", "ports": [{"containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    });
    let metadata = json!({"serverAddress": prometheus, "query": LOAD, "threshold": "1"});
    [
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [container]},
            }},
        }),
        json!({
            "metadata": {"name": name},
            "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
        }),
        json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": name},
            "spec": {
                "service": name,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "triggers": [{"type": "prometheus", "metadata": metadata}],
            },
        }),
    ]
}
