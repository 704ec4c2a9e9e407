//! Asks the resolvers through the API server: `pods/proxy`, with the rights of whoever looks.
//! Never reaches a pod directly, never asks anything else of one, and reads no more than it must.

use std::time::Duration;

use elasti_api::names::{self, HELD_METRIC};
use elasti_core::held::{Counts, together};
use elasti_core::ports::ServiceKey;
use futures::future::join_all;
use futures::{AsyncBufReadExt as _, AsyncReadExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use tokio::time::{Instant, timeout};

use super::{HeldSource, HeldUnavailable};

/// Where the chart is usually installed: tried where pods of all namespaces may not be listed.
const USUAL_NAMESPACE: &str = "elasti";
/// The chart's name for the resolver's own port, and what that port is where nobody says.
const PORT_NAME: &str = "http";
const USUAL_PORT: i32 = 8013;
const TIMEOUT: Duration = Duration::from_secs(3);
/// Resolvers come and go rarely; one that does not answer is looked up again at once.
const LOOKED_UP_EVERY: Duration = Duration::from_secs(10);
/// A service is about 170 bytes with the longest names: 10,000 of them are 2 MB. One without `?name=` says more.
const MOST_BYTES: u64 = 8 << 20;

/// Where the resolvers are, as the API server says.
pub struct Proxy {
    client: Client,
    found: Option<(Instant, Vec<Place>)>,
}

/// One resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
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
        let asked = match timeout(TIMEOUT, self.places()).await {
            Ok(places) => places?,
            Err(_) => {
                return Err(HeldUnavailable::NoAnswer(
                    "The API server does not answer.".into(),
                ));
            }
        };
        let answers = asked.iter().map(async |place| {
            let late = || {
                let Place { name, .. } = place;
                HeldUnavailable::NoAnswer(format!("Resolver {name} does not answer."))
            };
            let answer = timeout(TIMEOUT, place.ask(&self.client)).await;
            answer.unwrap_or_else(|_| Err(late()))
        });
        let mut said = Vec::new();
        for (place, answer) in asked.iter().zip(join_all(answers).await) {
            match answer {
                Ok(counts) => said.push(counts),
                Err(_) if place.ending => {}
                Err(unheard) => {
                    self.found = None;
                    return Err(unheard);
                }
            }
        }
        Ok(together(said))
    }

    async fn places(&mut self) -> Result<Vec<Place>, HeldUnavailable> {
        if let Some((at, places)) = &self.found
            && at.elapsed() < LOOKED_UP_EVERY
        {
            return Ok(places.clone());
        }
        let everywhere = self.list(Api::all(self.client.clone())).await;
        let places = match everywhere {
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                self.list(Api::namespaced(self.client.clone(), USUAL_NAMESPACE))
                    .await
            }
            other => other,
        };
        let places = places.map_err(|error| unheard(&error, "The resolvers cannot be found"))?;
        if places.iter().all(|place| place.ending) {
            return Err(HeldUnavailable::NoAnswer("No resolver is ready.".into()));
        }
        self.found = Some((Instant::now(), places.clone()));
        Ok(places)
    }

    async fn list(&self, pods: Api<Pod>) -> Result<Vec<Place>, kube::Error> {
        let label = format!("{}={}", names::RESOLVER_LABEL, names::RESOLVER_LABEL_VALUE);
        let listed = pods.list(&ListParams::default().labels(&label)).await?;
        Ok(listed.items.iter().filter_map(Place::of).collect())
    }
}

impl HeldSource for Proxy {
    async fn ask(&mut self) -> Result<Counts, HeldUnavailable> {
        self.counts().await
    }
}

