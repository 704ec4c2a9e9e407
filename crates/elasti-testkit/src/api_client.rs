//! A client of the Kubernetes API that panics on what a test does not expect.

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use crate::fixture::{DEPLOYMENTS, in_namespace};

/// Content type of a merge patch.
pub const MERGE: &str = "application/merge-patch+json";
/// Content type of a strategic merge patch.
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A client of the API server.
#[derive(Clone)]
pub struct ApiClient(pub kube::Client);

impl std::fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiClient")
    }
}

impl ApiClient {
    /// One call: its code and its body.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: impl Into<Vec<u8>>,
    ) -> (u16, Value) {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .header("user-agent", "test/1")
            .body(Body::from(body.into()))
            .unwrap();
        let response = self.0.send(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = || json!(String::from_utf8_lossy(&bytes));
        (
            code,
            serde_json::from_slice(&bytes).unwrap_or_else(|_| text()),
        )
    }

    /// The object there; null if there is none.
    pub async fn get(&self, path: &str) -> Value {
        let (code, body) = self.send("GET", path, "", "").await;
        if code == 200 { body } else { Value::Null }
    }

    /// Whether something is there.
    pub async fn exists(&self, path: &str) -> bool {
        self.send("GET", path, "", "").await.0 == 200
    }

    /// Creates.
    pub async fn make(&self, path: &str, body: Value) -> Value {
        let sent = body.to_string();
        let (code, body) = self.send("POST", path, "application/json", sent).await;
        assert_eq!(code, 201, "{body}");
        body
    }

    /// Patches.
    pub async fn patch(&self, path: &str, kind: &str, body: Value) -> Value {
        let (code, body) = self.send("PATCH", path, kind, body.to_string()).await;
        assert_eq!(code, 200, "{body}");
        body
    }

    /// Deletes.
    pub async fn delete(&self, path: &str) {
        let (code, body) = self.send("DELETE", path, "", "").await;
        assert!(code < 300, "{code} {body}");
    }

    /// A collection's items.
    pub async fn items(&self, path: &str) -> Vec<Value> {
        let list = self.get(path).await;
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Scales a Deployment of the default namespace.
    pub async fn scale(&self, name: &str, replicas: u32) {
        self.scale_in("default", name, replicas).await;
    }

    /// Scales a Deployment.
    pub async fn scale_in(&self, namespace: &str, name: &str, replicas: u32) {
        let deployments = in_namespace(namespace, DEPLOYMENTS);
        self.patch(
            &format!("{deployments}/{name}/scale"),
            MERGE,
            json!({"spec": {"replicas": replicas}}),
        )
        .await;
    }
}
