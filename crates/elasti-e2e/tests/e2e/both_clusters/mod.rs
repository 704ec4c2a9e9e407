//! The tests that run on the simulated cluster and, with `cargo xtask e2e`, unchanged on a real one.

mod boundaries;
mod changes;
mod kinds;
mod life;
mod net;
mod predecessor;
mod protocols;
mod services;
mod wakes;
