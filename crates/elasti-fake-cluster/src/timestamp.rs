//! Moments as Kubernetes writes them on the wire.

use jiff::{Timestamp, ToSpan as _};

/// `metav1.Time`: whole seconds.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metav1.Time` of the moment so many seconds after `at`.
pub(crate) fn rfc3339_after(at: Timestamp, seconds: i64) -> String {
    rfc3339(at.checked_add(seconds.seconds()).unwrap_or(Timestamp::MAX))
}
