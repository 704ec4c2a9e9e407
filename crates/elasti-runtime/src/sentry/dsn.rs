//! A Sentry DSN: where a project takes events, and the key to it.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;

/// `https://key@host/project`; a path before the project and a secret after the key are taken too.
#[derive(Clone, PartialEq, Eq)]
pub struct Dsn {
    endpoint: Url,
    key: String,
}

/// A text that is no DSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a Sentry DSN")]
pub struct NoDsn;

impl Dsn {
    /// Where events are sent.
    pub(super) fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn host(&self) -> &str {
        self.endpoint.host_str().unwrap_or_default()
    }
}

impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dsn({})", self.host())
    }
}

impl FromStr for Dsn {
    type Err = NoDsn;

    fn from_str(text: &str) -> Result<Self, NoDsn> {
        let mut url = Url::parse(text).map_err(|_| NoDsn)?;
        let key = url.username().to_owned();
        let path = url.path().to_owned();
        let (before, project) = path.rsplit_once('/').ok_or(NoDsn)?;
        // The key goes into a header, the project into a path.
        let plain = |text: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            !text.is_empty() && text.chars().all(allowed)
        };
        let web = matches!(url.scheme(), "http" | "https") && url.has_host();
        if !web || !plain(&key) || !plain(project) || url.query().is_some() {
            return Err(NoDsn);
        }
        url.set_path(&format!("{before}/api/{project}/envelope/"));
        url.set_username("").map_err(|()| NoDsn)?;
        url.set_password(None).map_err(|()| NoDsn)?;
        url.set_fragment(None);
        Ok(Self { endpoint: url, key })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_dsn_says_where_to_send_and_hides_its_key() {
        for (text, endpoint) in [
            (
                "https://k3y@o1.ingest.sentry.example/42",
                "https://o1.ingest.sentry.example/api/42/envelope/",
            ),
            (
                "http://k3y:s3cret@127.0.0.1:9000/under/here/7",
                "http://127.0.0.1:9000/under/here/api/7/envelope/",
            ),
        ] {
            let dsn: Dsn = text.parse().unwrap();
            assert_eq!(dsn.endpoint().as_str(), endpoint);
            assert_eq!(dsn.key(), "k3y");
            assert!(!format!("{dsn:?}").contains("k3y"));
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "sentry",
            "https://sentry.example/1",
            "https://key@sentry.example",
            "https://key@sentry.example/",
            "https://key@sentry.example/a b",
            "https://k%0Aey@sentry.example/1",
            "ftp://key@sentry.example/1",
            "https://key@/1",
            "https://key@sentry.example/1?x=y",
        ] {
            assert_eq!(text.parse::<Dsn>(), Err(NoDsn), "{text}");
        }
    }
}
