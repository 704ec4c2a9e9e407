//! `pods/proxy`: the API server forwards requests to pods for users who may.

use crate::fixture::{ApiClient, DEPLOYMENTS, MERGE, PODS, deployment, items, until};
use elasti_fake_cluster::FakeCluster;
use elasti_fake_cluster::api_server::ApiServerConfig;
use serde_json::json;

// On a real clock: a question to a socket would lose every race against a paused one.
#[tokio::test]
async fn users_with_the_permission_reach_a_pod_through_the_server() {
    let config = ApiServerConfig {
        enforce_rbac: true,
        ..ApiServerConfig::default()
    };
    let fake_cluster = FakeCluster::start(config, 1).await.unwrap();
    let api_client = ApiClient::new(&fake_cluster.server);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    until("the default service account", async || {
        api_client.get(&format!("{accounts}/default")).await.0 == 200
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
    let pod = items(&api_client, PODS).await[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    for name in [
        pod.clone(),
        format!("{pod}:8080"),
        format!("http:{pod}:8080"),
    ] {
        let (code, said) = api_client
            .get(&format!("{PODS}/{name}/proxy/some/path?name=x"))
            .await;
        assert_eq!(code, 200, "{said}");
        assert_eq!(said["path"], "/some/path");
        assert_eq!(said["query"], "name=x");
    }
    for (name, method, code, word) in [
        (format!("{pod}:8081"), "GET", 503, "connection refused"),
        ("nobody:8080".to_owned(), "GET", 404, "not found"),
        (format!("{pod}:8080:9"), "GET", 400, "invalid pod request"),
        (pod.clone(), "POST", 405, "does not allow this method"),
    ] {
        let path = format!("{PODS}/{name}/proxy/");
        let (got, said) = api_client.send(method, &path, "", "").await;
        let message = said["message"].as_str().unwrap_or_default();
        assert!(got == code && message.contains(word), "{got} {said}");
    }

    api_client
        .make(accounts, json!({"metadata": {"name": "bot"}}))
        .await;
    let token = api_client
        .make(&format!("{accounts}/bot/token"), json!({"spec": {}}))
        .await;
    let bot = ApiClient(
        fake_cluster
            .server
            .client_with_token(token["status"]["token"].as_str().unwrap()),
    );
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = |resource: &str| {
        let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]);
        json!({"metadata": {"name": "bot"}, "rules": rules})
    };
    api_client
        .make(&format!("{rbac}/roles"), role("pods"))
        .await;
    let binding = json!({
        "metadata": {"name": "bot"}, "roleRef": {"kind": "Role", "name": "bot"},
        "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "default"}],
    });
    api_client
        .make(&format!("{rbac}/rolebindings"), binding)
        .await;
    let path = format!("{PODS}/{pod}:8080/proxy/");
    let (code, said) = bot.get(&path).await;
    assert_eq!(code, 403);
    let message = said["message"].as_str().unwrap();
    assert!(
        message.contains("cannot get resource \"pods/proxy\""),
        "{message}"
    );
    let given = role("pods/proxy");
    api_client
        .patch(&format!("{rbac}/roles/bot"), MERGE, given)
        .await;
    assert_eq!(bot.get(&path).await.0, 200);
}
