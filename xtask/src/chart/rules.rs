//! What must hold for every rendering of the chart.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::render::{NAMESPACE, Rendering, items, text};
use crate::paths::root;

/// The contract's objects.
const NAMES: [(&str, &str); 6] = [
    ("Deployment", "elasti-operator-controller-manager"),
    ("Service", "elasti-operator-controller-service"),
    (
        "Service",
        "elasti-operator-controller-manager-metrics-service",
    ),
    ("Service", "elasti-resolver-service"),
    ("ServiceAccount", "elasti-operator-controller-manager"),
    ("ServiceAccount", "elasti-resolver"),
];

const RESOLVER: &str = "elasti-resolver";

/// The contract's metrics of the operator.
const OPERATOR_METRICS: [&str; 8] = [
    "elasti_operator_reconcile",
    "elasti_operator_CRD_finalizer_counter",
    "elasti_operator_CRD_update_counter",
    "elasti_operator_mode",
    "elasti_operator_informer_count",
    "elasti_operator_informer_counter",
    "elasti_operator_informer_handler_counter",
    "elasti_operator_scale_counter",
];

/// Every broken rule, as a sentence.
pub(crate) fn broken(rendering: &Rendering) -> Vec<String> {
    let mut found = Vec::new();
    names(rendering, &mut found);
    labels(rendering, &mut found);
    restricted(rendering, &mut found);
    permissions(rendering, &mut found);
    grace(rendering, &mut found);
    tokens(rendering, &mut found);
    policies(rendering, &mut found);
    probes(rendering, &mut found);
    priorities(rendering, &mut found);
    match rendering.name {
        "default" => redundancy(rendering, &mut found),
        "namespaced" => namespaced(rendering, &mut found),
        "predecessor" => predecessor(rendering, &mut found),
        "daemonset" => on_every_node(rendering, &mut found),
        _ => {}
    }
    found
}

/// The resolver's Deployment, or its DaemonSet.
fn resolver(rendering: &Rendering) -> Option<&Value> {
    let find = |kind| rendering.find(kind, RESOLVER);
    find("Deployment").or_else(|| find("DaemonSet"))
}

fn names(rendering: &Rendering, found: &mut Vec<String>) {
    if resolver(rendering).is_none() {
        found.push(format!("{RESOLVER} is missing"));
    }
    for (kind, name) in NAMES {
        if rendering.find(kind, name).is_none() {
            found.push(format!("{kind} {name} is missing"));
        }
    }
    let crd = rendering.find("CustomResourceDefinition", crate::names::CRD);
    let keep = crd.map(|crd| text(crd, "/metadata/annotations/helm.sh~1resource-policy"));
    if keep != Some("keep") {
        found.push("the CRD is not there to stay".into());
    }
}

