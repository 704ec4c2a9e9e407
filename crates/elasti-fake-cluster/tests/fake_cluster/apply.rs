//! Server-side apply, ownership and patches behave as in Kubernetes.

use crate::fixture::{
    APPLY, ApiClient, CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, JSON_PATCH, MERGE, PODS, SERVICES,
    STRATEGIC, WIDGETS, a_server, config_map, deployment, widget, widget_definition,
};
use serde_json::{Value, json};

fn owners(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let name = |entry: &Value| {
        let subresource = entry["subresource"]
            .as_str()
            .map_or(String::new(), |subresource| format!("/{subresource}"));
        format!(
            "{} {}{subresource}",
            entry["manager"].as_str().unwrap(),
            entry["operation"].as_str().unwrap()
        )
    };
    entries
        .iter()
        .map(|entry| (name(entry), entry["fieldsV1"].clone()))
        .collect()
}

async fn apply(api_client: &ApiClient, manager: &str, force: bool, data: Value) -> (u16, Value) {
    let path = format!("{CONFIG_MAPS}/a?fieldManager={manager}&force={force}");
    api_client.patch(&path, APPLY, config_map("a", data)).await
}

#[tokio::test]
async fn fields_are_owned_shared_taken_and_dropped() {
    let api_client = ApiClient::new(&a_server());
    let (code, object) = apply(&api_client, "ann", false, json!({"a": "1", "b": "2"})).await;
    assert_eq!(code, 201);
    assert_eq!(
        owners(&object),
        [(
            "ann Apply".to_owned(),
            json!({"f:data": {"f:a": {}, "f:b": {}}})
        )]
    );

    let (code, status) = apply(&api_client, "ben", false, json!({"a": "2", "b": "3"})).await;
    assert_eq!(code, 409);
    assert_eq!(
        status["message"],
        "Apply failed with 2 conflicts: conflicts with \"ann\":\n- .data.a\n- .data.b"
    );
    assert_eq!(
        status["details"]["causes"][0],
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"ann\"", "field": ".data.a"})
    );

    let (_, object) = apply(&api_client, "ben", false, json!({"a": "1"})).await;
    let shared = ("ben Apply".to_owned(), json!({"f:data": {"f:a": {}}}));
    assert!(
        owners(&object).contains(&shared),
        "the same value is shared"
    );

    let (_, object) = apply(&api_client, "ann", false, json!({"b": "2"})).await;
    assert_eq!(
        object["data"],
        json!({"a": "1", "b": "2"}),
        "ben still owns a"
    );
    let (_, object) = apply(&api_client, "ann", false, json!({"c": "3"})).await;
    assert_eq!(
        object["data"],
        json!({"a": "1", "c": "3"}),
        "no manager owned b any more"
    );

    let (code, object) = apply(&api_client, "ben", true, json!({"c": "9"})).await;
    assert_eq!((code, &object["data"]), (200, &json!({"c": "9"})));
    assert_eq!(
        owners(&object),
        [("ben Apply".to_owned(), json!({"f:data": {"f:c": {}}}))],
        "force takes c, and ann owns nothing"
    );
}

#[tokio::test]
async fn applying_the_same_again_changes_nothing() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    apply(&api_client, "ann", false, json!({"a": "1"})).await;
    let before = server.version();
    apply(&api_client, "ann", false, json!({"a": "1"})).await;
    api_client
        .patch(
            &format!("{CONFIG_MAPS}/a"),
            MERGE,
            json!({"data": {"a": "1"}}),
        )
        .await;
    assert_eq!(server.version(), before);
}

