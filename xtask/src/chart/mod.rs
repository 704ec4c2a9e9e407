//! Renders the Helm chart in the ways that people install it, checks each rendering, and compares Kustomize's with it:
//! `cargo xtask chart`.

pub(crate) mod kustomize;
mod render;
mod rules;
mod server;

use std::error::Error;

use crate::checks::Outcome;
use crate::kubernetes::go_programs;
use render::{Rendering, refused};

pub(crate) const USAGE: &str =
    "  chart           render the Helm chart and check it; on a running cluster with a dry run too
";

/// Renderings: a name, and the file of values where there is one.
const RENDERINGS: [(&str, Option<&str>); 5] = [
    ("default", None),
    ("namespaced", Some("namespaced.yaml")),
    ("predecessor", Some("predecessor.yaml")),
    ("everything", Some("everything.yaml")),
    ("daemonset", Some("daemonset.yaml")),
];

/// Values that the chart must refuse.
const REFUSED: [&str; 9] = [
    "flowSchemas.enabled=sometimes",
    "dashboard.port=web",
    "elastiResolver.replicas=two",
    "elastiResolver.replicas=0",
    "elastiResolver.kind=StatefulSet",
    "global.allowedNamespaces={Not_A_Name}",
    "elastiController.manager.env.pollingInterval=soon",
    "elastiController.manager.env.prometheusTriggerServerAddress=prometheus",
    "listenPorts=all",
];

/// Checks the files and every rendering, and prints what is wrong with each.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    check_files()?;
    let mut wrong = 0_usize;
    for (name, values) in RENDERINGS {
        let rendering = Rendering::from_chart(name, values)?;
        let mut found = rules::broken(&rendering);
        if server::is_up() {
            found.extend(server::refused(&rendering)?);
        }
        println!("{name}: {} objects", rendering.objects.len());
        for one in &found {
            println!("  wrong: {one}");
        }
        wrong += found.len();
    }
    for setting in REFUSED {
        if !refused(setting)? {
            println!("accepted, but should be refused: {setting}");
            wrong += 1;
        }
    }
    for difference in kustomize::differences()? {
        println!("kustomize: {difference}");
        wrong += 1;
    }
    if wrong > 0 {
        return Err(format!("{wrong} things are wrong with the chart").into());
    }
    println!(
        "{}",
        match server::is_up() {
            true => "the API server accepts every object",
            false => "no cluster is up: no API server was asked",
        }
    );
    Ok(())
}

/// What needs no rendering: the dashboard and the alerts name only metrics that exist.
pub(crate) fn check_files() -> Result<(), Box<dyn Error>> {
    let unknown = rules::unknown_metrics()?;
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(format!("no such metrics: {unknown:?}").into()),
    }
}

/// As a check of the project. Helm is built by Go.
pub(crate) fn check() -> Outcome {
    match go_programs::can_build() {
        true => Outcome::from_result(run()),
        false => {
            Outcome::Skipped("the chart was not rendered: Go is missing, which builds Helm".into())
        }
    }
}
