//! Who may ask: a browser that looks at this very page, and for writes one that was given the token.
//! Never trusts a name that could be anybody's: a page elsewhere that points its own name here is turned away.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// The header that carries the token; a page elsewhere cannot set it without being allowed to.
pub(crate) const TOKEN_HEADER: &str = "x-elasti-token";

/// Everything comes from here, nothing is framed, and text never becomes markup.
const CONTENT_POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=()",
    ),
];

/// Under which names the server may be called, and what opens the writes.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The address that it listens on.
    listens_on: IpAddr,
    /// Names besides addresses and `localhost`.
    hosts: Vec<String>,
    /// `None`: nobody may write.
    token: Option<String>,
}

/// Why a request is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// The Host header names somebody else.
    Host,
    /// It comes from another site.
    Origin,
    /// This dashboard only shows.
    ReadOnly,
    /// The token is missing or wrong.
    Token,
}

impl Turned {
    fn words(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "Host",
                "This server is not called by that name.",
            ),
            Self::Origin => (
                StatusCode::FORBIDDEN,
                "Origin",
                "Requests from other sites are refused.",
            ),
            Self::ReadOnly => (
                StatusCode::FORBIDDEN,
                "ReadOnly",
                "This dashboard only shows; it changes nothing.",
            ),
            Self::Token => (
                StatusCode::FORBIDDEN,
                "Token",
                "The page has an old token or none. Open the address that the command printed.",
            ),
        }
    }
}

impl IntoResponse for Turned {
    fn into_response(self) -> Response {
        let (code, reason, message) = self.words();
        (code, Json(json!({"reason": reason, "message": message}))).into_response()
    }
}

impl Guard {
    pub(crate) fn new(listens_on: IpAddr, hosts: Vec<String>, token: Option<String>) -> Self {
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase());
        Self {
            listens_on,
            hosts: hosts.collect(),
            token,
        }
    }

    /// Whether anybody may write at all.
    pub(crate) fn may_write(&self) -> bool {
        self.token.is_some()
    }

    /// Lets a request pass, or says why not.
    fn judge(&self, method: &Method, asked: &HeaderMap) -> Result<(), Turned> {
        let host = text(asked, &header::HOST).unwrap_or_default();
        if !self.is_me(host) {
            return Err(Turned::Host);
        }
        let elsewhere = |site: &str| !matches!(site, "same-origin" | "none");
        if text(asked, &HeaderName::from_static("sec-fetch-site")).is_some_and(elsewhere)
            && !is_visit(method, asked)
        {
            return Err(Turned::Origin);
        }
        if let Some(origin) = text(asked, &header::ORIGIN) {
            let (scheme, from) = origin.split_once("://").unwrap_or_default();
            if !matches!(scheme, "http" | "https") || !from.eq_ignore_ascii_case(host) {
                return Err(Turned::Origin);
            }
        }
        match (method.is_safe(), &self.token) {
            (true, _) => Ok(()),
            (false, None) => Err(Turned::ReadOnly),
            (false, Some(token)) => {
                let shown = text(asked, &HeaderName::from_static(TOKEN_HEADER));
                match shown.is_some_and(|shown| alike(shown, token)) {
                    true => Ok(()),
                    false => Err(Turned::Token),
                }
            }
        }
    }

    /// An address cannot be pointed at somebody else, a name can.
    fn is_me(&self, host: &str) -> bool {
        let name = host_name(host).to_ascii_lowercase();
        if name == "localhost" || self.hosts.contains(&name) {
            return true;
        }
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        match (bare.parse::<IpAddr>(), self.listens_on) {
            (Ok(address), own) if own.is_loopback() => address.is_loopback(),
            (Ok(_), own) if own.is_unspecified() => true,
            (Ok(address), own) => address == own || address.is_loopback(),
            (Err(_), _) => false,
        }
    }
}

/// Someone who follows a link to the page from elsewhere; what they see, the other site does not.
fn is_visit(method: &Method, asked: &HeaderMap) -> bool {
    let mode = text(asked, &HeaderName::from_static("sec-fetch-mode"));
    let place = text(asked, &HeaderName::from_static("sec-fetch-dest"));
    *method == Method::GET && mode == Some("navigate") && place == Some("document")
}

