//! Events: both groups share one storage, in the core form.

use serde_json::{Value, json};

use crate::api_server::object::Object as _;

/// Fields that only have another name in events.k8s.io, core name first.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The fields that Go always writes.
pub(crate) fn default(object: &mut Value) {
    object.put_default("/involvedObject", json!({}));
    object.put_default("/source", json!({}));
    object.put_default("/reportingComponent", "");
    object.put_default("/reportingInstance", "");
    for time in ["/firstTimestamp", "/lastTimestamp", "/eventTime"] {
        object.put_default(time, Value::Null);
    }
}

/// From events.k8s.io to the stored form.
pub(crate) fn to_core(object: &mut Value) {
    rename(object, |(core, new)| (new, core));
}

/// From the stored form to events.k8s.io.
pub(crate) fn from_core(object: &mut Value) {
    rename(object, |(core, new)| (core, new));
}

fn rename(
    object: &mut Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    for pair in RENAMED {
        let (from, to) = direction(*pair);
        if let Some(value) = object.drop_at(&format!("/{from}")) {
            object.put(&format!("/{to}"), value);
        }
    }
}
