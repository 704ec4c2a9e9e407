//! Operator and resolver: where they are, whether they are ready, who leads, and whether wake requests arrive.

use elasti_api::names;
use elasti_core::facts::PredecessorFacts;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, DeploymentSpec, DeploymentStatus};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Container, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::line::Line;

/// Where the chart is usually installed.
pub(crate) const USUAL_NAMESPACE: &str = "elasti";
const OPERATOR_LABEL: &str = "control-plane=controller-manager";
/// A lease that was not renewed for this many of its own durations has no holder.
const STALE_AFTER: i64 = 2;

/// What was found of an installation.
#[derive(Clone, Debug, Default)]
pub struct Installation {
    /// The operator's Deployment.
    pub operator: Option<Deployment>,
    /// The resolver's Deployment, or its DaemonSet as one.
    pub resolver: Option<Deployment>,
    /// The resolver runs on every node.
    pub resolver_is_daemon_set: bool,
    /// Addresses of resolvers that are ready.
    pub ready_resolvers: Vec<String>,
    /// Operators and resolvers of the predecessor that still run.
    pub predecessor: Vec<Deployment>,
}

/// Which of the two a Deployment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Operator,
    Resolver,
}

impl Part {
    fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Resolver => "resolver",
        }
    }
}

/// The first container: the chart has one a pod.
pub(crate) fn container(deployment: &Deployment) -> Option<&Container> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()
}

/// An environment variable of the container.
pub(crate) fn variable<'a>(deployment: &'a Deployment, name: &str) -> Option<&'a str> {
    let variables = container(deployment)?.env.as_ref()?;
    let found = variables.iter().find(|one| one.name == name)?;
    found.value.as_deref().filter(|value| !value.is_empty())
}

/// The value may come from a Secret: then it is set, but not known.
pub(super) fn has_variable(deployment: &Deployment, name: &str) -> bool {
    let variables = container(deployment).and_then(|one| one.env.as_ref());
    variables.into_iter().flatten().any(|one| {
        one.name == name
            && (one.value_from.is_some()
                || one.value.as_ref().is_some_and(|value| !value.is_empty()))
    })
}

pub(super) fn arguments(deployment: &Deployment) -> &[String] {
    let arguments = container(deployment).and_then(|one| one.args.as_deref());
    arguments.unwrap_or_default()
}

/// It is an operator, ours or KubeElasti's, and no resolver.
pub(super) fn is_operator(deployment: &Deployment) -> bool {
    let (key, value) = OPERATOR_LABEL.split_once('=').unwrap_or_default();
    deployment.labels().get(key).is_some_and(|one| one == value)
}

fn is_ours(deployment: &Deployment, part: Part) -> bool {
    arguments(deployment)
        .first()
        .is_some_and(|one| one == part.word())
}

/// Operators of many projects have the label of KubeElasti's; no other resolver has that of its resolver.
fn is_predecessor(deployment: &Deployment, part: Part) -> bool {
    let template = deployment.spec.as_ref().map(|spec| &spec.template);
    let pod = template.and_then(|template| template.spec.as_ref());
    let of_kube_elasti = match part {
        Part::Operator => pod.and_then(PredecessorFacts::from_spec).is_some(),
        Part::Resolver => true,
    };
    of_kube_elasti && !is_ours(deployment, part)
}

pub(crate) fn account(deployment: &Deployment) -> String {
    let pod = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    let account = pod.and_then(|pod| pod.service_account_name.clone());
    account.unwrap_or_else(|| "default".to_owned())
}

pub(crate) fn place(deployment: &Deployment) -> String {
    format!(
        "{}/{}",
        deployment.namespace().unwrap_or_default(),
        deployment.name_any()
    )
}

