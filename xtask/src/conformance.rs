//! Runs the acceptance table against a real API server: `cargo xtask crd-conformance`.

use std::error::Error;
use std::path::Path;

use serde_json::Value;

use crate::control_plane::ControlPlane;
use crate::paths::root;
use crate::table::{Case, Outcome, cases};

const CRD: &str = "deploy/crd/elastiservices.yaml";

/// Starts etcd and an API server, installs the CRD, and compares every case.
pub(crate) fn run(apiserver: &Path, etcd: &Path) -> Result<(), Box<dyn Error>> {
    let plane = ControlPlane::start(apiserver, etcd, "crd-conformance")?;
    install_crd(&plane)?;
    let cases = cases()?;
    let mut wrong = 0_usize;
    for case in &cases {
        if let Err(said) = compare(&plane, case) {
            wrong += 1;
            println!("differs: {}\n{said}", case.name);
        }
    }
    let version = plane.kubectl(&["get", "--raw", "/version"], None)?;
    let version: Value = serde_json::from_str(&version)?;
    println!(
        "{} cases ({} of them accepted by KubeElasti too) against Kubernetes {}: {wrong} differ",
        cases.len(),
        cases.iter().filter(|case| case.predecessor).count(),
        version
            .get("gitVersion")
            .and_then(Value::as_str)
            .unwrap_or("?")
    );
    match wrong {
        0 => Ok(()),
        _ => Err("the real API server disagrees with the table; it is right".into()),
    }
}

fn install_crd(plane: &ControlPlane) -> Result<(), Box<dyn Error>> {
    let path = root().join(CRD);
    let said = plane.kubectl(&["create", "--filename", &path.to_string_lossy()], None)?;
    print!("{said}");
    let name = "crd/elastiservices.elasti.truefoundry.com";
    plane.kubectl(&["wait", "--for=condition=Established", name], None)?;
    let conditions = plane.kubectl(
        &["get", name, "--output=jsonpath={.status.conditions}"],
        None,
    )?;
    if conditions.contains("NonStructuralSchema") {
        return Err(format!("the schema is not structural: {conditions}").into());
    }
    Ok(())
}

/// Dry-runs one case; the error says what differs.
fn compare(plane: &ControlPlane, case: &Case) -> Result<(), String> {
    const FLAGS: [&str; 5] = [
        "--dry-run=server",
        "--validate=ignore",
        "--output=json",
        "--filename",
        "-",
    ];
    let dry_run = |verb| plane.kubectl(&[&[verb], FLAGS.as_slice()].concat(), Some(&case.new));
    let answer = match &case.old {
        None => dry_run("create"),
        Some(old) => {
            let stored = plane.kubectl(&["create", "--filename", "-"], Some(old));
            let answer = dry_run("replace");
            let gone = plane.kubectl(&["delete", "--filename", "-"], Some(old));
            stored.and(gone).and(answer)
        }
    };
    match (answer.map_err(|error| error.to_string()), &case.outcome) {
        (Ok(json), Outcome::Stored(wanted)) => {
            let stored: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
            match stored.get("spec") {
                Some(spec) if spec == wanted => Ok(()),
                other => Err(format!("stored {other:?}\nwanted {wanted}")),
            }
        }
        (Err(said), Outcome::Says(wanted)) if said.contains(wanted) => Ok(()),
        (Ok(_), Outcome::Says(wanted)) => Err(format!("accepted, wanted: {wanted}")),
        (Err(said), Outcome::Says(wanted)) => Err(format!("said: {said}\nwanted: {wanted}")),
        (Err(said), Outcome::Stored(_)) => Err(format!("refused: {said}")),
    }
}
