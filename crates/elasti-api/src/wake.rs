//! What the resolver says to the operator: "wake this".
//! It never carries anything of the request that waits.

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

/// The operator's answer.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct WakeAnswer {
    /// One sentence.
    pub message: String,
}
