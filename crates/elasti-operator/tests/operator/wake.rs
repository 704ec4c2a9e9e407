//! The wake endpoint: wakes are taken from resolvers only, and "received" means that the scale was written.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::scripted_server::small_steps;
use elasti_api::{PromisedPod, Reason, WakeAnswer, WakePromise, names};
use elasti_core::Why;
use elasti_fake_cluster::api_server::{ApiServer, ApiServerConfig};
use elasti_fake_cluster::faults::{Calls, Fault};
use elasti_operator::metrics::Metrics;
use elasti_operator::wake::{LeaderClient, PendingWake, WakeEndpoint, WakeOutcome, WakeSettings};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const RESOLVER: &str = "system:serviceaccount:default:elasti-resolver";
const ISSUER: &str = "https://kubernetes.default.svc";

struct Env {
    server: ApiServer,
    address: SocketAddr,
    wakes: mpsc::Receiver<PendingWake>,
    leader: watch::Sender<Option<SocketAddr>>,
    _tasks: JoinSet<()>,
}

impl Env {
    async fn start() -> Self {
        Self::with(false, 16).await
    }

    async fn with(allow_anonymous: bool, capacity: usize) -> Self {
        let server = ApiServer::new(ApiServerConfig::default());
        let client = server.client();
        Self::with_settings(server, client, allow_anonymous, capacity).await
    }

    /// The operator may do only what every service account may: no TokenReview.
    async fn without_permissions() -> Self {
        Self::as_account(strict_server()).await
    }

    async fn as_account(server: ApiServer) -> Self {
        let own = token_of(&server, "elasti-operator", ISSUER).await;
        let client = server.client_with_token(&own);
        Self::with_settings(server, client, false, 16).await
    }

    async fn with_settings(
        server: ApiServer,
        client: kube::Client,
        allow_anonymous: bool,
        capacity: usize,
    ) -> Self {
        Self::build(server, client, allow_anonymous, capacity, |endpoint| {
            endpoint
        })
        .await
    }

    async fn with_endpoint(
        server: ApiServer,
        change: impl FnOnce(WakeEndpoint) -> WakeEndpoint,
    ) -> Self {
        let client = server.client();
        Self::build(server, client, false, 16, change).await
    }

    async fn build(
        server: ApiServer,
        client: kube::Client,
        allow_anonymous: bool,
        capacity: usize,
        change: impl FnOnce(WakeEndpoint) -> WakeEndpoint,
    ) -> Self {
        let (send, wakes) = mpsc::channel(capacity);
        let settings = WakeSettings {
            callers: [RESOLVER.to_owned()].into(),
            allow_anonymous,
        };
        let metrics = Arc::new(Metrics::new("elasti"));
        let leader = watch::Sender::new(None);
        let client_of_leader = LeaderClient::new(leader.subscribe(), None).unwrap();
        let endpoint = WakeEndpoint::new(client, settings, send, client_of_leader, metrics);
        let endpoint = change(endpoint);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(endpoint.serve(listener));
        tasks.spawn(small_steps());
        Self {
            server,
            address,
            wakes,
            leader,
            _tasks: tasks,
        }
    }

    /// An operator that knows this one as the leader.
    async fn follower(server: ApiServer, leader: SocketAddr) -> Self {
        let client = server.client();
        let env = Self::with_settings(server, client, false, 16).await;
        env.leader.send_replace(Some(leader));
        env
    }

    async fn token(&self, account: &str, audience: &str) -> String {
        token_of(&self.server, account, audience).await
    }

    async fn resolver(&self) -> String {
        self.token("elasti-resolver", names::WAKE_AUDIENCE).await
    }

    /// Answers every wake with this from now on.
    fn worker(mut self, outcome: WakeOutcome) -> (ApiServer, SocketAddr, JoinSet<()>) {
        self._tasks.spawn(async move {
            while let Some(wake) = self.wakes.recv().await {
                let _ = wake.answer.send(outcome.clone());
            }
        });
        (self.server, self.address, self._tasks)
    }
}

