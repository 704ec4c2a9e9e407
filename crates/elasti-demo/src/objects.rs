//! The objects of a demo service on either backend: a Deployment at zero, its Service, its ElastiService.

use std::net::IpAddr;

use anyhow::Context as _;
use elasti_api::names;
use kube::Client;
use serde_json::{Value, json};

use super::timeline::APP_LABEL;

/// Above 1023, so that root is not needed.
pub(crate) const PORT: u16 = 8080;

/// The services' names.
pub(crate) fn names_of(services: u16) -> Vec<String> {
    match services {
        1 => vec!["web".to_owned()],
        n => (1..=n).map(|number| format!("web-{number}")).collect(),
    }
}

/// A Deployment at zero replicas.
pub(crate) fn deployment(name: &str, pod: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {APP_LABEL: name}},
            "template": {"metadata": {"labels": {APP_LABEL: name}}, "spec": pod},
        },
    })
}

pub(crate) fn service(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"selector": {APP_LABEL: name}, "ports": [{"name": "http", "port": PORT, "targetPort": "http"}]},
    })
}

pub(crate) fn elasti_service(name: &str, cooldown_seconds: u32, trigger: &Value) -> Value {
    json!({
        "apiVersion": format!("{}/v1alpha1", names::GROUP),
        "kind": "ElastiService",
        "metadata": {"name": name},
        "spec": {
            "service": name,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "cooldownPeriod": cooldown_seconds,
            "triggers": [{"type": "prometheus", "metadata": trigger}],
        },
    })
}

/// The address that the cluster gave a Service.
pub(crate) fn cluster_address(service: &Value) -> anyhow::Result<IpAddr> {
    let address = service.pointer("/spec/clusterIP").and_then(Value::as_str);
    Ok(address.context("a Service without an address")?.parse()?)
}

/// One call of the API.
pub(crate) async fn call(
    client: &Client,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> kube::Result<Value> {
    let kind = match method {
        "PATCH" => "application/strategic-merge-patch+json",
        _ => "application/json",
    };
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, kind)
        .body(body.into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}
