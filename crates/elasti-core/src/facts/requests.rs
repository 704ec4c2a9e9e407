//! What a pod of a template requests.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::quantity;

/// The most extended resources of one pod that are counted, by their names' order.
pub const MAX_RESOURCES: usize = 8;

/// Longest name of an extended resource: a domain of 253 characters, a slash, and a name of 63.
const MAX_NAME_LENGTH: usize = 317;

/// What one pod requests; nothing where it requests nothing, or where an amount cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requests {
    /// Thousandths of CPU cores.
    pub cpu_millicores: i64,
    /// Bytes of memory.
    pub memory_bytes: i64,
    /// Extended resources such as `nvidia.com/gpu`, at most [`MAX_RESOURCES`].
    pub resources: BTreeMap<String, i64>,
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
        let mut names: Vec<&str> = containers(spec).flat_map(extended_resources).collect();
        names.sort_unstable();
        names.dedup();
        let resources = { names.into_iter() }
            .map(|name| (name.to_owned(), whole(amount(name))))
            .filter(|(_, amount)| *amount > 0);
        Self {
            cpu_millicores: whole(amount("cpu") * 1000.0),
            memory_bytes: whole(amount("memory")),
            resources: resources.take(MAX_RESOURCES).collect(),
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

/// The names of what it requests beside Kubernetes' own resources. Only names with a domain can be extended resources.
fn extended_resources(container: &Value) -> impl Iterator<Item = &str> {
    let resources = container.get("resources");
    let of = move |which: &str| {
        let amounts = resources.and_then(|one| one.get(which)?.as_object());
        amounts.into_iter().flat_map(|all| all.keys())
    };
    { of("requests").chain(of("limits")) }
        .map(String::as_str)
        .filter(|name| name.len() <= MAX_NAME_LENGTH)
        .filter(|name| name.contains('/') && !name.contains("kubernetes.io/"))
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

#[allow(
    clippy::cast_possible_truncation,
    reason = "an amount that is too large for a number becomes the largest number"
)]
fn whole(amount: f64) -> i64 {
    (amount.round() as i64).max(0)
}
