//! The utility room of the two processes: environment, logs, metrics, signals, the Kubernetes client.
//! It never knows what a service is, and never decides anything.

pub mod environment;
pub mod kube_client;
pub mod logs;
pub mod metrics;
pub mod signals;
