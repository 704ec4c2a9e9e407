//! Access control: requests must come from this page, and writes must carry the token.
//! Never trusts a foreign host name: DNS rebinding would let another site in.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// The header with the token; another site cannot set it without CORS.
pub(crate) const TOKEN_HEADER: &str = "x-elasti-token";

/// Everything is loaded from here, nothing is framed, and text never becomes markup.
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

/// The accepted host names, and the token.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The address that it listens on.
    listens_on: IpAddr,
    /// Names besides addresses and `localhost`.
    hosts: Vec<String>,
    /// `None`: read-only.
    token: Option<String>,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The Host header has a foreign name.
    Host,
    /// It comes from another site.
    Origin,
    /// This dashboard is read-only.
    ReadOnly,
    /// The token is missing or wrong.
    Token,
}

impl Rejection {
    fn response(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "Host",
                "Unknown host name.",
            ),
            Self::Origin => (
                StatusCode::FORBIDDEN,
                "Origin",
                "Requests from other sites are rejected.",
            ),
            Self::ReadOnly => (
                StatusCode::FORBIDDEN,
                "ReadOnly",
                "This dashboard is read-only.",
            ),
            Self::Token => (
                StatusCode::FORBIDDEN,
                "Token",
                "The page has an old token or none. Open the address that the command printed.",
            ),
        }
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let (code, reason, message) = self.response();
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

    /// Whether writes are possible.
    pub(crate) fn may_write(&self) -> bool {
        self.token.is_some()
    }

    /// Accepts a request, or says why not.
    fn authorize(&self, method: &Method, headers: &HeaderMap) -> Result<(), Rejection> {
        let host = text(headers, &header::HOST).unwrap_or_default();
        if !self.is_own_host(host) {
            return Err(Rejection::Host);
        }
        let elsewhere = |site: &str| !matches!(site, "same-origin" | "none");
        if text(headers, &HeaderName::from_static("sec-fetch-site")).is_some_and(elsewhere)
            && !is_navigation(method, headers)
        {
            return Err(Rejection::Origin);
        }
        if let Some(origin) = text(headers, &header::ORIGIN) {
            let (scheme, from) = origin.split_once("://").unwrap_or_default();
            if !matches!(scheme, "http" | "https") || !from.eq_ignore_ascii_case(host) {
                return Err(Rejection::Origin);
            }
        }
        match (method.is_safe(), &self.token) {
            (true, _) => Ok(()),
            (false, None) => Err(Rejection::ReadOnly),
            (false, Some(token)) => {
                let shown = text(headers, &HeaderName::from_static(TOKEN_HEADER));
                match shown.is_some_and(|shown| constant_time_eq(shown, token)) {
                    true => Ok(()),
                    false => Err(Rejection::Token),
                }
            }
        }
    }

    /// A name may be anyone's; an address is not.
    fn is_own_host(&self, host: &str) -> bool {
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

/// A link from another site: it opens the page, and the other site cannot read it.
fn is_navigation(method: &Method, headers: &HeaderMap) -> bool {
    let mode = text(headers, &HeaderName::from_static("sec-fetch-mode"));
    let place = text(headers, &HeaderName::from_static("sec-fetch-dest"));
    *method == Method::GET && mode == Some("navigate") && place == Some("document")
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers
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

/// Compares in constant time.
fn constant_time_eq(shown: &str, token: &str) -> bool {
    let pairs = shown.bytes().zip(token.bytes());
    shown.len() == token.len() && pairs.fold(0, |wrong, (a, b)| wrong | (a ^ b)) == 0
}

/// The middleware in front of every route.
pub(crate) async fn check(
    State(guard): State<Arc<Guard>>,
    request: Request<Body>,
    next: Next,
) -> Response {
    let mut response = match guard.authorize(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(rejection) => rejection.into_response(),
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
    ) -> Result<(), Rejection> {
        let mut asked = HeaderMap::new();
        for (name, value) in headers {
            asked.insert(*name, value.parse().unwrap());
        }
        guard.authorize(method, &asked)
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
        assert_eq!(judged(&guard(), &Method::GET, &[]), Err(Rejection::Host));
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
            Err(Rejection::Token)
        );
        assert_eq!(
            judged(
                &guard(),
                &Method::POST,
                &[own, origin, (TOKEN_HEADER, "secreT")]
            ),
            Err(Rejection::Token)
        );
        for from in [
            "http://evil.example",
            "null",
            "http://127.0.0.1:9",
            "file://127.0.0.1:8090",
        ] {
            assert_eq!(
                judged(&guard(), &Method::POST, &[own, token, ("origin", from)]),
                Err(Rejection::Origin),
                "{from}"
            );
        }
        let site = ("sec-fetch-site", "cross-site");
        assert_eq!(
            judged(&guard(), &Method::POST, &[own, token, site]),
            Err(Rejection::Origin)
        );
    }

    #[test]
    fn other_sites_may_link_here_but_not_read() {
        let own = ("host", "localhost:8090");
        let site = ("sec-fetch-site", "cross-site");
        assert_eq!(
            judged(&guard(), &Method::GET, &[own, site]),
            Err(Rejection::Origin)
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
        assert_eq!(
            judged(&guard(), &Method::GET, &framed),
            Err(Rejection::Origin)
        );
    }

    #[test]
    fn without_a_token_nobody_writes() {
        let guard = Guard::new([0, 0, 0, 0].into(), Vec::new(), None);
        let asked = [("host", "10.0.0.1:8090"), (TOKEN_HEADER, "")];
        assert_eq!(
            judged(&guard, &Method::POST, &asked),
            Err(Rejection::ReadOnly)
        );
        assert_eq!(judged(&guard, &Method::GET, &asked), Ok(()));
        assert_eq!(
            judged(&guard, &Method::GET, &[("host", "evil.example")]),
            Err(Rejection::Host)
        );
    }
}
