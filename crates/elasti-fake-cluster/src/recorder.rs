//! Random API request sequences, recorded and normalised, so that any two API servers can be compared.

use std::collections::BTreeMap;
use std::fmt;

use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::random::Randomness;

/// One request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// The HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The body's media type; empty without a body.
    pub content_type: String,
    /// The body; null without one.
    pub body: Value,
}

/// A request and its normalised answer: one line of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// The request.
    pub request: RecordedRequest,
    /// The answer's code.
    pub code: u16,
    /// The answer's body with changing values replaced.
    pub body: Value,
}

impl fmt::Display for Exchange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} {} {} -> {} {}",
            self.request.method, self.request.path, self.request.body, self.code, self.body
        )
    }
}

/// The namespace in which generated sequences work.
pub const NAMESPACE: &str = "recorded";

const NAMES: &[&str] = &["a", "b", "c"];

/// A sequence of `length` requests that the seed chooses; the first ones create the namespace and its account.
#[must_use]
pub fn sequence(seed: u64, length: usize) -> Vec<RecordedRequest> {
    let random = Randomness::seeded(seed);
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    let mut all = vec![
        request("POST", "/api/v1/namespaces", "application/json", namespace),
        request(
            "POST",
            &format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"),
            "application/json",
            account,
        ),
    ];
    all.extend((2..length).map(|_| step(&random)));
    all
}

fn request(method: &str, path: &str, content_type: &str, body: Value) -> RecordedRequest {
    RecordedRequest {
        method: method.to_owned(),
        path: path.to_owned(),
        content_type: content_type.to_owned(),
        body,
    }
}

fn pick<'a, T: ?Sized>(random: &Randomness, choices: &[&'a T], otherwise: &'a T) -> &'a T {
    choices
        .get(random.below(choices.len()))
        .copied()
        .unwrap_or(otherwise)
}

/// A random object and the collection it belongs to.
fn subject(random: &Randomness, name: &str) -> (&'static str, Value) {
    match random.below(6) {
        0 => (
            "/api/v1/namespaces/recorded/configmaps",
            config_map(random, name),
        ),
        1 => (
            "/apis/apps/v1/namespaces/recorded/deployments",
            deployment(random, name),
        ),
        2 => (
            "/api/v1/namespaces/recorded/services",
            service(random, name),
        ),
        3 => (
            "/apis/discovery.k8s.io/v1/namespaces/recorded/endpointslices",
            endpoint_slice(random, name),
        ),
        4 => (
            "/apis/coordination.k8s.io/v1/namespaces/recorded/leases",
            lease(random, name),
        ),
        _ => ("/api/v1/namespaces/recorded/pods", pod(random, name)),
    }
}

fn step(random: &Randomness) -> RecordedRequest {
    let name = pick(random, NAMES, "a");
    let (all, object) = subject(random, name);
    let one = format!("{all}/{name}");
    let manager = pick(random, &["ann", "ben"], "ann");
    let merge = "application/merge-patch+json";
    match random.below(16) {
        0..=2 => request("POST", all, "application/json", object),
        3 => request("GET", &one, "", Value::Null),
        4 => request("GET", all, "", Value::Null),
        5 => request("PUT", &one, "application/json", object),
        6 => request(
            "PATCH",
            &one,
            merge,
            json!({"metadata": {"labels": {pick(random, NAMES, "a"): "x"}}}),
        ),
        7 => request(
            "PATCH",
            &one,
            "application/strategic-merge-patch+json",
            part(&object),
        ),
        8 => request(
            "PATCH",
            &format!("{one}?fieldManager={manager}"),
            "application/apply-patch+yaml",
            object,
        ),
        9 => request(
            "PATCH",
            &format!("{one}?fieldManager={manager}&force=true"),
            "application/apply-patch+yaml",
            object,
        ),
        10 => request(
            "PATCH",
            &one,
            "application/json-patch+json",
            json!([{"op": "add", "path": "/metadata/annotations", "value": {"k": name}}]),
        ),
        11 => request("DELETE", &one, "", Value::Null),
        12 => request(
            "GET",
            &format!("{all}?labelSelector={}%3Dx", pick(random, NAMES, "a")),
            "",
            Value::Null,
        ),
        13 => request(
            "PATCH",
            &format!("{one}/scale"),
            merge,
            json!({"spec": {"replicas": random.below(4)}}),
        ),
        14 => request("GET", &format!("{one}/scale"), "", Value::Null),
        _ => request(
            "PATCH",
            &format!("{one}/status"),
            "application/strategic-merge-patch+json",
            status(random),
        ),
    }
}

fn status(random: &Randomness) -> Value {
    let word = pick(random, &["True", "False"], "True");
    json!({
        "metadata": {"annotations": {"seen": word}},
        "status": {"conditions": [{"type": pick(random, &["Ready", "Available"], "Ready"), "status": word}]},
        "spec": {"replicas": 7},
    })
}

fn endpoint_slice(random: &Randomness, name: &str) -> Value {
    let endpoints: Vec<Value> = (0..random.below(3))
        .map(|at| json!({"addresses": [format!("10.1.1.{at}")], "conditions": {"ready": at == 0}}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "http", "port": 80 + random.below(2)}],
    })
}

