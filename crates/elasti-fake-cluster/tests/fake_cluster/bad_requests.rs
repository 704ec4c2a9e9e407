//! Bad requests get the codes and Status bodies of Kubernetes 1.34: every expectation here was read from a real one.

use crate::fixture::{
    APPLY, ApiClient, CONFIG_MAPS, DEPLOYMENTS, JSON_PATCH, MERGE, PODS, SERVICES, STRATEGIC,
    WIDGETS, a_server, config_map, deployment, widget, widget_definition,
};
use elasti_fake_cluster::api_server::{ApiServer, ApiServerConfig};
use serde_json::{Value, json};

/// Method, path, media type, body, code, reason, message.
type Row = (
    &'static str,
    String,
    &'static str,
    String,
    u16,
    &'static str,
    &'static str,
);

const JSON: &str = "application/json";

fn row(
    method: &'static str,
    path: &str,
    kind: &'static str,
    body: Value,
    code: u16,
    reason: &'static str,
    message: &'static str,
) -> Row {
    (
        method,
        path.to_owned(),
        kind,
        if body.is_null() {
            String::new()
        } else {
            body.to_string()
        },
        code,
        reason,
        message,
    )
}

async fn check(server: &ApiServer, rows: Vec<Row>) {
    let api_client = ApiClient::new(server);
    for (method, path, kind, body, code, reason, message) in rows {
        let (got, status) = api_client.send(method, &path, kind, body.clone()).await;
        assert_eq!(got, code, "{method} {path} {body}: {status}");
        assert_eq!(status["kind"], "Status", "{method} {path}: {status}");
        assert_eq!(status["status"], "Failure", "{method} {path}: {status}");
        assert_eq!(status["code"], code, "{method} {path}: {status}");
        assert_eq!(
            status["reason"].as_str().unwrap_or_default(),
            reason,
            "{method} {path}: {status}"
        );
        assert_eq!(status["message"], message, "{method} {path}");
    }
}

#[tokio::test]
async fn missing_things_are_404() {
    let unknown = "the server could not find the requested resource";
    let missing = |method, path: &str, kind, body, message| {
        row(method, path, kind, body, 404, "NotFound", message)
    };
    let get = |path: &str, message| missing("GET", path, "", Value::Null, message);
    let no_map = "configmaps \"nope\" not found";
    let nope = format!("{CONFIG_MAPS}/nope");
    let rows = vec![
        get(&format!("{PODS}/nope"), "pods \"nope\" not found"),
        get(
            &format!("{DEPLOYMENTS}/nope"),
            "deployments.apps \"nope\" not found",
        ),
        get("/api/v1/foos", unknown),
        get("/api/v2", unknown),
        get(&format!("{CONFIG_MAPS}/a/status"), unknown),
        missing(
            "POST",
            "/api/v1/namespaces/nons/configmaps",
            JSON,
            config_map("a", json!({})),
            "namespaces \"nons\" not found",
        ),
        missing("PUT", &nope, JSON, config_map("nope", json!({})), no_map),
        missing("PATCH", &nope, MERGE, json!({}), no_map),
        missing("DELETE", &nope, "", Value::Null, no_map),
    ];
    check(&a_server(), rows).await;
    let (code, body) = ApiClient::new(&a_server()).get("/apis/nope/v1/foos").await;
    assert_eq!((code, body), (404, json!("404 page not found\n")));
}