/// The namespaces that may scrape are those that networkPolicy.monitoringNamespaceSelector selects, and none by default: to
/// Kubernetes an empty selector of namespaces would be all of them.
fn policies(rendering: &Rendering, found: &mut Vec<String>) {
    let wanted = match rendering.name {
        "everything" => Some(json!({"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}})),
        _ => None,
    };
    for policy in rendering.of_kind("NetworkPolicy") {
        let rules = items(policy, "/spec/ingress").iter();
        let peers = rules.flat_map(|rule| items(rule, "/from"));
        let mut selectors = peers.filter_map(|peer| peer.get("namespaceSelector"));
        let wrong = match &wanted {
            Some(wanted) => selectors.next() != Some(wanted) || selectors.next().is_some(),
            None => selectors.next().is_some(),
        };
        if wrong {
            let name = text(policy, "/metadata/name");
            found.push(format!(
                "NetworkPolicy {name} admits other namespaces than the values say"
            ));
        }
    }
}

/// Other clients of a port must not be able to make probes fail, and one lost probe takes no resolver out of the slices.
fn probes(rendering: &Rendering, found: &mut Vec<String>) {
    let container = "/spec/template/spec/containers/0";
    for probe in ["livenessProbe", "readinessProbe"] {
        let port = format!("{container}/{probe}/httpGet/port");
        if resolver(rendering).map(|resolver| text(resolver, &port)) != Some("health") {
            found.push(format!("the resolver's {probe} has no port of its own"));
        }
        let threshold = format!("{container}/{probe}/failureThreshold");
        let threshold = resolver(rendering).and_then(|one| one.pointer(&threshold));
        if threshold.and_then(Value::as_u64) != Some(3) {
            found.push(format!(
                "the resolver's {probe} fails before the third time"
            ));
        }
    }
}

/// The writes of the operator, and nothing else, go before what other service accounts ask: only if that is wanted.
fn priorities(rendering: &Rendering, found: &mut Vec<String>) {
    let schemas: Vec<&Value> = rendering.of_kind("FlowSchema").collect();
    if schemas.is_empty() == (rendering.name == "everything") {
        found.push(format!("there are {} FlowSchemas", schemas.len()));
    }
    for schema in schemas {
        if text(schema, "/spec/priorityLevelConfiguration/name") != "workload-high" {
            found.push("the FlowSchema names a level that not every cluster has".into());
        }
        let precedence = schema.pointer("/spec/matchingPrecedence");
        let precedence = precedence.and_then(Value::as_u64).unwrap_or(0);
        if !(1000..9000).contains(&precedence) {
            found.push("the FlowSchema is before Kubernetes' own, or behind all others".into());
        }
        for rule in items(schema, "/spec/rules") {
            let subject = items(rule, "/subjects").iter();
            let mut account = subject.map(|one| text(one, "/serviceAccount/name"));
            if !account.all(|name| name == "elasti-operator-controller-manager") {
                found.push("the FlowSchema is not for the operator alone".into());
            }
            let resources = items(rule, "/resourceRules");
            let verbs = resources.iter().flat_map(|one| items(one, "/verbs"));
            let reads: Vec<&Value> = verbs
                .filter(|verb| ["list", "watch", "*"].iter().any(|one| *verb == one))
                .collect();
            let scales = resources.iter().flat_map(|one| items(one, "/resources"));
            let scales = scales.filter_map(Value::as_str);
            if !reads.is_empty() || scales.filter(|one| one.ends_with("/scale")).count() != 4 {
                found.push(format!("the FlowSchema has {reads:?}, or lacks a scale"));
            }
        }
    }
}

/// Each shows the other a token that only that one accepts.
fn tokens(rendering: &Rendering, found: &mut Vec<String>) {
    let wanted = [
        (
            "elasti-operator-controller-manager",
            crate::names::ACTIVITY_AUDIENCE,
        ),
        (RESOLVER, crate::names::WAKE_AUDIENCE),
    ];
    for (name, audience) in wanted {
        let path = "/spec/template/spec/volumes/0/projected/sources/0/serviceAccountToken/audience";
        let deployment = match name {
            RESOLVER => resolver(rendering),
            _ => rendering.find("Deployment", name),
        };
        if deployment.map(|deployment| text(deployment, path)) != Some(audience) {
            found.push(format!("the token of {name} is not for {audience}"));
        }
    }
}

fn labels(rendering: &Rendering, found: &mut Vec<String>) {
    for object in &rendering.objects {
        let kind = text(object, "/kind");
        let instance = text(object, "/metadata/labels/app.kubernetes.io~1instance");
        if instance != "elasti" && kind != "CustomResourceDefinition" {
            found.push(format!("{kind} has no label of the release"));
        }
    }
    let label = "/spec/template/metadata/labels/app";
    if resolver(rendering).map(|resolver| text(resolver, label)) != Some("elasti-resolver") {
        found.push("resolver pods lack their label".into());
    }
}

/// Pod Security "restricted".
fn restricted(rendering: &Rendering, found: &mut Vec<String>) {
    let kinds = ["Deployment", "DaemonSet", "Job"].into_iter();
    for deployment in kinds.flat_map(|kind| rendering.of_kind(kind)) {
        let name = text(deployment, "/metadata/name");
        let pod = "/spec/template/spec";
        let profile = text(
            deployment,
            &format!("{pod}/securityContext/seccompProfile/type"),
        );
        let non_root = deployment.pointer(&format!("{pod}/securityContext/runAsNonRoot"));
        if profile != "RuntimeDefault" || non_root != Some(&json!(true)) {
            found.push(format!(
                "{name}: the pod may be root or has no seccomp profile"
            ));
        }
        for container in items(deployment, &format!("{pod}/containers")) {
            let context = container.pointer("/securityContext");
            let context = context.unwrap_or(&Value::Null);
            let wanted = [
                ("/allowPrivilegeEscalation", json!(false)),
                ("/readOnlyRootFilesystem", json!(true)),
                ("/capabilities/drop", json!(["ALL"])),
            ];
            for (path, value) in wanted {
                if context.pointer(path) != Some(&value) {
                    found.push(format!("{name}: {path} is not {value}"));
                }
            }
        }
    }
}

/// No wildcard, no Secret, no exec; the resolver looks and asks whose token it was shown.
fn permissions(rendering: &Rendering, found: &mut Vec<String>) {
    let roles = rendering
        .of_kind("ClusterRole")
        .chain(rendering.of_kind("Role"));
    for role in roles {
        let name = text(role, "/metadata/name");
        for rule in items(role, "/rules") {
            let words = |path| items(rule, path).iter().filter_map(Value::as_str);
            let all: Vec<&str> = ["/apiGroups", "/resources", "/verbs"]
                .into_iter()
                .flat_map(words)
                .collect();
            for forbidden in [
                "*",
                "secrets",
                "pods/exec",
                "impersonate",
                "escalate",
                "bind",
            ] {
                if all.contains(&forbidden) {
                    found.push(format!("{name} has {forbidden}"));
                }
            }
            let only_looks = words("/verbs").all(|verb| ["get", "list", "watch"].contains(&verb));
            let asks = words("/resources").eq(["tokenreviews"]);
            if name == "elasti-resolver" && !only_looks && !asks {
                found.push(format!("the resolver may do more than look: {rule}"));
            }
        }
    }
}

/// What is held is held to its end, also if it came in the two minutes in which a resolver drains.
fn grace(rendering: &Rendering, found: &mut Vec<String>) {
    let Some(resolver) = resolver(rendering) else {
        return;
    };
    let seconds = resolver.pointer("/spec/template/spec/terminationGracePeriodSeconds");
    let hold: u64 = variable(resolver, "REQ_TIMEOUT")
        .parse()
        .unwrap_or(u64::MAX);
    if seconds.and_then(Value::as_u64).unwrap_or(0) < hold.saturating_add(120) {
        found.push("resolver pods may be killed before the longest hold ends".into());
    }
}

fn redundancy(rendering: &Rendering, found: &mut Vec<String>) {
    for deployment in rendering.of_kind("Deployment") {
        let name = text(deployment, "/metadata/name");
        if deployment.pointer("/spec/replicas") != Some(&json!(2)) {
            found.push(format!("{name} has not two replicas"));
        }
        if rendering.find("PodDisruptionBudget", name).is_none() {
            found.push(format!("{name} has no PodDisruptionBudget"));
        }
        if items(deployment, "/spec/template/spec/topologySpreadConstraints").is_empty() {
            found.push(format!("{name} is not spread"));
        }
    }
}

/// A DaemonSet that runs everywhere, without what only a Deployment can have.
fn on_every_node(rendering: &Rendering, found: &mut Vec<String>) {
    if rendering.find("DaemonSet", RESOLVER).is_none() {
        found.push("there is no DaemonSet".into());
    }
    for kind in [
        "Deployment",
        "HorizontalPodAutoscaler",
        "PodDisruptionBudget",
    ] {
        if rendering.find(kind, RESOLVER).is_some() {
            found.push(format!("there is a {kind} beside the DaemonSet"));
        }
    }
    let tolerations = resolver(rendering).map(|one| items(one, "/spec/template/spec/tolerations"));
    if tolerations != Some(&[json!({"operator": "Exists"})]) {
        found.push("a taint keeps the resolver from a node".into());
    }
}

fn namespaced(rendering: &Rendering, found: &mut Vec<String>) {
    for kind in ["ClusterRole", "ClusterRoleBinding", "FlowSchema"] {
        if rendering.of_kind(kind).next().is_some() {
            found.push(format!("there is a {kind}"));
        }
    }
    let wanted: BTreeSet<&str> = ["team-a", "team-b", NAMESPACE].into();
    for kind in ["Role", "RoleBinding"] {
        let roles = rendering.of_kind(kind);
        let namespaces: BTreeSet<&str> = roles
            .map(|role| text(role, "/metadata/namespace"))
            .collect();
        if namespaces != wanted {
            found.push(format!("{kind}s are in {namespaces:?}"));
        }
    }
    for deployment in rendering.of_kind("Deployment") {
        if variable(deployment, "WATCH_NAMESPACES") != "team-a,team-b" {
            found.push("a process does not get its namespaces".into());
        }
        let path = "/spec/template/spec/volumes/0/projected/sources/0/serviceAccountToken/expirationSeconds";
        if deployment.pointer(path) != Some(&json!(600)) {
            found.push("a token that cannot be revoked is valid for too long".into());
        }
    }
    // Without a cluster role no account may have them, and a rule that grants nothing misleads.
    for role in rendering.of_kind("Role") {
        for rule in items(role, "/rules") {
            if items(rule, "/resources").contains(&json!("tokenreviews")) {
                found.push("a Role speaks of TokenReviews, which are the cluster's".into());
            }
        }
    }
}

/// A values file of KubeElasti's means what it meant, but for the program that runs.
fn predecessor(rendering: &Rendering, found: &mut Vec<String>) {
    for deployment in rendering.of_kind("Deployment") {
        let image = text(deployment, "/spec/template/spec/containers/0/image");
        if image.contains("elasti-operator") || image.contains("elasti-resolver") {
            found.push(format!("{image} is KubeElasti's"));
        }
    }
    let wanted = [
        (
            "elasti-operator-controller-manager",
            "POLLING_INTERVAL",
            "30s",
        ),
        (
            "elasti-operator-controller-manager",
            "PROMETHEUS_TRIGGER_SERVER_ADDRESS",
            "http://prometheus.monitoring.svc:9090",
        ),
        (
            "elasti-operator-controller-manager",
            "PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER",
            "Basic dXNlcjpwYXNz",
        ),
        (
            "elasti-operator-controller-manager",
            "SENTRY_ENVIRONMENT",
            "production",
        ),
        ("elasti-resolver", "QUEUE_SIZE", "50000"),
        ("elasti-resolver", "ENABLE_H2C", "true"),
        (
            "elasti-resolver",
            "HEADER_FOR_HOST",
            "X-Envoy-Decorator-Operation",
        ),
        ("elasti-resolver", "CRD_CACHE_POLL_INTERVAL_MINUTES", "5"),
    ];
    for (deployment, name, value) in wanted {
        let said = rendering
            .find("Deployment", deployment)
            .map_or("", |deployment| variable(deployment, name));
        if said != value {
            found.push(format!("{deployment}: {name} is {said:?}"));
        }
    }
    for deployment in rendering.of_kind("Deployment") {
        let env = items(deployment, "/spec/template/spec/containers/0/env");
        let dsn = env.iter().find(|one| text(one, "/name") == "SENTRY_DSN");
        let secret = dsn.map_or("", |dsn| text(dsn, "/valueFrom/secretKeyRef/name"));
        if secret != "elasti-secret" || variable(deployment, "SENTRY_ENVIRONMENT") != "production" {
            found.push("Sentry is on, and a process is not told".into());
        }
    }
    let monitors = rendering.of_kind("ServiceMonitor").count();
    if monitors != 2 || rendering.of_kind("HorizontalPodAutoscaler").count() != 1 {
        found.push("monitors or the autoscaler are missing".into());
    }
}

/// An environment variable of a Deployment's only container.
fn variable<'a>(deployment: &'a Value, name: &str) -> &'a str {
    items(deployment, "/spec/template/spec/containers/0/env")
        .iter()
        .find(|variable| text(variable, "/name") == name)
        .map_or("", |variable| text(variable, "/value"))
}

/// Metrics that the dashboard or an alert asks for and no process gives.
pub(crate) fn unknown_metrics() -> Result<BTreeSet<String>, Box<dyn Error>> {
    let mut known: BTreeSet<String> = OPERATOR_METRICS.iter().map(ToString::to_string).collect();
    for file in [
        "elasti-api/src/names.rs",
        "elasti-operator/src/metrics.rs",
        "elasti-operator/src/metrics/kept.rs",
        "elasti-operator/src/savings.rs",
        "elasti-resolver/src/metrics.rs",
    ] {
        known.extend(metrics_in(&root().join("crates").join(file))?);
    }
    let mut unknown = BTreeSet::new();
    for file in ["dashboard.json", "alerts.yaml"] {
        for name in metrics_in(&root().join("deploy/helm/elasti/files").join(file))? {
            // A histogram has these three.
            let base = ["_bucket", "_count", "_sum"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix))
                .unwrap_or(&name);
            if !known.contains(&name) && !known.contains(base) {
                unknown.insert(name);
            }
        }
    }
    Ok(unknown)
}

