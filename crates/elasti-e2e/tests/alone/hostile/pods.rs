//! What a tenant's pods claim to be, and how they behave.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{STRATEGIC, blueprint};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::tenant::{AAA, ATTACKER, PODS, Tenant, wake};

/// A pod of the tenant's, and what its probe names.
const AIMED_FROM: Ipv4Addr = Ipv4Addr::new(127, 252, 0, 2);
const AIMED_AT: Ipv4Addr = Ipv4Addr::new(127, 252, 0, 3);

impl Tenant {
    /// A pod that no kubelet has, reported as ready at this address; gives its uid.
    pub(super) async fn make_ready_pod(
        &self,
        name: &str,
        labels: Value,
        spec: Value,
        address: IpAddr,
    ) -> Value {
        let mut pod = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"nodeName": "elsewhere", "containers": [{"name": "app", "image": "local"}]},
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        let made = self.env.api().make(PODS, pod).await;
        let status = json!({"status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let path = format!("{PODS}/{name}/status");
        self.env.api().patch(&path, STRATEGIC, status).await;
        made["metadata"]["uid"].clone()
    }

    pub(crate) async fn false_resolvers(&self) {
        for n in 0..5 {
            let labels = json!({names::RESOLVER_LABEL: names::RESOLVER_LABEL_VALUE});
            let address = IpAddr::from([203, 0, 113, n]);
            let name = format!("resolver-{n}");
            self.make_ready_pod(&name, labels, json!({}), address).await;
        }
    }

    pub(super) async fn false_predecessors(&mut self) {
        let labels = json!({names::RESOLVER_LABEL: names::RESOLVER_LABEL_VALUE});
        let address = ATTACKER.into();
        self.make_ready_pod("predecessor", labels, json!({}), address)
            .await;
        self.press_for_wakes(&[""]);
    }

    pub(super) fn wakes_without_token(&mut self) {
        self.press_for_wakes(&["", "Authorization: Bearer made.up.token\r\n"]);
    }

    /// Asks the operator to wake the neighbour, all the time. The attack has ended, and the suite fails, if it does.
    fn press_for_wakes(&mut self, authorizations: &'static [&'static str]) {
        let address = format!("{}:8013", self.env.operator_address(0));
        self.tasks.spawn(async move {
            for authorization in authorizations.iter().cycle() {
                let code = wake(&address, authorization).await;
                assert_ne!(code, Some(200));
                sleep(Duration::from_millis(10)).await;
            }
        });
    }

    pub(super) async fn flapping_pods(&mut self) {
        let flapping = self.never_starts("flapping", json!({})).await;
        let labels = json!({"app": flapping.blueprint.name});
        for n in 0..3 {
            let name = format!("flapping-{n}");
            let address = IpAddr::from([203, 0, 113, 100 + n]);
            self.make_ready_pod(&name, labels.clone(), json!({}), address)
                .await;
        }
        let env = self.env.clone();
        self.tasks.spawn(async move {
            for ready in ["False", "True"].into_iter().cycle() {
                for n in 0..3 {
                    let status =
                        json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
                    let path = format!("{PODS}/flapping-{n}/status");
                    let api = env.api();
                    api.send("PATCH", &path, STRATEGIC, status.to_string())
                        .await;
                }
                sleep(Duration::from_millis(100)).await;
            }
        });
    }

    /// A pod that runs and is not ready, with a request for it. Its probe names another host, which a kubelet would ask; a
    /// resolver must ask neither that one nor the pod.
    pub(super) async fn aimed_probes(&mut self) {
        let trap = TcpListener::bind((AIMED_AT, 0)).await.unwrap();
        let port = trap.local_addr().unwrap().port();
        let own = TcpListener::bind((AIMED_FROM, port)).await.unwrap();
        let aimed = self.never_starts("aimed", json!({})).await;
        let probe =
            json!({"periodSeconds": 1, "httpGet": {"path": "/", "port": port, "host": AIMED_AT}});
        let container = json!({"name": "app", "image": "local", "readinessProbe": probe,
            "ports": [{"name": "http", "containerPort": port}]});
        aimed.until_asleep().await;
        let pod = json!({"metadata": {"name": "aimed", "labels": {"app": aimed.blueprint.name}},
            "spec": {"nodeName": "elsewhere", "containers": [container]}});
        self.env.api().make(PODS, pod).await;
        let running = json!({"name": "app", "image": "local", "imageID": "", "ready": false, "restartCount": 0,
            "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
        let status = json!({"status": {"phase": "Running", "podIP": AIMED_FROM, "podIPs": [{"ip": AIMED_FROM}],
            "containerStatuses": [running], "conditions": [{"type": "Ready", "status": "False"}]}});
        let path = format!("{PODS}/aimed/status");
        self.env.api().patch(&path, STRATEGIC, status).await;
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        self.open(1, &aimed.address(80), request).await;
        self.tasks.spawn(async move {
            let asked = tokio::select! {
                _ = trap.accept() => "the other host",
                _ = own.accept() => "the pod",
            };
            panic!("a resolver asked {asked}");
        });
    }

    pub(super) async fn pressed_probes(&mut self) {
        let mut pressed = blueprint("pressed");
        pressed.namespace = AAA;
        pressed.image = "never-ready:1";
        pressed.starts = false;
        pressed.in_use = false;
        pressed.replicas = 0;
        pressed.spec = json!({"minTargetReplicas": 20});
        let probe = json!({"periodSeconds": 1, "timeoutSeconds": 3600, "httpGet": {"path": "/", "port": 8080}});
        pressed.pod = json!({"container": {"readinessProbe": probe}});
        let pressed = self.env.build(pressed).await;
        pressed.until_asleep().await;
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        self.open(1, &pressed.address(80), request).await;
    }
}
