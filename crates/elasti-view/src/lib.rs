//! The read model of Elasti: what a person is shown of a service, why it is so, and how far a request for it is.
//! Pure: it is given objects and the time, and reads both by the core's readers and rules.

pub mod explanation;
pub mod held;
pub mod progress;
pub mod view;
