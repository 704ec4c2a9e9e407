//! The control plane: makes the cluster follow the plan.
//! It never decides: every decision is made in `elasti-core`.

pub mod activity;
pub mod clock;
pub mod environment;
pub mod leader;
pub mod settings;
mod tls;
pub mod triggers;
pub mod wake;
