//! `elasti check --migration`: what stands against a move from KubeElasti, and after it what is left to move.

use elasti_api::{ElastiService, Mode, names};
use elasti_core::facts::SliceFacts;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use super::flags;
use super::fleet::{name, some};
use super::installation::{Installation, arguments, has_variable, is_operator, variable};
use super::line::Line;

const RELEASE_NAME: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE: &str = "meta.helm.sh/release-namespace";
const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";
/// Labels of KubeElasti's metrics that Elasti's do not have, because clients could add series without end.
const GONE_LABELS: [&str; 3] = ["requestURI", "sourceHost", "targetHost"];
/// A value of `extractionType` that no longer occurs.
const GONE_VALUE: &str = "cache-miss";
/// The framework of KubeElasti's operator, and of many others, has metrics with this prefix.
const GONE_METRICS: &str = "controller_runtime_";
/// What every expression about KubeElasti's metrics contains.
const METRICS: &str = "elasti_";
/// What every expression about KubeElasti contains.
const PROJECT: &str = "elasti";

/// A Helm release: namespace and name.
type Release = (String, String);

pub(super) async fn check(client: &Client, installation: &Installation, lines: &mut Vec<Line>) {
    let is_over = installation.operator.is_some();
    let old = &installation.predecessor;
    let release = { old.iter().chain(&installation.operator) }.find_map(release_of);
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    match definitions.get_opt(names::CRD).await {
        Ok(found) => lines.push(owner(found.as_ref(), release.as_ref(), is_over)),
        Err(error) => lines.push(Line::unseen("crd", "CustomResourceDefinitions", &error)),
    }
    if !is_over {
        lines.extend(old.iter().filter(|one| is_operator(one)).map(running));
        let operators = old.iter().filter(|one| is_operator(one));
        lines.extend(operators.map(|one| flags::check(arguments(one))));
        lines.extend(old.iter().flat_map(settings));
    }
    let services: Api<ElastiService> = Api::all(client.clone());
    match services.list(&ListParams::default()).await {
        Ok(services) => {
            lines.extend((!is_over).then(|| asleep(&services.items)));
            lines.extend(triggers(&services.items, old));
        }
        Err(error) => lines.push(Line::unseen("services", "ElastiServices", &error)),
    }
    if is_over {
        let slices: Api<EndpointSlice> = Api::all(client.clone());
        match slices.list(&ListParams::default()).await {
            Ok(slices) => lines.push(adopted(&slices.items)),
            Err(error) => lines.push(Line::unseen("adoption", "EndpointSlices", &error)),
        }
    }
    lines.extend(alerts(client).await);
}

fn release_of(deployment: &Deployment) -> Option<Release> {
    let name = deployment.labels().get(INSTANCE_LABEL)?;
    Some((deployment.namespace()?, name.clone()))
}

/// Helm installs the CRD only over one that belongs to the same release.
fn owner(
    found: Option<&CustomResourceDefinition>,
    release: Option<&Release>,
    is_over: bool,
) -> Line {
    const CHECK: &str = "crd";
    let Some(found) = found else {
        return Line::ok(CHECK, "not installed yet: the chart installs it");
    };
    let (namespace, name) = match release {
        Some((namespace, name)) => (namespace.as_str(), name.as_str()),
        None => ("elasti", "elasti"),
    };
    let annotation = |key: &str| found.annotations().get(key).map(String::as_str);
    let by_helm = found
        .labels()
        .get(names::MANAGED_BY_LABEL)
        .map(String::as_str)
        == Some("Helm");
    let owner = (annotation(RELEASE_NAMESPACE), annotation(RELEASE_NAME));
    let crd = names::CRD;
    let take = format!(
        "kubectl label crd {crd} {}=Helm --overwrite && kubectl annotate crd {crd} {RELEASE_NAME}={name} {RELEASE_NAMESPACE}={namespace} --overwrite",
        names::MANAGED_BY_LABEL
    );
    match owner {
        (Some(of), Some(release)) if by_helm && (of, release) == (namespace, name) => Line::ok(
            CHECK,
            format!("the Helm release {of}/{release} owns it: helm upgrade replaces it"),
        ),
        (Some(of), Some(release)) if by_helm => Line::warn(
            CHECK,
            format!("the Helm release {of}/{release} owns it: no other release can install it"),
            format!(
                "install with global.installCRD=false, or give it to {namespace}/{name}: {take}"
            ),
        ),
        _ if is_over => Line::ok(CHECK, "it belongs to no Helm release"),
        _ => Line::fail(
            CHECK,
            "it was applied by hand: Helm refuses to install over it",
            take,
        ),
    }
}

