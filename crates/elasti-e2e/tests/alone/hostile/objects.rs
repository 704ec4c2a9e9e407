//! What a tenant writes into the API: odd, large, many, or changing all the time.

use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{MERGE, OPERATOR_USER};
use elasti_fake_cluster::faults::{Calls, Fault};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::tenant::{
    AAA, ATTACKER, ELASTI_SERVICES, SERVICES, Tenant, amount, ask, deployment, elasti_service,
};

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/aaa/endpointslices";
const CREATE: &str = "application/json";
/// How long a write hangs: far longer than a step of a neighbour's.
const HANGS_FOR: Duration = Duration::from_secs(3);

impl Tenant {
    pub(super) async fn made_up_kinds(&self) {
        for n in 0..60 {
            let name = format!("bogus-{n}");
            let api_version = format!("g{n}.example/v1");
            let target = json!({"apiVersion": api_version, "kind": "Thing", "name": name});
            self.make(&name, json!({"scaleTargetRef": target})).await;
        }
    }

    pub(super) async fn old_version_of_deployment(&self) {
        let target = json!({"apiVersion": "apps/v1beta1", "kind": "Deployment", "name": "old"});
        self.make("old", json!({"scaleTargetRef": target})).await;
    }

    /// What the API server refuses has done no harm.
    pub(super) async fn odd_schedules(&self) {
        let windows = [
            json!([{"schedule": "* * * * *", "duration": "30s"}]),
            json!([{"schedule": "* * * * *", "duration": "1m", "timeZone": "Mars/Olympus"}]),
            json!([{"schedule": "0 0 31 2 *", "duration": "999999h"}]),
        ];
        for (n, window) in windows.iter().cycle().take(30).enumerate() {
            let object = elasti_service(&format!("odd-{n}"), &json!({"enabledPeriods": window}));
            let api = self.env.api();
            api.send("POST", ELASTI_SERVICES, CREATE, object.to_string())
                .await;
        }
    }

    pub(super) async fn giant_objects(&self) {
        for n in 0..10 {
            let name = format!("giant-{n}");
            self.make(&name, json!({})).await;
            let huge = json!({"metadata": {"annotations": {"x": "x".repeat(200 * 1024)}}});
            let path = format!("{ELASTI_SERVICES}/{name}");
            self.env.api().patch(&path, MERGE, huge).await;
        }
    }

    pub(super) async fn neighbours_names(&self) {
        self.make("web", json!({})).await;
        let service = json!({"metadata": {"name": "web"}, "spec": {
            "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]}});
        self.env.api().make(SERVICES, service).await;
    }

    /// What the API server refuses has done no harm.
    pub(super) async fn targets_elsewhere(&self) {
        let services = ["default/web", "web.default", "../default/services/web"];
        for (n, service) in services.into_iter().enumerate() {
            let mut target = deployment("web");
            target["namespace"] = json!("default");
            for target in [target, deployment("../../default/deployments/web")] {
                let more =
                    json!({"service": service, "scaleTargetRef": target, "cooldownPeriod": 1});
                let name = format!("elsewhere-{n}-{}", target["name"] == "web");
                let object = elasti_service(&name, &more).to_string();
                let api = self.env.api();
                api.send("POST", ELASTI_SERVICES, CREATE, object).await;
            }
        }
    }

    pub(super) async fn hand_written_slices(&self) {
        let private = names::private_service("web");
        let labels = json!({
            names::SERVICE_NAME_LABEL: private, names::ELASTI_SERVICE_LABEL: "web",
            names::SLICE_MANAGED_BY_LABEL: names::SLICE_MANAGED_BY_KUBERNETES,
        });
        let endpoint = json!({
            "addresses": ["169.254.169.254"], "conditions": {"ready": true},
            "targetRef": {"kind": "Pod", "namespace": "default", "name": "web", "uid": "1"},
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "false", "labels": labels}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}], "endpoints": [endpoint],
        });
        self.env.api().make(SLICES, slice).await;
    }

