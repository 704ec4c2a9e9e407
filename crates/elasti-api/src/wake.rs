//! The wake request that a resolver sends to the operator. No part of a client's request belongs in it.

use serde::{Deserialize, Serialize};

/// `POST /informer/incoming-request`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct WakeRequest {
    /// How many requests wait; at least 1.
    pub count: u32,
    /// Name of the Service.
    pub svc: String,
    /// Its namespace.
    pub namespace: String,
}

/// The operator's response to a wake request that it accepted.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct WakeAnswer {
    /// One sentence.
    pub message: String,
}

impl WakeAnswer {
    /// The sentence that scripts written for KubeElasti expect.
    pub const RECEIVED: &str = "Request received successfully!";

    /// The response to an accepted wake request.
    #[must_use]
    pub fn received() -> Self {
        Self {
            message: Self::RECEIVED.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{WakeAnswer, WakeRequest};

    #[test]
    fn a_wake_request_has_its_documented_shape() {
        let request = WakeRequest {
            count: 1,
            svc: "cart".into(),
            namespace: "shop".into(),
        };
        assert_eq!(
            serde_json::to_string(&request).unwrap(),
            r#"{"count":1,"svc":"cart","namespace":"shop"}"#
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
        assert_eq!(answer.message, "ok");
    }
}
