//! The utility room of the two processes: logs, metrics, signals, the Kubernetes client.
//! It never knows what a service is, and never decides anything.

pub mod kube_client;
pub mod logs;
pub mod metrics;
pub mod signals;
