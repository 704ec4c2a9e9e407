//! Traefik in front of a managed Service: it follows EndpointSlices itself, or sends to the cluster IP, or checks health.

use std::time::Duration;

use elasti_e2e::{
    Answer, App, Blueprint, Edge, MERGE, PodWatcher, TestEnv, blueprint, get, traefik, until,
};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Those who come at once while the app sleeps.
const VISITORS: usize = 20;
/// How often an app falls asleep under requests.
const SLEEPS: usize = 6;
/// With it on the Service, an Ingress sends to the cluster IP.
const NATIVE_LB: &str = "traefik.ingress.kubernetes.io/service.nativelb";
/// What Traefik's health checks ask for.
const HEALTH: &str = "/healthz";
/// How long an app sleeps under health checks twice a second.
const CHECKED: Duration = Duration::from_secs(8);

/// An app, and the host by which Traefik knows it.
#[derive(Clone)]
struct Site {
    env: TestEnv,
    app: App,
    host: String,
    gateway: String,
    admin: String,
}

impl Site {
    /// Behind an Ingress.
    async fn deploy(app: Blueprint) -> Self {
        let this = Self::build(app).await;
        let object = this.ingress(this.app.blueprint.name, &this.host);
        this.env.api().make(&this.ingresses(), object).await;
        this.until_routed().await;
        this
    }

    /// Behind an Ingress that sends to the cluster IP.
    async fn deploy_native(app: Blueprint) -> Self {
        let this = Self::build(app).await;
        let service = format!("{}/{}", this.app.core("services"), this.app.blueprint.name);
        let native = json!({"metadata": {"annotations": {NATIVE_LB: "true"}}});
        this.env.api().patch(&service, MERGE, native).await;
        let object = this.ingress(this.app.blueprint.name, &this.host);
        this.env.api().make(&this.ingresses(), object).await;
        this.until_routed().await;
        this
    }

    /// Adds an IngressRoute with active health checks. They are for Services of type ExternalName only; this one's name is
    /// the app's cluster IP, because Traefik runs where cluster names do not resolve.
    async fn check_health(&self) {
        let name = format!("{}-checked", self.app.blueprint.name);
        let port = json!({"name": "http", "port": 80});
        let spec = json!({"type": "ExternalName", "externalName": self.app.ip, "ports": [port]});
        let service = json!({"metadata": {"name": name}, "spec": spec});
        let services = self.app.core("services");
        self.env.api().make(&services, service).await;
        let check = json!({"path": HEALTH, "interval": "500ms", "timeout": "400ms"});
        let backend = json!({"name": name, "port": 80, "healthCheck": check});
        let host = format!("Host(`{}`)", self.host);
        let route = json!({"kind": "Rule", "match": host, "services": [backend]});
        let object = json!({
            "apiVersion": "traefik.io/v1alpha1", "kind": "IngressRoute", "metadata": {"name": name},
            "spec": {"entryPoints": ["web"], "routes": [route]},
        });
        let home = self.env.home();
        let routes = format!("/apis/traefik.io/v1alpha1/namespaces/{home}/ingressroutes");
        self.env.api().make(&routes, object).await;
    }

    async fn build(app: Blueprint) -> Self {
        let env = TestEnv::start().await;
        let app = env.build(app).await;
        let (gateway, admin) = traefik();
        let host = format!("{}.{}.example", app.blueprint.name, env.home());
        Self {
            env,
            app,
            host,
            gateway,
            admin,
        }
    }

    fn ingresses(&self) -> String {
        let home = self.env.home();
        format!("/apis/networking.k8s.io/v1/namespaces/{home}/ingresses")
    }

    fn ingress(&self, name: &str, host: &str) -> Value {
        let service = json!({"name": self.app.blueprint.name, "port": {"number": 80}});
        let path = json!({"path": "/", "pathType": "Prefix", "backend": {"service": service}});
        json!({"metadata": {"name": name}, "spec": {"rules": [{"host": host, "http": {"paths": [path]}}]}})
    }

