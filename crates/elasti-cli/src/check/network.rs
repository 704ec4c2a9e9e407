//! NetworkPolicies that may block held requests.
//! Only hints: what a policy does is decided by the cluster's network, and not every network knows policies.

use std::collections::{BTreeMap, BTreeSet};

use elasti_api::names;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyIngressRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use super::fleet::Fleet;
use super::installation::{Installation, variable};
use super::line::Line;

const CHECK: &str = "network";
const LISTEN_PORTS: (i32, i32) = (10_000, 29_999);

pub(super) async fn check(
    client: &Client,
    installation: &Installation,
    fleet: &Fleet,
    lines: &mut Vec<Line>,
) {
    let home = installation.namespace();
    let mut namespaces: BTreeSet<String> = fleet
        .services
        .iter()
        .filter_map(kube::ResourceExt::namespace)
        .collect();
    namespaces.insert(home.clone());
    let mut hints = Vec::new();
    for namespace in namespaces {
        let policies: Api<NetworkPolicy> = Api::namespaced(client.clone(), &namespace);
        let policies = match policies.list(&ListParams::default()).await {
            Ok(policies) => policies.items,
            Err(error) => return lines.push(Line::unseen(CHECK, "NetworkPolicies", &error)),
        };
        match namespace == home {
            true => hints.extend(of_home(&policies, installation)),
            false => hints.extend(of_targets(&policies, &home)),
        }
    }
    match hints.is_empty() {
        true => lines.push(Line::ok(CHECK, "no blocking NetworkPolicy found")),
        false => lines.extend(hints),
    }
}

/// Held traffic comes to the resolvers from everywhere, on the listen ports.
fn of_home(policies: &[NetworkPolicy], installation: &Installation) -> Vec<Line> {
    let range = listen_ports(installation.operator.as_ref());
    let resolver = BTreeMap::from([(
        names::RESOLVER_LABEL.to_owned(),
        names::RESOLVER_LABEL_VALUE.to_owned(),
    )]);
    let labels = installation.resolver.as_ref().and_then(|one| {
        one.spec
            .as_ref()?
            .template
            .metadata
            .as_ref()?
            .labels
            .clone()
    });
    let labels = labels.unwrap_or(resolver);
    let selecting: Vec<&NetworkPolicy> = policies
        .iter()
        .filter(|one| closes_ingress(one) && selects(one, &labels))
        .collect();
    // Policies add up: one that lets it in is enough.
    if selecting.is_empty()
        || selecting
            .iter()
            .any(|one| rules(one).any(|rule| lets_in(rule, range)))
    {
        return Vec::new();
    }
    let named: Vec<String> = selecting.iter().map(|one| one.name_any()).collect();
    vec![Line::warn(
        CHECK,
        format!(
            "NetworkPolicy {} in {} blocks the ports on which resolvers accept traffic",
            named.join(", "),
            installation.namespace()
        ),
        format!(
            "allow TCP {} to {} from everywhere to pods with {}={}, or use the chart's networkPolicy.enabled",
            range.0,
            range.1,
            names::RESOLVER_LABEL,
            names::RESOLVER_LABEL_VALUE
        ),
    )]
}

/// Resolvers forward from their own namespace.
fn of_targets(policies: &[NetworkPolicy], home: &str) -> Vec<Line> {
    let closing: Vec<&NetworkPolicy> = policies.iter().filter(|one| closes_ingress(one)).collect();
    let opens = |rule: &NetworkPolicyIngressRule| {
        let from = rule.from.as_deref().unwrap_or_default();
        from.is_empty()
            || from.iter().any(|peer| {
                let Some(selector) = &peer.namespace_selector else {
                    return false;
                };
                let name =
                    BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), home.to_owned())]);
                matches(selector, &name)
            })
    };
    closing
        .iter()
        .filter(|one| !rules(one).any(opens))
        .map(|one| {
            let namespace = one.namespace().unwrap_or_default();
            Line::warn(
                CHECK,
                format!("NetworkPolicy {namespace}/{} may block resolvers from the pods: held requests are forwarded from namespace {home}", one.name_any()),
                format!("allow ingress from the namespace with kubernetes.io/metadata.name={home}, unless another policy does"),
            )
        })
        .collect()
}

