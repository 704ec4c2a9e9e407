//! What is shown of a target: its replicas, and what its pods request.

use serde_json::Value;

use elasti_core::facts::Requests;

/// What is shown of a target: any kind that keeps a pod template and counts its pods as Deployments do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// `spec.replicas`, where nothing means 1.
    pub replicas: u32,
    /// `status.readyReplicas`.
    pub ready: u32,
    /// What one pod requests.
    pub requests: Requests,
}

impl Workload {
    /// Reads a workload of any kind.
    #[must_use]
    pub fn from_object(object: &Value) -> Self {
        let count = |path: &str| {
            let number = object.pointer(path).and_then(Value::as_u64);
            number.and_then(|n| u32::try_from(n).ok())
        };
        let pod = object.pointer("/spec/template/spec");
        Self {
            replicas: count("/spec/replicas").unwrap_or(1),
            ready: count("/status/readyReplicas").unwrap_or(0),
            requests: pod.map(Requests::from_pod_spec).unwrap_or_default(),
        }
    }
}
