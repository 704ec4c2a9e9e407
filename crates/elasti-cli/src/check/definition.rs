//! The CRD: is it installed and served, and does it have the fields of this version?

use elasti_api::{ElastiService, names};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::CustomResourceExt as _;
use kube::{Api, Client};
use serde_json::Value;

use super::line::Line;

const CHECK: &str = "crd";
const INSTALL: &str = "elasti crd | kubectl apply --server-side -f -";

pub(crate) async fn check(client: &Client) -> Line {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = match definitions.get_opt(names::CRD).await {
        Ok(Some(found)) => found,
        Ok(None) => {
            return Line::fail(CHECK, "the CRD is not installed", INSTALL);
        }
        Err(error) => return Line::unseen(CHECK, "CustomResourceDefinitions", &error),
    };
    let value = |crd: &CustomResourceDefinition| serde_json::to_value(crd).unwrap_or_default();
    judge(&value(&found), &value(&ElastiService::crd()))
}

fn judge(found: &Value, ours: &Value) -> Line {
    let conditions = found
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let established = conditions.into_iter().flatten().any(|one| {
        one.get("type").and_then(Value::as_str) == Some("Established")
            && one.get("status").and_then(Value::as_str) == Some("True")
    });
    if !established {
        return Line::fail(
            CHECK,
            "the CRD is not established: the API server does not serve it",
            format!("kubectl describe crd {}", names::CRD),
        );
    }
    let Some(version) = served(found) else {
        return Line::fail(CHECK, "the CRD does not serve v1alpha1", INSTALL);
    };
    let missing: Vec<String> = served(ours)
        .map(|ours| {
            fields(ours)
                .into_iter()
                .filter(|one| !fields(version).contains(one))
                .collect()
        })
        .unwrap_or_default();
    if version.pointer("/subresources/status").is_none() {
        return Line::fail(CHECK, "the CRD has no status subresource", INSTALL);
    }
    match missing.as_slice() {
        [] => Line::ok(
            CHECK,
            "installed and served, with every field of this version",
        ),
        missing => Line::fail(
            CHECK,
            format!(
                "the CRD is older than this program: it drops {}",
                missing.join(", ")
            ),
            INSTALL,
        ),
    }
}

fn served(crd: &Value) -> Option<&Value> {
    let versions = crd.pointer("/spec/versions")?.as_array()?;
    versions.iter().find(|one| {
        one.get("name").and_then(Value::as_str) == Some("v1alpha1")
            && one.get("served") == Some(&Value::Bool(true))
    })
}

/// Every field of spec and status, as a path.
fn fields(version: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for part in ["spec", "status"] {
        let pointer = format!("/schema/openAPIV3Schema/properties/{part}");
        if let Some(schema) = version.pointer(&pointer) {
            below(schema, part, &mut found);
        }
    }
    found
}

fn below(schema: &Value, path: &str, found: &mut Vec<String>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        let path = format!("{path}.{name}");
        below(schema, &path, found);
        found.push(path);
    }
    if let Some(items) = schema.get("items") {
        below(items, path, found);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use elasti_api::ElastiService;
    use kube::core::CustomResourceExt as _;
    use serde_json::{Value, json};

    use super::judge;
    use crate::check::line::Verdict;

    fn ours() -> Value {
        let mut crd = serde_json::to_value(ElastiService::crd()).unwrap();
        crd["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        crd
    }

    #[test]
    fn a_crd_of_this_version_is_fine() {
        assert_eq!(judge(&ours(), &ours()).verdict, Verdict::Ok);
    }

    #[test]
    fn a_crd_without_newer_fields_is_named_with_them() {
        let mut old = ours();
        let spec =
            old.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties");
        spec.unwrap().as_object_mut().unwrap().remove("waitingPage");
        let line = judge(&old, &ours());
        assert_eq!(line.verdict, Verdict::Fail);
        assert!(
            line.message.ends_with("it drops spec.waitingPage"),
            "{}",
            line.message
        );
    }

    #[test]
    fn a_crd_that_is_not_served_fails() {
        let mut off = ours();
        off["spec"]["versions"][0]["served"] = json!(false);
        assert_eq!(judge(&off, &ours()).verdict, Verdict::Fail);
        assert_eq!(judge(&json!({}), &ours()).verdict, Verdict::Fail);
    }
}
