//! The kubeconfig's cluster: a namespace of its own with sleeping services, and clients in pods.
//! Never touches anything outside of that namespace.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use elasti_api::names::HELD_METRIC;
use elasti_api::{ElastiService, names};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::backend::{Backend, First, Service};
use super::objects::{self, PORT, call, cluster_address, names_of};
use super::request_log::RequestLog;
use super::timeline::{APP_LABEL, Timeline};
use super::visitors::{VISITOR, VisitorConfig, Visitors};
use elasti_cli::check::installation::Installation;
use elasti_cli::refusal::{Call, Refusal};
use elasti_runtime::exit::Failed;

/// Longer than it takes to show that traffic goes straight to the pods: the trigger knows of none of it.
const COOLDOWN_SECONDS: u32 = 10;
/// go-httpbin answers here with the header fields that it was sent; the sample app does so everywhere.
const PATH: &str = "/headers";
/// Where resolvers show their metrics.
const ADMIN_PORT: u16 = 8013;
/// Between two questions to the resolvers.
const HELD_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The operator finalizes a service within seconds; pods have a minute to terminate.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(180);

const INSTALL: &str = "Install it first: helm install elasti deploy/helm/elasti --namespace elasti --create-namespace (see README.md for the image).";

/// The installation of Elasti.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// Kubernetes' version.
    pub(crate) version: String,
    /// The installation's namespace.
    pub(crate) namespace: String,
    image: String,
    pull_policy: Option<String>,
    /// The Prometheus that was named; else the operator has its own.
    prometheus: Option<String>,
}

impl Host {
    /// Checks whether the demo can run there; writes nothing.
    pub(crate) async fn find(client: &Client, prometheus: Option<String>) -> Result<Self, Failed> {
        let asked = Call::services("list", None, None);
        let version = client.apiserver_version().await;
        let version = version.map_err(|error| refused(&asked.refused(&error)))?;
        let services: Api<ElastiService> = Api::all(client.clone());
        let one = services.list(&ListParams::default().limit(1)).await;
        one.map_err(|error| refused(&asked.refused(&error)))?;
        let mut lines = Vec::new();
        let found = Installation::find(client, None, &mut lines).await;
        let (Some(operator), Some(resolver)) = (&found.operator, &found.resolver) else {
            let what = lines.into_iter().next().map(|line| line.message);
            return Err(failed(format!("{}. {INSTALL}", what.unwrap_or_default())));
        };
        for part in [operator, resolver] {
            if ready_replicas(part) == 0 {
                let name = part.name_any();
                return Err(failed(format!(
                    "no pod of {name} is ready; see: elasti check"
                )));
            }
        }
        let served = found.watched();
        if !served.is_empty() {
            return Err(failed(format!(
                "this Elasti watches only these namespaces: {}; the demo needs one of its own",
                served.join(", ")
            )));
        }
        if prometheus.is_none() && !found.has_default_prometheus() {
            return Err(Failed::Usage(
                "the operator has no Prometheus of its own: name one with --prometheus URL".into(),
            ));
        }
        let (image, pull_policy) = found.image().context("the operator has no image")?;
        let host = Self {
            version: version.git_version,
            namespace: found.namespace(),
            image,
            pull_policy,
            prometheus,
        };
        // A missing permission must show now, not while a request is held.
        host.held_in(client, "none")
            .await
            .map_err(|r| refused(&r))?;
        Ok(host)
    }

    /// The requests that resolvers hold for services of a namespace.
    async fn held_in(&self, client: &Client, namespace: &str) -> Result<usize, Refusal> {
        let home = Some(self.namespace.as_str());
        let asked = |resource| Call {
            verb: if resource == "pods" { "list" } else { "get" },
            group: "",
            resource,
            namespace: home,
            name: None,
        };
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let label = format!("{}={}", names::RESOLVER_LABEL, names::RESOLVER_LABEL_VALUE);
        let resolvers = pods.list(&ListParams::default().labels(&label)).await;
        let resolvers = resolvers.map_err(|error| asked("pods").refused(&error))?;
        let wanted = format!("{HELD_METRIC}{{namespace=\"{namespace}\",");
        let mut held = 0;
        for resolver in &resolvers.items {
            let uri = format!(
                "/api/v1/namespaces/{}/pods/{}:{ADMIN_PORT}/proxy/metrics",
                self.namespace,
                resolver.name_any()
            );
            let request = http::Request::get(uri).body(Vec::new());
            let request = request.map_err(|error| Refusal::Other(error.to_string()))?;
            match client.request_text(request).await {
                Ok(metrics) => held += queued(&metrics, &wanted),
                Err(kube::Error::Api(status)) if status.is_forbidden() => {
                    let error = kube::Error::Api(status);
                    return Err(asked("pods/proxy").refused(&error));
                }
                // One that has just ended holds nothing.
                Err(_) => {}
            }
        }
        Ok(held)
    }
}