    async fn until_routed(&self) {
        until("Traefik knows the host", async || {
            let path = format!("/{}/route", self.app.blueprint.name);
            let answer = elasti_e2e::get_of(&self.gateway, &self.host, &path).await;
            answer.is_ok_and(|answer| answer.code() == 200)
        })
        .await;
    }

    async fn visit(&self) -> Answer {
        let answer = self.app.get_through(&self.gateway, &self.host).await;
        let answer = answer.unwrap_or_else(|lost| panic!("lost: {lost:?}"));
        assert_eq!(answer.code(), 200, "{answer:?}");
        answer
    }

    /// Those who come at once; gives their answers.
    async fn visits(&self) -> Vec<Answer> {
        join_all((0..VISITORS).map(|_| self.visit())).await
    }

    /// Requests by way of Traefik reach the pods without a resolver; gives how many did not, before. One is not enough:
    /// after a wake Traefik may take turns between pods and resolvers, until its throttle lets the next change through.
    async fn until_direct(&self) -> usize {
        let (mut indirect, mut in_a_row) = (0, 0);
        until("Traefik sends to the pods only", async || {
            if is_direct(&self.visit().await) {
                in_a_row += 1;
            } else {
                indirect += 1;
                in_a_row = 0;
            }
            in_a_row == VISITORS
        })
        .await;
        indirect
    }

    /// What Traefik says of the Service, with the addresses that it would send to.
    async fn known(&self) -> String {
        let (home, name) = (self.env.home(), self.app.blueprint.name);
        let path = format!("/api/http/services/{home}-{name}-80@kubernetes");
        get(&self.admin, &path)
            .await
            .map(|answer| answer.body)
            .unwrap_or_default()
    }

    /// Until Traefik sends to one of these addresses, or to none of them; gives how long that took.
    async fn until_known(&self, addresses: &[String], wanted: bool) -> Duration {
        let since = Instant::now();
        until("Traefik has followed the slice", async || {
            let known = self.known().await;
            let sent_to = |address: &String| known.contains(&format!("http://{address}:"));
            addresses.iter().any(sent_to) == wanted
        })
        .await;
        since.elapsed()
    }
}

/// Traefik names the client, and a resolver adds Traefik.
fn is_direct(answer: &Answer) -> bool {
    let echo = answer.json();
    let clients = echo["headers"]["x-forwarded-for"].as_str();
    !clients.unwrap_or_default().contains(',')
}