#[tokio::test]
async fn updates_own_what_they_change_through_each_door() {
    let api_client = ApiClient::new(&a_server());
    api_client.make(DEPLOYMENTS, deployment("d", 1)).await;
    let path = format!("{DEPLOYMENTS}/d");
    api_client
        .put(
            &format!("{path}/scale"),
            json!({"metadata": {"name": "d"}, "spec": {"replicas": 2}}),
        )
        .await;
    api_client
        .patch(
            &format!("{path}/status"),
            MERGE,
            json!({"status": {"replicas": 2}, "spec": {"replicas": 7}}),
        )
        .await;
    let (_, object) = api_client.get(&path).await;
    let owners = owners(&object);
    let of = |name: &str| {
        owners
            .iter()
            .find(|(owner, _)| owner == name)
            .map(|(_, fields)| fields.clone())
            .unwrap()
    };
    assert_eq!(
        of("test-client Update/scale"),
        json!({"f:spec": {"f:replicas": {}}})
    );
    assert_eq!(
        of("test-client Update/status"),
        json!({"f:status": {"f:replicas": {}}})
    );
    assert!(
        of("test-client Update")["f:spec"]
            .get("f:replicas")
            .is_none(),
        "the scale subresource took replicas"
    );
    assert_eq!(
        object["spec"]["replicas"], 2,
        "the status subresource leaves the spec alone"
    );
    assert_eq!(object["metadata"]["generation"], 2, "only the spec counts");
}

#[tokio::test]
async fn lists_with_keys_are_merged_by_key() {
    let api_client = ApiClient::new(&a_server());
    let container = |name: &str, image: &str| json!({"name": name, "image": image});
    let applied = |containers: Value| {
        let mut object = deployment("d", 1);
        object["spec"]["template"]["spec"]["containers"] = containers;
        object
    };
    let path = |manager: &str| format!("{DEPLOYMENTS}/d?fieldManager={manager}");
    api_client
        .patch(&path("ann"), APPLY, applied(json!([container("a", "a:1")])))
        .await;
    let (code, object) = api_client
        .patch(
            &path("ben"),
            APPLY,
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
                "spec": {"template": {"spec": {"containers": [container("b", "b:1")]}}},
            }),
        )
        .await;
    assert_eq!(code, 200, "{object}");
    let names = |object: &Value| -> Vec<String> {
        object["spec"]["template"]["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&object), ["a", "b"]);
    let (_, object) = api_client
        .patch(&path("ann"), APPLY, applied(json!([container("c", "c:1")])))
        .await;
    let mut now = names(&object);
    now.sort();
    assert_eq!(now, ["b", "c"], "ann dropped a; b is ben's");
}

#[tokio::test]
async fn custom_lists_with_keys_are_merged_by_key_too() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    api_client.make(DEFINITIONS, widget_definition()).await;
    let applied = |parts: Value| {
        let mut object = widget("w", 3);
        object["spec"]["parts"] = parts;
        object
    };
    let path = |manager: &str| format!("{WIDGETS}/w?fieldManager={manager}");
    api_client
        .patch(
            &path("ann"),
            APPLY,
            applied(json!([{"name": "x", "count": 1}])),
        )
        .await;
    let (code, object) = api_client
        .patch(
            &path("ben"),
            APPLY,
            applied(json!([{"name": "y", "count": 2}])),
        )
        .await;
    assert_eq!(code, 200, "{object}");
    assert_eq!(
        object["spec"]["parts"],
        json!([{"name": "x", "count": 1}, {"name": "y", "count": 2}])
    );
    assert_eq!(
        object["spec"]["colour"], "red",
        "the default is there and unowned"
    );
    let (code, status) = api_client
        .patch(
            &path("ben"),
            APPLY,
            applied(json!([{"name": "x", "count": 5}])),
        )
        .await;
    assert_eq!(code, 409);
    assert_eq!(
        status["details"]["causes"][0]["field"],
        ".spec.parts[name=\"x\"].count"
    );
}

