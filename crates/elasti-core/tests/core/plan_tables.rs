//! Tables over the planner: each proof and each refusal, fact by fact, and what users of the predecessor felt.
//! It never simulates time: every test is one set of facts and the plan that they give.

mod facts;

mod blockers;
mod phases;
mod predecessor;
mod proofs;
mod statuses;
mod wakes;