fn queued(metrics: &str, wanted: &str) -> usize {
    let of_namespace = metrics.lines().filter(|line| line.starts_with(wanted));
    let values = of_namespace.filter_map(|line| line.rsplit(' ').next());
    values.filter_map(|value| value.parse::<usize>().ok()).sum()
}

fn ready_replicas(deployment: &Deployment) -> i32 {
    let status = deployment.status.as_ref();
    status.and_then(|status| status.ready_replicas).unwrap_or(0)
}

fn failed(sentence: String) -> Failed {
    Failed::Other(anyhow::anyhow!(sentence))
}

fn refused(refusal: &Refusal) -> Failed {
    failed(match refusal {
        Refusal::NotInstalled => format!("{refusal}. {INSTALL}"),
        _ => refusal.to_string(),
    })
}

/// The services to create.
#[derive(Clone, Debug)]
pub(crate) struct AppOptions {
    pub(crate) services: u16,
    pub(crate) cold_start: Duration,
    pub(crate) image: String,
}

/// The backend of `--real`.
pub(crate) struct RealCluster {
    client: Client,
    host: Host,
    namespace: String,
    services: Vec<Service>,
    timeline: Timeline,
    requests: RequestLog,
    visitors: AtomicU32,
}

/// Creates a namespace with a unique name; returns the name.
pub(crate) async fn make_namespace(client: &Client) -> Result<String, Failed> {
    let asked = Call {
        verb: "create",
        group: "",
        resource: "namespaces",
        namespace: None,
        name: None,
    };
    let object = json!({"metadata": {
        "generateName": "elasti-demo-",
        "labels": {"app.kubernetes.io/managed-by": "elasti-demo"},
    }});
    let made = call(client, "POST", "/api/v1/namespaces", Some(&object)).await;
    let made = made.map_err(|error| refused(&asked.refused(&error)))?;
    let name = made.pointer("/metadata/name").and_then(Value::as_str);
    Ok(name.context("a namespace without a name")?.to_owned())
}

/// Removes a namespace, and waits until it is gone.
pub(crate) async fn remove_namespace(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let visitors = ListParams::default().labels(&format!("{APP_LABEL}={VISITOR}"));
    // Their results are no longer needed.
    let _ = pods
        .delete_collection(&DeleteParams::default().grace_period(0), &visitors)
        .await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .delete(namespace, &DeleteParams::default())
        .await?;
    let gone = async {
        while !matches!(namespaces.get_opt(namespace).await, Ok(None)) {
            sleep(Duration::from_millis(200)).await;
        }
    };
    let waited = tokio::time::timeout(REMOVAL_TIMEOUT, gone).await;
    waited.with_context(|| format!("it still exists after {} s", REMOVAL_TIMEOUT.as_secs()))
}

impl RealCluster {
    /// Creates the services; they begin at zero replicas, and the operator adopts them.
    pub(crate) async fn create(
        client: &Client,
        host: Host,
        namespace: &str,
        app: &AppOptions,
    ) -> Result<Self, Failed> {
        let timeline = Timeline::open(client, namespace);
        let mut services = Vec::new();
        for name in names_of(app.services) {
            services.push(make_service(client, &host, namespace, name, app).await?);
        }
        Ok(Self {
            client: client.clone(),
            host,
            namespace: namespace.to_owned(),
            services,
            timeline,
            requests: RequestLog::default(),
            visitors: AtomicU32::new(1),
        })
    }

    async fn visitors(
        &self,
        rounds: Option<u64>,
        every: Duration,
        timeout: Duration,
    ) -> anyhow::Result<Visitors> {
        let number = self.visitors.fetch_add(1, Ordering::Relaxed);
        let places = self.services.iter();
        let places = places.map(|service| format!("{}={}", service.name, service.address));
        let config = VisitorConfig {
            name: format!("{VISITOR}-{number}"),
            image: self.host.image.clone(),
            pull_policy: self.host.pull_policy.clone(),
            places: places.collect(),
            path: PATH,
            rounds,
            every,
            timeout,
        };
        Visitors::send(&self.client, &self.namespace, config, self.requests.clone()).await
    }
}

