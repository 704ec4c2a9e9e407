//! The control plane: makes the cluster follow the plan.
//! It never decides: every decision is made in `elasti-core`.

pub mod activity;
mod apply;
mod autoscalers;
pub mod clock;
pub mod environment;
mod fault;
mod health;
pub mod leader;
pub mod metrics;
mod name;
mod observe;
mod operator;
mod queue;
mod reconcile;
mod render;
mod report;
mod rights;
mod savings;
pub mod settings;
mod slim;
mod store;
mod targets;
pub mod triggers;
mod turns;
mod waiting;
pub mod wake;
mod watch;

pub use metrics::Metrics;
pub use operator::{NoStart, Running};
pub use settings::Settings;
pub use waiting::{Unheard, Waiting};
