//! Runs the acceptance table and an upgrade of the CRD against a real API server: `cargo xtask crd-conformance`.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::kubernetes::process::wait_until;
use crate::paths::root;
use crate::table::{Case, Outcome, cases};

const CRD: &str = "deploy/crd/elastiservices.yaml";
const NAME: &str = "crd/elastiservices.elasti.truefoundry.com";
/// The first CRD, and what a cluster has stored under it.
const FIRST_CRD: &str = "crates/elasti-api/tests/api/upgrade/first-crd.yaml";
const FIRST_OBJECTS: &str = "crates/elasti-api/tests/api/upgrade/first-objects.yaml";

/// A server applies a schema within a second or two.
const SCHEMA_LIMIT: Duration = Duration::from_secs(60);

/// Starts etcd and an API server, upgrades the CRD, installs it anew, and compares every case.
pub(crate) fn run(apiserver: &Path, etcd: &Path) -> Result<(), Box<dyn Error>> {
    let plane = ControlPlane::start(apiserver, etcd, "crd-conformance")?;
    upgrade(&plane)?;
    install_crd(&plane, CRD)?;
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

/// What was stored under the first CRD is served as it was under today's, and can be written. Nothing of it stays.
fn upgrade(plane: &ControlPlane) -> Result<(), Box<dyn Error>> {
    let file = |path| root().join(path).to_string_lossy().into_owned();
    let (objects, crd) = (file(FIRST_OBJECTS), file(CRD));
    install_crd(plane, FIRST_CRD)?;
    plane.kubectl(&["create", "--filename", &objects], None)?;
    plane.kubectl(
        &["replace", "--subresource=status", "--filename", &objects],
        None,
    )?;
    let read = || -> Result<Value, Box<dyn Error>> {
        let get = ["get", "elastiservices", "--output=json"];
        Ok(serde_json::from_str(&plane.kubectl(&get, None)?)?)
    };
    let before = read()?;
    plane.kubectl(&["replace", "--filename", &crd], None)?;
    wait_for_todays_schema(plane)?;
    let after = read()?;
    if let Some(lost) = lost(&before, &after, "") {
        return Err(format!("the upgrade of the CRD loses or changes {lost}").into());
    }
    plane.kubectl(&["replace", "--filename", "-"], Some(&after))?;
    plane.kubectl(&["delete", NAME, "--timeout=60s"], None)?;
    println!("what the first CRD stored is kept, and can be written");
    Ok(())
}

/// The server takes a moment to apply a new schema. A field that the first one did not have is unknown until then.
fn wait_for_todays_schema(plane: &ControlPlane) -> Result<(), Box<dyn Error>> {
    let new = json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
        "metadata": {"name": "new"},
        "spec": {
            "service": "new", "unmanagedServices": "block",
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "new"},
        },
    });
    let strict = [
        "create",
        "--dry-run=server",
        "--validate=strict",
        "--filename",
        "-",
    ];
    match wait_until(SCHEMA_LIMIT, || plane.kubectl(&strict, Some(&new)).is_ok()) {
        true => Ok(()),
        false => Err(format!("today's schema is not applied after {SCHEMA_LIMIT:?}").into()),
    }
}

/// The first field that is not as it was; new ones do not count.
fn lost(before: &Value, after: &Value, path: &str) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before.iter().find_map(|(name, old)| {
            let path = format!("{path}.{name}");
            match after.get(name) {
                Some(new) => lost(old, new, &path),
                None => Some(path),
            }
        }),
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let pairs = before.iter().zip(after);
            { pairs }.find_map(|(old, new)| lost(old, new, path))
        }
        _ => (before != after).then(|| path.to_owned()),
    }
}

fn install_crd(plane: &ControlPlane, path: &str) -> Result<(), Box<dyn Error>> {
    let path = root().join(path);
    let said = plane.kubectl(&["create", "--filename", &path.to_string_lossy()], None)?;
    print!("{said}");
    plane.kubectl(&["wait", "--for=condition=Established", NAME], None)?;
    let conditions = plane.kubectl(
        &["get", NAME, "--output=jsonpath={.status.conditions}"],
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
