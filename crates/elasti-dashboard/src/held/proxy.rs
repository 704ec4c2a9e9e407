//! Asks the resolvers through the API server's `pods/proxy`, with the user's permissions.

use std::time::Duration;

use elasti_api::names::{self, HELD_METRIC};
use elasti_core::facts;
use elasti_core::ports::ServiceKey;
use elasti_view::held::{Counts, together};
use futures::future::join_all;
use futures::{AsyncBufReadExt as _, AsyncReadExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{Instant, timeout};

use super::{HeldSource, HeldUnavailable};

/// Where the chart is usually installed; used if the user may not list pods of all namespaces.
const DEFAULT_NAMESPACE: &str = "elasti";
/// The chart's name for the resolver's own port, and its default number.
const PORT_NAME: &str = "http";
const DEFAULT_PORT: i32 = 8013;
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Resolvers change rarely; after a failure they are listed again at once.
const LIST_INTERVAL: Duration = Duration::from_secs(10);
/// A service is about 170 bytes with the longest names: 10,000 of them are 2 MB. An older one ignores `?name=` and sends more.
const MAX_BYTES: u64 = 8 << 20;

/// The resolvers, by the API server.
pub struct Proxy {
    client: Client,
    found: Option<(Instant, Vec<Resolver>)>,
}

/// One resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Resolver {
    namespace: String,
    name: String,
    port: i32,
    /// It takes no new requests, but may still hold some.
    ending: bool,
}

impl Proxy {
    /// With the permissions of this client.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            found: None,
        }
    }

    /// All resolvers together. One that ends may still hold requests, but need not answer.
    async fn counts(&mut self) -> Result<Counts, HeldUnavailable> {
        let resolvers = match timeout(CALL_TIMEOUT, self.resolvers()).await {
            Ok(resolvers) => resolvers?,
            Err(_) => {
                return Err(HeldUnavailable::NoAnswer(
                    "The API server does not answer.".into(),
                ));
            }
        };
        let answers = resolvers.iter().map(async |resolver| {
            let late = || {
                let Resolver { name, .. } = resolver;
                HeldUnavailable::NoAnswer(format!("Resolver {name} does not answer."))
            };
            let answer = timeout(CALL_TIMEOUT, resolver.ask(&self.client)).await;
            answer.unwrap_or_else(|_| Err(late()))
        });
        let mut all = Vec::new();
        for (resolver, answer) in resolvers.iter().zip(join_all(answers).await) {
            match answer {
                Ok(counts) => all.push(counts),
                Err(_) if resolver.ending => {}
                Err(error) => {
                    self.found = None;
                    return Err(error);
                }
            }
        }
        Ok(together(all))
    }

    async fn resolvers(&mut self) -> Result<Vec<Resolver>, HeldUnavailable> {
        if let Some((at, resolvers)) = &self.found
            && at.elapsed() < LIST_INTERVAL
        {
            return Ok(resolvers.clone());
        }
        let everywhere = self.list(Api::all(self.client.clone())).await;
        let resolvers = match everywhere {
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                self.list(Api::namespaced(self.client.clone(), DEFAULT_NAMESPACE))
                    .await
            }
            other => other,
        };
        let resolvers =
            resolvers.map_err(|error| unavailable(&error, "The resolvers cannot be found"))?;
        if resolvers.iter().all(|resolver| resolver.ending) {
            return Err(HeldUnavailable::NoAnswer("No resolver is ready.".into()));
        }
        self.found = Some((Instant::now(), resolvers.clone()));
        Ok(resolvers)
    }

    async fn list(&self, pods: Api<Pod>) -> Result<Vec<Resolver>, kube::Error> {
        let label = format!("{}={}", names::RESOLVER_LABEL, names::RESOLVER_LABEL_VALUE);
        let listed = pods.list(&ListParams::default().labels(&label)).await?;
        Ok(listed.items.iter().filter_map(Resolver::from_pod).collect())
    }
}

impl HeldSource for Proxy {
    async fn ask(&mut self) -> Result<Counts, HeldUnavailable> {
        self.counts().await
    }
}

