//! Deployments, ReplicaSets, StatefulSets, DaemonSets and autoscalers: defaults and validation.

use serde_json::{Value, json};

use super::pods;
use crate::api_server::names;
use crate::api_server::object::Object as _;
use crate::api_server::selector::Selector;
use crate::api_server::status::Cause;

pub(crate) fn default(plural: &str, object: &mut Value) {
    pods::default_spec(object, "/spec/template/spec");
    for condition in object.list_mut("/status/conditions") {
        condition.put_default("/lastTransitionTime", Value::Null);
        if plural == "deployments" {
            condition.put_default("/lastUpdateTime", Value::Null);
        }
    }
    match plural {
        "deployments" => {
            object.put_default("/spec/replicas", 1);
            object.put_default("/spec/revisionHistoryLimit", 10);
            object.put_default("/spec/progressDeadlineSeconds", 600);
            object.put_default("/spec/strategy/type", "RollingUpdate");
            if object.text("/spec/strategy/type") == "RollingUpdate" {
                object.put_default("/spec/strategy/rollingUpdate/maxUnavailable", "25%");
                object.put_default("/spec/strategy/rollingUpdate/maxSurge", "25%");
            }
        }
        "replicasets" => {
            object.put_default("/spec/replicas", 1);
            default_labels(object);
        }
        "statefulsets" => {
            object.put_default("/spec/replicas", 1);
            object.put_default("/spec/revisionHistoryLimit", 10);
            object.put_default("/spec/podManagementPolicy", "OrderedReady");
            object.put_default("/spec/updateStrategy/type", "RollingUpdate");
            if object.text("/spec/updateStrategy/type") == "RollingUpdate" {
                object.put_default("/spec/updateStrategy/rollingUpdate/partition", 0);
            }
            object.put_default(
                "/spec/persistentVolumeClaimRetentionPolicy/whenDeleted",
                "Retain",
            );
            object.put_default(
                "/spec/persistentVolumeClaimRetentionPolicy/whenScaled",
                "Retain",
            );
            object.put_default("/spec/serviceName", "");
        }
        "daemonsets" => {
            object.put_default("/spec/revisionHistoryLimit", 10);
            object.put_default("/spec/updateStrategy/type", "RollingUpdate");
            if object.text("/spec/updateStrategy/type") == "RollingUpdate" {
                object.put_default("/spec/updateStrategy/rollingUpdate/maxUnavailable", 1);
                object.put_default("/spec/updateStrategy/rollingUpdate/maxSurge", 0);
            }
        }
        _ => {}
    }
}

/// A ReplicaSet without labels takes those of its template.
fn default_labels(object: &mut Value) {
    let labels = object.at("/spec/template/metadata/labels").clone();
    if labels.is_object() {
        object.put_default("/metadata/labels", labels);
    }
}

pub(crate) fn validate(plural: &str, object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let kind = match plural {
        "deployments" => "deployment",
        "replicasets" => "replicaset",
        "statefulsets" => "statefulset",
        _ => "daemonset",
    };
    if let Some(replicas) = object
        .number("/spec/replicas")
        .filter(|replicas| *replicas < 0)
    {
        causes.push(Cause::invalid(
            "spec.replicas",
            &json!(replicas),
            "must be greater than or equal to 0",
        ));
    }
    let selector = object.at("/spec/selector");
    if selector.is_null() {
        causes.push(Cause::required("spec.selector", ""));
    } else if Selector::from_spec(selector).is_everything() {
        causes.push(Cause::invalid(
            "spec.selector",
            selector,
            &format!("empty selector is invalid for {kind}"),
        ));
    }
    let template = object.at("/spec/template");
    let matches = !selector.is_null() && Selector::from_spec(selector).matches(template);
    if !matches {
        let labels = template.at("/metadata/labels");
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        ));
    }
    pods::validate_spec(template.at("/spec"), "spec.template.spec", causes);
    if template.text("/spec/restartPolicy") != "Always"
        && !template.text("/spec/restartPolicy").is_empty()
    {
        causes.push(Cause::unsupported(
            "spec.template.spec.restartPolicy",
            template.at("/spec/restartPolicy"),
            &["Always"],
        ));
    }
    if let Some(old) = old {
        validate_update(plural, object, old, causes);
    }
}

fn validate_update(plural: &str, object: &Value, old: &Value, causes: &mut Vec<Cause>) {
    if plural == "statefulsets" {
        let fixed = |object: &Value| {
            let mut spec = object.at("/spec").clone();
            for free in [
                "/replicas",
                "/ordinals",
                "/template",
                "/updateStrategy",
                "/revisionHistoryLimit",
                "/persistentVolumeClaimRetentionPolicy",
                "/minReadySeconds",
            ] {
                spec.drop_at(free);
            }
            spec
        };
        if fixed(object) != fixed(old) {
            let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
            causes.push(Cause::forbidden("spec", why));
        }
    } else if object.at("/spec/selector") != old.at("/spec/selector") {
        causes.push(Cause::invalid(
            "spec.selector",
            object.at("/spec/selector"),
            "field is immutable",
        ));
    }
}

pub(crate) fn default_autoscaler(object: &mut Value) {
    object.put_default("/spec/minReplicas", 1);
    if object.list("/spec/metrics").is_empty() {
        object.put("/spec/metrics", json!([{
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
        }]));
    }
}

pub(crate) fn validate_autoscaler(object: &Value, causes: &mut Vec<Cause>) {
    let (min, max) = (
        object.number("/spec/minReplicas").unwrap_or(1),
        object.number("/spec/maxReplicas").unwrap_or(0),
    );
    if min < 1 {
        causes.push(Cause::invalid(
            "spec.minReplicas",
            &json!(min),
            "must be greater than or equal to 1",
        ));
    }
    if max < 1 {
        causes.push(Cause::invalid(
            "spec.maxReplicas",
            &json!(max),
            "must be greater than 0",
        ));
    }
    if max < min {
        causes.push(Cause::invalid(
            "spec.maxReplicas",
            &json!(max),
            "must be greater than or equal to `minReplicas`",
        ));
    }
    for field in ["kind", "name"] {
        let text = object.text(&format!("/spec/scaleTargetRef/{field}"));
        let path = format!("spec.scaleTargetRef.{field}");
        if text.is_empty() {
            causes.push(Cause::required(path, ""));
        } else if let Some(why) = names::path_segment(text) {
            causes.push(Cause::invalid(path, &json!(text), &why));
        }
    }
}