fn running(old: &Deployment) -> Line {
    let (namespace, name) = (old.namespace().unwrap_or_default(), old.name_any());
    let release = old
        .labels()
        .get(INSTANCE_LABEL)
        .map_or("elasti", String::as_str);
    Line::warn(
        "predecessor",
        format!(
            "KubeElasti runs as {namespace}/{name}; until its operator is gone Elasti changes nothing"
        ),
        format!(
            "helm upgrade {release} deploy/helm/elasti -n {namespace}; never helm uninstall it, which deletes the CRD and every ElastiService"
        ),
    )
}

/// What the resolver's header and time-out become.
fn settings(old: &Deployment) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(header) = variable(old, "HEADER_FOR_HOST") {
        lines.push(Line::ok(
            "headers",
            format!("{header} names the service only on port 8012; elsewhere the port does, whatever the Host"),
        ));
    }
    if let Some(text) = variable(old, "REQ_TIMEOUT") {
        lines.push(match text.parse::<u32>() {
            Ok(seconds) if seconds > 0 => Line::ok(
                "timeouts",
                format!("a request waits for a pod for at most {seconds} s, as before; spec.hold changes it for one service"),
            ),
            _ => Line::fail(
                "timeouts",
                format!("REQ_TIMEOUT is {text}, not a number of seconds: resolvers do not start"),
                "set elastiResolver.proxy.env.reqTimeout to a number of seconds",
            ),
        });
    }
    lines
}

fn asleep(services: &[ElastiService]) -> Line {
    let sleeps = |one: &&ElastiService| {
        let status = one.status.as_ref();
        status.and_then(|status| status.mode) == Some(Mode::Proxy)
    };
    let asleep = services.iter().filter(sleeps).count();
    let all = services.len();
    Line::ok(
        "services",
        format!(
            "{asleep} of {all} ElastiServices sleep: they keep sleeping, and the first request wakes them"
        ),
    )
}

/// Triggers that Elasti reads otherwise than KubeElasti did.
fn triggers(services: &[ElastiService], old: &[Deployment]) -> Vec<Line> {
    let mut wrong = Vec::new();
    let mut alone = Vec::new();
    let header = "PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER";
    let has_header = old.iter().any(|one| has_variable(one, header));
    let default = { old.iter() }
        .find_map(|one| variable(one, "PROMETHEUS_TRIGGER_SERVER_ADDRESS"))
        .map(str::to_owned);
    for service in services {
        for trigger in &service.spec.triggers {
            match trigger.prometheus() {
                Err(error) => wrong.push(format!("{} ({error})", name(service))),
                Ok(read) => {
                    let elsewhere = read.server_address.is_some() && read.server_address != default;
                    let names = read.headers.keys();
                    let own = names
                        .clone()
                        .any(|key| key.eq_ignore_ascii_case("authorization"));
                    if has_header && elsewhere && !own {
                        alone.push(name(service));
                    }
                }
            }
        }
    }
    alone.dedup();
    let mut lines = Vec::new();
    if !wrong.is_empty() {
        lines.push(Line::fail(
            "triggers",
            format!(
                "these triggers cannot be read, so their services never sleep: {}",
                some(&wrong)
            ),
            "elasti lint shows what to write",
        ));
    }
    if !alone.is_empty() {
        lines.push(Line::warn(
            "triggers",
            format!("the Authorization header of the operator is sent to its default Prometheus only, and these triggers name another: {}", some(&alone)),
            "write the header under headers in the trigger's metadata",
        ));
    }
    if lines.is_empty() {
        let message =
            "Elasti reads every trigger as KubeElasti did, with the same default of uptimeFilter";
        lines.push(Line::ok("triggers", message));
    }
    lines
}

fn adopted(slices: &[EndpointSlice]) -> Line {
    let left: Vec<String> = slices
        .iter()
        .filter(|slice| SliceFacts::from_object(slice).by_predecessor)
        .map(|slice| {
            format!(
                "{}/{}",
                slice.namespace().unwrap_or_default(),
                slice.name_any()
            )
        })
        .collect();
    match left.is_empty() {
        true => Line::ok(
            "adoption",
            "no EndpointSlice routes to a resolver of KubeElasti",
        ),
        false => Line::fail(
            "adoption",
            format!(
                "these EndpointSlices still route to resolvers of KubeElasti: {}",
                some(&left)
            ),
            "elasti why NAME -n NAMESPACE shows what keeps Elasti from adopting them",
        ),
    }
}

/// Alerts and recording rules that use what is gone of KubeElasti's metrics.
async fn alerts(client: &Client) -> Vec<Line> {
    const CHECK: &str = "alerts";
    let kind = GroupVersionKind::gvk("monitoring.coreos.com", "v1", "PrometheusRule");
    let resource = ApiResource::from_gvk_with_plural(&kind, "prometheusrules");
    let rules: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found = match rules.list(&ListParams::default()).await {
        Ok(found) => found.items,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return vec![Line::unseen(CHECK, "PrometheusRules", &error)],
    };
    let broken: Vec<String> = found
        .iter()
        .flat_map(|rule| {
            let place = format!(
                "{}/{}",
                rule.namespace().unwrap_or_default(),
                rule.name_any()
            );
            let uses = gone(&rule.data);
            uses.into_iter()
                .map(move |what| format!("{place} ({what})"))
        })
        .collect();
    vec![match broken.is_empty() {
        true => Line::ok(CHECK, "no PrometheusRule uses what is gone of the metrics"),
        false => Line::warn(
            CHECK,
            format!(
                "these PrometheusRules use metrics, labels or values that Elasti does not have: {}",
                some(&broken)
            ),
            "docs/metrics.md says what replaces them; look at dashboards too, which cannot be checked here",
        ),
    }]
}