async fn lives(site: &Site) {
    let web = &site.app;
    web.until_serving().await;
    for _ in 0..2 {
        site.until_direct().await;
        // Some of them meet the drain and call it off.
        web.idle();
        let until = Instant::now() + Duration::from_secs(8);
        while Instant::now() < until {
            site.visit().await;
            sleep(Duration::from_millis(20)).await;
        }
        web.until_asleep().await;
        // Until they end, pods answer on connections that Traefik has kept.
        web.until_nodes_follow().await;
        let answers = site.visits().await;
        assert!(!answers.iter().any(is_direct), "it slept");
        web.busy();
        web.until_serving().await;
        let indirect = site.until_direct().await;
        println!("{indirect} requests after the wake still went by a resolver");
        for _ in 0..VISITORS {
            assert!(
                is_direct(&site.visit().await),
                "a resolver is in the path again"
            );
        }
    }
    site.env.requests().assert_nothing_lost();
    println!("{} requests, none lost", site.env.requests().all().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real Traefik: cargo xtask e2e --partners"]
async fn traefik_follows_our_slice_to_the_resolvers_and_back_to_the_pods() {
    lives(&Site::deploy(blueprint("web")).await).await;
}

/// Changes another host every 50 ms, so that Traefik always waits for its throttle before it applies a change.
async fn keep_busy(site: Site) {
    let other = site.ingress("other", "other.example");
    site.env.api().make(&site.ingresses(), other).await;
    let path = format!("{}/other", site.ingresses());
    for n in 0.. {
        let rules = site.ingress("other", &format!("other-{n}.example"))["spec"].clone();
        site.env
            .api()
            .patch(&path, MERGE, json!({"spec": rules}))
            .await;
        sleep(Duration::from_millis(50)).await;
    }
}

async fn pod_addresses(app: &App, env: &TestEnv) -> Vec<String> {
    let pods = env.api().items(&app.pods_path()).await;
    let addresses = pods.iter().map(|pod| pod["status"]["podIP"].as_str());
    addresses.flatten().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real Traefik: cargo xtask e2e --partners"]
async fn a_traefik_that_follows_slices_as_late_as_it_ever_does_sends_to_no_pod_that_is_gone() {
    let site = Site::deploy(blueprint("web")).await;
    let busy = tokio::spawn(keep_busy(site.clone()));
    let web = &site.app;
    let watcher = PodWatcher::start(&site.env);
    let mut edges = watcher.edges(web);
    for _ in 0..SLEEPS {
        web.until_serving().await;
        site.until_direct().await;
        let pods = pod_addresses(web, &site.env).await;
        web.idle();
        while edges.recv().await.unwrap() != Edge::RotationEmpty {}
        let followed = async {
            let took = site.until_known(&pods, false).await;
            println!("Traefik followed a pod out of rotation after {took:?}");
        };
        let requests = async {
            while edges.recv().await.unwrap() != Edge::Zero {}
            // From here on a request at a resolver cannot keep the pods alive.
            let requests = (0..100).map(async |n| {
                sleep(Duration::from_millis(20) * n).await;
                site.visit().await
            });
            join_all(requests).await;
        };
        tokio::join!(followed, requests);
        web.busy();
    }
    busy.abort();
    site.env.requests().assert_nothing_lost();
    println!("{} requests, none lost", site.env.requests().all().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real Traefik: cargo xtask e2e --partners"]
async fn a_traefik_that_sends_to_the_cluster_ip_loses_nothing_in_sleeps_and_wakes() {
    let site = Site::deploy_native(blueprint("web")).await;
    let known = site.known().await;
    assert!(
        known.contains(&format!("http://{}:80", site.app.ip)),
        "{known}"
    );
    let pods = pod_addresses(&site.app, &site.env).await;
    assert!(
        !pods.iter().any(|pod| known.contains(pod.as_str())),
        "{known}"
    );
    lives(&site).await;
    // It followed no slice meanwhile.
    assert_eq!(site.known().await, known);
}

/// An app with these rules for health checks.
fn checked(probe_response: &Value) -> Blueprint {
    let mut app = blueprint("web");
    app.spec = json!({"cooldownPeriod": 3, "probeResponse": probe_response});
    app
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real Traefik: cargo xtask e2e --partners"]
async fn traefiks_health_checks_do_not_keep_an_app_awake_that_has_a_rule_for_them() {
    let path = json!({"type": "Exact", "value": HEALTH});
    let rule = json!([{"path": path, "response": {"status": 200}}]);
    let site = Site::build(checked(&rule)).await;
    site.check_health().await;
    site.until_routed().await;
    let web = &site.app;
    for _ in 0..2 {
        web.until_serving().await;
        web.fall_asleep().await;
        sleep(CHECKED).await;
        assert_eq!(web.replicas().await, 0, "a health check woke it");
        // If the checks had failed, Traefik would answer 503 itself.
        site.visits().await;
        web.busy();
    }
    site.env.requests().assert_nothing_lost();
    println!("{} requests, none lost", site.env.requests().all().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real Traefik: cargo xtask e2e --partners"]
async fn traefiks_health_checks_wake_an_app_that_has_no_rule_for_them() {
    let site = Site::build(checked(&json!([]))).await;
    let web = &site.app;
    web.until_serving().await;
    web.fall_asleep().await;
    // No client comes.
    site.check_health().await;
    until("a health check wakes it", async || web.replicas().await > 0).await;
}