/// A pod that passes the restricted Pod Security Standard.
pub(crate) fn restricted_pod(container: Value) -> Value {
    let mut container = container;
    if let Some(fields) = container.as_object_mut() {
        fields.insert(
            "securityContext".into(),
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}),
        );
        fields.insert(
            "resources".into(),
            json!({"requests": {"cpu": "10m", "memory": "32Mi"}}),
        );
    }
    json!({
        "automountServiceAccountToken": false,
        "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    })
}

async fn make_service(
    client: &Client,
    host: &Host,
    namespace: &str,
    name: String,
    app: &AppOptions,
) -> Result<Service, Failed> {
    let port = PORT.to_string();
    let pod = restricted_pod(json!({
        "name": "app", "image": app.image,
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {
            "tcpSocket": {"port": PORT}, "periodSeconds": 1,
            "initialDelaySeconds": app.cold_start.as_millis().div_ceil(1000),
        },
        // The first is go-httpbin's, the second the sample app's.
        "env": [
            {"name": "PORT", "value": port},
            {"name": "PORTS", "value": port},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
    }));
    let mut trigger = json!({"query": "vector(0)", "threshold": "1"});
    if let (Some(address), Some(trigger)) = (&host.prometheus, trigger.as_object_mut()) {
        trigger.insert("serverAddress".into(), json!(address));
    }
    let deployment = objects::deployment(&name, &pod);
    let elasti_service = objects::elasti_service(&name, COOLDOWN_SECONDS, &trigger);
    make(client, namespace, "apps", "deployments", &deployment).await?;
    let service = make(client, namespace, "", "services", &objects::service(&name)).await?;
    let plural = names::PLURAL;
    make(client, namespace, names::GROUP, plural, &elasti_service).await?;
    Ok(Service {
        address: SocketAddr::new(cluster_address(&service)?, PORT),
        host: format!("{name}.{namespace}:{PORT}"),
        path: PATH,
        name,
    })
}

/// Makes an object of a kind.
async fn make(
    client: &Client,
    namespace: &str,
    group: &str,
    resource: &'static str,
    object: &Value,
) -> Result<Value, Failed> {
    let root = match group {
        "" => "/api/v1".to_owned(),
        "apps" => "/apis/apps/v1".to_owned(),
        group => format!("/apis/{group}/v1alpha1"),
    };
    let path = format!("{root}/namespaces/{namespace}/{resource}");
    let asked = Call {
        verb: "create",
        group,
        resource,
        namespace: Some(namespace),
        name: None,
    };
    let made = call(client, "POST", &path, Some(object)).await;
    made.map_err(|error| refused(&asked.refused(&error)))
}

impl Backend for RealCluster {
    type Traffic = Visitors;

    fn services(&self) -> &[Service] {
        &self.services
    }

    fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    fn requests(&self) -> &RequestLog {
        &self.requests
    }

    async fn held(&self) -> usize {
        sleep(HELD_POLL_INTERVAL).await;
        let held = self.host.held_in(&self.client, &self.namespace).await;
        held.unwrap_or(0)
    }

    async fn send_first(&self, timeout: Duration) -> anyhow::Result<First> {
        let visitors = self
            .visitors(Some(1), Duration::from_secs(1), timeout)
            .await?;
        visitors.until_sent(self.services.len()).await
    }

    async fn send(&self, every: Duration, timeout: Duration) -> anyhow::Result<Visitors> {
        self.visitors(None, every, timeout).await
    }

    async fn stop(&self, traffic: Visitors) -> anyhow::Result<()> {
        traffic.stop(&self.client, &self.namespace).await
    }

    /// Only the cooldown after the wake keeps it awake: the trigger does not know the app.
    fn why_idle(&self, _: &str) -> String {
        format!("its trigger is quiet, and the cooldown of {COOLDOWN_SECONDS} s is over")
    }

    fn invitation(&self) -> String {
        let url = self.services.first().map(Service::url).unwrap_or_default();
        format!("a request to {url} from any pod of the cluster wakes it")
    }

    /// In a cluster of others nothing is made that its user deleted.
    async fn restore(&self) -> Vec<String> {
        Vec::new()
    }
}
