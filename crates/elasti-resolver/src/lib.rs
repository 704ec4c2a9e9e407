//! The data plane: holds a request until a pod is ready, and forwards it.
//! It never writes to the cluster, and goes on while the operator is down.

mod activity;
mod admin;
mod answer;
mod client_stream;
mod clock;
mod connection;
mod drain;
mod environment;
mod follow;
mod forward;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod head;
mod hold;
mod host_route;
mod listener;
mod memory;
mod metrics;
mod net;
mod operators;
mod pod;
mod protocol;
mod resolver;
mod routes;
mod settings;
mod slice;
mod table;
mod waiting_page;
mod wake;
mod woken;

pub use environment::{VARIABLES, WITHOUT_USE};
#[cfg(feature = "simulation")]
pub use net::simulated;
pub use resolver::Running;
pub use settings::Settings;
