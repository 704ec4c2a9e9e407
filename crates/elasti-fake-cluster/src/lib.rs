//! The simulated cluster: a Kubernetes small enough for one process, for the demo, the end-to-end tests and the fault tests.
//! Never ships in the image.

pub mod api_server;
pub mod clock;
pub mod controllers;
mod fake_cluster;
pub mod faults;
mod loopback;
pub mod node;
pub mod prometheus;
pub mod random;
pub mod recorder;

pub use fake_cluster::FakeCluster;