#[tokio::test]
async fn strategic_patches_merge_lists_by_their_keys() {
    let api_client = ApiClient::new(&a_server());
    api_client.make(PODS, json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i:1"}]}})).await;
    let path = format!("{PODS}/p/status");
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status});
    api_client.patch(&path, STRATEGIC, json!({"status": {"conditions": [condition("Ready", "True"), condition("ContainersReady", "True")]}})).await;
    let (_, pod) = api_client
        .patch(
            &path,
            STRATEGIC,
            json!({"status": {"conditions": [condition("Ready", "False")]}}),
        )
        .await;
    let conditions: Vec<(&str, &str)> = pod["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["type"].as_str().unwrap(),
                one["status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        conditions,
        [("Ready", "False"), ("ContainersReady", "True")]
    );
    let gone = json!({"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}});
    let (_, pod) = api_client.patch(&path, STRATEGIC, gone).await;
    assert_eq!(pod["status"]["conditions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn json_patches_test_and_change() {
    let api_client = ApiClient::new(&a_server());
    api_client
        .make(CONFIG_MAPS, config_map("a", json!({"k": "v"})))
        .await;
    let path = format!("{CONFIG_MAPS}/a");
    let (code, object) = api_client.patch(&path, JSON_PATCH, json!([{"op": "test", "path": "/data/k", "value": "v"}, {"op": "replace", "path": "/data/k", "value": "w"}])).await;
    assert_eq!((code, &object["data"]), (200, &json!({"k": "w"})));
    let (code, _) = api_client
        .patch(
            &path,
            JSON_PATCH,
            json!([{"op": "test", "path": "/data/k", "value": "v"}]),
        )
        .await;
    assert_eq!(code, 422);
}

#[tokio::test]
async fn services_get_and_keep_their_address() {
    let api_client = ApiClient::new(&a_server());
    let object = api_client
        .make(
            SERVICES,
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
        )
        .await;
    let address = object["spec"]["clusterIP"].clone();
    assert!(
        address.as_str().unwrap().starts_with("127.96."),
        "{address}"
    );
    let (_, again) = api_client
        .put(
            &format!("{SERVICES}/s"),
            json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 81}]}}),
        )
        .await;
    assert_eq!(again["spec"]["clusterIP"], address);
    let (code, _) = api_client
        .patch(
            &format!("{SERVICES}/s"),
            MERGE,
            json!({"spec": {"clusterIP": "127.96.9.9"}}),
        )
        .await;
    assert_eq!(code, 422);
}

#[tokio::test]
async fn dry_runs_answer_and_store_nothing() {
    let server = a_server();
    let api_client = ApiClient::new(&server);
    let before = server.version();
    let (code, object) = api_client
        .post(&format!("{DEPLOYMENTS}?dryRun=All"), deployment("d", 1))
        .await;
    assert_eq!(
        (code, &object["spec"]["strategy"]["type"]),
        (201, &json!("RollingUpdate"))
    );
    assert_eq!(
        (
            server.version(),
            api_client.get(&format!("{DEPLOYMENTS}/d")).await.0
        ),
        (before, 404)
    );
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let api_client = ApiClient::new(&a_server());
    api_client
        .make(
            CONFIG_MAPS,
            json!({"metadata": {"name": "a", "finalizers": ["example.io/hold"]}}),
        )
        .await;
    let path = format!("{CONFIG_MAPS}/a");
    let (code, going) = api_client.delete(&path).await;
    assert_eq!(code, 200);
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(api_client.get(&path).await.0, 200);
    let (code, _) = api_client
        .patch(&path, MERGE, json!({"metadata": {"finalizers": null}}))
        .await;
    assert_eq!(code, 200);
    assert_eq!(api_client.get(&path).await.0, 404);
}

#[tokio::test]
async fn scaling_to_zero_leaves_the_replicas_unowned() {
    let api_client = ApiClient::new(&a_server());
    let path = format!("{DEPLOYMENTS}/d");
    api_client
        .patch(
            &format!("{path}?fieldManager=ann"),
            APPLY,
            deployment("d", 3),
        )
        .await;
    let scale = |replicas: i64| json!({"spec": {"replicas": replicas}});
    let (_, scaled) = api_client
        .patch(&format!("{path}/scale"), MERGE, scale(0))
        .await;
    assert_eq!(scaled["spec"], json!({}), "Go leaves a zero out");
    let (_, object) = api_client.get(&path).await;
    assert!(
        owners(&object)
            .iter()
            .all(|(_, fields)| fields["f:spec"].get("f:replicas").is_none())
    );
    let (code, object) = api_client
        .patch(
            &format!("{path}?fieldManager=ann"),
            APPLY,
            deployment("d", 3),
        )
        .await;
    assert_eq!(
        (code, &object["spec"]["replicas"]),
        (200, &json!(3)),
        "so applying them again meets no conflict"
    );
    api_client
        .patch(&format!("{path}/scale"), MERGE, scale(2))
        .await;
    let (code, _) = api_client
        .patch(
            &format!("{path}?fieldManager=ann"),
            APPLY,
            deployment("d", 3),
        )
        .await;
    assert_eq!(code, 409, "any other number is owned by who scaled");
}