fn metrics_in(path: &Path) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let text = fs::read_to_string(path)?;
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours =
        |word: &&str| word.starts_with("elasti_resolver_") || word.starts_with("elasti_operator_");
    Ok(words.filter(ours).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_admits_namespaces_which_no_value_selects_is_found() {
        let all = json!({});
        let monitoring = json!({"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}});
        let broken = |name, selector: Option<&Value>| {
            let ours = json!({"podSelector": {"matchLabels": {"app": "elasti"}}});
            let selected = selector.map(|one| json!({"namespaceSelector": one}));
            let from: Vec<Value> = [ours].into_iter().chain(selected).collect();
            let policy = json!({
                "kind": "NetworkPolicy", "metadata": {"name": "elasti-resolver"},
                "spec": {"ingress": [{"ports": [{"port": "proxy"}]}, {"from": from}]},
            });
            let objects = vec![policy];
            let mut found = Vec::new();
            policies(&Rendering { name, objects }, &mut found);
            !found.is_empty()
        };
        assert!(!broken("daemonset", None), "an empty value admits none");
        assert!(broken("daemonset", Some(&all)));
        assert!(broken("daemonset", Some(&monitoring)));
        assert!(!broken("everything", Some(&monitoring)));
        assert!(broken("everything", None));
        assert!(broken("everything", Some(&all)));
    }
}
