//! Prints the CustomResourceDefinition as JSON; `cargo xtask generate` makes the files of it.
#![allow(clippy::print_stdout)]

use elasti_api::ElastiService;
use kube::CustomResourceExt as _;

fn main() -> Result<(), serde_json::Error> {
    println!("{}", serde_json::to_string(&ElastiService::crd())?);
    Ok(())
}
