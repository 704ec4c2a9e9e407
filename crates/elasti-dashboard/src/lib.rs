//! The dashboard: a page that shows sleep, wakes and savings live, and its server.
//! Never reads a Secret.

mod broadcast;
mod guard;
pub mod held;
mod history;
mod masked;
mod page;
mod price;
mod routes;
mod server;
mod show;
mod state;
mod user_request;
mod watch;
mod yaml;

pub use price::Price;
pub use routes::Explain;
pub use server::{Running, Settings};
