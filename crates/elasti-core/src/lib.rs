//! The core: every decision, pure.
//! No I/O, clock, environment or random source here: the crate depends on `elasti-api` and Kubernetes' types only.

pub mod autoscaler;
pub mod backends;
mod contention;
pub mod coverage;
pub mod desire;
pub mod facts;
pub mod groups;
pub mod held;
pub mod idle;
pub mod labels;
pub mod laws;
pub mod observed;
pub mod phase;
pub mod plan;
pub mod ports;
pub mod probe_ahead;
pub mod probe_response;
pub mod promise;
pub mod quantity;
pub mod replicas;
pub mod resolver_choice;
pub mod savings;
pub mod schedule;
pub mod services;
pub mod sources;
pub mod stable_since;
pub mod status;
pub mod step;
mod user_requests;
pub mod waiting_room;
pub mod why;

pub use observed::Observed;
pub use plan::{Plan, WakeDecision, plan, wake};
pub use promise::Promise;
pub use step::Step;
pub use why::Why;
