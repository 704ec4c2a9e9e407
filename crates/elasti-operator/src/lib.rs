//! The control plane: makes the cluster follow the plan. Every decision is made in `elasti-core`.

pub mod activity;
mod apply;
mod autoscalers;
mod cluster;
pub mod environment;
mod error;
mod health;
mod held_counts;
pub mod leader;
mod memories;
pub mod metrics;
mod name;
mod observe;
mod operator;
mod permissions;
mod ports;
mod queue;
mod reconcile;
mod refresh;
mod render;
mod report;
mod savings;
mod scale_locks;
pub mod settings;
mod slim;
mod store;
mod targets;
mod term;
pub mod triggers;
pub mod wake;
mod watch;

pub use elasti_runtime::clock;
pub use held_counts::{HeldCounts, HeldUnavailable};
pub use metrics::Metrics;
pub use operator::{Running, StartError};
pub use settings::Settings;
