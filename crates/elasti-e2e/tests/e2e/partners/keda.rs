//! KEDA's own operator: its scale loop, its HPA and its pause.

use std::time::Duration;

use elasti_api::names;
use elasti_e2e::{App, Blueprint, MERGE, TestEnv, blueprint, until};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Several rounds of its scale loop, which looks every second here.
const SEVERAL_POLLS: Duration = Duration::from_secs(6);

/// An app, and the ScaledObject that scales it by the same metric that Elasti's trigger reads.
struct Scaled {
    env: TestEnv,
    app: App,
}

impl Scaled {
    async fn deploy(app: Blueprint, spec: Value, annotations: Value) -> Self {
        let env = TestEnv::with(|config| config.rollouts_and_keda = true).await;
        let mut app = app;
        app.spec["autoscaler"] = json!({"type": "keda", "name": app.name});
        let app = env.build(app).await;
        let this = Self { env, app };
        let trigger = json!({"type": "prometheus", "metadata": {
            "serverAddress": this.env.prometheus(), "query": this.app.query(), "threshold": "10",
        }});
        let mut object = json!({
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
            "metadata": {"name": this.app.blueprint.name, "annotations": annotations},
            "spec": {
                "scaleTargetRef": {"name": this.app.blueprint.name}, "maxReplicaCount": 3, "pollingInterval": 1,
                "triggers": [trigger],
            },
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        let path = format!(
            "/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects",
            this.env.home()
        );
        this.env.api().make(&path, object).await;
        until("KEDA has read it", async || {
            this.condition("Ready").await.as_deref() == Some("True")
        })
        .await;
        this
    }

    fn path(&self) -> String {
        let (home, name) = (self.env.home(), self.app.blueprint.name);
        format!("/apis/keda.sh/v1alpha1/namespaces/{home}/scaledobjects/{name}")
    }

    async fn condition(&self, type_: &str) -> Option<String> {
        let object = self.env.api().get(&self.path()).await;
        let conditions = object["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|c| c["type"] == type_)?;
        found["status"].as_str().map(str::to_owned)
    }

    async fn annotation(&self, name: &str) -> Option<String> {
        let object = self.env.api().get(&self.path()).await;
        let value = object["metadata"]["annotations"][name].as_str();
        value.map(str::to_owned)
    }

    /// Whether the HPA that KEDA makes for it is there.
    async fn has_hpa(&self) -> bool {
        let (home, name) = (self.env.home(), self.app.blueprint.name);
        let path = format!(
            "/apis/autoscaling/v2/namespaces/{home}/horizontalpodautoscalers/keda-hpa-{name}"
        );
        self.env.api().exists(&path).await
    }

    /// KEDA says itself that it is paused, and its HPA is gone.
    async fn until_paused(&self) {
        until("KEDA is paused", async || {
            self.condition("Paused").await.as_deref() == Some("True") && !self.has_hpa().await
        })
        .await;
    }

    /// KEDA scales it: it says so, and its HPA is there.
    async fn until_active(&self) {
        until("KEDA scales it", async || {
            self.condition("Paused").await.as_deref() != Some("True") && self.has_hpa().await
        })
        .await;
    }

    async fn until_replicas(&self, replicas: u64) {
        until(&format!("{replicas} replicas"), async || {
            self.app.replicas().await == replicas
        })
        .await;
    }

    fn nothing_lost(&self) {
        self.env.requests().assert_nothing_lost();
        println!("{} requests, none lost", self.env.requests().all().len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real KEDA: cargo xtask e2e --partners"]
async fn keda_with_a_minimum_of_one_lets_the_app_sleep_and_scales_it_again_after_the_wake() {
    let scaled = Scaled::deploy(blueprint("web"), json!({"minReplicaCount": 1}), json!({})).await;
    let web = &scaled.app;
    scaled.until_active().await;
    web.until_serving().await;

    web.fall_asleep().await;
    scaled.until_paused().await;
    sleep(SEVERAL_POLLS).await;
    assert_eq!(web.replicas().await, 0, "KEDA leaves it asleep");
    web.visit().await;
    scaled.until_active().await;
    web.busy();
    web.until_serving().await;

    // KEDA is at work again: it follows its own spec.
    let spec = json!({"spec": {"minReplicaCount": 2}});
    scaled.env.api().patch(&scaled.path(), MERGE, spec).await;
    scaled.until_replicas(2).await;
    web.visit().await;
    web.fall_asleep().await;
    scaled.until_paused().await;
    web.visit().await;
    scaled.until_replicas(2).await;

    web.fall_asleep().await;
    scaled.env.api().delete(&web.path()).await;
    until("the ElastiService is gone", async || {
        web.object().await.is_null()
    })
    .await;
    scaled.until_active().await;
    scaled.until_replicas(2).await;
    web.visit().await;
    scaled.nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real KEDA: cargo xtask e2e --partners"]
async fn a_zero_that_keda_writes_with_a_minimum_of_zero_stands_until_a_request_comes() {
    // KEDA is first: Elasti's own cooldown does not end in this test. KEDA takes back what is woken while its own trigger is
    // quiet, at its next look: every 30 s by default, every 10 s here.
    let mut web = blueprint("web");
    web.spec = json!({"cooldownPeriod": 3600});
    let spec = json!({"minReplicaCount": 0, "cooldownPeriod": 1, "pollingInterval": 10});
    let two_polls = Duration::from_secs(20);
    let scaled = Scaled::deploy(web, spec, json!({})).await;
    let web = &scaled.app;
    scaled.until_active().await;
    web.until_serving().await;
    web.idle();
    web.until_asleep().await;
    web.until_nodes_follow().await;
    sleep(two_polls).await;
    assert_eq!(web.replicas().await, 0, "nothing fights KEDA's zero");

    web.visit().await;
    // As the rate of requests would.
    web.busy();
    web.until_serving().await;
    scaled.until_active().await;
    sleep(two_polls).await;
    assert!(web.replicas().await > 0, "KEDA's trigger is active");
    web.visit().await;
    scaled.nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real KEDA: cargo xtask e2e --partners"]
async fn a_scaled_object_with_a_minimum_of_zero_sleeps_by_our_trigger_and_wakes() {
    let spec = json!({"minReplicaCount": 0, "cooldownPeriod": 300});
    let scaled = Scaled::deploy(blueprint("web"), spec, json!({})).await;
    let web = &scaled.app;
    scaled.until_active().await;
    web.until_serving().await;
    for _ in 0..2 {
        web.fall_asleep().await;
        scaled.until_paused().await;
        web.visit().await;
        web.busy();
        web.until_serving().await;
        scaled.until_active().await;
    }
    scaled.nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real KEDA: cargo xtask e2e --partners"]
async fn a_pause_by_its_owner_is_back_after_the_wake_and_keda_follows_it() {
    let paused = json!({
        names::KEDA_PAUSED_ANNOTATION: "true", names::KEDA_PAUSED_REPLICAS_ANNOTATION: "2",
    });
    let scaled = Scaled::deploy(blueprint("web"), json!({"minReplicaCount": 1}), paused).await;
    let web = &scaled.app;
    // KEDA holds it at what its owner wrote.
    scaled.until_paused().await;
    scaled.until_replicas(2).await;
    web.until_serving().await;

    web.fall_asleep().await;
    sleep(SEVERAL_POLLS).await;
    assert_eq!(web.replicas().await, 0);
    web.visit().await;
    scaled.until_replicas(2).await;
    let paused_replicas = scaled
        .annotation(names::KEDA_PAUSED_REPLICAS_ANNOTATION)
        .await;
    assert_eq!(paused_replicas.as_deref(), Some("2"));
    let paused = scaled.annotation(names::KEDA_PAUSED_ANNOTATION).await;
    assert_eq!(paused.as_deref(), Some("true"));
    assert_eq!(scaled.annotation(names::KEDA_BEFORE_ANNOTATION).await, None);
    web.busy();
    web.until_serving().await;
    web.visit().await;
    scaled.nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real KEDA: cargo xtask e2e --partners"]
async fn a_scaled_object_that_is_deleted_while_the_app_sleeps_does_not_keep_a_request_waiting() {
    let scaled = Scaled::deploy(blueprint("web"), json!({"minReplicaCount": 1}), json!({})).await;
    let web = &scaled.app;
    web.until_serving().await;
    web.fall_asleep().await;
    scaled.until_paused().await;
    scaled.env.api().delete(&scaled.path()).await;
    until("KEDA has let it go", async || {
        !scaled.env.api().exists(&scaled.path()).await
    })
    .await;
    sleep(SEVERAL_POLLS).await;
    web.visit().await;
    until("the status says what is missing", async || {
        let status = web.status().await;
        status.reason.as_deref() == Some("AutoscalerNotFound")
    })
    .await;
    web.visit().await;
    scaled.nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the real KEDA: cargo xtask e2e --partners"]
async fn replicas_that_keda_restores_when_it_is_deleted_wake_the_app() {
    let restore = json!({
        "minReplicaCount": 1, "advanced": {"restoreToOriginalReplicaCount": true},
    });
    let scaled = Scaled::deploy(blueprint("web"), restore, json!({})).await;
    let web = &scaled.app;
    web.until_serving().await;
    web.fall_asleep().await;
    scaled.until_paused().await;
    scaled.env.api().delete(&scaled.path()).await;
    scaled.until_replicas(1).await;
    web.until_serving().await;
    web.visit().await;
    scaled.nothing_lost();
}
