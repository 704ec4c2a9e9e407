//! The files that are made from code, as one table of path and content.
//! It never merges with what is there: a file is written whole, or compared whole.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use elasti_api::ElastiService;
use kube::CustomResourceExt;
use serde_json::{Number, Value, json};

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

/// The reference of all commands, which only the program itself can tell; a test of its package compares it.
fn write_commands() -> Result<(), Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let told = Command::new(cargo)
        .args([
            "run",
            "--quiet",
            "--package",
            "elasti",
            "--",
            "man",
            "--markdown",
        ])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()?;
    if !told.status.success() {
        return Err("elasti man --markdown failed".into());
    }
    std::fs::write(root().join(COMMANDS), told.stdout)?;
    println!("wrote {COMMANDS}");
    Ok(())
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
    let crd = serde_json::to_value(ElastiService::crd())?;
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

/// The root of the repository: the folder above this package.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{check_all, write_whole_numbers_whole};

    #[test]
    fn generated_files_are_up_to_date() {
        check_all().unwrap();
    }

    #[test]
    fn only_whole_numbers_lose_their_fraction() {
        let mut value = json!({"a": 604_800.0, "b": [0.5, 3], "c": "1.0"});
        write_whole_numbers_whole(&mut value);
        assert_eq!(value, json!({"a": 604_800, "b": [0.5, 3], "c": "1.0"}));
    }
}
