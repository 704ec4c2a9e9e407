//! `pods/proxy`: the API server forwards requests to pods for users who may.

use crate::fixture::{ApiClient, DEPLOYMENTS, MERGE, PODS, deployment, items, until};
use elasti_fake_cluster::FakeCluster;
use elasti_fake_cluster::api_server::ApiServerConfig;
use serde_json::json;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// A cluster that enforces RBAC, with one ready pod.
async fn a_ready_pod() -> (FakeCluster, ApiClient, String) {
    let config = ApiServerConfig {
        enforce_rbac: true,
        ..ApiServerConfig::default()
    };
    let fake_cluster = FakeCluster::start(config, 1).await.unwrap();
    let api_client = ApiClient::new(&fake_cluster.server);
    until("the default service account", async || {
        api_client.get(&format!("{ACCOUNTS}/default")).await.0 == 200
    })
    .await;
    let mut object = deployment("web", 1);
    object["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] =
        json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1});
    api_client.make(DEPLOYMENTS, object).await;
    until("it is ready", async || {
        api_client.get(&format!("{DEPLOYMENTS}/web")).await.1["status"]["readyReplicas"] == 1
    })
    .await;
    let pods = items(&api_client, PODS).await;
    let pod = pods[0]["metadata"]["name"].as_str().unwrap().to_owned();
    (fake_cluster, api_client, pod)
}

// Both on a real clock: a request over a socket would lose every race against a paused one.
#[tokio::test]
async fn a_pod_is_reached_through_the_server() {
    let (_fake_cluster, api_client, pod) = a_ready_pod().await;
    for name in [
        pod.clone(),
        format!("{pod}:8080"),
        format!("http:{pod}:8080"),
    ] {
        let path = format!("{PODS}/{name}/proxy/some/path?name=x");
        let (code, answer) = api_client.get(&path).await;
        assert_eq!(code, 200, "{answer}");
        assert_eq!(answer["path"], "/some/path");
        assert_eq!(answer["query"], "name=x");
    }
    for (name, method, code, part) in [
        (format!("{pod}:8081"), "GET", 503, "connection refused"),
        ("nope:8080".to_owned(), "GET", 404, "not found"),
        (format!("{pod}:8080:9"), "GET", 400, "invalid pod request"),
        (pod.clone(), "POST", 405, "does not allow this method"),
    ] {
        let path = format!("{PODS}/{name}/proxy/");
        let (got, answer) = api_client.send(method, &path, "", "").await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(got == code && message.contains(part), "{got} {answer}");
    }
}

#[tokio::test]
async fn only_users_with_the_permission_reach_a_pod() {
    let (fake_cluster, api_client, pod) = a_ready_pod().await;
    let bot = json!({"metadata": {"name": "bot"}});
    api_client.make(ACCOUNTS, bot).await;
    let token = api_client
        .make(&format!("{ACCOUNTS}/bot/token"), json!({"spec": {}}))
        .await;
    let token = token["status"]["token"].as_str().unwrap();
    let bot = ApiClient(fake_cluster.server.client_with_token(token));
    let role = |resource: &str| {
        let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]);
        json!({"metadata": {"name": "bot"}, "rules": rules})
    };
    let roles = format!("{RBAC}/roles");
    api_client.make(&roles, role("pods")).await;
    let binding = json!({
        "metadata": {"name": "bot"}, "roleRef": {"kind": "Role", "name": "bot"},
        "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "default"}],
    });
    api_client
        .make(&format!("{RBAC}/rolebindings"), binding)
        .await;
    let path = format!("{PODS}/{pod}:8080/proxy/");
    let (code, answer) = bot.get(&path).await;
    assert_eq!(code, 403);
    let message = answer["message"].as_str().unwrap();
    assert!(
        message.contains("cannot get resource \"pods/proxy\""),
        "{message}"
    );
    api_client
        .patch(&format!("{roles}/bot"), MERGE, role("pods/proxy"))
        .await;
    assert_eq!(bot.get(&path).await.0, 200);
}
