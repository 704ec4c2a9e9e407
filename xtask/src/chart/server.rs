//! What a real API server says to the chart's objects, in a dry run under Pod Security "restricted".

use std::error::Error;
use std::process::Output;

use serde_json::{Value, json};

use super::render::{NAMESPACE, Rendering, text};
use crate::kubernetes::{layout, ready};

/// Kinds of the Prometheus operator, which a bare cluster does not know.
const FOREIGN: [&str; 2] = ["ServiceMonitor", "PrometheusRule"];

/// Whether the cluster of this machine is up.
pub(crate) fn is_up() -> bool {
    layout::kubeconfig().exists()
        && kubectl(&["get", "--raw", "/readyz"], None).is_ok_and(|output| output.status.success())
}

/// What the API server refuses or warns of.
pub(crate) fn refused(rendering: &Rendering) -> Result<Vec<String>, Box<dyn Error>> {
    for namespace in [NAMESPACE, "team-a", "team-b"] {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": namespace,
                "labels": {"pod-security.kubernetes.io/enforce": "restricted",
                           "pod-security.kubernetes.io/warn": "restricted"},
            },
        });
        ready::apply(&object.to_string())?;
    }
    let known = |object: &&Value| !FOREIGN.contains(&text(object, "/kind"));
    let objects: Vec<&Value> = rendering.objects.iter().filter(known).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let arguments = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=strict",
        "--filename=-",
    ];
    let output = kubectl(&arguments, Some(&list))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(said.lines().map(str::to_owned).collect())
}

fn kubectl(arguments: &[&str], input: Option<&Value>) -> Result<Output, Box<dyn Error>> {
    let input = input.map(Value::to_string).unwrap_or_default();
    ready::output_for(&mut ready::kubectl(arguments)?, &input)
}