impl Installation {
    /// Finds both Deployments.
    pub async fn find(client: &Client, namespace: Option<&str>, lines: &mut Vec<Line>) -> Self {
        let mut found = Self::default();
        let resolver_label = format!("{}={}", names::RESOLVER_LABEL, names::RESOLVER_LABEL_VALUE);
        for (part, label) in [
            (Part::Operator, OPERATOR_LABEL),
            (Part::Resolver, &resolver_label),
        ] {
            let listed = match list::<Deployment>(client, namespace, label).await {
                Ok(listed) => listed,
                Err(error) => {
                    lines.push(Line::unseen(part.word(), "Deployments", &error));
                    continue;
                }
            };
            let (mut ours, others): (Vec<Deployment>, Vec<Deployment>) =
                listed.into_iter().partition(|one| is_ours(one, part));
            if part == Part::Resolver && ours.is_empty() {
                match list::<DaemonSet>(client, namespace, label).await {
                    Ok(listed) => {
                        found.resolver_is_daemon_set = !listed.is_empty();
                        ours.extend(listed.into_iter().map(as_deployment));
                    }
                    Err(error) => lines.push(Line::unseen(part.word(), "DaemonSets", &error)),
                }
            }
            let old = others.into_iter().filter(|one| is_predecessor(one, part));
            found.predecessor.extend(old);
            let first = choose(part, ours, lines);
            match part {
                Part::Operator => found.operator = first,
                Part::Resolver => found.resolver = first,
            }
        }
        found
    }

    /// Where it is installed.
    pub fn namespace(&self) -> String {
        let one = self.operator.as_ref().or(self.resolver.as_ref());
        one.and_then(Deployment::namespace)
            .unwrap_or_else(|| USUAL_NAMESPACE.to_owned())
    }

    /// The operator's image and how it is pulled.
    pub fn image(&self) -> Option<(String, Option<String>)> {
        let container = container(self.operator.as_ref()?)?;
        Some((
            container.image.clone()?,
            container.image_pull_policy.clone(),
        ))
    }

    /// The namespaces that it serves; empty means all.
    pub fn watched(&self) -> Vec<String> {
        let written = self
            .operator
            .as_ref()
            .and_then(|one| variable(one, "WATCH_NAMESPACES"));
        let names = written.unwrap_or_default().split(',').map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Whether triggers that name no server have one.
    pub fn has_default_prometheus(&self) -> bool {
        let operator = self.operator.as_ref();
        operator.is_some_and(|one| has_variable(one, "PROMETHEUS_TRIGGER_SERVER_ADDRESS"))
    }

    pub(crate) async fn check(&self, client: &Client, lines: &mut Vec<Line>) {
        let resolver_kind = match self.resolver_is_daemon_set {
            true => "daemonset",
            false => "deployment",
        };
        for (part, kind, deployment) in [
            (Part::Operator, "deployment", &self.operator),
            (Part::Resolver, resolver_kind, &self.resolver),
        ] {
            if let Some(deployment) = deployment {
                lines.push(readiness(part, kind, deployment));
            }
        }
        self.check_versions(lines);
        self.check_lease(client, lines).await;
        self.check_wake_path(client, lines).await;
    }

    fn check_versions(&self, lines: &mut Vec<Line>) {
        let (Some(operator), Some(resolver)) = (&self.operator, &self.resolver) else {
            return;
        };
        let image = |one: &Deployment| {
            container(one)
                .and_then(|one| one.image.clone())
                .unwrap_or_default()
        };
        let (one, other) = (image(operator), image(resolver));
        if one != other {
            lines.push(Line::warn(
                "versions",
                format!("operator ({one}) and resolver ({other}) run different images"),
                "upgrade the release, so that both have the same",
            ));
            return;
        }
        let label = "app.kubernetes.io/version";
        let installed = operator.labels().get(label).map(String::as_str);
        match installed {
            Some(version) if version != env!("CARGO_PKG_VERSION") => lines.push(Line::warn(
                "versions",
                format!(
                    "Elasti {version} is installed, this program is {}",
                    env!("CARGO_PKG_VERSION")
                ),
                "use the program of the installed version; fields and permissions may differ",
            )),
            _ => lines.push(Line::ok(
                "versions",
                format!("operator and resolver run {one}"),
            )),
        }
    }

    async fn check_lease(&self, client: &Client, lines: &mut Vec<Line>) {
        let Some(operator) = &self.operator else {
            return;
        };
        let elects = arguments(operator)
            .iter()
            .any(|one| one == "--leader-elect" || one == "--leader-elect=true");
        let replicas = operator
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1);
        if !elects {
            lines.push(match replicas {
                0 | 1 => Line::ok("lease", "one operator, without leader election"),
                _ => Line::fail(
                    "lease",
                    format!(
                        "{replicas} operators run without leader election: each acts as the leader"
                    ),
                    "add --leader-elect to elastiController.manager.args",
                ),
            });
            return;
        }
        let leases: Api<Lease> = Api::namespaced(client.clone(), &self.namespace());
        match leases.get_opt(names::LEASE).await {
            Ok(lease) => lines.push(leader(lease.as_ref(), Timestamp::now(), &self.namespace())),
            Err(error) => lines.push(Line::unseen("lease", "Leases", &error)),
        }
    }

