//! A span, and the JSON of a request with many of them.

use jiff::Timestamp;
use serde_json::{Value, json};

/// `SPAN_KIND_INTERNAL`: it is neither the client's nor the server's end of a call.
const INTERNAL: u8 = 1;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// One piece of work in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The trace that it belongs to.
    pub trace_id: u128,
    /// Its own id.
    pub span_id: u64,
    /// The span that caused it.
    pub parent: Option<u64>,
    /// What was done.
    pub name: &'static str,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// More about it.
    pub attributes: Vec<(&'static str, String)>,
    /// Why it failed, if it did.
    pub error: Option<&'static str>,
}

impl Span {
    fn json(&self) -> Value {
        let parent = self.parent.map(|parent| format!("{parent:016x}"));
        let status = { self.error }.map(|error| json!({"code": ERROR, "message": error}));
        json!({
            "traceId": format!("{:032x}", self.trace_id),
            "spanId": format!("{:016x}", self.span_id),
            "name": self.name,
            "kind": INTERNAL,
            // 64-bit numbers are text in the JSON of Protocol Buffers.
            "startTimeUnixNano": self.start.as_nanosecond().to_string(),
            "endTimeUnixNano": self.end.as_nanosecond().to_string(),
            "attributes": attributes(self.attributes.iter().map(|(key, value)| (*key, value.as_str()))),
            "parentSpanId": parent.unwrap_or_default(),
            "status": status.unwrap_or_else(|| json!({})),
        })
    }
}

fn attributes<'a>(all: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<Value> {
    all.map(|(key, value)| json!({"key": key, "value": {"stringValue": value}}))
        .collect()
}

/// The body of one request: all spans of one process.
pub(super) fn request(process: &str, host: &str, spans: &[Span]) -> Vec<u8> {
    let resource = [
        ("service.name", process),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", host),
    ];
    let spans: Vec<Value> = spans.iter().map(Span::json).collect();
    let request = json!({
        "resourceSpans": [{
            "resource": {"attributes": attributes(resource.into_iter())},
            "scopeSpans": [{"scope": {"name": "elasti"}, "spans": spans}],
        }],
    });
    request.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_as_the_json_of_protocol_buffers() {
        let span = Span {
            trace_id: 0xab,
            span_id: 0xcd,
            parent: Some(1),
            name: "hold",
            start: Timestamp::from_second(5).unwrap(),
            end: Timestamp::from_nanosecond(6_000_000_001).unwrap(),
            attributes: vec![("elasti.outcome", "HoldDeadline".into())],
            error: Some("HoldDeadline"),
        };
        let body = request("elasti-resolver", "resolver-1", &[span]);
        let body: Value = serde_json::from_slice(&body).unwrap();
        let only = &body["resourceSpans"][0];
        let name = json!({"key": "service.name", "value": {"stringValue": "elasti-resolver"}});
        assert_eq!(only["resource"]["attributes"][0], name);
        let expected = json!({
            "traceId": "000000000000000000000000000000ab", "spanId": "00000000000000cd",
            "parentSpanId": "0000000000000001", "name": "hold", "kind": 1,
            "startTimeUnixNano": "5000000000", "endTimeUnixNano": "6000000001",
            "attributes": [{"key": "elasti.outcome", "value": {"stringValue": "HoldDeadline"}}],
            "status": {"code": 2, "message": "HoldDeadline"},
        });
        assert_eq!(only["scopeSpans"][0]["spans"][0], expected);
    }
}
