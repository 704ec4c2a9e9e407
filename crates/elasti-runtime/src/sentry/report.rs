//! One error or panic, as it is sent to Sentry.
//! Never contains words that are not the program's own: fields of an event and words of a panic made at run time stay out.

use std::fmt;
use std::panic::PanicHookInfo;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use tracing::Event;
use tracing::field::{Field, Visit};

/// Sent in place of a panic message that was made at run time.
const WORDS_LEFT_OUT: &str = "a panic; its message may contain client data and is only in the log";
/// The longest sentence that is sent.
const MAX_CHARACTERS: usize = 500;

/// One error or panic.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    is_panic: bool,
    sentence: String,
    logger: String,
    file: String,
    line: u32,
    at: Duration,
}

/// What all reports of a process have in common.
#[derive(Clone, Debug)]
pub(super) struct ProcessInfo {
    pub(super) process: &'static str,
    pub(super) environment: String,
    /// The pod's name, in a cluster.
    pub(super) host: String,
}

impl Report {
    pub(super) fn from_event(event: &Event<'_>) -> Self {
        let mut sentence = Sentence::default();
        event.record(&mut sentence);
        let callsite = event.metadata();
        Self {
            is_panic: false,
            sentence: sentence.0.chars().take(MAX_CHARACTERS).collect(),
            logger: callsite.target().to_owned(),
            file: within_crate(callsite.file().unwrap_or_default()),
            line: callsite.line().unwrap_or_default(),
            at: UNIX_EPOCH.elapsed().unwrap_or_default(),
        }
    }

    pub(super) fn from_panic(panic: &PanicHookInfo<'_>) -> Self {
        // What is `'static` stands in the program; everything else was made at run time.
        let words = panic.payload().downcast_ref::<&'static str>();
        let sentence = words.copied().unwrap_or(WORDS_LEFT_OUT);
        let place = panic.location();
        Self {
            is_panic: true,
            sentence: sentence.chars().take(MAX_CHARACTERS).collect(),
            logger: "panic".into(),
            file: within_crate(place.map(|place| place.file()).unwrap_or_default()),
            line: place.map(|place| place.line()).unwrap_or_default(),
            at: UNIX_EPOCH.elapsed().unwrap_or_default(),
        }
    }

    /// The body of a request to Sentry: an envelope with one event.
    pub(super) fn envelope(&self, process_info: &ProcessInfo, id: &str) -> String {
        let event = self.event(process_info, id).to_string();
        let item = json!({"type": "event", "length": event.len()});
        format!("{}\n{item}\n{event}\n", json!({"event_id": id}))
    }

    fn event(&self, process_info: &ProcessInfo, id: &str) -> Value {
        let Self {
            is_panic,
            sentence,
            logger,
            file,
            line,
            at,
        } = self;
        let (level, kind) = match is_panic {
            true => ("fatal", "panic"),
            false => ("error", "error"),
        };
        let frame = json!({"filename": file, "lineno": line, "in_app": true});
        json!({
            "event_id": id,
            "timestamp": at.as_secs_f64(),
            "platform": "native",
            "level": level,
            "logger": logger,
            "server_name": process_info.host,
            "release": concat!("elasti@", env!("CARGO_PKG_VERSION")),
            "environment": process_info.environment,
            "tags": {"process": process_info.process},
            "exception": {"values": [{
                "type": kind, "value": sentence,
                "mechanism": {"type": kind, "handled": !is_panic},
                "stacktrace": {"frames": [frame]},
            }]},
        })
    }
}

/// The sentence of an event, and none of its fields.
#[derive(Default)]
struct Sentence(String);

impl Visit for Sentence {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// A file by its place in its crate, not on the machine that built it.
fn within_crate(file: &str) -> String {
    let of_registry = file.split_once("/registry/src/");
    let inside = of_registry.and_then(|(_, rest)| rest.split_once('/'));
    inside.map_or(file, |(_, rest)| rest).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_by_its_place_in_its_crate() {
        let built = "/home/dev/.cargo/registry/src/index-1/tokio-1.54.1/src/task.rs";
        assert_eq!(within_crate(built), "tokio-1.54.1/src/task.rs");
        let ours = "crates/elasti-operator/src/health.rs";
        assert_eq!(within_crate(ours), ours);
    }
}