    async fn check_wake_path(&self, client: &Client, lines: &mut Vec<Line>) {
        const CHECK: &str = "wake-path";
        let (Some(operator), Some(resolver)) = (&self.operator, &self.resolver) else {
            return;
        };
        let name = variable(resolver, "ELASTI_OPERATOR_SERVICE_NAME")
            .unwrap_or("elasti-operator-controller-service");
        let namespace = variable(resolver, "ELASTI_OPERATOR_NAMESPACE").unwrap_or(USUAL_NAMESPACE);
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        match services.get_opt(name).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                lines.push(Line::fail(
                    CHECK,
                    format!(
                        "resolvers send wake requests to Service {namespace}/{name}, which does not exist"
                    ),
                    "run helm upgrade, which creates it",
                ));
                return;
            }
            Err(error) => return lines.push(Line::unseen(CHECK, "Services", &error)),
        }
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
        let label = format!("{}={name}", names::SERVICE_NAME_LABEL);
        let ready = match slices.list(&ListParams::default().labels(&label)).await {
            Ok(slices) => slices.items.iter().flat_map(ready_addresses).count(),
            Err(error) => return lines.push(Line::unseen(CHECK, "EndpointSlices", &error)),
        };
        if ready == 0 {
            lines.push(Line::fail(
                CHECK,
                format!("Service {namespace}/{name} has no ready endpoint: wake requests fail"),
                format!("kubectl get pods -n {namespace} -l {OPERATOR_LABEL}"),
            ));
            return;
        }
        let anonymous = arguments(operator)
            .iter()
            .any(|one| one.starts_with("--allow-anonymous-wakes") && !one.ends_with("=false"));
        lines.push(match (anonymous, has_token(resolver)) {
            (false, false) => Line::fail(
                CHECK,
                "resolvers have no token for the operator, which refuses them",
                "mount a projected token with audience elasti-operator and set ELASTI_RESOLVER_TOKEN_FILE, as the chart does",
            ),
            (true, _) => Line::warn(
                CHECK,
                "the operator accepts wake requests from anyone in the cluster",
                "remove --allow-anonymous-wakes once no KubeElasti resolver is left",
            ),
            (false, true) => Line::ok(CHECK, format!("resolvers reach {ready} operator(s) through {namespace}/{name}")),
        });
    }

    /// Reads which resolvers are ready; `false` if they cannot be read.
    pub(crate) async fn read_resolvers(&mut self, client: &Client, lines: &mut Vec<Line>) -> bool {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace());
        let label = format!("{}={}", names::RESOLVER_LABEL, names::RESOLVER_LABEL_VALUE);
        match pods.list(&ListParams::default().labels(&label)).await {
            Ok(pods) => {
                self.ready_resolvers = pods
                    .items
                    .iter()
                    .filter(|pod| is_ready(pod))
                    .flat_map(addresses)
                    .collect();
                true
            }
            Err(error) => {
                lines.push(Line::unseen("slices", "Pods", &error));
                false
            }
        }
    }
}

fn choose(part: Part, mut ours: Vec<Deployment>, lines: &mut Vec<Line>) -> Option<Deployment> {
    if ours.is_empty() {
        lines.push(Line::fail(
            part.word(),
            format!("no Deployment of the {} found", part.word()),
            "install the chart; if it is installed elsewhere, name its namespace with -n",
        ));
        return None;
    }
    if ours.len() > 1 {
        let places: Vec<String> = ours.iter().map(place).collect();
        lines.push(Line::fail(
            part.word(),
            format!("{} installations: {}; they conflict", ours.len(), places.join(", ")),
            "keep one, or give each its own namespaces (global.allowedNamespaces) and check each with -n",
        ));
    }
    Some(ours.swap_remove(0))
}

