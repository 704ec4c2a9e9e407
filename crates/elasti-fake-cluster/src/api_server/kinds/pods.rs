//! Pods and pod templates: defaults, validation, what may change.

use serde_json::{Value, json};

use crate::api_server::names;
use crate::api_server::object::Object as _;
use crate::api_server::status::Cause;

/// Defaults of a pod.
pub(crate) fn default(object: &mut Value) {
    object.put_default("/spec/enableServiceLinks", true);
    default_spec(object, "/spec");
    // Go writes these even when they are not set.
    for condition in object.list_mut("/status/conditions") {
        condition.put_default("/lastProbeTime", Value::Null);
        condition.put_default("/lastTransitionTime", Value::Null);
    }
}

/// What admission adds to a new pod.
pub(crate) fn admit(object: &mut Value) {
    let account = match object.text("/spec/serviceAccountName") {
        "" => "default".to_owned(),
        named => named.to_owned(),
    };
    object.put("/spec/serviceAccountName", account.clone());
    object.put("/spec/serviceAccount", account);
    object.put_default("/spec/priority", 0);
    object.put_default("/spec/preemptionPolicy", "PreemptLowerPriority");
    default_tolerations(object);
}

/// Defaults of a pod spec at `at` ("/spec" or "/spec/template/spec").
pub(crate) fn default_spec(object: &mut Value, at: &str) {
    object.put_default(&format!("{at}/restartPolicy"), "Always");
    object.put_default(&format!("{at}/terminationGracePeriodSeconds"), 30);
    object.put_default(&format!("{at}/dnsPolicy"), "ClusterFirst");
    object.put_default(&format!("{at}/securityContext"), json!({}));
    object.put_default(&format!("{at}/schedulerName"), "default-scheduler");
    for list in ["containers", "initContainers"] {
        object
            .list_mut(&format!("{at}/{list}"))
            .iter_mut()
            .for_each(default_container);
    }
    for volume in object.list_mut(&format!("{at}/volumes")) {
        for kind in ["configMap", "secret", "projected", "downwardAPI"] {
            if volume.get(kind).is_some() {
                volume.put_default(&format!("/{kind}/defaultMode"), 420);
            }
        }
        let named = volume.as_object().is_some_and(|fields| fields.len() > 1);
        if !named {
            volume.put("/emptyDir", json!({}));
        }
    }
}

fn default_tolerations(object: &mut Value) {
    let mut all = object.list("/spec/tolerations").to_vec();
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        if !all.iter().any(|one| one.text("/key") == key) {
            all.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
    object.put("/spec/tolerations", all);
}

fn default_container(container: &mut Value) {
    container.put_default("/resources", json!({}));
    container.put_default("/terminationMessagePath", "/dev/termination-log");
    container.put_default("/terminationMessagePolicy", "File");
    let image = container.text("/image");
    let tag = image
        .rsplit('/')
        .next()
        .and_then(|last| last.split_once([':', '@']))
        .map(|(_, tag)| tag);
    let policy = if tag.is_none_or(|tag| tag == "latest") {
        "Always"
    } else {
        "IfNotPresent"
    };
    container.put_default("/imagePullPolicy", policy);
    for port in container.list_mut("/ports") {
        port.put_default("/protocol", "TCP");
    }
    for variable in container.list_mut("/env") {
        if variable.pointer("/valueFrom/fieldRef").is_some() {
            variable.put_default("/valueFrom/fieldRef/apiVersion", "v1");
        }
    }
    for probe in ["/readinessProbe", "/livenessProbe", "/startupProbe"] {
        if container.at(probe).is_object() {
            default_probe(container, probe);
        }
    }
    let limits = container.strings("/resources/limits");
    for (name, value) in limits {
        container.put_default(&format!("/resources/requests/{name}"), value);
    }
}

fn default_probe(container: &mut Value, probe: &str) {
    for (field, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        container.put_default(&format!("{probe}/{field}"), value);
    }
    if container.at(&format!("{probe}/httpGet")).is_object() {
        container.put_default(&format!("{probe}/httpGet/path"), "/");
        container.put_default(&format!("{probe}/httpGet/scheme"), "HTTP");
    }
    if container.at(&format!("{probe}/grpc")).is_object() {
        container.put_default(&format!("{probe}/grpc/service"), "");
    }
}

/// Guaranteed, Burstable or BestEffort.
pub(crate) fn quality_of_service(object: &Value) -> &'static str {
    let containers = object.list("/spec/containers");
    let has = |container: &Value, part: &str| {
        !container.strings(&format!("/resources/{part}")).is_empty()
    };
    if !containers
        .iter()
        .any(|container| has(container, "requests") || has(container, "limits"))
    {
        return "BestEffort";
    }
    let equal = |container: &Value| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = container.at(&format!("/resources/limits/{name}"));
            !limit.is_null() && limit == container.at(&format!("/resources/requests/{name}"))
        })
    };
    if containers.iter().all(equal) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

