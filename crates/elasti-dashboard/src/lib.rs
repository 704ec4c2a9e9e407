//! `elasti dashboard`: the page that shows sleep, wake and savings live, served on this machine with the user's rights.
//! Never opens a port to others by itself, and never reads a Secret.

mod ask;
mod follow;
mod guard;
pub mod held;
mod known;
mod masked;
mod memory;
mod news;
mod page;
mod price;
mod routes;
mod server;
mod show;
mod yaml;

pub use price::Price;
pub use routes::Explain;
pub use server::{Running, Settings};