    /// Of a service of its own, as the endpoint-slice controller writes them, and for a pod of its own: only the address is
    /// the neighbour's. Whatever the controller does about it, it is written again, with requests all the time.
    pub(super) async fn forged_addresses(&mut self) {
        let deputy = self.never_starts("deputy", json!({})).await;
        deputy.until_asleep().await;
        let pod = self.make_ready_pod("deputy-own", json!({}), json!({}), ATTACKER.into());
        let target =
            json!({"kind": "Pod", "namespace": AAA, "name": "deputy-own", "uid": pod.await});
        let service = deputy.blueprint.name;
        let labels = json!({
            names::SERVICE_NAME_LABEL: names::private_service(service), names::ELASTI_SERVICE_LABEL: service,
            names::SLICE_MANAGED_BY_LABEL: names::SLICE_MANAGED_BY_KUBERNETES,
        });
        let (env, neighbours) = (self.env.clone(), self.web.pods_path());
        self.tasks.spawn(async move {
            loop {
                for pod in env.api().items(&neighbours).await {
                    let endpoint = json!({"addresses": [pod["status"]["podIP"]],
                        "conditions": {"ready": true}, "targetRef": target});
                    let slice = json!({
                        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
                        "metadata": {"name": "forged", "labels": labels}, "endpoints": [endpoint],
                        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
                    });
                    let (api, slice) = (env.api(), slice.to_string());
                    api.send("POST", SLICES, CREATE, slice.clone()).await;
                    api.send("PATCH", &format!("{SLICES}/forged"), MERGE, slice).await;
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
        let address = deputy.address(80);
        self.tasks.spawn(async move {
            loop {
                let asked = ask(
                    &address,
                    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                );
                let code = timeout(Duration::from_secs(1), asked).await.ok().flatten();
                assert!(
                    code.is_none_or(|code| code >= 400),
                    "the neighbour answered {code:?}"
                );
                sleep(Duration::from_millis(50)).await;
            }
        });
    }

    pub(super) async fn many_services(&self) {
        for n in 0..amount(100, 500) {
            self.make(&format!("many-{n}"), json!({})).await;
        }
    }

    pub(super) async fn one_selector(&self) {
        let crowd = self.never_starts("crowd", json!({})).await;
        for n in 0..amount(100, 500) {
            let service = json!({"metadata": {"name": format!("crowd-{n}")}, "spec": {
                "selector": {"app": crowd.blueprint.name}, "ports": [{"name": "http", "port": 80}]}});
            self.env.api().make(SERVICES, service).await;
        }
    }

    pub(super) async fn flapping_specs(&mut self) {
        self.make("flap", json!({})).await;
        let path = format!("{ELASTI_SERVICES}/flap");
        self.change_for_ever(
            path,
            Duration::from_millis(20),
            |n| json!({"spec": {"cooldownPeriod": 1 + n % 1000, "paused": n % 2 == 0}}),
        );
    }

    pub(super) async fn wake_and_sleep(&mut self) {
        let restless = self.never_starts("restless", json!({})).await;
        self.change_for_ever(restless.path(), Duration::from_millis(50), |n| {
            let asked = [
                names::WAKE_REQUESTED_ANNOTATION,
                names::SLEEP_REQUESTED_ANNOTATION,
            ];
            let at = format!("2026-03-02T08:00:{:02}.{:03}Z", n / 1000 % 60, n % 1000);
            let annotation = asked.get(usize::from(n % 2 == 0)).copied();
            json!({"metadata": {"annotations": {annotation.unwrap_or_default(): at}}})
        });
    }

    pub(super) async fn changing_ports(&mut self) {
        let restless = self.never_starts("ports", json!({})).await;
        let path = format!("{SERVICES}/{}", restless.blueprint.name);
        self.change_for_ever(path, Duration::from_millis(200), |n| {
            let first = 1 + 20 * (n % 3000);
            let ports: Vec<Value> = (first..first + 20)
                .map(|port| json!({"name": format!("p{port}"), "port": port}))
                .collect();
            json!({"spec": {"ports": ports}})
        });
    }

    pub(super) async fn claimed_ports(&mut self) {
        self.make("claims", json!({})).await;
        let ports = self.web.object().await["status"]["ports"].clone();
        let path = format!("{ELASTI_SERVICES}/claims/status");
        let claims = json!({"status": {"ports": ports}});
        self.env.api().patch(&path, MERGE, claims.clone()).await;
        self.change_for_ever(path, Duration::from_millis(100), move |_| claims.clone());
    }

    /// With a request that is held, so that there is a reason to wake it.
    pub(super) async fn scale_fights(&mut self) {
        let fought = self.never_starts("fought", json!({})).await;
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        fought.until_asleep().await;
        self.open(1, &fought.address(80), request).await;
        let path = format!("{}/scale?fieldManager=fighter", fought.target_path());
        let zero = |_| json!({"spec": {"replicas": 0}});
        self.change_for_ever(path, Duration::from_millis(50), zero);
    }

    pub(super) fn namespace_again(&mut self) {
        let env = self.env.clone();
        self.tasks.spawn(async move {
            let (namespaces, path) = ("/api/v1/namespaces", "/api/v1/namespaces/aab");
            let objects = ELASTI_SERVICES.replace(AAA, "aab");
            loop {
                let api = env.api();
                let namespace = json!({"metadata": {"name": "aab"}}).to_string();
                api.send("POST", namespaces, CREATE, namespace).await;
                let object = elasti_service("again", &json!({})).to_string();
                api.send("POST", &objects, CREATE, object).await;
                sleep(Duration::from_millis(100)).await;
                api.send("DELETE", path, CREATE, "").await;
                sleep(Duration::from_millis(100)).await;
            }
        });
    }

    pub(super) async fn never_deleted(&self) {
        for n in 0..20 {
            let name = format!("never-{n}");
            let mut object = elasti_service(&name, &json!({}));
            object["metadata"]["finalizers"] = json!(["example.com/never"]);
            self.env.api().make(ELASTI_SERVICES, object).await;
            let path = format!("{ELASTI_SERVICES}/{name}");
            self.env.api().delete(&path).await;
        }
    }

    pub(super) fn refused_writes(&self) {
        let faults = self.env.fake_cluster().server.faults();
        let calls = Calls::writes().namespace(AAA).user(OPERATOR_USER);
        faults.strike_randomly(300, calls, Fault::Refuse);
    }

    pub(crate) fn hanging_writes(&self) {
        let faults = self.env.fake_cluster().server.faults();
        let calls = Calls::writes().namespace(AAA).user(OPERATOR_USER);
        faults.strike_randomly(1000, calls, Fault::Delay(HANGS_FOR));
    }

    pub(super) fn hanging_events(&self) {
        let faults = self.env.fake_cluster().server.faults();
        let calls = Calls::writes().kind("events").namespace(AAA);
        faults.strike_randomly(1000, calls, Fault::Delay(3 * HANGS_FOR));
    }
}
