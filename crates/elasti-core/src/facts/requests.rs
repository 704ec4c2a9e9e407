//! What a pod of a template requests.

use serde_json::Value;

use crate::quantity;

/// What one pod requests; nothing where it requests nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Requests {
    /// CPU cores.
    pub cpu_cores: f64,
    /// Bytes of memory.
    pub memory_bytes: f64,
}

impl Requests {
    /// What a pod of this spec requests, as the scheduler counts it, but for init containers that end.
    #[must_use]
    pub fn from_pod_spec(spec: &Value) -> Self {
        let amount = |resource: &str| {
            let whole = requested(spec, resource);
            let own = containers(spec).filter_map(|one| requested(one, resource));
            let overhead = spec
                .get("overhead")
                .and_then(|all| amount_of(all, resource));
            whole.unwrap_or_else(|| own.sum()) + overhead.unwrap_or(0.0)
        };
        Self {
            cpu_cores: amount("cpu"),
            memory_bytes: amount("memory"),
        }
    }
}

/// The containers that run as long as the pod does.
fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    let list = |name: &str| {
        spec.get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let sidecar = |one: &&Value| one.get("restartPolicy").and_then(Value::as_str) == Some("Always");
    list("containers").chain(list("initContainers").filter(sidecar))
}

/// A limit without a request is a request too.
fn requested(of: &Value, resource: &str) -> Option<f64> {
    let resources = of.get("resources")?;
    let of = |which: &str| amount_of(resources.get(which)?, resource);
    of("requests").or_else(|| of("limits"))
}

fn amount_of(amounts: &Value, resource: &str) -> Option<f64> {
    match amounts.get(resource)? {
        Value::String(text) => quantity::parse(text),
        other => other.as_f64(),
    }
}