pub(crate) fn validate(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    validate_spec(object.at("/spec"), "spec", causes);
    let Some(old) = old else { return };
    if frozen(object) != frozen(old) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        causes.push(Cause::forbidden("spec", why));
    }
}

/// The part of a pod's spec that never changes.
fn frozen(object: &Value) -> Value {
    let mut spec = object.at("/spec").clone();
    for gone in [
        "/activeDeadlineSeconds",
        "/tolerations",
        "/terminationGracePeriodSeconds",
    ] {
        spec.drop_at(gone);
    }
    for list in ["/containers", "/initContainers"] {
        for container in spec.list_mut(list) {
            container.drop_at("/image");
        }
    }
    spec
}

/// Validates a pod spec found at `path` in its object.
pub(crate) fn validate_spec(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    if spec.list("/containers").is_empty() {
        causes.push(Cause::required(format!("{path}.containers"), ""));
    }
    let mut seen: Vec<&str> = Vec::new();
    for list in ["initContainers", "containers"] {
        for (at, container) in spec.list(&format!("/{list}")).iter().enumerate() {
            validate_container(container, &format!("{path}.{list}[{at}]"), causes);
            let name = container.text("/name");
            if seen.contains(&name) && !name.is_empty() {
                causes.push(Cause::duplicate(
                    format!("{path}.{list}[{at}].name"),
                    &json!(name),
                ));
            }
            seen.push(name);
        }
    }
    if !matches!(
        spec.text("/restartPolicy"),
        "Always" | "OnFailure" | "Never"
    ) {
        causes.push(Cause::unsupported(
            format!("{path}.restartPolicy"),
            spec.at("/restartPolicy"),
            &["Always", "OnFailure", "Never"],
        ));
    }
}

fn validate_container(container: &Value, path: &str, causes: &mut Vec<Cause>) {
    let name = container.text("/name");
    if name.is_empty() {
        causes.push(Cause::required(format!("{path}.name"), ""));
    } else if let Some(why) = names::label(name) {
        causes.push(Cause::invalid(format!("{path}.name"), &json!(name), &why));
    }
    if container.text("/image").is_empty() {
        causes.push(Cause::required(format!("{path}.image"), ""));
    }
    for (at, port) in container.list("/ports").iter().enumerate() {
        let field = format!("{path}.ports[{at}].containerPort");
        match port.number("/containerPort") {
            None | Some(0) => causes.push(Cause::required(field, "")),
            Some(number) if !(1..=65535).contains(&number) => {
                causes.push(Cause::invalid(
                    field,
                    &json!(number),
                    "must be between 1 and 65535, inclusive",
                ));
            }
            Some(_) => {}
        }
    }
    for (at, variable) in container.list("/env").iter().enumerate() {
        if variable.text("/name").is_empty() {
            causes.push(Cause::required(format!("{path}.env[{at}].name"), ""));
        }
    }
}
