//! The sockets of the resolver: the machine's, or those of a simulated network under the feature `simulation`.

#[cfg(not(feature = "simulation"))]
mod real;

#[cfg(feature = "simulation")]
pub(crate) use elasti_simulated_network::{
    TcpListener, TcpStream, clear_urgent, close_writing, listen, lookup_host, read,
};
#[cfg(not(feature = "simulation"))]
pub(crate) use real::{clear_urgent, close_writing, listen, read};
#[cfg(not(feature = "simulation"))]
pub(crate) use tokio::net::{TcpListener, TcpStream, lookup_host};