fn listen_ports(operator: Option<&Deployment>) -> (i32, i32) {
    let written = operator.and_then(|one| variable(one, "ELASTI_OPERATOR_LISTEN_PORTS"));
    let range = written.and_then(|text| text.split_once('-'));
    let range =
        range.and_then(|(from, to)| Some((from.trim().parse().ok()?, to.trim().parse().ok()?)));
    range.unwrap_or(LISTEN_PORTS)
}

fn rules(policy: &NetworkPolicy) -> impl Iterator<Item = &NetworkPolicyIngressRule> {
    let rules = policy.spec.as_ref().and_then(|spec| spec.ingress.as_ref());
    rules.into_iter().flatten()
}

/// Left out, the types are Ingress, and Egress if there are such rules.
fn closes_ingress(policy: &NetworkPolicy) -> bool {
    let types = policy
        .spec
        .as_ref()
        .and_then(|spec| spec.policy_types.as_ref());
    types.is_none_or(|types| types.is_empty() || types.iter().any(|one| one == "Ingress"))
}

fn selects(policy: &NetworkPolicy, labels: &BTreeMap<String, String>) -> bool {
    let selector = policy
        .spec
        .as_ref()
        .and_then(|spec| spec.pod_selector.as_ref());
    selector.is_none_or(|selector| matches(selector, labels))
}

fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let exact = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    exact
        .clone()
        .all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|one| {
            let value = labels.get(&one.key);
            let listed =
                || value.is_some_and(|value| one.values.iter().flatten().any(|each| each == value));
            match one.operator.as_str() {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
}

/// From everywhere, and on all of these ports.
fn lets_in(rule: &NetworkPolicyIngressRule, (from, to): (i32, i32)) -> bool {
    if !rule.from.as_deref().unwrap_or_default().is_empty() {
        return false;
    }
    let ports = rule.ports.as_deref().unwrap_or_default();
    ports.is_empty()
        || ports.iter().any(|port| {
            let tcp = port
                .protocol
                .as_deref()
                .is_none_or(|protocol| protocol == "TCP");
            let covers = match (&port.port, port.end_port) {
                (None, _) => true,
                (Some(IntOrString::Int(first)), Some(last)) => *first <= from && last >= to,
                (Some(_), _) => false,
            };
            tcp && covers
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use k8s_openapi::api::networking::v1::NetworkPolicy;
    use serde_json::{Value, json};

    use super::{Installation, of_home, of_targets};

    fn policy(spec: &Value) -> NetworkPolicy {
        serde_json::from_value(
            json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": spec}),
        )
        .unwrap()
    }

    #[test]
    fn a_policy_that_closes_the_listen_ports_is_named_and_the_charts_own_is_not() {
        let closes = policy(
            &json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [
            {"ports": [{"port": 8012, "protocol": "TCP"}]}]}),
        );
        let opens = policy(
            &json!({"podSelector": {"matchLabels": {"app": "elasti-resolver"}}, "ingress": [
            {"ports": [{"port": 10000, "endPort": 29999, "protocol": "TCP"}]}]}),
        );
        let elsewhere = policy(&json!({"podSelector": {"matchLabels": {"app": "other"}}}));
        let installation = Installation::default();
        assert_eq!(
            of_home(std::slice::from_ref(&closes), &installation).len(),
            1
        );
        assert_eq!(of_home(&[closes, opens], &installation).len(), 0);
        assert_eq!(of_home(&[elsewhere], &installation).len(), 0);
    }

    #[test]
    fn a_policy_of_a_target_must_let_the_resolvers_in() {
        let closed =
            policy(&json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]}));
        let open = policy(&json!({"podSelector": {}, "ingress": [{"from": [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "elasti"}}}]}]}));
        let egress = policy(&json!({"podSelector": {}, "policyTypes": ["Egress"]}));
        assert_eq!(of_targets(&[closed], "elasti").len(), 1);
        assert_eq!(of_targets(&[open, egress], "elasti").len(), 0);
    }
}
