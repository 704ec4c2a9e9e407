//! Golden scenarios: one service on a simulated timeline, the real planner, and a transcript of what a user would see.
//! Time is a number, so the same script always gives the same transcript.

mod operator;
mod script;
mod transcript;
mod world;

mod adoption;
mod autoscalers;
mod clock;
mod contention;
mod deletion;
mod doubt;
mod drain;
mod first_request;
mod obstacles;
mod quiet;
mod resolvers;
mod restart;
mod rivals;
mod target;
mod ticks;
mod unsupported;
mod user_requests;
mod why;
mod window;