/// A resolver on every node, as a Deployment of as many replicas as there are nodes for it.
fn as_deployment(set: DaemonSet) -> Deployment {
    let (spec, status) = (set.spec.unwrap_or_default(), set.status.unwrap_or_default());
    Deployment {
        metadata: set.metadata,
        spec: Some(DeploymentSpec {
            replicas: Some(status.desired_number_scheduled),
            selector: spec.selector,
            template: spec.template,
            ..DeploymentSpec::default()
        }),
        status: Some(DeploymentStatus {
            ready_replicas: Some(status.number_ready),
            ..DeploymentStatus::default()
        }),
    }
}

async fn list<K>(client: &Client, namespace: Option<&str>, label: &str) -> kube::Result<Vec<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let params = ListParams::default().labels(label);
    let within = |namespace: &str| -> Api<K> { Api::namespaced(client.clone(), namespace) };
    let listed = match namespace {
        Some(namespace) => within(namespace).list(&params).await,
        None => match Api::all(client.clone()).list(&params).await {
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                within(USUAL_NAMESPACE).list(&params).await
            }
            listed => listed,
        },
    };
    Ok(listed?.items)
}

fn readiness(part: Part, kind: &str, deployment: &Deployment) -> Line {
    let word = part.word();
    let wanted = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1);
    let ready = deployment
        .status
        .as_ref()
        .and_then(|status| status.ready_replicas)
        .unwrap_or(0);
    let place = place(deployment);
    let message = format!("{ready} of {wanted} ready in {place}");
    let (namespace, name) = (
        deployment.namespace().unwrap_or_default(),
        deployment.name_any(),
    );
    let look = format!(
        "kubectl describe {kind} {name} -n {namespace}; kubectl logs {kind}/{name} -n {namespace}"
    );
    match (ready, wanted) {
        (_, 0) => Line::fail(
            word,
            format!("{place} is scaled to 0"),
            format!("kubectl scale deployment {name} -n {namespace} --replicas=2"),
        ),
        (0, _) => Line::fail(word, message, look),
        (ready, wanted) if ready < wanted => Line::warn(word, message, look),
        (1, _) => Line::warn(
            word,
            format!(
                "{message}: while it restarts, nothing {}",
                match part {
                    Part::Operator => "sleeps or wakes",
                    Part::Resolver => "sleeps, and what sleeps is woken",
                }
            ),
            "run two, as the chart does",
        ),
        _ => Line::ok(word, message),
    }
}

fn leader(lease: Option<&Lease>, now: Timestamp, namespace: &str) -> Line {
    const CHECK: &str = "lease";
    let fix = format!("kubectl logs -n {namespace} -l {OPERATOR_LABEL} --tail=50");
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    let holder = spec
        .and_then(|spec| spec.holder_identity.as_deref())
        .filter(|holder| !holder.is_empty());
    let (Some(spec), Some(holder)) = (spec, holder) else {
        return Line::fail(
            CHECK,
            format!(
                "no leader: the Lease {namespace}/{} is free or missing",
                names::LEASE
            ),
            fix,
        );
    };
    let renewed = spec
        .renew_time
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let age = now.duration_since(renewed).as_secs();
    let stale = i64::from(spec.lease_duration_seconds.unwrap_or(15)).max(1) * STALE_AFTER;
    match age > stale {
        true => Line::fail(
            CHECK,
            format!("leader {holder} has not renewed its lease for {age} s: nothing sleeps"),
            fix,
        ),
        false => Line::ok(CHECK, format!("{holder} leads")),
    }
}

fn has_token(resolver: &Deployment) -> bool {
    let pod = resolver
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    let volumes = pod
        .and_then(|pod| pod.volumes.as_ref())
        .into_iter()
        .flatten();
    let mut sources = volumes
        .filter_map(|volume| volume.projected.as_ref()?.sources.as_ref())
        .flatten();
    let projected = sources.any(|source| {
        let token = source.service_account_token.as_ref();
        token.is_some_and(|token| token.audience.as_deref() == Some(names::WAKE_AUDIENCE))
    });
    projected && variable(resolver, "ELASTI_RESOLVER_TOKEN_FILE").is_some()
}