fn text<'a>(asked: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    asked
        .get(name)
        .map(|value| value.to_str().unwrap_or("\u{fffd}"))
}

/// The host without its port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => {
            name
        }
        _ => host,
    }
}

/// Takes as long for a token that is nearly right as for one that is not.
fn alike(shown: &str, token: &str) -> bool {
    let pairs = shown.bytes().zip(token.bytes());
    shown.len() == token.len() && pairs.fold(0, |wrong, (a, b)| wrong | (a ^ b)) == 0
}

/// The guard in front of every route.
pub(crate) async fn stand(
    State(guard): State<Arc<Guard>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let mut response = match guard.judge(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(turned) => turned.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        Guard::new(
            [127, 0, 0, 1].into(),
            vec!["Dash.Example".into()],
            Some("secret".into()),
        )
    }

    fn judged(
        guard: &Guard,
        method: &Method,
        headers: &[(&'static str, &str)],
    ) -> Result<(), Turned> {
        let mut asked = HeaderMap::new();
        for (name, value) in headers {
            asked.insert(*name, value.parse().unwrap());
        }
        guard.judge(method, &asked)
    }

    #[test]
    fn only_addresses_localhost_and_the_names_that_were_given_are_answered() {
        for host in [
            "127.0.0.1:8090",
            "localhost:1",
            "LOCALHOST",
            "[::1]:8090",
            "127.9.9.9",
            "dash.example:80",
        ] {
            assert_eq!(
                judged(&guard(), &Method::GET, &[("host", host)]),
                Ok(()),
                "{host}"
            );
        }
        for host in [
            "evil.example",
            "evil.example:8090",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "localhost.evil",
            "",
            "[::1",
            "localhost:80:80",
        ] {
            let wrong = host != "[::1";
            assert_eq!(
                judged(&guard(), &Method::GET, &[("host", host)]).is_err(),
                wrong,
                "{host}"
            );
        }
        assert_eq!(judged(&guard(), &Method::GET, &[]), Err(Turned::Host));
    }

    #[test]
    fn writes_need_the_token_and_our_own_page() {
        let own = ("host", "127.0.0.1:8090");
        let token = (TOKEN_HEADER, "secret");
        let origin = ("origin", "http://127.0.0.1:8090");
        assert_eq!(
            judged(&guard(), &Method::POST, &[own, token, origin]),
            Ok(())
        );
        assert_eq!(
            judged(&guard(), &Method::POST, &[own, origin]),
            Err(Turned::Token)
        );
        assert_eq!(
            judged(
                &guard(),
                &Method::POST,
                &[own, origin, (TOKEN_HEADER, "secreT")]
            ),
            Err(Turned::Token)
        );
        for from in [
            "http://evil.example",
            "null",
            "http://127.0.0.1:9",
            "file://127.0.0.1:8090",
        ] {
            assert_eq!(
                judged(&guard(), &Method::POST, &[own, token, ("origin", from)]),
                Err(Turned::Origin),
                "{from}"
            );
        }
        let site = ("sec-fetch-site", "cross-site");
        assert_eq!(
            judged(&guard(), &Method::POST, &[own, token, site]),
            Err(Turned::Origin)
        );
    }

    #[test]
    fn other_sites_may_link_here_but_not_read() {
        let own = ("host", "localhost:8090");
        let site = ("sec-fetch-site", "cross-site");
        assert_eq!(
            judged(&guard(), &Method::GET, &[own, site]),
            Err(Turned::Origin)
        );
        let visit = [
            own,
            site,
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert_eq!(judged(&guard(), &Method::GET, &visit), Ok(()));
        let framed = [
            own,
            site,
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "iframe"),
        ];
        assert_eq!(judged(&guard(), &Method::GET, &framed), Err(Turned::Origin));
    }

    #[test]
    fn without_a_token_nobody_writes() {
        let guard = Guard::new([0, 0, 0, 0].into(), Vec::new(), None);
        let asked = [("host", "10.0.0.1:8090"), (TOKEN_HEADER, "")];
        assert_eq!(judged(&guard, &Method::POST, &asked), Err(Turned::ReadOnly));
        assert_eq!(judged(&guard, &Method::GET, &asked), Ok(()));
        assert_eq!(
            judged(&guard, &Method::GET, &[("host", "evil.example")]),
            Err(Turned::Host)
        );
    }
}
