//! The utility room of the two processes: environment, logs, Sentry, metrics, signals, whose token is this, the Kubernetes client.
//! It never knows what a service is, and never decides anything.

pub mod callers;
pub mod environment;
pub mod exit;
pub mod kube_client;
pub mod logs;
pub mod metrics;
pub mod pace;
pub mod sentry;
pub mod signals;
pub mod tls;
