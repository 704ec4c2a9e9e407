//! The objects in the YAML of pages, and their paths in the API.

use serde_json::{Value, json};

use super::page::{Block, pages};

/// Kinds that no cluster of the tests knows, and why.
const FOREIGN: [(&str, &str); 2] = [
    ("Application", "Argo CD's own; its CRD comes with Argo CD"),
    (
        "ScaledObject",
        "KEDA's own; the simulated cluster knows it, a real cluster may not",
    ),
];

/// What a block of YAML is.
pub(crate) enum Yaml {
    /// Whole objects.
    Objects(Vec<Value>),
    /// An ElastiService around a part of a spec.
    Part(Value),
    /// A part of the chart's values.
    Values,
}

pub(crate) fn parse(block: &Block) -> Yaml {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&block.text).unwrap();
    match block.text.lines().next().unwrap_or_default().trim() {
        "# values.yaml" => Yaml::Values,
        "# spec" => Yaml::Part(around(&documents[0])),
        _ => Yaml::Objects(documents),
    }
}

/// An ElastiService that is right, but for these fields.
fn around(part: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService", "metadata": {"name": "part"},
        "spec": {
            "service": "part",
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "part"},
            "triggers": [{"type": "prometheus", "metadata": {"query": "vector(0)", "threshold": "1"}}],
        },
    });
    for (key, value) in part.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

pub(crate) fn is_foreign(object: &Value) -> bool {
    FOREIGN.iter().any(|(kind, _)| object["kind"] == *kind)
}

pub(crate) fn is_ours(object: &Value) -> bool {
    object["kind"] == "ElastiService"
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Where objects of this kind are, in the namespace that they name or in this one.
pub(crate) fn collection(object: &Value, namespace: &str) -> Result<String, String> {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let plural = match object["kind"].as_str().unwrap_or_default() {
        "ElastiService" => "elastiservices",
        "Deployment" => "deployments",
        "StatefulSet" => "statefulsets",
        "Rollout" => "rollouts",
        "ScaledObject" => "scaledobjects",
        "Service" => "services",
        "ConfigMap" => "configmaps",
        "NetworkPolicy" => "networkpolicies",
        "Role" => "roles",
        kind => {
            return Err(format!(
                "{kind}: say in tests/elasti/documents/objects.rs how it is called in the API"
            ));
        }
    };
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = object["metadata"]["namespace"]
        .as_str()
        .unwrap_or(namespace);
    Ok(format!("/{root}/{version}/namespaces/{namespace}/{plural}"))
}

/// The first ElastiService of the README, as a file.
pub(crate) fn first_service() -> String {
    let pages = pages();
    let readme = pages.iter().find(|page| page.name == "README.md").unwrap();
    let block = readme
        .blocks
        .iter()
        .find(|block| block.text.contains("kind: ElastiService"));
    block.unwrap().text.clone()
}

/// Every query of every trigger.
pub(crate) fn queries() -> Vec<String> {
    let pages = pages();
    let lines = pages.iter().flat_map(|page| page.text.lines());
    let queries = lines.filter_map(|line| line.trim().strip_prefix("query: "));
    queries
        .map(str::to_owned)
        .chain(["vector(0)".to_owned()])
        .collect()
}
