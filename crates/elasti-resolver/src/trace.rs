//! W3C trace context, and a span for each hold of a request whose trace is sampled. Without an exporter every header passes
//! as it came; so does that of a request that was not held.

use elasti_core::ports::ServiceKey;
use elasti_runtime::otlp::{Span, Spans};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::ended_hold::EndedHold;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// `00-` and a trace id of 32 digits, a span id of 16 and flags of 2, with a `-` between them.
const LENGTH: usize = 55;
/// The trace is recorded.
const SAMPLED: u8 = 1;
/// The flags that level 2 of the recommendation defines: sampled, and that the trace id is random.
const KNOWN_FLAGS: u8 = 3;

/// Where a request stands in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    trace_id: u128,
    /// The span that sent the request; `None` if the trace begins here.
    parent: Option<u64>,
    flags: u8,
}

impl TraceContext {
    /// What the client sent, or a new trace if it sent none, several or one that cannot be read.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let mut all = headers.get_all(TRACEPARENT).iter();
        let first = all.next().filter(|_| all.next().is_none());
        let sent = first.and_then(|value| parse(value.as_bytes()));
        sent.unwrap_or_else(|| Self {
            trace_id: rand::random::<u128>().max(1),
            parent: None,
            flags: SAMPLED,
        })
    }

    fn is_sampled(&self) -> bool {
        self.flags & SAMPLED == SAMPLED
    }

    /// The header with this span in the place of its parent.
    fn header(&self, span_id: u64) -> Option<HeaderValue> {
        let Self {
            trace_id, flags, ..
        } = self;
        HeaderValue::from_str(&format!("00-{trace_id:032x}-{span_id:016x}-{flags:02x}")).ok()
    }
}

fn parse(text: &[u8]) -> Option<TraceContext> {
    let (fixed, rest) = text.split_at_checked(LENGTH)?;
    let mut parts = fixed.split(|byte| *byte == b'-');
    let mut number = |digits: usize| {
        let part = parts.next().filter(|part| part.len() == digits)?;
        let lower = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
        let text = std::str::from_utf8(part).ok()?;
        let hex = part.iter().all(lower);
        hex.then(|| u128::from_str_radix(text, 16).ok())?
    };
    let (version, trace_id) = (number(2)?, number(32)?);
    let (parent, flags) = (number(16)?, number(2)?);
    // A later version may have more behind a `-`; version 255 is none.
    let ends = match version {
        0 => rest.is_empty(),
        _ => rest.first().is_none_or(|byte| *byte == b'-'),
    };
    let parent = u64::try_from(parent).ok().filter(|id| *id != 0)?;
    (ends && version != 0xff && trace_id != 0).then_some(TraceContext {
        trace_id,
        parent: Some(parent),
        flags: u8::try_from(flags).ok()? & KNOWN_FLAGS,
    })
}

/// Makes spans of holds.
#[derive(Debug)]
pub(crate) struct Tracer {
    pub(crate) spans: Spans,
    pub(crate) clock: Clock,
}

impl Tracer {
    /// Exports a span for a hold, and makes it the parent of what the pod does for the request.
    pub(crate) fn hold_ended(
        &self,
        context: &TraceContext,
        key: &ServiceKey,
        ended: &EndedHold,
        headers: &mut HeaderMap,
    ) {
        if !context.is_sampled() {
            return;
        }
        let span_id = rand::random::<u64>().max(1);
        if let Some(header) = context.header(span_id) {
            headers.insert(TRACEPARENT, header);
            if context.parent.is_none() {
                // It belongs to a trace that could not be read.
                headers.remove(TRACESTATE);
            }
        }
        self.spans.put(|| Span {
            trace_id: context.trace_id,
            span_id,
            parent: context.parent,
            name: "hold",
            start: self.moment(ended.since),
            end: self.moment(ended.until),
            attributes: vec![
                ("k8s.namespace.name", key.namespace.clone()),
                ("k8s.service.name", key.service.clone()),
                ("elasti.outcome", ended.outcome().to_owned()),
            ],
            error: ended.refused.map(|failure| failure.reason().as_str()),
        });
    }

    fn moment(&self, instant: Instant) -> Timestamp {
        let ago = SignedDuration::try_from(instant.elapsed()).unwrap_or_default();
        let now = self.clock.now();
        now.checked_sub(ago).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_trace_goes_on_with_our_span_as_the_parent() {
        let context = TraceContext::from_headers(&headers(&[SENT]));
        assert_eq!(context.parent, Some(0x00f0_67aa_0ba9_02b7));
        assert!(context.is_sampled());
        let passed_on = context.header(0x1234).unwrap();
        assert_eq!(
            passed_on,
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000001234-01"
        );
        let later = TraceContext::from_headers(&headers(&[&format!("01{}-more", &SENT[2..])]));
        assert_eq!(
            later, context,
            "a later version is read as far as it is known"
        );
        let unsampled = format!("{}00", &SENT[..53]);
        assert!(!TraceContext::from_headers(&headers(&[&unsampled])).is_sampled());
    }

    #[test]
    fn what_cannot_be_read_begins_a_new_trace() {
        let zeros = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        for wrong in [
            &[][..],
            &[""],
            &[SENT, SENT],
            &[&SENT[..54]],
            &["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-"],
            &["00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"],
            &["ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
            &["00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"],
            &["00-4bf92f3577b34da6a3ce929d0e0e473+-00f067aa0ba902b7-01"],
            &["00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01"],
            &[zeros.as_str()],
        ] {
            let context = TraceContext::from_headers(&headers(wrong));
            assert_eq!(context.parent, None, "{wrong:?}");
            assert!(context.is_sampled() && context.trace_id != 0);
        }
    }
}