impl Resolver {
    /// A pod that may hold requests.
    fn from_pod(pod: &Pod) -> Option<Self> {
        let ready = facts::is_ready(pod);
        let ending = pod.metadata.deletion_timestamp.is_some();
        let mut ports = pod.spec.as_ref()?.containers.iter();
        let port = ports.find_map(|one| {
            let mut named = one.ports.iter().flatten();
            named.find(|port| port.name.as_deref() == Some(PORT_NAME))
        });
        (ready || ending).then(|| Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            port: port.map_or(DEFAULT_PORT, |port| port.container_port),
            ending,
        })
    }

    async fn ask(&self, client: &Client) -> Result<Counts, HeldUnavailable> {
        let Self {
            namespace,
            name,
            port,
            ..
        } = self;
        let failure = format!("Resolver {name} cannot be asked");
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy{}?name={}",
            names::METRICS_PATH,
            HELD_METRIC,
        );
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(|error| HeldUnavailable::NoAnswer(format!("{failure}: {error}.")))?;
        let answer = client.request_stream(request).await;
        let answer = answer.map_err(|error| unavailable(&error, &failure))?;
        let mut lines = std::pin::pin!(answer.take(MAX_BYTES).lines());
        let mut counts = Counts::new();
        let broken =
            |error: std::io::Error| HeldUnavailable::NoAnswer(format!("{failure}: {error}."));
        while let Some(line) = lines.try_next().await.map_err(broken)? {
            if let Some((service, held)) = parse_line(&line) {
                counts.insert(service, held);
            }
        }
        Ok(counts)
    }
}

/// Whether a permission or an answer is missing.
fn unavailable(error: &kube::Error, failure: &str) -> HeldUnavailable {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
            HeldUnavailable::Refused(format!("{}.", status.message.trim_end_matches('.')))
        }
        kube::Error::Api(status) => {
            HeldUnavailable::NoAnswer(format!("{failure}: {}.", status.message))
        }
        _ => HeldUnavailable::NoAnswer(format!("{failure}.")),
    }
}

/// One line of the family: `elasti_resolver_queued_count{namespace="shop",source="cart"} 3`. Names in Kubernetes need
/// no escaping.
fn parse_line(line: &str) -> Option<(ServiceKey, u32)> {
    let labels = line.strip_prefix(HELD_METRIC)?.strip_prefix('{')?;
    let (labels, held) = labels.split_once("} ")?;
    let label = |name: &str| {
        let mut pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(key, _)| *key == name)?;
        value.strip_prefix('"')?.strip_suffix('"')
    };
    let service = ServiceKey::new(label("namespace")?, label("source")?);
    Some((service, held.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_of_the_family_names_a_service_and_how_many_wait() {
        let shop = |name: &str, held| Some((ServiceKey::new("shop", name), held));
        for (line, read) in [
            (
                r#"elasti_resolver_queued_count{namespace="shop",source="cart"} 3"#,
                shop("cart", 3),
            ),
            (
                r#"elasti_resolver_queued_count{source="a-b",namespace="shop"} 0"#,
                shop("a-b", 0),
            ),
            ("# TYPE elasti_resolver_queued_count gauge", None),
            (
                r#"elasti_resolver_queued_count_of{namespace="shop",source="cart"} 3"#,
                None,
            ),
            (
                r#"elasti_resolver_queued_count{namespace="shop",source="cart"} -1"#,
                None,
            ),
            (r#"elasti_resolver_queued_count{namespace="shop"} 3"#, None),
            ("elasti_resolver_queued_count", None),
        ] {
            assert_eq!(parse_line(line), read, "{line}");
        }
    }

    #[test]
    fn a_resolver_is_asked_while_it_may_hold_requests() {
        let pod = |ready: &str, deleted: Option<&str>, ports: serde_json::Value| {
            serde_json::from_value::<Pod>(json!({
                "metadata": {"name": "r", "namespace": "elasti", "deletionTimestamp": deleted},
                "spec": {"containers": [{"name": "resolver", "ports": ports}]},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
        };
        let resolver = |port, ending| Resolver {
            namespace: "elasti".into(),
            name: "r".into(),
            port,
            ending,
        };
        let ports =
            json!([{"name": "proxy", "containerPort": 1}, {"name": "http", "containerPort": 2}]);
        for (ready, deleted, ports, asked) in [
            ("True", None, json!([]), Some(resolver(DEFAULT_PORT, false))),
            ("True", None, ports.clone(), Some(resolver(2, false))),
            ("False", None, ports.clone(), None),
            (
                "False",
                Some("2026-03-02T08:00:00Z"),
                ports,
                Some(resolver(2, true)),
            ),
        ] {
            let pod = pod(ready, deleted, ports);
            assert_eq!(pod.ok().as_ref().and_then(Resolver::from_pod), asked);
        }
    }
}
