//! Renders the Helm chart in the ways that people install it, checks each rendering, and compares Kustomize's with it:
//! `cargo xtask chart`.
//! It never installs anything: on a running cluster it asks for a dry run only.

pub(crate) mod kustomize;
mod render;
mod rules;
mod server;

use std::error::Error;

use crate::checks::Ended;
use crate::kubernetes::go_programs;
use render::{Rendering, refused};

pub(crate) const USAGE: &str = "\
  chart           render the Helm chart and check it; on a running cluster with a dry run too
";

/// Renderings: a name, and the file of values where there is one.
const RENDERINGS: [(&str, Option<&str>); 4] = [
    ("default", None),
    ("namespaced", Some("namespaced.yaml")),
    ("predecessor", Some("predecessor.yaml")),
    ("everything", Some("everything.yaml")),
];

/// Values that the chart must refuse.
const REFUSED: [&str; 7] = [
    "dashboard.port=web",
    "elastiResolver.replicas=two",
    "elastiResolver.replicas=0",
    "global.allowedNamespaces={Not_A_Name}",
    "elastiController.manager.env.pollingInterval=soon",
    "elastiController.manager.env.prometheusTriggerServerAddress=prometheus",
    "listenPorts=all",
];

/// Checks every rendering and says what is wrong with each.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let mut wrong = 0_usize;
    for (name, values) in RENDERINGS {
        let rendering = Rendering::of(name, values)?;
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
    for name in rules::unknown_metrics()? {
        println!("no such metric: {name}");
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

/// As a check of the project. Helm is built by Go.
pub(crate) fn check(ci: bool) -> Ended {
    match (go_programs::HELM.path(), ci) {
        (Ok(_), _) => match run() {
            Ok(()) => Ended::Passed,
            Err(error) => Ended::Failed(error.to_string()),
        },
        (Err(error), true) => Ended::Failed(error.to_string()),
        (Err(error), false) => Ended::LeftOut(format!("the chart was NOT rendered: {error}")),
    }
}
