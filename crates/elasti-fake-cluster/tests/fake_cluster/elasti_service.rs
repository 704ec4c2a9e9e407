//! The ElastiService definition as it ships works on the simulated cluster: examples apply, defaults come, wrong ones are refused.

use crate::fixture::{APPLY, ApiClient, DEFINITIONS, MERGE, a_server};
use serde_json::{Value, json};

const DEFINITION: &str = include_str!("../../../../deploy/crd/elastiservices.yaml");
const EXAMPLE: &str = include_str!("../../../../deploy/examples/minimal.yaml");
const SERVICES: &str = "/apis/elasti.truefoundry.com/v1alpha1/namespaces/default/elastiservices";

fn example() -> Value {
    let all: Vec<Value> = serde_saphyr::from_multiple(EXAMPLE).unwrap();
    let mut object = all
        .into_iter()
        .find(|one| one["kind"] == "ElastiService")
        .expect("the example holds one");
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("namespace");
    object
}

#[tokio::test]
async fn the_shipped_definition_serves_stores_and_refuses() {
    let api_client = ApiClient::new(&a_server());
    let definition: Value = serde_saphyr::from_str(DEFINITION).unwrap();
    api_client.make(DEFINITIONS, definition).await;
    let made = api_client.make(SERVICES, example()).await;
    let path = format!("{SERVICES}/{}", made["metadata"]["name"].as_str().unwrap());
    assert_eq!(made["metadata"]["generation"], 1);

    let (code, applied) = api_client
        .patch(
            &format!("{path}?fieldManager=elasti&force=true"),
            APPLY,
            example(),
        )
        .await;
    assert_eq!(code, 200, "{applied}");
    let (code, received) = api_client
        .patch(
            &format!("{path}/status"),
            MERGE,
            json!({"status": {"mode": "proxy"}, "spec": {"service": "other"}}),
        )
        .await;
    assert_eq!(
        (code, &received["status"]["mode"]),
        (200, &json!("proxy")),
        "{received}"
    );
    assert_eq!(
        received["spec"], applied["spec"],
        "the status subresource leaves the spec alone"
    );
    assert_eq!(
        received["metadata"]["generation"],
        applied["metadata"]["generation"]
    );

    let (code, status) = api_client
        .patch(&path, MERGE, json!({"spec": {"cooldownPeriod": -1}}))
        .await;
    assert_eq!(
        (code, &status["reason"]),
        (422, &json!("Invalid")),
        "{status}"
    );
    let (code, _) = api_client.delete(&path).await;
    assert_eq!(code, 200);
}
