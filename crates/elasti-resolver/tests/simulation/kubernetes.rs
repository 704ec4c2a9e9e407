//! The cluster as the resolver sees it: lists, watches and token reviews, from a log of changes; late and faulty on demand.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elasti_api::names;
use elasti_simulated_network::SimRng;
use futures::Stream;
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

type Pieces = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;
type ApiResponse = Response<StreamBody<Pieces>>;

/// A kind of object, by its plural.
pub type Kind = &'static str;
pub const ELASTI_SERVICES: Kind = "elastiservices";
pub const SLICES: Kind = "endpointslices";
pub const PODS: Kind = "pods";
pub const SERVICES: Kind = "services";

#[derive(Debug)]
struct Entry {
    kind: Kind,
    event: &'static str,
    object: Value,
    /// Watches show it from then on.
    visible: Instant,
}

#[derive(Debug, Default)]
struct Store {
    objects: BTreeMap<(Kind, String), Value>,
    /// Entry n has version n + 1.
    log: Vec<Entry>,
    down_until: Option<Instant>,
}

/// A cluster with an API.
#[derive(Debug)]
pub struct Kubernetes {
    store: Mutex<Store>,
    changed: watch::Sender<()>,
    rng: Mutex<SimRng>,
}

impl Kubernetes {
    pub fn new(rng: SimRng) -> Arc<Self> {
        Arc::new(Self {
            store: Mutex::default(),
            changed: watch::Sender::default(),
            rng: Mutex::new(rng),
        })
    }

