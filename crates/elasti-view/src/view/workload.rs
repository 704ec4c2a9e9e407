//! What is shown of a target: its replicas.

use serde_json::Value;

/// What is shown of a target: any kind that counts its pods as Deployments do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// `spec.replicas`, where nothing means 1.
    pub replicas: u32,
    /// `status.readyReplicas`.
    pub ready: u32,
}

impl Workload {
    /// Reads a workload of any kind.
    #[must_use]
    pub fn from_object(object: &Value) -> Self {
        let count = |path: &str| {
            let number = object.pointer(path).and_then(Value::as_u64);
            number.and_then(|n| u32::try_from(n).ok())
        };
        Self {
            replicas: count("/spec/replicas").unwrap_or(1),
            ready: count("/status/readyReplicas").unwrap_or(0),
        }
    }
}
