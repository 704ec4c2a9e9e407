//! The chart as objects.

use std::error::Error;
use std::process::{Command, Output};

use serde_json::Value;

use crate::kubernetes::go_programs;
use crate::paths::root;

const CHART: &str = "deploy/helm/elasti";
pub(crate) const NAMESPACE: &str = "elasti";

/// What `helm template` makes of the chart and one file of values.
pub(crate) struct Rendering {
    pub(crate) name: &'static str,
    pub(crate) objects: Vec<Value>,
}

impl Rendering {
    pub(crate) fn from_chart(
        name: &'static str,
        values: Option<&str>,
    ) -> Result<Self, Box<dyn Error>> {
        let mut flags = Vec::new();
        if let Some(file) = values {
            flags.push(format!("--values={CHART}/tests/{file}"));
        }
        let output = template(&flags)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("helm template of {name}: {said}").into());
        }
        let objects = documents(&String::from_utf8(output.stdout)?)?;
        Ok(Self { name, objects })
    }

    /// The objects of a kind.
    pub(crate) fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects
            .iter()
            .filter(move |object| text(object, "/kind") == kind)
    }

    pub(crate) fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        self.of_kind(kind)
            .find(|object| text(object, "/metadata/name") == name)
    }
}

/// The objects of a text of several documents.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut objects = Vec::new();
    for document in text.split("\n---") {
        let object: Value = serde_saphyr::from_str(document)?;
        if !object.is_null() {
            objects.push(object);
        }
    }
    Ok(objects)
}

/// The text at a path, or nothing.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or("")
}

/// The items of the list at a path, or none.
pub(crate) fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    let list = object.pointer(path).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// Whether the chart refuses a setting.
pub(crate) fn refused(setting: &str) -> Result<bool, Box<dyn Error>> {
    let output = template(&[format!("--set={setting}")])?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(!output.status.success() && said.contains("values don't meet the specifications"))
}

fn template(flags: &[String]) -> Result<Output, Box<dyn Error>> {
    let helm = go_programs::HELM.path()?;
    let output = Command::new(helm)
        .current_dir(root())
        .args(["template", "elasti", CHART, "--namespace", NAMESPACE])
        .args(flags)
        .output()?;
    Ok(output)
}