    pub fn client(self: &Arc<Self>) -> kube::Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let cluster = cluster.clone();
            async move {
                cluster
                    .respond(request.method().as_str(), request.uri())
                    .await
            }
        });
        kube::Client::new(service, "default")
    }

    /// No call works until then; watches that are open go on.
    pub fn down(&self, until: Instant) {
        self.store.lock().down_until = Some(until);
    }

    pub fn set(&self, kind: Kind, name: &str, mut object: Value) {
        let mut store = self.store.lock();
        let version = store.log.len() + 1;
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!("default");
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let before = store
            .objects
            .insert((kind, name.to_owned()), object.clone());
        let event = if before.is_some() {
            "MODIFIED"
        } else {
            "ADDED"
        };
        self.append(&mut store, kind, event, object);
    }

    pub fn change(&self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        let found = self
            .store
            .lock()
            .objects
            .get(&(kind, name.to_owned()))
            .cloned();
        if let Some(mut object) = found {
            change(&mut object);
            self.set(kind, name, object);
        }
    }

    pub fn delete(&self, kind: Kind, name: &str) {
        let mut store = self.store.lock();
        let version = store.log.len() + 1;
        if let Some(mut object) = store.objects.remove(&(kind, name.to_owned())) {
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            self.append(&mut store, kind, "DELETED", object);
        }
    }

    /// Watches show a change after a moment, in order.
    fn append(&self, store: &mut Store, kind: Kind, event: &'static str, object: Value) {
        let last = store.log.iter().rev().find(|entry| entry.kind == kind);
        let lag = self.rng.lock().millis(0, 40);
        let visible =
            (Instant::now() + lag).max(last.map_or_else(Instant::now, |entry| entry.visible));
        store.log.push(Entry {
            kind,
            event,
            object,
            visible,
        });
        self.changed.send_replace(());
    }

    async fn respond(
        self: Arc<Self>,
        method: &str,
        uri: &http::Uri,
    ) -> Result<ApiResponse, std::io::Error> {
        let lag = self.rng.lock().millis(0, 8);
        sleep(lag).await;
        let down = self
            .store
            .lock()
            .down_until
            .is_some_and(|until| Instant::now() < until);
        if down {
            return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        }
        let path = uri.path();
        if method == "POST" {
            if path.ends_with("/selfsubjectaccessreviews") {
                return Ok(full_response(json!({
                    "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}, "spec": {},
                    "status": {"allowed": true},
                })));
            }
            assert!(path.ends_with("/tokenreviews"), "{path}");
            return Ok(full_response(json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {},
                "status": {"authenticated": true, "audiences": [names::ACTIVITY_AUDIENCE], "user": {"username": "operator"}},
            })));
        }
        let mut segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let kinds = [ELASTI_SERVICES, SLICES, PODS, SERVICES];
        let last = segments.pop().unwrap_or_default();
        let query = uri.query().unwrap_or_default();
        let app = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("labelSelector=app%3D"));
        match kinds.into_iter().find(|kind| *kind == last) {
            Some(kind) if query.contains("watch=true") => Ok(self.watch(kind, app, query)),
            Some(kind) => Ok(self.list(kind, app, named(query))),
            None => Ok(self.get(last)),
        }
    }

    /// Only private Services are read one by one.
    fn get(&self, name: &str) -> ApiResponse {
        match self.store.lock().objects.get(&(SERVICES, name.to_owned())) {
            Some(object) => full_response(object.clone()),
            None => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound", "message": "not found"});
                let mut response = full_response(status);
                *response.status_mut() = http::StatusCode::NOT_FOUND;
                response
            }
        }
    }

    fn list(&self, kind: Kind, app: Option<&str>, name: Option<&str>) -> ApiResponse {
        let store = self.store.lock();
        let items: Vec<&Value> = store
            .objects
            .iter()
            .filter(|((one, _), object)| *one == kind && has_app(object, app))
            .filter(|((_, one), _)| name.is_none_or(|name| one == name))
            .map(|(_, object)| object)
            .collect();
        full_response(
            json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": store.log.len().to_string()}, "items": items}),
        )
    }

    fn watch(self: &Arc<Self>, kind: Kind, app: Option<&str>, query: &str) -> ApiResponse {
        let number = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(key, _)| *key == name)
                .and_then(|(_, value)| value.parse::<u64>().ok())
        };
        let mut length = Duration::from_secs(number("timeoutSeconds").unwrap_or(1));
        // Some watches break before their time.
        let mut rng = self.rng.lock();
        if rng.percent(5) {
            length = rng.millis(0, 1000);
        }
        drop(rng);
        let at = usize::try_from(number("resourceVersion").unwrap_or(0)).unwrap_or(0);
        let app = app.map(str::to_owned);
        let ends = Instant::now() + length;
        let state = (self.clone(), at, self.changed.subscribe());
        let pieces = futures::stream::unfold(state, move |(cluster, mut at, mut changed)| {
            let app = app.clone();
            async move {
                loop {
                    changed.borrow_and_update();
                    let next = cluster.next(kind, app.as_deref(), &mut at);
                    match next {
                        Some((line, visible)) => {
                            timeout_at(ends, sleep_until(visible)).await.ok()?;
                            at += 1;
                            return Some((Ok(Frame::data(line)), (cluster, at, changed)));
                        }
                        None => timeout_at(ends, changed.changed()).await.ok()?.ok()?,
                    }
                }
            }
        });
        Response::new(StreamBody::new(Box::pin(pieces)))
    }

    /// The next change at or after `at` that a watch shows.
    fn next(&self, kind: Kind, app: Option<&str>, at: &mut usize) -> Option<(Bytes, Instant)> {
        let store = self.store.lock();
        loop {
            let entry = store.log.get(*at)?;
            if entry.kind == kind && has_app(&entry.object, app) {
                let line = format!("{}\n", json!({"type": entry.event, "object": entry.object}));
                return Some((Bytes::from(line), entry.visible));
            }
            *at += 1;
        }
    }
}

/// The one object that a field selector names.
fn named(query: &str) -> Option<&str> {
    let mut pairs = query.split('&');
    pairs.find_map(|pair| pair.strip_prefix("fieldSelector=metadata.name%3D"))
}

fn has_app(object: &Value, app: Option<&str>) -> bool {
    app.is_none_or(|app| object["metadata"]["labels"]["app"] == app)
}

fn full_response(value: Value) -> ApiResponse {
    let frame = Ok(Frame::data(Bytes::from(value.to_string())));
    let pieces: Pieces = Box::pin(futures::stream::iter([frame]));
    Response::new(StreamBody::new(pieces))
}
