//! The utility room of the two processes: logs, metrics, signals.
//! It never knows what a service is, and never talks to a cluster.

pub mod logs;
pub mod metrics;
pub mod signals;
