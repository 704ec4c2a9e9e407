//! The simulated cluster: a Kubernetes small enough for one process, for the demo, the end-to-end tests and the fault tests.

pub mod api_server;
pub mod controllers;
mod fake_cluster;
pub mod faults;
mod loopback;
pub mod node;
pub mod prometheus;
pub mod random;
pub mod recorder;
mod timestamp;

pub use elasti_runtime::clock;
pub use fake_cluster::FakeCluster;
