//! The data plane: holds a request until a pod is ready, and forwards it.
//! Never writes to the cluster, and keeps serving while the operator is down.

mod activity;
mod admin;
mod answer;
mod client_stream;
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
mod http_connection;
mod listener;
mod memory;
mod metrics;
mod net;
mod operators;
mod pod;
mod promise;
mod protocol;
mod reach;
mod resolver;
mod routes;
mod settings;
mod slice;
mod starting_pods;
mod table;
mod waiting_page;
mod wake;

use elasti_runtime::clock;
pub use environment::{VARIABLES, WITHOUT_USE};
pub use resolver::Running;
pub use settings::Settings;