#[tokio::test]
async fn wrong_methods_and_media_types_are_405_and_415() {
    let server = a_server();
    ApiClient::new(&server)
        .make(CONFIG_MAPS, config_map("a", json!({})))
        .await;
    let not_allowed = "the server does not allow this method on the requested resource";
    let unknown = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    check(
        &server,
        vec![
            row(
                "POST",
                &format!("{CONFIG_MAPS}/a"),
                JSON,
                config_map("a", json!({})),
                405,
                "MethodNotAllowed",
                not_allowed,
            ),
            row(
                "PUT",
                CONFIG_MAPS,
                JSON,
                config_map("a", json!({})),
                405,
                "MethodNotAllowed",
                not_allowed,
            ),
            row(
                "PATCH",
                CONFIG_MAPS,
                MERGE,
                json!({}),
                405,
                "MethodNotAllowed",
                not_allowed,
            ),
            row(
                "POST",
                "/version",
                JSON,
                json!({}),
                405,
                "MethodNotAllowed",
                not_allowed,
            ),
            row(
                "POST",
                CONFIG_MAPS,
                "text/plain",
                config_map("b", json!({})),
                415,
                "UnsupportedMediaType",
                unknown,
            ),
            row(
                "PATCH",
                &format!("{CONFIG_MAPS}/a"),
                JSON,
                json!({}),
                415,
                "UnsupportedMediaType",
                "415: Unsupported Media Type",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn clashes_are_409() {
    let server = a_server();
    ApiClient::new(&server)
        .make(CONFIG_MAPS, config_map("a", json!({"k": "v"})))
        .await;
    let stale = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again";
    let mut old = config_map("a", json!({}));
    old["metadata"]["resourceVersion"] = json!("1");
    check(
        &server,
        vec![
            row(
                "POST",
                CONFIG_MAPS,
                JSON,
                config_map("a", json!({})),
                409,
                "AlreadyExists",
                "configmaps \"a\" already exists",
            ),
            row(
                "PUT",
                &format!("{CONFIG_MAPS}/a"),
                JSON,
                old,
                409,
                "Conflict",
                stale,
            ),
            row(
                "PATCH",
                &format!("{CONFIG_MAPS}/a"),
                MERGE,
                json!({"metadata": {"resourceVersion": "1"}}),
                409,
                "Conflict",
                stale,
            ),
            row(
                "PATCH",
                &format!("{CONFIG_MAPS}/a?fieldManager=m"),
                APPLY,
                config_map("a", json!({"k": "w"})),
                409,
                "Conflict",
                "Apply failed with 1 conflict: conflict with \"test-client\" using v1: .data.k",
            ),
        ],
    )
    .await;
    let wrong_uid = json!({"preconditions": {"uid": "x"}}).to_string();
    let (code, status) = ApiClient::new(&server)
        .send("DELETE", &format!("{CONFIG_MAPS}/a"), JSON, wrong_uid)
        .await;
    assert_eq!(code, 409, "{status}");
    assert!(status["message"].as_str().unwrap().starts_with("Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (x) does not match"));
}

#[tokio::test]
async fn nonsense_is_400() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    api_client
        .make(CONFIG_MAPS, config_map("a", json!({})))
        .await;
    check(&server, vec![
        row("GET", &format!("{PODS}?labelSelector=a%20b%3D"), "", Value::Null, 400, "BadRequest", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        row("GET", &format!("{PODS}?fieldSelector=spec.foo%3Da"), "", Value::Null, 400, "BadRequest", "field label not supported: spec.foo"),
        row("GET", &format!("{PODS}?limit=x"), "", Value::Null, 400, "BadRequest", "strconv.ParseInt: parsing \"x\": invalid syntax"),
        row("GET", &format!("{PODS}?resourceVersion=abc"), "", Value::Null, 400, "BadRequest", "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax"),
        row("POST", CONFIG_MAPS, JSON, json!({"apiVersion": "v1", "kind": "Pod"}), 400, "BadRequest", "Pod in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion"),
        row("PUT", &format!("{CONFIG_MAPS}/a"), JSON, config_map("b", json!({})), 400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)"),
        row("PATCH", &format!("{CONFIG_MAPS}/a"), JSON_PATCH, json!({"a": 1}), 400, "BadRequest", "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        row("PATCH", &format!("{CONFIG_MAPS}/a?fieldManager=x"), APPLY, json!({"metadata": {"name": "a"}}), 400, "BadRequest", "invalid object type: /, Kind="),
        row("POST", &format!("{CONFIG_MAPS}?fieldValidation=Strict"), JSON, json!({"metadata": {"name": "b"}, "foo": 1}), 400, "BadRequest", "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"foo\""),
    ]).await;
    let wrong_type = json!({"metadata": {"name": "d"}, "spec": {"replicas": "x"}}).to_string();
    let (code, status) = api_client.send("POST", DEPLOYMENTS, JSON, wrong_type).await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
    );
    let (code, status) = api_client.send("POST", CONFIG_MAPS, JSON, "{bad").await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: invalid character 'b' looking for beginning of object key string ({bad)"
    );
}

#[tokio::test]
async fn invalid_objects_are_422_with_their_causes() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    api_client.make(DEPLOYMENTS, deployment("d1", 1)).await;
    let mut no_match = deployment("d2", 1);
    no_match["spec"]["selector"] = json!({"matchLabels": {"app": "c"}});
    let two_ports =
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}, {"port": 81}]}});
    check(&server, vec![
        row("POST", CONFIG_MAPS, JSON, json!({}), 422, "Invalid", "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"),
        row("POST", DEPLOYMENTS, JSON, deployment("d2", -1), 422, "Invalid", "Deployment.apps \"d2\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
        row("POST", DEPLOYMENTS, JSON, no_match, 422, "Invalid", "Deployment.apps \"d2\" is invalid: spec.template.metadata.labels: Invalid value: {\"app\":\"d2\"}: `selector` does not match template `labels`"),
        row("POST", DEPLOYMENTS, JSON, json!({"metadata": {"name": "d2"}, "spec": {}}), 422, "Invalid", "Deployment.apps \"d2\" is invalid: [spec.selector: Required value, spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`, spec.template.spec.containers: Required value]"),
        row("PATCH", &format!("{DEPLOYMENTS}/d1"), MERGE, json!({"spec": {"template": {"metadata": {"labels": {"app": "z"}}}, "selector": {"matchLabels": {"app": "z"}}}}), 422, "Invalid", "Deployment.apps \"d1\" is invalid: spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"z\"}}: field is immutable"),
        row("PUT", &format!("{DEPLOYMENTS}/d1/scale"), JSON, json!({"metadata": {"name": "d1"}, "spec": {"replicas": -2}}), 422, "Invalid", "Scale.autoscaling \"d1\" is invalid: spec.replicas: Invalid value: -2: must be greater than or equal to 0"),
        row("POST", SERVICES, JSON, two_ports, 422, "Invalid", "Service \"s\" is invalid: [spec.ports[0].name: Required value, spec.ports[1].name: Required value]"),
        row("POST", SERVICES, JSON, json!({"metadata": {"name": "s"}, "spec": {"type": "Foo", "ports": [{"port": 80}]}}), 422, "Invalid", "Service \"s\" is invalid: spec.type: Unsupported value: \"Foo\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\""),
        row("PATCH", &format!("{DEPLOYMENTS}/d1"), JSON_PATCH, json!([{"op": "test", "path": "/data/x", "value": 1}]), 422, "Invalid", "the server rejected our request due to an error in our request"),
        row("PATCH", &format!("{DEPLOYMENTS}/d1"), APPLY, deployment("d1", 1), 422, "Invalid", "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"),
        row("GET", &format!("{PODS}?resourceVersionMatch=Exact"), "", Value::Null, 422, "Invalid", "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"),
    ]).await;
    let (_, status) = api_client.post(DEPLOYMENTS, deployment("d2", -1)).await;
    assert_eq!(
        status["details"],
        json!({
            "name": "d2", "group": "apps", "kind": "Deployment",
            "causes": [{"reason": "FieldValueInvalid", "message": "Invalid value: -1: must be greater than or equal to 0", "field": "spec.replicas"}],
        })
    );
}

