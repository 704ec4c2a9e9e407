//! The control plane: makes the cluster follow the plan.
//! It never decides: every decision is made in `elasti-core`.

pub mod activity;
mod apply;
mod autoscalers;
pub mod environment;
mod error;
mod health;
pub mod leader;
pub mod metrics;
mod name;
mod observe;
mod operator;
mod permissions;
mod queue;
mod reconcile;
mod render;
mod report;
mod savings;
mod scale_locks;
pub mod settings;
mod slim;
mod store;
mod targets;
pub mod triggers;
mod waiting;
pub mod wake;
mod watch;

pub use elasti_runtime::clock;
pub use metrics::Metrics;
pub use operator::{NoStart, Running};
pub use settings::Settings;
pub use waiting::{HeldUnavailable, Waiting};