fn lease(random: &Randomness, name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
        "spec": {"holderIdentity": pick(random, NAMES, "a"), "leaseDurationSeconds": random.below(3)},
    })
}

/// Without a token volume, whose name is random.
fn pod(random: &Randomness, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": format!("echo:{}", random.below(3)), "ports": [{"containerPort": 80}]}],
        },
    })
}

/// Only what the object says about itself, without its name.
fn part(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten();
    Value::Object(
        fields
            .filter(|(key, _)| matches!(key.as_str(), "data" | "spec"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    )
}

fn config_map(random: &Randomness, name: &str) -> Value {
    let mut data = Map::new();
    for key in NAMES.iter().take(random.below(3) + 1) {
        data.insert((*key).to_owned(), json!(random.below(3).to_string()));
    }
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn deployment(random: &Randomness, name: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": i64::try_from(random.below(4)).unwrap_or(0) - 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [
                {"name": pick(random, NAMES, "a"), "image": format!("echo:{}", random.below(3))},
            ]}},
        },
    })
}

fn service(random: &Randomness, name: &str) -> Value {
    let ports: Vec<Value> = NAMES
        .iter()
        .take(random.below(2) + 1)
        .enumerate()
        .map(|(at, port)| json!({"name": port, "port": 80 + at}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": ports}})
}

/// Sends the requests one after the other and writes down what comes back.
///
/// # Errors
/// When the server cannot be reached.
pub async fn record(
    client: &kube::Client,
    requests: &[RecordedRequest],
) -> Result<Vec<Exchange>, kube::Error> {
    let mut normaliser = Normaliser::default();
    let mut all = Vec::with_capacity(requests.len());
    for request in requests {
        let body = if request.body.is_null() {
            Vec::new()
        } else {
            request.body.to_string().into_bytes()
        };
        let sent = Request::builder()
            .method(request.method.as_str())
            .uri(&request.path)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::USER_AGENT, "elasti-recorder")
            .header(http::header::CONTENT_TYPE, &request.content_type)
            .body(Body::from(body))
            .map_err(kube::Error::HttpError)?;
        let response = client.send(sent).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        all.push(Exchange {
            request: request.clone(),
            code,
            body: normaliser.normalise(&body),
        });
    }
    Ok(all)
}

/// Replaces what no two servers give out alike by what was given out first, second, …
#[derive(Debug, Default)]
struct Normaliser {
    seen: BTreeMap<String, String>,
}

/// Fields whose values are the server's own choice.
const SERVER_CHOSEN: &[&str] = &["uid", "clusterIP", "nodePort"];
/// Fields whose values are times or versions.
const VOLATILE: &[&str] = &[
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "time",
    "lastTransitionTime",
    "continue",
];

impl Normaliser {
    fn normalise(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(map) => Value::Object(
                map.iter()
                    .map(|(key, child)| (key.clone(), self.field(key, child)))
                    .collect(),
            ),
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.normalise(item)).collect())
            }
            Value::String(text) => Value::String(self.known_words(text)),
            other => other.clone(),
        }
    }

    fn field(&mut self, key: &str, value: &Value) -> Value {
        match value {
            Value::String(text) if SERVER_CHOSEN.contains(&key) && text != "None" => {
                let count = self.seen.len();
                json!(
                    self.seen
                        .entry(text.clone())
                        .or_insert_with(|| format!("<{key} {count}>"))
                        .clone()
                )
            }
            Value::String(_) if VOLATILE.contains(&key) => json!(format!("<{key}>")),
            // Their order depends on which second a request fell into.
            Value::Array(entries) if key == "managedFields" => {
                let mut entries: Vec<Value> =
                    entries.iter().map(|entry| self.normalise(entry)).collect();
                entries.sort_by_key(Value::to_string);
                Value::Array(entries)
            }
            other => self.normalise(other),
        }
    }

    /// Longer words first, so that no word is taken for the beginning of another.
    fn known_words(&self, text: &str) -> String {
        let mut known: Vec<(&String, &String)> = self.seen.iter().collect();
        known.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
        known
            .into_iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }
}

/// A recording as JSON lines.
#[must_use]
pub fn to_lines(recording: &[Exchange]) -> String {
    recording
        .iter()
        .filter_map(|exchange| serde_json::to_string(exchange).ok())
        .map(|line| line + "\n")
        .collect()
}

/// Reads JSON lines.
///
/// # Errors
/// When a line is no exchange.
pub fn from_lines(lines: &str) -> Result<Vec<Exchange>, serde_json::Error> {
    lines
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(serde_json::from_str)
        .collect()
}

/// Where two recordings of the same sequence differ, as pairs.
#[must_use]
pub fn differences<'a>(
    left: &'a [Exchange],
    right: &'a [Exchange],
) -> Vec<(&'a Exchange, &'a Exchange)> {
    left.iter()
        .zip(right)
        .filter(|(left, right)| left != right)
        .collect()
}
