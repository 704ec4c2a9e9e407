//! The data plane: holds a request until a pod is ready, and forwards it.
//! Never writes to the cluster, and keeps serving while the operator is down.

mod access_log;
mod activity;
mod admin;
mod answer;
mod client_stream;
mod connection;
mod drain;
mod elasti_service;
mod ended_hold;
mod environment;
mod follow;
mod forward;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod head;
mod header_blocks;
mod hold;
mod host_route;
mod http_connection;
mod leaving;
mod listener;
mod memory;
mod metrics;
mod net;
mod operators;
mod pod;
mod pod_lookups;
mod probe_ahead;
mod promise;
mod protocol;
mod reach;
mod request_record;
mod resolver;
mod routes;
mod settings;
mod slice;
mod sources;
mod starting_pods;
mod table;
mod trace;
mod unfinished_heads;
mod waiting_page;
mod wake;
mod wake_client;

use elasti_runtime::clock;
pub use environment::{VARIABLES, WITHOUT_USE};
pub use resolver::Running;
pub use settings::Settings;