/// Which labels, values and metrics that are gone the rules of a PrometheusRule use where they are about KubeElasti.
fn gone(rule: &Value) -> Vec<&str> {
    let groups = rule.pointer("/spec/groups").and_then(Value::as_array);
    let rules = groups
        .into_iter()
        .flatten()
        .filter_map(|group| group.get("rules")?.as_array());
    let mut found: Vec<&str> = rules
        .flatten()
        .filter_map(|rule| rule.get("expr")?.as_str())
        .flat_map(gone_in)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn gone_in(expression: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let (of_ours, of_project) = (expression.contains(METRICS), expression.contains(PROJECT));
    let is_gone = |word: &&str| {
        of_ours && GONE_LABELS.contains(word) || of_project && word.starts_with(GONE_METRICS)
    };
    let words = expression.split(|c: char| !is_name(c));
    let value = (of_ours && expression.contains(GONE_VALUE)).then_some(GONE_VALUE);
    words.filter(is_gone).chain(value).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::check::line::Verdict;

    fn crd(labels: &Value, annotations: &Value) -> CustomResourceDefinition {
        let metadata = json!({"name": names::CRD, "labels": labels, "annotations": annotations});
        let spec = json!({"group": names::GROUP, "names": {"kind": "K", "plural": "ks"}, "scope": "Namespaced", "versions": []});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn a_crd_that_was_applied_by_hand_is_given_to_the_release() {
        let release = ("tools".to_owned(), "scaler".to_owned());
        let by_hand = crd(&json!({}), &json!({}));
        let line = owner(Some(&by_hand), Some(&release), false);
        assert_eq!(line.verdict, Verdict::Fail);
        let fix = line.fix.unwrap();
        assert!(fix.contains("app.kubernetes.io/managed-by=Helm"), "{fix}");
        assert!(fix.contains("release-name=scaler"), "{fix}");
        assert!(fix.contains("release-namespace=tools"), "{fix}");
        assert_eq!(owner(Some(&by_hand), None, true).verdict, Verdict::Ok);
        assert_eq!(owner(None, None, false).verdict, Verdict::Ok);
    }

    #[test]
    fn a_crd_of_another_release_cannot_be_installed_again() {
        let labels = json!({"app.kubernetes.io/managed-by": "Helm"});
        let of = json!({RELEASE_NAME: "elasti", RELEASE_NAMESPACE: "elasti"});
        let owned = crd(&labels, &of);
        let verdict = |namespace: &str, name: &str| {
            let release = (namespace.to_owned(), name.to_owned());
            owner(Some(&owned), Some(&release), false).verdict
        };
        assert_eq!(verdict("elasti", "elasti"), Verdict::Ok);
        assert_eq!(verdict("elasti-next", "elasti-next"), Verdict::Warn);
    }

    #[test]
    fn only_expressions_about_our_metrics_are_looked_at() {
        let rule =
            |expr: &str| json!({"spec": {"groups": [{"rules": [{"alert": "A", "expr": expr}]}]}});
        let found = |expr: &str| -> Vec<String> {
            gone(&rule(expr)).into_iter().map(str::to_owned).collect()
        };
        let by =
            "sum by (requestURI, namespace) (rate(elasti_resolver_incoming_requests_count[5m]))";
        assert_eq!(found(by), ["requestURI"]);
        let matched = r#"elasti_resolver_incoming_requests_sum{targetHost=~"http.*"} > 1"#;
        assert_eq!(found(matched), ["targetHost"]);
        assert!(found(r#"elasti_operator_mode{crd_name="shop/web"} == 1"#).is_empty());
        assert!(found("sum by (requestURI) (http_requests_total)").is_empty());
        let missed =
            r#"rate(elasti_resolver_host_extraction_count{extractionType="cache-miss"}[5m]) > 1"#;
        assert_eq!(found(missed), ["cache-miss"]);
        let errors = r#"rate(controller_runtime_reconcile_errors_total{controller="elastiservice"}[5m]) > 0"#;
        assert_eq!(found(errors), ["controller_runtime_reconcile_errors_total"]);
        assert!(found(r#"controller_runtime_active_workers{job="other"} > 0"#).is_empty());
        assert!(gone(&json!({})).is_empty());
    }
}
