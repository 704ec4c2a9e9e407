//! What the operator asks every resolver before sleep: "what have you seen?"
//! It never carries a client's address or any part of a request.

use serde::{Deserialize, Serialize};

use crate::ListenPort;

/// Names one version of a service's route: equal exactly when the ports are equal.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(transparent)]
pub struct RouteGeneration(String);

impl RouteGeneration {
    /// The generation of a route with these ports.
    #[must_use]
    pub fn of(ports: &[ListenPort]) -> Self {
        let parts: Vec<String> = ports
            .iter()
            .map(|p| format!("{}:{}>{}", p.name, p.port, p.listen_port))
            .collect();
        Self(parts.join(","))
    }
}

/// What one resolver has seen of one service.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// The route that this resolver listens for.
    pub route_generation: RouteGeneration,
    /// Requests that wait for a pod.
    pub held: u32,
    /// Requests and streams being carried to a pod.
    pub open: u32,
    /// Milliseconds since the last new connection; absent if there was none since the resolver started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_connection_millis_ago: Option<u64>,
}

/// `GET /activity`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct ActivityReport {
    /// One entry for each route.
    pub services: Vec<Activity>,
}
