//! Golden scenarios: one service's world on a timeline of real seconds, the real planner, and a transcript of what a user would see.
//! It never samples and never sleeps: time is a number, and the same script always tells the same story.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
#![allow(unreachable_pub, missing_docs)]

mod operator;
mod script;
mod words;
mod world;

mod autoscalers;
mod clock;
mod contention;
mod deletion;
mod doubt;
mod drain;
mod first_request;
mod obstacles;
mod quiet_day;
mod resolvers;
mod restart;
mod rivals;
mod target;
mod ticks;
mod unsupported;
mod user_requests;
mod why;
mod window;
