//! Tables over the planner: each proof and each refusal, fact by fact, and the known bugs of KubeElasti.
//! Every test is one set of facts and the plan that follows from it; scenarios simulate time.

pub mod facts;

mod blockers;
mod history;
mod many_resolvers;
mod phases;
mod predecessor;
mod proofs;
mod savings;
mod savings_calendar;
mod services;
mod statuses;
mod wakes;
