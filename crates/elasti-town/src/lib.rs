//! The model town: a Kubernetes small enough for one process, for the demo, the journeys and the fault tests.
//! Never ships in the image.

pub mod api_server;
pub mod clock;
pub mod controllers;
pub mod faults;
mod loopback;
pub mod node;
pub mod prometheus;
pub mod random;
pub mod recorder;
mod town;

pub use town::Town;
