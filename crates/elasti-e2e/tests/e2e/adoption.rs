//! A cluster that KubeElasti leaves behind: its recorded objects are there before Elasti starts, and are adopted.

use std::time::Duration;

use elasti_api::names::{self, IpFamily};
use elasti_api::{Mode, Phase};
use elasti_e2e::{App, MERGE, TestEnv, blueprint, until};
use serde_json::{Value, json};
use tokio::time::sleep;

const RECORD: &str = include_str!("../../../elasti-core/tests/core/adoption/predecessor.yaml");
const PODS: &str = "/api/v1/namespaces/elasti/pods";
const OLD_OPERATOR: &str = "elasti-operator-controller-manager-0";

/// A recorded object of the plain service, whose Service, target and ElastiService are called `target`.
fn recorded(kind: &str, name: &str) -> Value {
    let all: Vec<Value> = serde_saphyr::from_multiple(RECORD).unwrap();
    let mut found = all.into_iter();
    let found = found.find(|one| one["kind"] == kind && one["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("{kind} {name} is recorded"))
}

/// Nothing of Elasti runs yet.
async fn before_elasti() -> TestEnv {
    TestEnv::with(|config| {
        (config.operators, config.resolvers) = (0, 0);
        config.rollouts_and_keda = true;
    })
    .await
}

/// An app that KubeElasti has put to sleep: the objects around it are those of the recorded service, under its name.
pub(crate) async fn left_asleep(env: &TestEnv, name: &'static str, spec: Value) -> App {
    let mut app = blueprint(name);
    (app.replicas, app.in_use, app.spec) = (0, false, spec);
    let app = env.build(app).await;
    let mut slice = recorded("EndpointSlice", &slice_name("target"));
    let labels = json!({names::SERVICE_NAME_LABEL: name});
    assert_eq!(
        slice["metadata"]["labels"],
        json!({names::SERVICE_NAME_LABEL: "target"})
    );
    slice["metadata"] = json!({"name": slice_name(name), "labels": labels});
    slice["ports"][0]["name"] = json!(app.blueprint.ports[0].0);
    env.api().make(&app.slices_path(), slice).await;
    let recorded_private = recorded("Service", &names::private_service("target"));
    let mut owner = recorded_private["metadata"]["ownerReferences"][0].clone();
    owner["name"] = json!(name);
    owner["uid"] = app.object().await["metadata"]["uid"].clone();
    let private = json!({
        "metadata": {"name": names::private_service(name), "ownerReferences": [owner]},
        "spec": {"selector": {"app": name}, "ports": recorded_private["spec"]["ports"]},
    });
    env.api().make(&app.core("services"), private).await;
    managed_by_kube_elasti(env, &app, &recorded("ElastiService", "target")).await;
    app
}

/// An app that KubeElasti manages and that is awake: nothing of KubeElasti stands around it.
pub(crate) async fn left_awake(env: &TestEnv, name: &'static str) -> App {
    let app = env.deploy(name).await;
    let recorded_me = recorded("ElastiService", "target-elastiservice");
    assert_eq!(recorded_me["status"]["mode"], "serve");
    managed_by_kube_elasti(env, &app, &recorded_me).await;
    app
}

/// Its ElastiService has the finalizers and the status of a recorded one.
async fn managed_by_kube_elasti(env: &TestEnv, app: &App, recorded: &Value) {
    let finalizers = json!({"metadata": {"finalizers": recorded["metadata"]["finalizers"]}});
    env.api().patch(&app.path(), MERGE, finalizers).await;
    let status = json!({"status": recorded["status"]});
    let path = format!("{}/status", app.path());
    env.api().patch(&path, MERGE, status).await;
}

/// A ScaledObject that KubeElasti has paused at zero.
pub(crate) async fn paused_scaled_object(env: &TestEnv, name: &str) -> String {
    let path = format!(
        "/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects",
        env.home()
    );
    let scaled = json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": name, "annotations": {
            names::KEDA_PAUSED_ANNOTATION: "true", names::KEDA_PAUSED_REPLICAS_ANNOTATION: "0",
        }},
        "spec": {
            "scaleTargetRef": {"name": name}, "minReplicaCount": 1, "maxReplicaCount": 3,
            "triggers": [{"type": "cpu", "metricType": "Utilization", "metadata": {"value": "70"}}],
        },
    });
    env.api().make(&path, scaled).await;
    format!("{path}/{name}")
}

pub(crate) fn slice_name(service: &str) -> String {
    names::resolver_slice(service, IpFamily::V4, 0)
}

async fn slice(env: &TestEnv, app: &App) -> Value {
    let name = slice_name(app.blueprint.name);
    env.api()
        .get(&format!("{}/{name}", app.slices_path()))
        .await
}

async fn until_adopted(env: &TestEnv, app: &App) {
    until("the slice leads to our resolvers", async || {
        app.slice_addresses().await == env.resolver_addresses()
    })
    .await;
    app.until_asleep().await;
    app.until_nodes_follow().await;
}

