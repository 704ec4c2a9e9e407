//! Exports spans to a collector by OTLP over HTTP, as JSON, where an endpoint is given.
//! Nothing waits for it: spans that find the queue full, or the collector away, are dropped and counted.

mod delivery;
mod span;

use http::{HeaderName, HeaderValue};
use reqwest::Url;

use crate::environment::{Reading, Variable, variable};
pub use delivery::{Counts, Spans};
pub use span::Span;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// The variables, with the names that OpenTelemetry gives them.
pub const VARIABLES: [Variable; 3] = [
    variable(
        ENDPOINT,
        "none",
        "where spans of holds are sent by OTLP over HTTP, to /v1/traces below it, such as http://collector:4318",
    ),
    variable(
        TRACES_ENDPOINT,
        "from the one above",
        "the same, with its whole path",
    ),
    variable(
        HEADERS,
        "none",
        "headers for the collector, as name=value separated by commas",
    ),
];

/// Where spans go.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// The address that they are posted to.
    pub endpoint: Url,
    /// Sent with them; their values may be secret.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("host", &self.endpoint.host_str())
            .finish_non_exhaustive()
    }
}

/// The settings, if an endpoint is given.
pub fn settings(read: &mut Reading<'_>) -> Option<Settings> {
    let (base, whole) = (read.text(ENDPOINT), read.text(TRACES_ENDPOINT));
    let headers = headers(read);
    let (name, text) = match (whole, base) {
        (Some(whole), _) => (TRACES_ENDPOINT, whole),
        (None, Some(base)) => (
            ENDPOINT,
            format!("{}/v1/traces", base.trim_end_matches('/')),
        ),
        (None, None) => return None,
    };
    let url = text.parse::<Url>().ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if url.is_none() {
        // It may hold a password.
        read.wrong_secret(name, "an http or https address");
    }
    Some(Settings {
        endpoint: url?,
        headers: headers?,
    })
}

/// `name=value` between commas.
fn headers(read: &mut Reading<'_>) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let pairs = read.list(HEADERS);
    let pair = |text: &String| {
        let (name, value) = text.split_once('=')?;
        let mut value = HeaderValue::from_str(value.trim()).ok()?;
        value.set_sensitive(true);
        Some((name.trim().parse().ok()?, value))
    };
    let headers: Option<Vec<_>> = pairs.iter().map(pair).collect();
    if headers.is_none() {
        read.wrong_secret(HEADERS, "headers such as name=value, separated by commas");
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::WrongValues;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<Settings>, WrongValues> {
        let get = |name: &str| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut reading = Reading::new(&get);
        let settings = settings(&mut reading);
        reading.end(&[], &[]).map(|()| settings)
    }

    #[test]
    fn an_endpoint_gets_the_path_of_traces_and_a_whole_one_stays() {
        assert_eq!(read(&[]).unwrap(), None);
        let base = read(&[(ENDPOINT, "http://otel:4318/")]).unwrap().unwrap();
        assert_eq!(base.endpoint.as_str(), "http://otel:4318/v1/traces");
        let pairs = [
            (ENDPOINT, "http://otel:4318"),
            (TRACES_ENDPOINT, "https://traces/in"),
            (HEADERS, "x-key=a=b, x-other=c"),
        ];
        let whole = read(&pairs).unwrap().unwrap();
        assert_eq!(whole.endpoint.as_str(), "https://traces/in");
        let names: Vec<&str> = whole
            .headers
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["x-key", "x-other"]);
        assert_eq!(whole.headers[0].1, "a=b");
    }

    #[test]
    fn wrong_values_are_named_but_not_shown() {
        for pairs in [
            [(ENDPOINT, "secret:4318"), (HEADERS, "")],
            [(TRACES_ENDPOINT, "grpc://secret"), (HEADERS, "")],
            [(ENDPOINT, "http://otel"), (HEADERS, "secret")],
            [(ENDPOINT, "http://otel"), (HEADERS, "a b=secret")],
        ] {
            let line = read(&pairs).unwrap_err().to_string();
            assert!(line.contains("OTEL_EXPORTER_OTLP_"), "{line}");
            assert!(!line.contains("secret"), "{line}");
        }
    }
}