#[tokio::test]
async fn custom_resources_are_refused_by_their_schema() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    api_client
        .make(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            widget_definition(),
        )
        .await;
    api_client.make(WIDGETS, widget("a", 1)).await;
    let mut no_version = widget("a", 2);
    no_version["metadata"] = json!({"name": "a"});
    check(&server, vec![
        row("POST", WIDGETS, JSON, widget("b", 0), 422, "Invalid", "Widget.example.io \"b\" is invalid: spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        row("PATCH", &format!("{WIDGETS}/a"), STRATEGIC, json!({}), 415, "UnsupportedMediaType", "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"),
        row("PUT", &format!("{WIDGETS}/a"), JSON, no_version, 422, "Invalid", "widgets.example.io \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
        row("POST", WIDGETS, JSON, json!({"apiVersion": "example.io/v2", "kind": "Widget"}), 400, "BadRequest", "the API version in the data (example.io/v2) does not match the expected API version (example.io/v1)"),
    ]).await;
    let (code, status) = api_client.post(WIDGETS, widget("b", 200)).await;
    assert_eq!(code, 422);
    assert!(
        status["message"].as_str().unwrap().ends_with(": too big"),
        "{status}"
    );
}

#[tokio::test]
async fn strangers_are_401_and_unbound_service_accounts_403() {
    let server = ApiServer::new(ApiServerConfig {
        enforce_rbac: true,
        ..ApiServerConfig::default()
    });
    for token in ["", "unknown"] {
        let (code, status) = ApiClient(server.client_with_token(token)).get(PODS).await;
        assert_eq!(code, 401);
        assert_eq!(
            status,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized", "reason": "Unauthorized", "code": 401})
        );
    }
    let api_client = ApiClient::new(&server);
    api_client
        .make(
            "/api/v1/namespaces/default/serviceaccounts",
            json!({"metadata": {"name": "bot"}}),
        )
        .await;
    let asked = api_client
        .make(
            "/api/v1/namespaces/default/serviceaccounts/bot/token",
            json!({"spec": {}}),
        )
        .await;
    let bot = ApiClient(server.client_with_token(asked["status"]["token"].as_str().unwrap()));
    let (code, status) = bot.get(PODS).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "pods is forbidden: User \"system:serviceaccount:default:bot\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    api_client.make("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", json!({"metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]})).await;
    api_client
        .make(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            json!({
                "metadata": {"name": "reader"}, "roleRef": {"kind": "Role", "name": "reader"},
                "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "default"}],
            }),
        )
        .await;
    assert_eq!(bot.get(PODS).await.0, 200);
    assert_eq!(bot.get("/api/v1/pods").await.0, 403);
}