impl Place {
    /// A pod that may hold requests.
    fn of(pod: &Pod) -> Option<Self> {
        let conditions = pod.status.as_ref()?.conditions.iter().flatten();
        let ready = { conditions }.any(|one| one.type_ == "Ready" && one.status == "True");
        let ending = pod.metadata.deletion_timestamp.is_some();
        let mut ports = pod.spec.as_ref()?.containers.iter();
        let port = ports.find_map(|one| {
            let mut named = one.ports.iter().flatten();
            named.find(|port| port.name.as_deref() == Some(PORT_NAME))
        });
        (ready || ending).then(|| Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            port: port.map_or(USUAL_PORT, |port| port.container_port),
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
        let doubt = format!("Resolver {name} cannot be asked");
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy{}?name={}",
            names::METRICS_PATH,
            HELD_METRIC,
        );
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(|error| HeldUnavailable::NoAnswer(format!("{doubt}: {error}.")))?;
        let answer = client.request_stream(request).await;
        let answer = answer.map_err(|error| unheard(&error, &doubt))?;
        let mut lines = std::pin::pin!(answer.take(MOST_BYTES).lines());
        let mut counts = Counts::new();
        let broken =
            |error: std::io::Error| HeldUnavailable::NoAnswer(format!("{doubt}: {error}."));
        while let Some(line) = lines.try_next().await.map_err(broken)? {
            if let Some((service, held)) = waiting(&line) {
                counts.insert(service, held);
            }
        }
        Ok(counts)
    }
}

/// Whether a right is missing, or an answer.
fn unheard(error: &kube::Error, doubt: &str) -> HeldUnavailable {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
            HeldUnavailable::Refused(format!("{}.", status.message.trim_end_matches('.')))
        }
        kube::Error::Api(status) => {
            HeldUnavailable::NoAnswer(format!("{doubt}: {}.", status.message))
        }
        _ => HeldUnavailable::NoAnswer(format!("{doubt}.")),
    }
}

/// One line of the family: `elasti_resolver_queued_count{namespace="shop",service="cart"} 3`. Names of Kubernetes hold
/// nothing that would be escaped.
fn waiting(line: &str) -> Option<(ServiceKey, u32)> {
    let labels = line.strip_prefix(HELD_METRIC)?.strip_prefix('{')?;
    let (labels, held) = labels.split_once("} ")?;
    let label = |name: &str| {
        let mut pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(key, _)| *key == name)?;
        value.strip_prefix('"')?.strip_suffix('"')
    };
    let service = ServiceKey::new(label("namespace")?, label("service")?);
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
                r#"elasti_resolver_queued_count{namespace="shop",service="cart"} 3"#,
                shop("cart", 3),
            ),
            (
                r#"elasti_resolver_queued_count{service="a-b",namespace="shop"} 0"#,
                shop("a-b", 0),
            ),
            ("# TYPE elasti_resolver_queued_count gauge", None),
            (
                r#"elasti_resolver_queued_count_of{namespace="shop",service="cart"} 3"#,
                None,
            ),
            (
                r#"elasti_resolver_queued_count{namespace="shop",service="cart"} -1"#,
                None,
            ),
            (r#"elasti_resolver_queued_count{namespace="shop"} 3"#, None),
            ("elasti_resolver_queued_count", None),
        ] {
            assert_eq!(waiting(line), read, "{line}");
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
        let place = |port, ending| Place {
            namespace: "elasti".into(),
            name: "r".into(),
            port,
            ending,
        };
        let ports =
            json!([{"name": "proxy", "containerPort": 1}, {"name": "http", "containerPort": 2}]);
        for (ready, deleted, ports, asked) in [
            ("True", None, json!([]), Some(place(USUAL_PORT, false))),
            ("True", None, ports.clone(), Some(place(2, false))),
            ("False", None, ports.clone(), None),
            (
                "False",
                Some("2026-03-02T08:00:00Z"),
                ports,
                Some(place(2, true)),
            ),
        ] {
            let pod = pod(ready, deleted, ports);
            assert_eq!(pod.ok().as_ref().and_then(Place::of), asked);
        }
    }
}
