//! The health script for Argo CD that docs/gitops.md shows, in the Lua interpreter that Argo CD has.

use std::error::Error;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::checks::Outcome;
use crate::kubernetes::go_programs;
use crate::paths::{self, root};

const PAGE: &str = "docs/gitops.md";
const KEY: &str = "resource.customizations.health.elasti.truefoundry.com_ElastiService";

/// As a check of the project. The interpreter is built by Go.
pub(crate) fn check() -> Outcome {
    match go_programs::can_build() {
        true => Outcome::from_result(run()),
        false => Outcome::Skipped(
            "the health script was not run: Go is missing, which builds its interpreter".into(),
        ),
    }
}

/// An ElastiService, and what Argo CD should show.
struct Case {
    name: &'static str,
    object: Value,
    status: &'static str,
    message: &'static str,
}

fn run() -> Result<(), Box<dyn Error>> {
    let script = script(&fs::read_to_string(root().join(PAGE))?)?;
    let mut wrong = 0_usize;
    for case in cases() {
        let found = health(&script, &case.object)?;
        let expected = format!("{}: {}", case.status, case.message);
        if found != expected {
            println!("{}: {found:?}, expected {expected:?}", case.name);
            wrong += 1;
        }
    }
    match wrong {
        0 => Ok(()),
        _ => Err(format!("{wrong} of {} cases", cases().len()).into()),
    }
}

/// The script in the ConfigMap of the page.
fn script(page: &str) -> Result<String, Box<dyn Error>> {
    let blocks = page.split("```yaml\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| rest.split("```").next());
    let block = blocks.find(|block| block.contains(KEY));
    let block = block.ok_or_else(|| format!("{PAGE} has no {KEY}"))?;
    let object: Value = serde_saphyr::from_str(block)?;
    let script = object.pointer(&format!("/data/{KEY}"));
    let script = script.and_then(Value::as_str).ok_or("no script")?;
    Ok(script.to_owned())
}

/// What the script says of an object.
fn health(script: &str, object: &Value) -> Result<String, Box<dyn Error>> {
    let object = lua(object);
    let file = paths::target().join("health.lua");
    fs::write(
        &file,
        format!(
            "obj = {object}\nlocal function health()\n{script}\nend\n\
             local hs = health()\nprint(hs.status .. \": \" .. hs.message)\n"
        ),
    )?;
    let output = Command::new(go_programs::GLUA.path()?)
        .arg(&file)
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the script fails: {said}").into());
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// A value as Lua writes it.
fn lua(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        // The same escapes, as far as the cases need them.
        Value::String(_) => value.to_string(),
        Value::Array(items) => format!(
            "{{{}}}",
            items.iter().map(lua).collect::<Vec<_>>().join(", ")
        ),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| format!("[\"{key}\"] = {}", lua(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

fn cases() -> Vec<Case> {
    let object = |status: Value| json!({"metadata": {"generation": 2}, "status": status});
    let ready = |status: &str, message: &str| {
        json!([
            {"type": "Asleep", "status": "True", "message": "something else"},
            {"type": "Ready", "status": status, "message": message},
        ])
    };
    vec![
        Case {
            name: "new",
            object: json!({"metadata": {"generation": 1}}),
            status: "Progressing",
            message: "Elasti has not seen it yet",
        },
        Case {
            name: "changed",
            object: object(json!({"observedGeneration": 1, "conditions": ready("True", "fine")})),
            status: "Progressing",
            message: "Elasti has not seen the last change yet",
        },
        Case {
            name: "managed",
            object: object(json!({"observedGeneration": 2, "conditions": ready("True", "fine")})),
            status: "Healthy",
            message: "fine",
        },
        Case {
            name: "not manageable",
            object: object(
                json!({"observedGeneration": 2, "conditions": ready("False", "no Service")}),
            ),
            status: "Degraded",
            message: "no Service",
        },
        Case {
            name: "not known",
            object: object(
                json!({"observedGeneration": 2, "conditions": ready("Unknown", "who knows")}),
            ),
            status: "Progressing",
            message: "Elasti has not seen it yet",
        },
        Case {
            name: "failed to wake",
            object: object(json!({
                "observedGeneration": 2, "conditions": ready("True", "fine"),
                "failedWake": {"reason": "ImagePull", "message": "no such image"},
            })),
            status: "Degraded",
            message: "the last wake failed: no such image",
        },
        Case {
            name: "being deleted",
            object: json!({"metadata": {"generation": 2, "deletionTimestamp": "2026-01-31T00:00:00Z"}}),
            status: "Progressing",
            message: "being deleted: its target is woken first",
        },
    ]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::{PAGE, lua, script};
    use crate::paths::root;

    #[test]
    fn the_page_has_a_script() {
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        assert!(script(&page).unwrap().trim_end().ends_with("return hs"));
        assert!(script("no script").is_err());
    }

    #[test]
    fn values_are_written_as_lua_reads_them() {
        let value = json!({"a": [1, "two"], "b": true});
        assert_eq!(lua(&value), r#"{["a"] = {1, "two"}, ["b"] = true}"#);
    }
}
