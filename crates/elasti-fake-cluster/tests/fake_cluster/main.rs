//! The simulated cluster, seen as its clients see it: the API over HTTP and in the process, controllers, nodes, faults.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value
)]

mod apply;
mod apps;
mod bad_requests;
mod crowd;
mod elasti_service;
mod faults;
mod fixture;
mod kube_proxy;
mod kube_rs;
mod kubectl;
mod proxy;
mod watch;
mod workloads;
