//! What changes in the head of a message on its way through: hop-by-hop fields go, forwarding fields come.
//! Never touches a field that is meant for the other end.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Request, Uri, Version};

/// Fields of one connection, by RFC 9110 section 7.6.1 and long custom; `te` and `upgrade` are treated apart.
const HOP_BY_HOP: [HeaderName; 5] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::PROXY_AUTHENTICATE,
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The protocol that both sides want to change to; `h2c` is not offered, because clients with prior knowledge have it.
pub(crate) fn wanted_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    let wanted = headers.get(header::UPGRADE)?;
    (asks && !wanted.as_bytes().eq_ignore_ascii_case(b"h2c")).then(|| wanted.clone())
}

/// Removes what belongs to one connection, and what `Connection` names as such.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|token| token.trim().parse().ok())
        .collect();
    // Framing and the host are never a matter of one hop, whatever a client claims: that would be smuggling.
    let kept = [header::HOST, header::CONTENT_LENGTH, FORWARDED_FOR];
    for name in named
        .iter()
        .filter(|name| !kept.contains(name))
        .chain(&HOP_BY_HOP)
    {
        headers.remove(name);
    }
    headers.remove(header::UPGRADE);
    let trailers = headers
        .get(header::TE)
        .is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    if !trailers {
        headers.remove(header::TE);
    }
}

/// Makes a client's request one for the pod. The upgrade, if one is wanted, stays in.
pub(crate) fn prepare<B>(request: &mut Request<B>, peer: IpAddr) {
    let upgrade = wanted_upgrade(request.headers());
    let host = request.headers().get(header::HOST).cloned().or_else(|| {
        request
            .uri()
            .authority()
            .and_then(|one| HeaderValue::from_str(one.as_str()).ok())
    });
    let headers = request.headers_mut();
    strip_hop_by_hop(headers);
    // Whoever asked has been told to go on by us as soon as the pod wants the body.
    headers.remove(header::EXPECT);
    if let Some(upgrade) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, upgrade);
    }
    append_forwarded_for(headers, peer);
    if !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static("http"));
    }
    if let Some(host) = &host
        && !headers.contains_key(FORWARDED_HOST)
    {
        headers.insert(FORWARDED_HOST, host.clone());
    }
    aim(request, host.as_ref());
}

/// HTTP/1.1 wants the path alone and a host; HTTP/2 wants scheme and authority.
fn aim<B>(request: &mut Request<B>, host: Option<&HeaderValue>) {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    if parts.path_and_query.is_none() {
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
    }
    if request.version() == Version::HTTP_2 {
        let named = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        parts.authority = parts
            .authority
            .or(named)
            .or_else(|| Some(Authority::from_static("service")));
        parts.scheme = Some(parts.scheme.unwrap_or(Scheme::HTTP));
    } else {
        parts.authority = None;
        parts.scheme = None;
        *request.version_mut() = Version::HTTP_11;
        if let Some(host) = host {
            request.headers_mut().insert(header::HOST, host.clone());
        }
    }
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

fn append_forwarded_for(headers: &mut HeaderMap, peer: IpAddr) {
    let mut all: Vec<u8> = Vec::new();
    for value in headers.get_all(FORWARDED_FOR) {
        all.extend_from_slice(value.as_bytes());
        all.extend_from_slice(b", ");
    }
    all.extend_from_slice(peer.to_canonical().to_string().as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&all) {
        headers.insert(FORWARDED_FOR, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(head: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().uri("http://cart.shop/a?b=1");
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn prepared(head: &[(&str, &str)]) -> Request<()> {
        let mut request = request(head);
        prepare(&mut request, "10.1.1.1".parse().unwrap());
        request
    }

    #[test]
    fn fields_of_one_connection_are_removed_and_others_stay() {
        let done = prepared(&[
            ("connection", "close, x-mine"),
            ("x-mine", "1"),
            ("keep-alive", "5"),
            ("te", "gzip"),
            ("upgrade", "websocket"),
            ("accept", "a"),
            ("host", "cart"),
        ]);
        for gone in ["connection", "x-mine", "keep-alive", "te", "upgrade"] {
            assert!(!done.headers().contains_key(gone), "{gone}");
        }
        assert_eq!(done.headers()["accept"], "a");
        assert_eq!(done.uri(), "/a?b=1");
    }

    #[test]
    fn nobody_removes_framing_or_the_host_by_naming_them_in_connection() {
        let done = prepared(&[
            ("connection", "content-length, host"),
            ("content-length", "3"),
            ("host", "cart"),
        ]);
        assert_eq!(done.headers()["content-length"], "3");
        assert_eq!(done.headers()["host"], "cart");
    }

    #[test]
    fn an_upgrade_stays_unless_it_is_h2c_or_nobody_asks_for_it() {
        let done = prepared(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
        ]);
        assert_eq!(
            (&done.headers()["connection"], &done.headers()["upgrade"]),
            (
                &HeaderValue::from_static("upgrade"),
                &HeaderValue::from_static("websocket")
            )
        );
        assert!(
            wanted_upgrade(request(&[("connection", "upgrade"), ("upgrade", "h2c")]).headers())
                .is_none()
        );
        assert!(wanted_upgrade(request(&[("upgrade", "websocket")]).headers()).is_none());
    }

    #[test]
    fn forwarding_fields_are_appended_and_an_outer_proxys_words_stay() {
        let done = prepared(&[
            ("host", "cart"),
            ("x-forwarded-for", "1.2.3.4"),
            ("x-forwarded-proto", "https"),
        ]);
        assert_eq!(done.headers()["x-forwarded-for"], "1.2.3.4, 10.1.1.1");
        assert_eq!(done.headers()["x-forwarded-proto"], "https");
        assert_eq!(done.headers()["x-forwarded-host"], "cart");
    }
}