/// A server that lets service accounts do only what they have a right to.
fn strict_server() -> ApiServer {
    ApiServer::new(ApiServerConfig {
        enforce_rbac: true,
        ..ApiServerConfig::default()
    })
}

async fn token_of(server: &ApiServer, account: &str, audience: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(server.client());
    let mut object = ServiceAccount::default();
    object.metadata.name = Some(account.to_owned());
    let params = PostParams::default();
    // It may be there already.
    let _ = accounts.create(&params, &object).await;
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![audience.to_owned()],
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let made = accounts
        .create_token_request(account, &params, &request)
        .await
        .unwrap();
    made.status.unwrap().token
}

fn wake_of(service: &str) -> String {
    json!({"count": 1, "svc": service, "namespace": "shop"}).to_string()
}

#[derive(Debug)]
struct Answer {
    code: u16,
    head: String,
    body: String,
}

impl Answer {
    fn reason(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"));
        assert!(body["message"].is_string(), "{self:?}");
        body["reason"].as_str().unwrap_or_default().to_owned()
    }
}

async fn send(address: SocketAddr, text: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Answer {
        code: head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

async fn post(address: SocketAddr, token: Option<&str>, body: &str) -> Answer {
    let authorization = token.map_or(String::new(), |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    let length = body.len();
    let path = names::WAKE_PATH;
    let text = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    send(address, &text).await
}

fn reviews(server: &ApiServer) -> usize {
    let calls = server.faults().journal();
    calls
        .iter()
        .filter(|call| call.kind == "tokenreviews")
        .count()
}

#[tokio::test(start_paused = true)]
async fn a_wake_is_acknowledged_only_after_the_scale_write_was_accepted_r12() {
    let mut env = Env::start().await;
    let token = env.resolver().await;
    let address = env.address;
    let mut asked =
        tokio::spawn(async move { post(address, Some(&token), &wake_of("cart")).await });
    let wake = env.wakes.recv().await.unwrap();
    assert_eq!(
        (wake.namespace.as_str(), wake.service.as_str()),
        ("shop", "cart")
    );
    let early = timeout(Duration::from_secs(2), &mut asked).await;
    assert!(early.is_err(), "answered before the write: {early:?}");
    wake.answer.send(WakeOutcome::Scaled).unwrap();
    let answer = asked.await.unwrap();
    assert_eq!(answer.code, 200);
    assert_eq!(
        answer.body,
        r#"{"message":"Request received successfully!"}"#
    );
}

fn promise() -> WakePromise {
    WakePromise {
        millis: 4000,
        pods: vec![PromisedPod {
            name: "cart-1".into(),
            uid: "42".into(),
        }],
    }
}

fn promised(answer: &Answer) -> Option<WakePromise> {
    assert_eq!(answer.code, 200, "{answer:?}");
    let answer: WakeAnswer = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(answer.message, WakeAnswer::RECEIVED);
    answer.promise
}

#[tokio::test]
async fn a_follower_passes_a_wake_on_to_the_leader_with_the_callers_own_token() {
    let leader = Env::start().await;
    let token = leader.resolver().await;
    let awake = WakeOutcome::AlreadyAwake(Some(promise()));
    let (server, leader_address, _leader_tasks) = leader.worker(awake);
    let follower = Env::follower(server, leader_address).await;
    let (_server, address, _tasks) = follower.worker(WakeOutcome::AlreadyAwake(None));
    let answer = post(address, Some(&token), &wake_of("cart")).await;
    assert_eq!(promised(&answer), Some(promise()));
}

#[tokio::test]
async fn a_wake_that_scaled_from_zero_is_not_passed_on() {
    let mut leader = Env::start().await;
    let token = leader.resolver().await;
    let server = leader.server.clone();
    let follower = Env::follower(server, leader.address).await;
    let (_server, address, _tasks) = follower.worker(WakeOutcome::Scaled);
    let answer = post(address, Some(&token), &wake_of("cart")).await;
    assert_eq!(promised(&answer), None);
    assert!(leader.wakes.try_recv().is_err());
}

fn wake_for(client: &Value) -> String {
    json!({"count": 1, "svc": "cart", "namespace": "shop", "client": client}).to_string()
}

#[tokio::test]
async fn a_follower_passes_the_client_of_its_wake_on_to_the_leader() {
    let mut leader = Env::start().await;
    let token = leader.resolver().await;
    let server = leader.server.clone();
    let follower = Env::follower(server, leader.address).await;
    let (_server, address, _tasks) = follower.worker(WakeOutcome::Scaled);
    let client = json!({"protocol": "http", "method": "GET", "path": "/a"});
    let answer = post(address, Some(&token), &wake_for(&client)).await;
    assert_eq!(promised(&answer), None);
    let told = leader.wakes.recv().await.unwrap().client.unwrap();
    assert_eq!(told.sentence(), "GET /a");
}

#[tokio::test]
async fn what_a_resolver_tells_of_a_client_is_bounded_and_its_pod_is_not_believed() {
    let mut env = Env::start().await;
    let token = env.resolver().await;
    let client = json!({"protocol": "http", "method": "GET", "path": format!("/\u{1b}{}", "a".repeat(1000)), "pod": "bank", "namespace": "prod"});
    let address = env.address;
    let asked = tokio::spawn(async move { post(address, Some(&token), &wake_for(&client)).await });
    let wake = env.wakes.recv().await.unwrap();
    let told = wake.client.unwrap();
    let path = told.path.unwrap();
    assert!(path.starts_with("/\\x1baaa") && path.len() == 256, "{path}");
    assert_eq!((told.pod, told.namespace), (None, None));
    wake.answer.send(WakeOutcome::Scaled).unwrap();
    assert_eq!(asked.await.unwrap().code, 200);
}

#[tokio::test]
async fn a_wake_that_was_passed_on_is_not_passed_on_again() {
    // Two followers that take each other for the leader.
    let first = Env::start().await;
    let token = first.resolver().await;
    let second = Env::follower(first.server.clone(), first.address).await;
    first.leader.send_replace(Some(second.address));
    let (_server, address, _tasks) = first.worker(WakeOutcome::AlreadyAwake(None));
    let (_server, _, _second_tasks) = second.worker(WakeOutcome::AlreadyAwake(None));
    let answer = post(address, Some(&token), &wake_of("cart")).await;
    assert_eq!(promised(&answer), None);
}

#[tokio::test]
async fn a_leader_that_cannot_be_reached_costs_the_promise_and_not_the_wake() {
    // One that refuses, and one that accepts and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = [silent.local_addr().unwrap(), refusing.local_addr().unwrap()];
    drop(refusing);
    for leader in addresses {
        let server = ApiServer::new(ApiServerConfig::default());
        let follower = Env::follower(server, leader).await;
        let token = follower.resolver().await;
        let (_server, address, _tasks) = follower.worker(WakeOutcome::AlreadyAwake(None));
        let answer = post(address, Some(&token), &wake_of("cart")).await;
        assert_eq!(promised(&answer), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_failed_is_not_called_received_r12() {
    let why = Why::new(Reason::Contended, "Someone set replicas to 0.");
    for (outcome, code, reason, retry) in [
        (WakeOutcome::AlreadyAwake(None), 200, "", false),
        (WakeOutcome::NotManaged, 404, "not-managed", false),
        (WakeOutcome::Refused(why), 503, "refused", false),
        (
            WakeOutcome::Failed { retry: true },
            503,
            "scale-failed",
            true,
        ),
        (
            WakeOutcome::Failed { retry: false },
            503,
            "scale-refused",
            false,
        ),
    ] {
        let env = Env::start().await;
        let token = env.resolver().await;
        let (_server, address, _tasks) = env.worker(outcome.clone());
        let answer = post(address, Some(&token), &wake_of("cart")).await;
        assert_eq!(
            (answer.code, answer.reason().as_str()),
            (code, reason),
            "{outcome:?}"
        );
        assert_eq!(answer.head.contains("retry-after: 1"), retry, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_hangs_or_is_full_is_a_503() {
    let mut env = Env::with(false, 1).await;
    let token = env.resolver().await;
    let address = env.address;
    let one = token.clone();
    let asked = tokio::spawn(async move { post(address, Some(&one), &wake_of("cart")).await });
    drop(env.wakes.recv().await.unwrap());
    assert_eq!(asked.await.unwrap().reason(), "scale-failed");

    let one = token.clone();
    let hangs = tokio::spawn(async move { post(address, Some(&one), &wake_of("cart")).await });
    while env.wakes.is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let full = post(address, Some(&token), &wake_of("other")).await;
    assert_eq!((full.code, full.reason().as_str()), (503, "busy"));
    let late = hangs.await.unwrap();
    assert_eq!((late.code, late.reason().as_str()), (503, "no-answer"));
}

#[tokio::test(start_paused = true)]
async fn only_resolvers_that_kubernetes_vouches_for_can_wake() {
    let mut env = Env::start().await;
    let foreign_audience = env.token("elasti-resolver", "vault").await;
    let no_audience = env
        .token("elasti-resolver", "https://kubernetes.default.svc")
        .await;
    let tenant = env.token("tenant", names::WAKE_AUDIENCE).await;
    let mut forged = env.resolver().await;
    forged.pop();
    let long = "x".repeat(17 * 1024);
    for (token, code, reason) in [
        (None, 401, "no-token"),
        (Some(""), 401, "bad-token"),
        (Some("guess"), 401, "bad-token"),
        (Some(forged.as_str()), 401, "bad-token"),
        (Some(long.as_str()), 401, "bad-token"),
        (Some(foreign_audience.as_str()), 401, "bad-token"),
        (Some(no_audience.as_str()), 401, "bad-token"),
        (Some(tenant.as_str()), 403, "stranger"),
    ] {
        let answer = post(env.address, token, &wake_of("cart")).await;
        assert_eq!(
            (answer.code, answer.reason().as_str()),
            (code, reason),
            "{token:?}"
        );
    }
    assert!(env.wakes.try_recv().is_err(), "no service was woken");
}

#[tokio::test(start_paused = true)]
async fn callers_without_a_token_are_served_only_where_a_flag_allows_it() {
    let env = Env::with(true, 16).await;
    let (server, address, _tasks) = env.worker(WakeOutcome::Scaled);
    assert_eq!(post(address, None, &wake_of("cart")).await.code, 200);
    assert_eq!(reviews(&server), 0);
    // A token that is shown is still checked.
    assert_eq!(
        post(address, Some("guess"), &wake_of("cart")).await.code,
        401
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_token_wakes_are_taken_from_living_resolvers_of_kube_elasti_only() {
    let living = Arc::new(AtomicBool::new(true));
    let lives = living.clone();
    let env = Env::with_endpoint(ApiServer::new(ApiServerConfig::default()), |endpoint| {
        let is_its = |peer: IpAddr| peer == IpAddr::V4(Ipv4Addr::LOCALHOST);
        endpoint.with_tokenless(move |peer| is_its(peer) && lives.load(Ordering::Relaxed))
    });
    let (server, address, _tasks) = env.await.worker(WakeOutcome::Scaled);
    assert_eq!(post(address, None, &wake_of("cart")).await.code, 200);
    let guess = post(address, Some("guess"), &wake_of("cart")).await;
    assert_eq!(guess.code, 401, "a token that is shown is still checked");
    let reviewed = reviews(&server);
    living.store(false, Ordering::Relaxed);
    assert_eq!(post(address, None, &wake_of("cart")).await.code, 401);
    assert_eq!(reviews(&server), reviewed);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_reviewed_once_a_minute_however_many_wakes_come() {
    let env = Env::with(false, 1000).await;
    let token = env.resolver().await;
    let (server, address, _tasks) = env.worker(WakeOutcome::Scaled);
    // The first review takes a while, so all others come during it.
    let slow = Fault::Delay(Duration::from_millis(500));
    server
        .faults()
        .strike(1, Calls::all().kind("tokenreviews"), slow);
    let mut together = JoinSet::new();
    for at in 0..50 {
        let token = token.clone();
        together.spawn(async move {
            post(address, Some(&token), &wake_of(&format!("s{at}")))
                .await
                .code
        });
    }
    assert!(together.join_all().await.iter().all(|code| *code == 200));
    assert_eq!(reviews(&server), 1);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(
        post(address, Some(&token), &wake_of("cart")).await.code,
        200
    );
    assert_eq!(reviews(&server), 1);
    sleep(Duration::from_secs(31)).await;
    assert_eq!(
        post(address, Some(&token), &wake_of("cart")).await.code,
        200
    );
    assert_eq!(reviews(&server), 2);
}

#[tokio::test(start_paused = true)]
async fn while_kubernetes_cannot_say_whose_token_it_is_the_answer_is_try_again() {
    let env = Env::start().await;
    let token = env.resolver().await;
    let (server, address, _tasks) = env.worker(WakeOutcome::Scaled);
    for fault in [Fault::InternalError, Fault::Delay(Duration::from_secs(60))] {
        server
            .faults()
            .strike(1, Calls::all().kind("tokenreviews"), fault);
        let answer = post(address, Some(&token), &wake_of("cart")).await;
        assert_eq!(
            (answer.code, answer.reason().as_str()),
            (503, "token-not-reviewed"),
            "{fault:?}"
        );
    }
    assert_eq!(
        post(address, Some(&token), &wake_of("cart")).await.code,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn guessing_tokens_is_slow_and_keeps_no_resolver_out() {
    let env = Env::start().await;
    let token = env.resolver().await;
    let (server, address, _tasks) = env.worker(WakeOutcome::Scaled);
    assert_eq!(
        post(address, Some(&token), &wake_of("cart")).await.code,
        200
    );
    let before = reviews(&server);
    let mut too_often = 0;
    for at in 0..200 {
        let answer = post(address, Some(&format!("guess-{at}")), &wake_of("cart")).await;
        assert!(matches!(answer.code, 401 | 429), "{answer:?}");
        too_often += usize::from(answer.code == 429);
    }
    assert!(too_often >= 150, "{too_often}");
    assert!(
        reviews(&server) - before <= 50,
        "{}",
        reviews(&server) - before
    );
    assert_eq!(
        post(address, Some(&token), &wake_of("cart")).await.code,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_asked_for_without_end_is_slowed_down_and_no_other() {
    let env = Env::start().await;
    let token = env.resolver().await;
    let (_server, address, _tasks) = env.worker(WakeOutcome::AlreadyAwake(None));
    let mut refused = 0;
    for _ in 0..400 {
        let answer = post(address, Some(&token), &wake_of("noisy")).await;
        if answer.code == 429 {
            assert_eq!(answer.reason(), "too-often");
            refused += 1;
        }
    }
    assert!(refused > 50, "{refused}");
    assert_eq!(
        post(address, Some(&token), &wake_of("cart")).await.code,
        200
    );
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        post(address, Some(&token), &wake_of("noisy")).await.code,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_asks_without_end_slows_down_no_other_namespace() {
    let env = Env::start().await;
    let token = env.resolver().await;
    let (_server, address, _tasks) = env.worker(WakeOutcome::AlreadyAwake(None));
    let mut refused = 0;
    for at in 0..3000 {
        let wake = format!(r#"{{"count":1,"svc":"app-{at}","namespace":"noisy"}}"#);
        refused += usize::from(post(address, Some(&token), &wake).await.code == 429);
    }
    assert!(refused > 500, "{refused}");
    let other = r#"{"count":1,"svc":"cart","namespace":"quiet"}"#;
    assert_eq!(post(address, Some(&token), other).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_no_wake_is_refused_and_wakes_nothing() {
    let mut env = Env::start().await;
    let token = env.resolver().await;
    let large = format!("{}{}", " ".repeat(5000), wake_of("cart"));
    for body in [
        "",
        "{}",
        "[]",
        "cart",
        r#"{"count":1,"svc":"cart"}"#,
        r#"{"count":1,"svc":"","namespace":"shop"}"#,
        r#"{"count":1,"svc":"cart","namespace":""}"#,
        r#"{"count":-1,"svc":"cart","namespace":"shop"}"#,
        r#"{"count":1,"svc":"../cart","namespace":"shop"}"#,
        r#"{"count":1,"svc":"Cart","namespace":"shop"}"#,
        r#"{"count":1,"svc":7,"namespace":"shop"}"#,
        large.as_str(),
    ] {
        let answer = post(env.address, Some(&token), body).await;
        assert_eq!(
            (answer.code, answer.reason().as_str()),
            (400, "not-a-wake"),
            "{body}"
        );
    }
    assert!(env.wakes.try_recv().is_err());
    // A body that never comes.
    let text = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\nContent-Length: 50\r\n\r\n{{",
        names::WAKE_PATH
    );
    assert_eq!(send(env.address, &text).await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn metrics_are_served_beside_and_nothing_else() {
    let env = Env::start().await;
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(post(env.address, None, "{}").await.code, 401);
    let metrics = send(env.address, &get("/metrics")).await;
    let refused = "elasti_operator_wake_refusal_counter{reason=\"no-token\"} 1\n";
    assert_eq!(metrics.code, 200);
    assert!(metrics.body.contains(refused), "{}", metrics.body);
    assert!(
        metrics.head.contains("text/plain; version=0.0.4"),
        "{metrics:?}"
    );
    assert_eq!(send(env.address, &get(names::WAKE_PATH)).await.code, 405);
    assert_eq!(send(env.address, &get("/")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn connections_without_a_word_end_and_one_peer_cannot_have_them_all() {
    let env = Env::start().await;
    let (_server, address, _tasks) = env.worker(WakeOutcome::Scaled);
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    // One more of the same peer is turned away at once.
    let started = Instant::now();
    let mut more = TcpStream::connect(address).await.unwrap();
    assert_eq!(more.read(&mut [0; 1]).await.unwrap_or(0), 0);
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    for mut stream in silent {
        assert_eq!(
            stream.read(&mut [0; 1]).await.unwrap_or(0),
            0,
            "it is closed"
        );
    }
    assert!(started.elapsed() >= Duration::from_secs(30));
    assert_eq!(post(address, None, &wake_of("cart")).await.code, 401);
}

/// What a good token says, from a while ago until in an hour.
fn claims() -> Value {
    let now = jiff::Timestamp::now().as_second();
    json!({"iss": ISSUER, "sub": RESOLVER, "aud": [names::WAKE_AUDIENCE], "nbf": now - 600, "exp": now + 3600})
}

/// The same text under a header that its holder wrote.
fn with_header(token: &str, header: &Value, signature: &str) -> String {
    use base64::Engine as _;
    let header = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(header.to_string());
    let claims = token.split('.').nth(1).unwrap();
    format!("{header}.{claims}.{signature}")
}

#[tokio::test(start_paused = true)]
async fn where_reviews_are_not_allowed_only_what_this_cluster_signed_for_us_can_wake() {
    let mut env = Env::without_permissions().await;
    let good = env.server.sign(&claims());
    let but = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        env.server.sign(&claims)
    };
    let elsewhere = ApiServer::new(ApiServerConfig::default());
    let signature = good.rsplit('.').next().unwrap();
    let header = |part: &str| with_header(&good, &serde_json::from_str(part).unwrap(), signature);
    let seconds = jiff::Timestamp::now().as_second();
    let other = env.server.sign(&json!({}));
    let (signed, _) = good.rsplit_once('.').unwrap();
    let forged = format!("{signed}.{}", other.rsplit('.').next().unwrap());
    for (token, code, message) in [
        ("guess".to_owned(), 401, "not a service account token"),
        (forged, 401, "signature is wrong"),
        (elsewhere.sign(&claims()), 401, "key is unknown"),
        (
            header(r#"{"alg":"ES256","kid":"mine"}"#),
            401,
            "key is unknown",
        ),
        (
            but("aud", json!(["vault"])),
            401,
            "meant for another audience",
        ),
        (
            but("iss", json!("https://elsewhere")),
            401,
            "issuer is not this cluster",
        ),
        (but("exp", json!(seconds - 120)), 401, "has expired"),
        (but("nbf", json!(seconds + 600)), 401, "not valid yet"),
        (
            but("sub", json!("system:serviceaccount:default:tenant")),
            403,
            "not known here",
        ),
    ] {
        // Token checks are rate-limited for every caller.
        sleep(Duration::from_secs(1)).await;
        let answer = post(env.address, Some(&token), &wake_of("cart")).await;
        assert_eq!(answer.code, code, "{message}: {answer:?}");
        assert!(answer.body.contains(message), "{message}: {answer:?}");
        let reason = if code == 403 { "stranger" } else { "bad-token" };
        assert_eq!(answer.reason(), reason, "{answer:?}");
    }
    let none = with_header(&good, &json!({"alg": "none", "kid": key_id(&good)}), "");
    let answer = post(env.address, Some(&none), &wake_of("cart")).await;
    assert_eq!(answer.code, 401);
    assert!(answer.body.contains("algorithm"), "{answer:?}");
    assert!(env.wakes.try_recv().is_err(), "no service was woken");

    let real = env.resolver().await;
    let (server, address, _tasks) = env.worker(WakeOutcome::Scaled);
    for token in [good, real] {
        let answer = post(address, Some(&token), &wake_of("cart")).await;
        assert_eq!(answer.code, 200, "{answer:?}");
    }
    assert_eq!(reviews(&server), 0);
}

fn key_id(token: &str) -> Value {
    use base64::Engine as _;
    let header = token.split('.').next().unwrap();
    let header = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(header);
    let header: Value = serde_json::from_slice(&header.unwrap()).unwrap();
    header["kid"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_new_signing_key_is_found_before_a_resolver_gives_up() {
    let env = Env::without_permissions().await;
    let before = env.resolver().await;
    let server = env.server.clone();
    let (_, address, _tasks) = env.worker(WakeOutcome::Scaled);
    assert_eq!(
        post(address, Some(&before), &wake_of("cart")).await.code,
        200
    );
    server.rotate_signing_keys();
    let after = server.sign(&claims());
    assert_ne!(key_id(&before), key_id(&after));
    let mut refused = 0;
    loop {
        let answer = post(address, Some(&after), &wake_of("cart")).await;
        if answer.code == 200 {
            break;
        }
        assert!(answer.body.contains("key is unknown"), "{answer:?}");
        refused += 1;
        assert!(refused < 30, "the new key is never found");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(
        post(address, Some(&before), &wake_of("cart")).await.code,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_loses_the_right_to_review_goes_on_with_the_keys() {
    let server = strict_server();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reviews"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "elasti-operator", "namespace": "default"}],
    });
    let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(server.client());
    let binding = serde_json::from_value(binding).unwrap();
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
    let env = Env::as_account(server).await;
    let token = env.resolver().await;
    let (server, address, _tasks) = env.worker(WakeOutcome::Scaled);
    assert_eq!(
        post(address, Some(&token), &wake_of("cart")).await.code,
        200
    );
    assert_eq!(
        reviews(&server),
        1,
        "with the permission, Kubernetes is asked"
    );

    bindings
        .delete("reviews", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    sleep(Duration::from_secs(61)).await;
    let answer = post(address, Some(&token), &wake_of("cart")).await;
    assert_eq!(
        (answer.code, answer.reason().as_str()),
        (503, "token-not-reviewed")
    );
    assert_eq!(
        post(address, Some(&token), &wake_of("cart")).await.code,
        200
    );
    assert_eq!(reviews(&server), 2);
}
