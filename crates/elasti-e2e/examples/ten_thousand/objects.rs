//! The objects of one service: a Deployment at zero, its Service and its ElastiService.

use std::ops::Range;

use elasti_e2e::{NODE, TestEnv};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::rest;

const NAMESPACES: &str = "/api/v1/namespaces";
/// As many services share a namespace: what controllers look through for one of them is their namespace.
const PER_NAMESPACE: usize = 100;
/// What every trigger reads: idle.
pub(crate) const LOAD: &str = "load";
/// Where apps listen.
pub(crate) const PORT: u16 = 8088;
/// A target that is made at zero counts as put there by another writer for so long, and its status is written once more
/// when that ends: before the rest is measured. Longer than all wakes take.
const COOLDOWN_SECONDS: u32 = 300;
/// As many clients create objects.
const CREATORS: usize = 8;

pub(crate) fn name(number: usize) -> String {
    format!("web-{number:05}")
}

fn namespace(number: usize) -> String {
    format!("team-{:03}", number / PER_NAMESPACE)
}

/// Where the objects of a service's namespace are made.
fn collection(version: &str, number: usize, kind: &str) -> String {
    format!("/{version}/namespaces/{}/{kind}", namespace(number))
}

fn services(number: usize) -> String {
    collection("api/v1", number, "services")
}

pub(crate) async fn declare(env: &TestEnv, numbers: Range<usize>) {
    for number in numbers.clone().filter(|number| number % PER_NAMESPACE == 0) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace(number)}});
        env.api().make(NAMESPACES, object).await;
    }
    let prometheus = env.prometheus();
    let make = |number: usize| {
        let [mut deployment, service, elasti_service] = objects(&name(number), &prometheus);
        if env.is_without_nodes() {
            // Nothing schedules its pods.
            deployment["spec"]["template"]["spec"]["nodeName"] = json!(NODE);
        }
        async move {
            let at = |version: &str, kind: &str| collection(version, number, kind);
            env.api()
                .make(&at("apis/apps/v1", "deployments"), deployment)
                .await;
            env.api().make(&services(number), service).await;
            let elasti_services = at("apis/elasti.truefoundry.com/v1alpha1", "elastiservices");
            env.api().make(&elasti_services, elasti_service).await;
        }
    };
    let all = futures::stream::iter(numbers.map(make));
    all.for_each_concurrent(CREATORS, |one| one).await;
}

/// Where clients reach a service that sleeps: at its Service's address, or at a resolver of our slice, where no node
/// forwards.
pub(crate) async fn address(env: &TestEnv, number: usize) -> String {
    if env.is_without_nodes() {
        return resolver_address(env, number).await;
    }
    let service = env
        .api()
        .get(&format!("{}/{}", services(number), name(number)))
        .await;
    format!("{}:80", service["spec"]["clusterIP"].as_str().unwrap())
}

/// Takes the resolvers that are ready in turn.
async fn resolver_address(env: &TestEnv, number: usize) -> String {
    let of_service = format!("kubernetes.io/service-name={}", name(number));
    let slices = rest::slices_with(env, &of_service).await;
    let [slice] = slices.as_slice() else {
        panic!("{}: {slices:?}", name(number));
    };
    let mut ready = slice["endpoints"].as_array().unwrap().clone();
    ready.retain(|endpoint| endpoint["conditions"]["ready"] == true);
    assert!(
        !ready.is_empty(),
        "{} is not redirected: {slice}",
        name(number)
    );
    let address = ready[number % ready.len()]["addresses"][0].as_str();
    format!("{}:{}", address.unwrap(), slice["ports"][0]["port"])
}

fn objects(name: &str, prometheus: &str) -> [Value; 3] {
    let labels = json!({"app": name});
    let container = json!({
        "name": "app", "image": "echo:1", "ports": [{"containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
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
            "spec": {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": PORT}]},
        }),
        json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
            "metadata": {"name": name},
            "spec": {
                "service": name,
                "cooldownPeriod": COOLDOWN_SECONDS,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "triggers": [{"type": "prometheus", "metadata": metadata}],
            },
        }),
    ]
}