/// The addresses of a slice that are not marked unready.
pub(crate) fn ready_addresses(slice: &EndpointSlice) -> Vec<String> {
    let ready = slice.endpoints.iter().filter(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|conditions| conditions.ready) != Some(false)
    });
    ready
        .flat_map(|endpoint| endpoint.addresses.clone())
        .collect()
}

fn is_ready(pod: &Pod) -> bool {
    elasti_core::facts::is_ready(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Both families; the first is the one of `podIP`.
fn addresses(pod: &Pod) -> Vec<String> {
    let all = pod
        .status
        .as_ref()
        .and_then(|status| status.pod_ips.as_ref());
    all.into_iter()
        .flatten()
        .map(|one| one.ip.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use jiff::Timestamp;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::coordination::v1::Lease;
    use serde_json::json;

    use super::{Part, as_deployment, is_ours, is_predecessor, leader, readiness};
    use crate::check::line::Verdict;

    fn lease(holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({"spec": {
            "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15,
        }}))
        .unwrap()
    }

    #[test]
    fn only_a_leader_that_renews_its_lease_leads() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let verdict = |lease: Option<&Lease>| leader(lease, now, "elasti").verdict;
        assert_eq!(
            verdict(Some(&lease("a", "2026-01-01T00:00:55.000000Z"))),
            Verdict::Ok
        );
        assert_eq!(
            verdict(Some(&lease("a", "2026-01-01T00:00:20.000000Z"))),
            Verdict::Fail
        );
        assert_eq!(
            verdict(Some(&lease("", "2026-01-01T00:00:55.000000Z"))),
            Verdict::Fail
        );
        assert_eq!(verdict(None), Verdict::Fail);
    }

    #[test]
    fn a_resolver_on_every_node_counts_as_a_deployment_of_as_many() {
        let set = |ready: i32| {
            let container = json!({"name": "proxy", "args": ["resolver"]});
            let set = json!({
                "metadata": {"name": "elasti-resolver", "namespace": "elasti"},
                "spec": {"selector": {}, "template": {"spec": {"containers": [container]}}},
                "status": {"desiredNumberScheduled": 3, "currentNumberScheduled": 3, "numberMisscheduled": 0, "numberReady": ready},
            });
            as_deployment(serde_json::from_value(set).unwrap())
        };
        assert!(is_ours(&set(3), Part::Resolver));
        let line = |ready: i32| readiness(Part::Resolver, "daemonset", &set(ready));
        assert_eq!(line(3).verdict, Verdict::Ok);
        assert_eq!(line(2).verdict, Verdict::Warn);
        let fix = line(0).fix.unwrap_or_default();
        assert!(fix.contains("describe daemonset elasti-resolver"), "{fix}");
    }

    #[test]
    fn the_predecessor_is_told_apart_by_its_mark_and_its_arguments() {
        let deployment = |args: &[&str], variable: &str| -> Deployment {
            let container = json!({
                "name": "manager", "command": ["/manager"], "args": args,
                "image": "docker.elastic.co/eck/elasticsearch-operator:1",
                "env": [{"name": variable, "value": "x"}],
            });
            serde_json::from_value(json!({
                "metadata": {"name": "elasticsearch-operator-controller-manager"},
                "spec": {"selector": {}, "template": {"spec": {"containers": [container]}}},
            }))
            .unwrap()
        };
        let its = "ELASTI_OPERATOR_DEPLOYMENT_NAME";
        let ours = deployment(&["operator", "--leader-elect"], its);
        assert!(is_ours(&ours, Part::Operator) && !is_predecessor(&ours, Part::Operator));
        let old = deployment(&["--leader-elect"], its);
        assert!(!is_ours(&old, Part::Operator) && is_predecessor(&old, Part::Operator));
        let foreign = deployment(&["--leader-elect"], "OPERATOR_NAME");
        assert!(!is_predecessor(&foreign, Part::Operator), "elasticsearch");
    }
}
