//! The control plane beside the API server: one task a controller, all on the same small engine.

mod deployments;
pub(crate) mod endpoint_slices;
mod engine;
mod garbage;
mod namespaces;
mod replica_sets;
mod rollouts;
mod scaled_objects;
mod scheduler;
mod service_accounts;
mod stateful_sets;
mod workload;

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;

use crate::api_server::ApiServer;
pub(crate) use engine::{Change, Controller, ControllerClient, Kind, run};
pub(crate) use workload::condition;

/// What can be slowed down while the controllers run.
#[derive(Clone, Debug, Default)]
pub struct Lags {
    endpoint_slices: Arc<Mutex<Duration>>,
}

impl Lags {
    /// How long the endpoint-slice controller waits before it follows a change.
    pub fn set_endpoint_slices(&self, lag: Duration) {
        *self.endpoint_slices.lock() = lag;
    }

    fn endpoint_slices(&self) -> Duration {
        *self.endpoint_slices.lock()
    }
}

/// The running controllers; dropping them stops them.
#[derive(Debug)]
pub struct Controllers {
    /// Adjustable slowness.
    pub lags: Lags,
    _tasks: JoinSet<()>,
}

impl Controllers {
    /// Starts every controller.
    #[must_use]
    pub fn start(server: &ApiServer) -> Self {
        let lags = Lags::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(engine::run(
            service_accounts::ServiceAccounts,
            server.clone(),
        ));
        tasks.spawn(engine::run(namespaces::Namespaces, server.clone()));
        tasks.spawn(engine::run(garbage::Garbage::default(), server.clone()));
        tasks.spawn(engine::run(replica_sets::ReplicaSets, server.clone()));
        tasks.spawn(engine::run(deployments::Deployments, server.clone()));
        tasks.spawn(engine::run(stateful_sets::StatefulSets, server.clone()));
        tasks.spawn(engine::run(scheduler::Scheduler::default(), server.clone()));
        tasks.spawn(engine::run(
            endpoint_slices::EndpointSlices::new(lags.clone()),
            server.clone(),
        ));
        tasks.spawn(engine::run(rollouts::Rollouts, server.clone()));
        tasks.spawn(engine::run(scaled_objects::ScaledObjects, server.clone()));
        Self {
            lags,
            _tasks: tasks,
        }
    }
}

/// Installs the definitions of the stand-ins for Argo Rollouts and KEDA.
pub(crate) fn install_stand_ins(server: &ApiServer) {
    let client = ControllerClient::new(server, "fake-cluster");
    for definition in stand_in_definitions() {
        // Definitions that are already there may be the real ones: they stay.
        let _ = client.create(Kind::DEFINITIONS, "", &definition);
    }
}

/// The definitions of Rollouts and ScaledObjects, as open as the real ones are detailed.
#[must_use]
pub fn stand_in_definitions() -> [Value; 2] {
    [rollouts::definition(), scaled_objects::definition()]
}

/// A definition that takes any spec and status.
fn stand_in_definition(
    group: &str,
    kind: &str,
    plural: &str,
    short: &str,
    subresources: &Value,
) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
    let version = json!({
        "name": "v1alpha1", "served": true, "storage": true, "subresources": subresources, "schema": {"openAPIV3Schema": schema},
    });
    json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "shortNames": [short]}, "versions": [version],
        },
    })
}
