//! The control plane beside the API server: one task a controller, all on the same small engine.
//! Never touches the store except through requests and reads, as any controller would.

mod deployments;
mod endpoint_slices;
mod engine;
mod garbage;
mod namespaces;
mod replica_sets;
mod scheduler;
mod service_accounts;
mod stateful_sets;
mod workload;

use std::time::Duration;

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::task::JoinSet;

use crate::api_server::ApiServer;
pub(crate) use engine::{Change, Controller, Desk, Kind, run};

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
        Self {
            lags,
            _tasks: tasks,
        }
    }
}
