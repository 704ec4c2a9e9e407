//! The commands that people use, as processes on a simulated cluster: what they print, where, and with which exit code.

mod fixture;

mod agreement;
mod errors;
mod failing_wakes;
mod listing;
mod pausing;
mod reasons;
mod savings;
mod screens;
mod user_requests;
