//! Pods that are used as soon as their own probes pass, and those that wait for the kubelet all the same.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use elasti_testkit::fixture::{
    Fixture, PODS, READER, Response, STRATEGIC, TestService, http_get, service, until,
};
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

/// The kubelet looks once when the container starts, and again after an hour.
fn probe(handler: &str, what: &Value) -> Value {
    json!({"readinessProbe": {handler: what, "periodSeconds": 3600}})
}

/// A pod that listens nowhere, with a probe: the test listens in its place.
fn stand_in(container: Value) -> TestService {
    let mut hollow = service("cart");
    hollow.image = "never-ready:1";
    hollow.container = container;
    hollow
}

/// What answers in the place of a pod: its probe fails until it is well.
#[derive(Clone, Default)]
struct App {
    well: Arc<AtomicBool>,
    /// Probes that a resolver sent.
    probes: Arc<AtomicUsize>,
    /// Requests other than probes that came before it was well.
    early: Arc<AtomicUsize>,
    headers: Arc<Mutex<HeaderMap>>,
}

type Answer = http::Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>;

impl App {
    /// Listens at port 8080 of the one pod there will be, and with TLS at 8443.
    async fn listen(&self, fixture: &Fixture) {
        let mut address = None;
        until("the pod has an address", async || {
            let pods = fixture.api_client.items(PODS).await;
            let ip = pods.first().and_then(|pod| pod["status"]["podIP"].as_str());
            address = ip.and_then(|ip| ip.parse::<IpAddr>().ok());
            address.is_some()
        })
        .await;
        let bind = async |port| TcpListener::bind((address.unwrap(), port)).await.unwrap();
        let (plain, secure) = (bind(8080).await, bind(8443).await);
        let (app, acceptor) = (self.clone(), acceptor());
        tokio::spawn(async move {
            loop {
                let app = app.clone();
                tokio::select! {
                    Ok((stream, _)) = plain.accept() => drop(tokio::spawn(app.serve(stream))),
                    Ok((stream, _)) = secure.accept() => {
                        let accepted = acceptor.accept(stream);
                        tokio::spawn(async move { app.serve(accepted.await.unwrap()).await });
                    }
                }
            }
        });
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let service = service_fn(move |request| self.clone().answer(request));
        let builder = auto::Builder::new(TokioExecutor::new());
        let _ = builder
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    async fn answer(self, request: Request<hyper::body::Incoming>) -> Result<Answer, Infallible> {
        let well = self.well.load(Ordering::Relaxed);
        let agent = request.headers().get(header::USER_AGENT);
        if agent.is_some_and(|agent| agent == "kube-probe/elasti") {
            self.probes.fetch_add(1, Ordering::Relaxed);
            *self.headers.lock() = request.headers().clone();
        }
        if request.uri().path() == "/grpc.health.v1.Health/Check" {
            return Ok(health(well));
        }
        let mut answer = http::Response::new(Full::from("here").boxed());
        let redirect = match request.uri().path() {
            "/moved" => Some("/healthz"),
            "/away" => Some("http://login.example/healthz"),
            "/around" => Some("/around"),
            _ => None,
        };
        if let Some(location) = redirect {
            *answer.status_mut() = http::StatusCode::FOUND;
            let location = HeaderValue::from_static(location);
            answer.headers_mut().insert(header::LOCATION, location);
            return Ok(answer);
        }
        let is_probe = request.uri().path() == "/healthz";
        if !is_probe && !well {
            self.early.fetch_add(1, Ordering::Relaxed);
        }
        if !well {
            *answer.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        }
        Ok(answer)
    }

    fn probes(&self) -> usize {
        self.probes.load(Ordering::Relaxed)
    }
}

/// With a certificate that says nothing about the pod.
fn acceptor() -> TlsAcceptor {
    let pem = include_bytes!("self-signed.pem");
    let key = PrivateKeyDer::from_pem_slice(pem).unwrap();
    let certificate = CertificateDer::from_pem_slice(pem).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// The answer of gRPC's health check: SERVING is 1, NOT_SERVING 2.
fn health(serving: bool) -> Answer {
    let message = [0, 0, 0, 0, 2, 8, if serving { 1 } else { 2 }];
    let trailers = HeaderMap::from_iter([(
        header::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let body = Full::new(Bytes::copy_from_slice(&message));
    let body = body.with_trailers(std::future::ready(Some(Ok(trailers))));
    http::Response::new(body.boxed())
}

fn visit(address: &str) -> JoinHandle<Response> {
    let address = address.to_owned();
    tokio::spawn(async move { http_get(&address, "/").await })
}

async fn pod_is_ready(fixture: &Fixture) -> bool {
    let pods = fixture.api_client.items(PODS).await;
    let conditions = pods[0]["status"]["conditions"].as_array().cloned();
    let mut conditions = conditions.unwrap_or_default().into_iter();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

#[tokio::test(start_paused = true)]
async fn an_app_is_answered_as_soon_as_it_listens_and_not_when_its_kubelet_looks_again() {
    let readers = || [READER.to_owned()].into();
    let fixture = Fixture::with(|settings| settings.activity_readers = readers()).await;
    let mut slow = service("cart");
    slow.start_seconds = "3";
    slow.container = probe("tcpSocket", &json!({"port": "http"}));
    let address = fixture.asleep(slow).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    assert!(!pod_is_ready(&fixture).await);
    let open = async || fixture.activity().await.services[0].open;
    assert_eq!(open().await, 1, "it must not be stopped meanwhile");
    // Everybody who comes until the kubelet looks is answered too, also after a while without a request.
    sleep(Duration::from_secs(30)).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    until("it is not in use any more", async || open().await == 0).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    assert!(!pod_is_ready(&fixture).await);
    let metrics = fixture.admin("/metrics").await.body;
    assert!(
        metrics.contains("elasti_resolver_probe_count{result=\"passed\"}"),
        "{metrics}"
    );
}

#[tokio::test(start_paused = true)]
async fn with_probe_ahead_off_the_kubelet_is_waited_for() {
    let fixture = Fixture::start().await;
    let mut slow = service("cart");
    slow.start_seconds = "3";
    slow.container =
        json!({"readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 30}});
    slow.spec = json!({"wake": {"probeAhead": false}});
    let address = fixture.asleep(slow).await;
    assert_eq!(http_get(&address, "/").await.code(), 200);
    assert!(pod_is_ready(&fixture).await);
    let metrics = fixture.admin("/metrics").await.body;
    assert!(
        !metrics.contains("elasti_resolver_probe_count{"),
        "{metrics}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_app_that_accepts_before_its_probe_passes_gets_no_early_request() {
    let fixture = Fixture::start().await;
    let headers = json!([{"name": "X-Probe", "value": "ready?"}]);
    let http = json!({"port": 8080, "path": "/healthz", "httpHeaders": headers});
    let address = fixture.asleep(stand_in(probe("httpGet", &http))).await;
    let visitor = visit(&address);
    let app = App::default();
    app.listen(&fixture).await;
    until("it is probed", async || app.probes() >= 20).await;
    assert_eq!(fixture.resolver().held(), 1);
    app.well.store(true, Ordering::Relaxed);
    assert_eq!(visitor.await.unwrap().body, "here");
    assert_eq!(app.early.load(Ordering::Relaxed), 0);
    assert!(!pod_is_ready(&fixture).await);
    assert_eq!(app.headers.lock()["x-probe"], "ready?");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_redirected_on_its_host_is_judged_by_the_last_answer() {
    let fixture = Fixture::start().await;
    let http = json!({"port": 8080, "path": "/moved"});
    let address = fixture.asleep(stand_in(probe("httpGet", &http))).await;
    let visitor = visit(&address);
    let app = App::default();
    app.listen(&fixture).await;
    until("it is probed", async || app.probes() >= 20).await;
    assert_eq!(app.early.load(Ordering::Relaxed), 0);
    assert_eq!(fixture.resolver().held(), 1);
    app.well.store(true, Ordering::Relaxed);
    assert_eq!(visitor.await.unwrap().body, "here");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_redirected_to_another_host_passes_and_one_that_goes_round_fails() {
    for (path, passes) in [("/away", true), ("/around", false)] {
        let fixture = Fixture::start().await;
        let http = json!({"port": 8080, "path": path});
        let address = fixture.asleep(stand_in(probe("httpGet", &http))).await;
        let visitor = visit(&address);
        let app = App::default();
        app.listen(&fixture).await;
        if passes {
            assert_eq!(visitor.await.unwrap().code(), 503, "the app's own answer");
            assert_eq!(app.early.load(Ordering::Relaxed), 1);
        } else {
            until("it is probed", async || app.probes() >= 100).await;
            assert_eq!(fixture.resolver().held(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_grpc_probe_passes_when_the_health_check_says_serving() {
    let fixture = Fixture::start().await;
    let grpc = probe("grpc", &json!({"port": 8080}));
    let address = fixture.asleep(stand_in(grpc)).await;
    let visitor = visit(&address);
    let app = App::default();
    app.listen(&fixture).await;
    until("it is probed", async || app.probes() >= 20).await;
    assert_eq!(fixture.resolver().held(), 1);
    app.well.store(true, Ordering::Relaxed);
    assert_eq!(visitor.await.unwrap().body, "here");
    assert_eq!(app.early.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_over_https_takes_any_certificate() {
    let fixture = Fixture::start().await;
    let http = json!({"port": 8443, "path": "/healthz", "scheme": "HTTPS"});
    let address = fixture.asleep(stand_in(probe("httpGet", &http))).await;
    let visitor = visit(&address);
    let app = App::default();
    app.listen(&fixture).await;
    until("it is probed", async || app.probes() >= 20).await;
    assert_eq!(fixture.resolver().held(), 1);
    app.well.store(true, Ordering::Relaxed);
    assert_eq!(visitor.await.unwrap().body, "here");
}

/// Neither probed nor used, though it would answer.
async fn waits_for_the_kubelet(service: TestService) -> (Fixture, App, JoinHandle<Response>) {
    let fixture = Fixture::start().await;
    let address = fixture.asleep(service).await;
    let visitor = visit(&address);
    let app = App::default();
    app.listen(&fixture).await;
    // The kubelet has looked by then.
    sleep(Duration::from_secs(5)).await;
    app.well.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(30)).await;
    assert_eq!((app.probes(), fixture.resolver().held()), (0, 1));
    (fixture, app, visitor)
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_names_a_host_waits_for_the_kubelet() {
    let http = json!({"port": 8080, "path": "/healthz", "host": "127.0.0.1"});
    waits_for_the_kubelet(stand_in(probe("httpGet", &http))).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_readiness_gate_is_closed_is_not_probed_until_it_opens() {
    let gate = "example.com/attached";
    let http = json!({"port": 8080, "path": "/healthz"});
    let mut gated = stand_in(probe("httpGet", &http));
    gated.pod = json!({"readinessGates": [{"conditionType": gate}]});
    let (fixture, _app, visitor) = waits_for_the_kubelet(gated).await;
    let pods = fixture.api_client.items(PODS).await;
    let name = pods[0]["metadata"]["name"].as_str().unwrap();
    let open = json!({"status": {"conditions": [{"type": gate, "status": "True"}]}});
    let path = format!("{PODS}/{name}/status");
    fixture.api_client.patch(&path, STRATEGIC, open).await;
    assert_eq!(visitor.await.unwrap().body, "here");
}

#[tokio::test(start_paused = true)]
async fn every_container_must_pass() {
    let fixture = Fixture::start().await;
    let mut two = service("cart");
    two.start_seconds = "1";
    two.container = probe("tcpSocket", &json!({"port": "http"}));
    let ports = json!([{"name": "mesh", "containerPort": 8443}]);
    let late = json!([{"name": "START_SECONDS", "value": "40"}]);
    let mut sidecar = probe("tcpSocket", &json!({"port": "mesh"}));
    sidecar["name"] = json!("mesh");
    sidecar["image"] = json!("echo:1");
    sidecar["restartPolicy"] = json!("Always");
    (sidecar["ports"], sidecar["env"]) = (ports, late);
    two.pod = json!({"initContainers": [sidecar]});
    let address = fixture.asleep(two).await;
    let visitor = visit(&address);
    until("it is held", async || fixture.resolver().held() == 1).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(fixture.resolver().held(), 1);
    assert_eq!(visitor.await.unwrap().code(), 200);
    assert!(!pod_is_ready(&fixture).await);
}

/// How many probes have failed here.
async fn failed(fixture: &Fixture) -> u64 {
    let metrics = fixture.admin("/metrics").await.body;
    let mut lines = metrics.lines();
    let count =
        lines.find_map(|line| line.strip_prefix("elasti_resolver_probe_count{result=\"failed\"} "));
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_passed_before_it_was_ready_says_nothing_once_it_is_not() {
    let fixture = Fixture::start().await;
    let http = json!({"port": 8080, "path": "/healthz"});
    let address = fixture.asleep(stand_in(probe("httpGet", &http))).await;
    let visitor = visit(&address);
    let app = App::default();
    app.listen(&fixture).await;
    app.well.store(true, Ordering::Relaxed);
    assert_eq!(visitor.await.unwrap().body, "here");
    // The pods are followed on, because the slices do not show one.
    let lags = &fixture.fake_cluster.controllers.lags;
    lags.set_endpoint_slices(Duration::from_secs(500));
    let pods = fixture.api_client.items(PODS).await;
    let path = format!(
        "{PODS}/{}/status",
        pods[0]["metadata"]["name"].as_str().unwrap()
    );
    let set_ready = async |status: &str| {
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        fixture.api_client.patch(&path, STRATEGIC, ready).await;
        sleep(Duration::from_millis(500)).await;
    };
    set_ready("True").await;
    assert!(pod_is_ready(&fixture).await);
    app.well.store(false, Ordering::Relaxed);
    set_ready("False").await;
    assert!(!pod_is_ready(&fixture).await);
    let next = visit(&address);
    until("the next is held", async || fixture.resolver().held() == 1).await;
    assert_eq!(app.early.load(Ordering::Relaxed), 0);
    app.well.store(true, Ordering::Relaxed);
    assert_eq!(next.await.unwrap().body, "here");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fails_its_probe_again_is_not_used_any_more() {
    let fixture = Fixture::start().await;
    let http = || json!({"port": 8080, "path": "/healthz"});
    // The kubelet waits for the startup probe, at which it looks again after an hour.
    let container = json!({
        "readinessProbe": {"httpGet": http(), "periodSeconds": 5, "failureThreshold": 2},
        "startupProbe": {"httpGet": http(), "periodSeconds": 3600, "failureThreshold": 9},
    });
    let address = fixture.asleep(stand_in(container)).await;
    let visitor = visit(&address);
    let app = App::default();
    app.listen(&fixture).await;
    sleep(Duration::from_secs(5)).await;
    app.well.store(true, Ordering::Relaxed);
    assert_eq!(visitor.await.unwrap().body, "here");
    let before = failed(&fixture).await;
    app.well.store(false, Ordering::Relaxed);
    until("its probe has failed twice", async || {
        failed(&fixture).await >= before + 2
    })
    .await;
    let next = visit(&address);
    until("the next is held", async || fixture.resolver().held() == 1).await;
    app.well.store(true, Ordering::Relaxed);
    assert_eq!(next.await.unwrap().body, "here");
    assert_eq!(app.early.load(Ordering::Relaxed), 0);
}
