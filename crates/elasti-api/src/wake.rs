//! The wake request that a resolver sends to the operator, and the answer. Of a client's request it holds only what
//! [`WakeClient`] may hold, and that only if the resolver's settings allow it.

use serde::{Deserialize, Serialize};

use crate::wake_client::WakeClient;

/// Wakes that one resolver sends at once, each over a connection of its own; others wait for their turn. An operator
/// takes no more connections of one address than these and a few.
pub const MOST_WAKES_AT_ONCE: usize = 48;

/// `POST /informer/incoming-request`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct WakeRequest {
    /// How many requests wait; at least 1.
    pub count: u32,
    /// Name of the Service.
    pub svc: String,
    /// Its namespace.
    pub namespace: String,
    /// The request that waits the longest; absent unless resolvers are set to tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<WakeClient>,
}

/// The operator's response to a wake request that it accepted.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct WakeAnswer {
    /// One sentence.
    pub message: String,
    /// Given by the leader for a target that is scaled up; operators before this field never give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promise: Option<WakePromise>,
}

/// The leader will not scale the target down for a while, so these pods may receive requests although they are marked.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct WakePromise {
    /// For how long. The resolver counts from before it sent the wake, so that no two clocks are compared.
    pub millis: u64,
    /// Which pods; none that may be about to stop.
    pub pods: Vec<PromisedPod>,
}

/// A pod that a promise covers.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromisedPod {
    /// Its name.
    pub name: String,
    /// Its uid: a new pod of the same name is another pod.
    pub uid: String,
}

impl WakeAnswer {
    /// The sentence that scripts written for KubeElasti expect.
    pub const RECEIVED: &str = "Request received successfully!";

    /// The response to an accepted wake request.
    #[must_use]
    pub fn received() -> Self {
        Self {
            message: Self::RECEIVED.into(),
            promise: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{PromisedPod, WakeAnswer, WakeClient, WakePromise, WakeRequest};

    #[test]
    fn a_wake_request_has_its_documented_shape() {
        let request = WakeRequest {
            count: 1,
            svc: "cart".into(),
            namespace: "shop".into(),
            client: None,
        };
        assert_eq!(
            serde_json::to_string(&request).unwrap(),
            r#"{"count":1,"svc":"cart","namespace":"shop"}"#
        );
        let request = WakeRequest {
            client: Some(WakeClient::http("GET", "/a", Some(b"curl"), "10.1.2.3")),
            ..request
        };
        assert_eq!(
            serde_json::to_string(&request).unwrap(),
            r#"{"count":1,"svc":"cart","namespace":"shop","client":{"protocol":"http","method":"GET","path":"/a","userAgent":"curl","address":"10.1.2.3"}}"#
        );
        assert_eq!(
            serde_json::to_string(&WakeAnswer::received()).unwrap(),
            r#"{"message":"Request received successfully!"}"#
        );
    }

    #[test]
    fn a_wake_of_another_version_is_read() {
        let request: WakeRequest = serde_json::from_value(json!({
            "namespace": "shop", "svc": "cart", "count": 3, "port": "http",
        }))
        .unwrap();
        assert_eq!((request.count, request.svc.as_str()), (3, "cart"));
        let answer: WakeAnswer =
            serde_json::from_value(json!({"message": "ok", "replicas": 1})).unwrap();
        assert_eq!((answer.message.as_str(), answer.promise), ("ok", None));
    }

    #[test]
    fn a_promise_names_its_pods_and_how_long_it_lasts() {
        let answer = WakeAnswer {
            promise: Some(WakePromise {
                millis: 5000,
                pods: vec![PromisedPod {
                    name: "cart-1".into(),
                    uid: "42".into(),
                }],
            }),
            ..WakeAnswer::received()
        };
        let text = r#"{"message":"Request received successfully!","promise":{"millis":5000,"pods":[{"name":"cart-1","uid":"42"}]}}"#;
        assert_eq!(serde_json::to_string(&answer).unwrap(), text);
        assert_eq!(serde_json::from_str::<WakeAnswer>(text).unwrap(), answer);
    }
}
