//! The files that are made from code, as one table of path and content.

use std::error::Error;
use std::process::{Command, Stdio};

use serde_json::{Number, Value, json};

use crate::checks::cargo_command;
use crate::paths::{self, root};

const COMMANDS: &str = "docs/commands.md";

/// One file that is made from code.
struct Generated {
    /// Path from the root of the repository.
    path: &'static str,
    content: String,
}

/// Writes every generated file.
pub(crate) fn write_all() -> Result<(), Box<dyn Error>> {
    for file in files()? {
        let path = root().join(file.path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, file.content)?;
        println!("wrote {}", file.path);
    }
    write_commands()
}

/// The reference of all commands, which only the program itself knows; a test of its package compares it.
fn write_commands() -> Result<(), Box<dyn Error>> {
    let reference = output_of(
        "elasti",
        &["--bin", "elasti", "--example", "crd"],
        &["man", "--markdown"],
    )?;
    std::fs::write(root().join(COMMANDS), reference)?;
    println!("wrote {COMMANDS}");
    Ok(())
}

/// Builds targets of the workspace and gives what the program among them prints.
fn output_of(
    program: &str,
    targets: &[&str],
    arguments: &[&str],
) -> Result<Vec<u8>, Box<dyn Error>> {
    // The whole workspace with an example, which has the features of the tests: these use the same dependencies.
    let mut build = cargo_command();
    let built = build.args(["build", "--workspace"]).args(targets);
    if !built.status()?.success() {
        return Err(format!("{program} does not build").into());
    }
    let output = Command::new(paths::target().join("debug").join(program))
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("{program} ended with {}", output.status).into()),
    }
}

/// Fails with the names of generated files that differ from what the code makes.
pub(crate) fn check_all() -> Result<(), Box<dyn Error>> {
    let mut stale = Vec::new();
    for file in files()? {
        // A file that cannot be read is as stale as one that differs.
        let found = std::fs::read_to_string(root().join(file.path)).unwrap_or_default();
        if found != file.content {
            stale.push(file.path);
        }
    }
    if stale.is_empty() {
        return Ok(());
    }
    let names = stale.join(", ");
    Err(format!(
        "{names}: not what the code makes; run `cargo xtask generate` and commit the result"
    )
    .into())
}

/// The table: a new generated file is one more entry here.
fn files() -> Result<Vec<Generated>, Box<dyn Error>> {
    let crd: Value =
        serde_json::from_slice(&output_of("examples/crd", &["--example", "crd"], &[])?)?;
    Ok(vec![
        Generated {
            path: "deploy/helm/elasti/files/elastiservices.yaml",
            content: yaml(kept_on_uninstall(crd.clone())?)?,
        },
        Generated {
            path: "deploy/crd/elastiservices.yaml",
            content: yaml(crd)?,
        },
    ])
}

/// Helm leaves such an object when the release goes, and with the CRD every ElastiService.
fn kept_on_uninstall(mut crd: Value) -> Result<Value, Box<dyn Error>> {
    let metadata = crd.pointer_mut("/metadata").and_then(Value::as_object_mut);
    let metadata = metadata.ok_or("the CRD has no metadata")?;
    let annotations = json!({"helm.sh/resource-policy": "keep"});
    metadata.insert("annotations".into(), annotations);
    Ok(crd)
}

/// Sorted YAML with a first line that says where it comes from.
fn yaml(mut value: Value) -> Result<String, Box<dyn Error>> {
    write_whole_numbers_whole(&mut value);
    let body = serde_saphyr::to_string(&value)?;
    Ok(format!(
        "# Generated from crates/elasti-api by `cargo xtask generate`; do not edit.\n{body}"
    ))
}

/// Limits are floats in the CRD's types; `604800` reads better than `604800.0`.
fn write_whole_numbers_whole(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = whole(number) {
                *number = whole;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers_whole),
        Value::Object(map) => map.values_mut().for_each(write_whole_numbers_whole),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn whole(number: &Number) -> Option<Number> {
    let text = number.to_string();
    text.strip_suffix(".0")?
        .parse::<i64>()
        .ok()
        .map(Number::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::write_whole_numbers_whole;

    #[test]
    fn only_whole_numbers_lose_their_fraction() {
        let mut value = json!({"a": 604_800.0, "b": [0.5, 3], "c": "1.0"});
        write_whole_numbers_whole(&mut value);
        assert_eq!(value, json!({"a": 604_800, "b": [0.5, 3], "c": "1.0"}));
    }
}