#[tokio::test]
async fn a_role_may_speak_of_one_name_and_of_its_own_namespace_and_keys_are_for_service_accounts() {
    let server = ApiServer::new(ApiServerConfig {
        enforce_rbac: true,
        ..ApiServerConfig::default()
    });
    let api_client = ApiClient::new(&server);
    let account = "/api/v1/namespaces/default/serviceaccounts";
    api_client
        .make(account, json!({"metadata": {"name": "bot"}}))
        .await;
    let asked = api_client
        .make(&format!("{account}/bot/token"), json!({"spec": {}}))
        .await;
    let bot = ApiClient(server.client_with_token(asked["status"]["token"].as_str().unwrap()));
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["default"], "verbs": ["get"]},
    ]);
    let role = json!({"metadata": {"name": "narrow"}, "rules": rules});
    api_client
        .make(&format!("{rbac}/namespaces/default/roles"), role)
        .await;
    let binding = json!({
        "metadata": {"name": "narrow"}, "roleRef": {"kind": "Role", "name": "narrow"},
        "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "default"}],
    });
    api_client
        .make(&format!("{rbac}/namespaces/default/rolebindings"), binding)
        .await;
    let keys = "/openid/v1/jwks";
    for (path, code) in [
        (
            format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Da"),
            200,
        ),
        (
            format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Db"),
            403,
        ),
        (CONFIG_MAPS.to_owned(), 403),
        ("/api/v1/namespaces/default".to_owned(), 200),
        ("/api/v1/namespaces/kube-system".to_owned(), 403),
        ("/api/v1/namespaces".to_owned(), 403),
        (keys.to_owned(), 200),
        ("/.well-known/openid-configuration".to_owned(), 200),
    ] {
        assert_eq!(bot.get(&path).await.0, code, "{path}");
    }
    let granted = format!("{rbac}/clusterrolebindings/system:service-account-issuer-discovery");
    api_client.delete(&granted).await;
    let (code, status) = bot.get(keys).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "forbidden: User \"system:serviceaccount:default:bot\" cannot get path \"/openid/v1/jwks\""
    );
}

#[tokio::test]
async fn nothing_is_created_in_a_terminating_namespace() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    api_client
        .make("/api/v1/namespaces", json!({"metadata": {"name": "n1"}}))
        .await;
    let (code, going) = api_client.delete("/api/v1/namespaces/n1").await;
    assert_eq!(
        (code, &going["status"]["phase"]),
        (200, &json!("Terminating"))
    );
    check(&server, vec![
        row("POST", "/api/v1/namespaces/n1/configmaps", JSON, config_map("x", json!({})), 403, "Forbidden", "configmaps \"x\" is forbidden: unable to create new content in namespace n1 because it is being terminated"),
        row("DELETE", "/api/v1/namespaces/default", "", Value::Null, 403, "Forbidden", "namespaces \"default\" is forbidden: this namespace may not be deleted"),
    ]).await;
}

#[tokio::test]
async fn old_pages_are_410_and_future_versions_504() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    for name in ["a", "b"] {
        api_client
            .make(CONFIG_MAPS, config_map(name, json!({})))
            .await;
    }
    let (_, page) = api_client.get(&format!("{CONFIG_MAPS}?limit=1")).await;
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    api_client
        .make(CONFIG_MAPS, config_map("aa", json!({})))
        .await;
    let (code, rest) = api_client
        .get(&format!("{CONFIG_MAPS}?limit=5&continue={token}"))
        .await;
    assert_eq!(code, 200);
    assert_eq!(
        rest["items"].as_array().unwrap().len(),
        1,
        "a page shows the version of the first page"
    );
    server.compact();
    let (code, status) = api_client
        .get(&format!("{CONFIG_MAPS}?limit=5&continue={token}"))
        .await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let (code, status) = api_client
        .get(&format!("{CONFIG_MAPS}?resourceVersion=99999999"))
        .await;
    assert_eq!((code, &status["reason"]), (504, &json!("Timeout")));
}