async fn start_elasti(env: &TestEnv) {
    env.add_resolver().await;
    env.add_operator().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_was_left_asleep_keeps_sleeping_and_wakes_with_the_first_request() {
    let env = before_elasti().await;
    let app = left_asleep(&env, "target", json!({"minTargetReplicas": 2})).await;
    let before = slice(&env, &app).await;
    start_elasti(&env).await;
    until_adopted(&env, &app).await;
    assert_eq!(app.replicas().await, 0, "nothing has woken it");
    let adopted = slice(&env, &app).await;
    let uid = |slice: &Value| slice["metadata"]["uid"].clone();
    assert_eq!(uid(&adopted), uid(&before), "never removed");
    let conflict = app.condition(names::condition::CONFLICT).await;
    assert_eq!(conflict.unwrap().0, "False");

    app.visit().await;
    assert_eq!(app.replicas().await, 2);
    app.busy();
    app.until_serving().await;
    app.visit().await;
    app.fall_asleep().await;
    app.visit().await;
    env.requests().assert_nothing_lost();

    env.api().delete(&app.path()).await;
    until("it is gone", async || app.object().await.is_null()).await;
    assert!(slice(&env, &app).await.is_null() && app.private_service().await.is_null());
    assert!(app.replicas().await > 0);
    app.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_a_resolver_of_ours_is_ready_the_old_one_stays_in_the_path() {
    let env = before_elasti().await;
    let app = left_asleep(&env, "target", json!({})).await;
    let before = slice(&env, &app).await;
    env.add_operator().await;
    app.until_phase(Phase::Asleep).await;
    assert_eq!(slice(&env, &app).await, before);
    assert_eq!(app.status().await.mode, Some(Mode::Proxy));
    env.add_resolver().await;
    until_adopted(&env, &app).await;
    app.visit().await;
    env.requests().assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_deleted_before_anything_else_leaves_nothing_behind() {
    let env = before_elasti().await;
    let app = left_asleep(&env, "target", json!({})).await;
    env.api().delete(&app.path()).await;
    start_elasti(&env).await;
    until("it is gone", async || app.object().await.is_null()).await;
    assert!(slice(&env, &app).await.is_null() && app.private_service().await.is_null());
    app.until_nodes_follow().await;
    app.visit().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_of_keda_that_was_left_ends_with_the_wake() {
    let env = before_elasti().await;
    let path = paused_scaled_object(&env, "target").await;
    let keda = json!({"autoscaler": {"type": "keda", "name": "target"}});
    let app = left_asleep(&env, "target", keda).await;
    start_elasti(&env).await;
    until_adopted(&env, &app).await;
    app.visit().await;
    until("KEDA is given back", async || {
        let object = env.api().get(&path).await;
        let annotations = &object["metadata"]["annotations"];
        annotations[names::KEDA_PAUSED_ANNOTATION] == "false"
            && annotations[names::KEDA_PAUSED_REPLICAS_ANNOTATION].is_null()
    })
    .await;
    env.requests().assert_nothing_lost();
}

/// The pod of KubeElasti's operator, by its chart.
fn old_operator() -> Value {
    let name = json!({"name": "ELASTI_OPERATOR_DEPLOYMENT_NAME", "value": "elasti-operator-controller-manager"});
    let container = json!({
        "name": "manager", "image": "kubeelasti/operator:0.1.30", "command": ["/manager"],
        "args": ["--leader-elect"], "env": [name],
    });
    json!({
        "metadata": {"name": OLD_OPERATOR, "labels": {"control-plane": "controller-manager"}},
        "spec": {"nodeName": "elsewhere", "containers": [container]},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_other_operator_lives_nothing_is_touched_and_the_status_says_so() {
    let env = before_elasti().await;
    let app = left_asleep(&env, "target", json!({})).await;
    let before = slice(&env, &app).await;
    env.api().make(PODS, old_operator()).await;
    start_elasti(&env).await;
    until("the conflict is reported", async || {
        let conflict = app.condition(names::condition::CONFLICT).await;
        conflict.is_some_and(|(status, _)| status == "True")
    })
    .await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(slice(&env, &app).await, before);
    assert_eq!(app.replicas().await, 0);
    let status = app.status().await;
    assert!(!status.ports.is_empty(), "our resolvers listen already");
    let said = status
        .conditions
        .iter()
        .find(|c| c.type_ == names::condition::CONFLICT);
    let said = said.map(|c| c.message.clone()).unwrap_or_default();
    assert!(said.contains(OLD_OPERATOR), "{said}");

    let now = json!({"gracePeriodSeconds": 0}).to_string();
    let path = format!("{PODS}/{OLD_OPERATOR}");
    env.api()
        .send("DELETE", &path, "application/json", now)
        .await;
    until_adopted(&env, &app).await;
    app.visit().await;
    env.requests().assert_nothing_lost();
}
