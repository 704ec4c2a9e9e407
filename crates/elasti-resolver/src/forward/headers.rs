//! The headers that a proxy changes: hop-by-hop fields are removed, forwarding fields are added.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, Scheme};
use http::{Request, Uri, Version};

/// Fields of one connection, by RFC 9110 section 7.6.1 and long custom; `te: trailers` stays, for gRPC.
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "proxy-authenticate",
    "te",
    "upgrade",
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The protocol that both sides want to change to; `h2c` is not offered, because clients with prior knowledge have it.
pub(crate) fn wanted_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let requested = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    let wanted = headers.get(header::UPGRADE)?;
    (requested && !wanted.as_bytes().eq_ignore_ascii_case(b"h2c")).then(|| wanted.clone())
}

/// Removes what belongs to one connection, and what `Connection` names as such. Most heads have none of it, or only a
/// plain `Connection`, so names are checked once and only what is there is removed.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let mut found = [false; HOP_BY_HOP.len()];
    for name in headers.keys() {
        let known = HOP_BY_HOP.iter().position(|one| *one == name.as_str());
        if let Some(found) = known.and_then(|at| found.get_mut(at)) {
            *found = true;
        }
    }
    let named = named_by_connection(headers);
    for (name, found) in HOP_BY_HOP.into_iter().zip(found) {
        if found && !(name == "te" && wants_trailers(headers)) {
            headers.remove(name);
        }
    }
    for name in named {
        headers.remove(name);
    }
}

/// Fields that `Connection` names. Framing and the host are never a matter of one hop, whatever a client claims: that
/// would be smuggling.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let kept = [header::HOST, header::CONTENT_LENGTH, FORWARDED_FOR];
    let plain = |token: &&str| {
        ["close", "keep-alive"]
            .iter()
            .any(|word| token.eq_ignore_ascii_case(word))
    };
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .filter(|token| !plain(token))
        .filter_map(|token| token.parse().ok())
        .filter(|name| !kept.contains(name))
        .collect()
}

fn wants_trailers(headers: &HeaderMap) -> bool {
    headers
        .get(header::TE)
        .is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"))
}

/// An authority as `Host` has it.
pub(crate) fn without_user(authority: &Authority) -> &str {
    let whole = authority.as_str();
    whole.rsplit_once('@').map_or(whole, |(_, host)| host)
}

/// Makes a client's request one for the pod. The upgrade, if one is wanted, stays in. `peer` is the client's address.
/// A client of HTTP/1.0 may name no host, but the pod is asked in HTTP/1.1: it gets `unnamed`.
pub(crate) fn prepare<B>(
    request: &mut Request<B>,
    peer: &HeaderValue,
    upgrade: Option<HeaderValue>,
    unnamed: impl FnOnce() -> Option<HeaderValue>,
) {
    // RFC 9112, 3.2.2: a target that names a host counts before the header.
    let authority = request.uri().authority();
    let host = authority
        .and_then(|one| HeaderValue::from_str(without_user(one)).ok())
        .or_else(|| request.headers().get(header::HOST).cloned());
    let headers = request.headers_mut();
    strip_hop_by_hop(headers);
    // hyper itself sends `100 Continue` as soon as the pod wants the body.
    headers.remove(header::EXPECT);
    if let Some(upgrade) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, upgrade);
    }
    append_forwarded_for(headers, peer);
    headers
        .entry(FORWARDED_PROTO)
        .or_insert(HeaderValue::from_static("http"));
    if let Some(host) = &host {
        headers
            .entry(FORWARDED_HOST)
            .or_insert_with(|| host.clone());
    }
    let host = match request.version() {
        Version::HTTP_09 | Version::HTTP_10 => host.or_else(unnamed),
        _ => host,
    };
    set_target(request, host.as_ref());
}

/// HTTP/1.1 wants the path alone and a host; HTTP/2 wants scheme and authority.
fn set_target<B>(request: &mut Request<B>, host: Option<&HeaderValue>) {
    let http2 = request.version() == Version::HTTP_2;
    if !http2 {
        *request.version_mut() = Version::HTTP_11;
        if let Some(host) = host {
            // Also where there is one: a second one would be smuggling.
            request.headers_mut().insert(header::HOST, host.clone());
        }
        if request.uri().authority().is_none() && request.uri().path_and_query().is_some() {
            return;
        }
    }
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    if parts.path_and_query.is_none() {
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
    }
    if http2 {
        let named = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        parts.authority = parts
            .authority
            .or(named)
            .or_else(|| Some(Authority::from_static("service")));
        parts.scheme = Some(parts.scheme.unwrap_or(Scheme::HTTP));
    } else {
        parts.authority = None;
        parts.scheme = None;
    }
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}

/// A client's address as `X-Forwarded-For` has it.
pub(crate) fn forwarded_for(peer: IpAddr) -> HeaderValue {
    HeaderValue::from_str(&peer.to_canonical().to_string())
        .unwrap_or(HeaderValue::from_static("unknown"))
}

fn append_forwarded_for(headers: &mut HeaderMap, peer: &HeaderValue) {
    if !headers.contains_key(FORWARDED_FOR) {
        headers.insert(FORWARDED_FOR, peer.clone());
        return;
    }
    let mut all: Vec<u8> = Vec::new();
    for value in headers.get_all(FORWARDED_FOR) {
        all.extend_from_slice(value.as_bytes());
        all.extend_from_slice(b", ");
    }
    all.extend_from_slice(peer.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&all) {
        headers.insert(FORWARDED_FOR, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(head: &[(&str, &str)]) -> Request<()> {
        to("/a?b=1", head)
    }

    fn to(target: &str, head: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().uri(target);
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn prepared(head: &[(&str, &str)]) -> Request<()> {
        prepare_one(request(head))
    }

    fn prepare_one(mut request: Request<()>) -> Request<()> {
        let upgrade = wanted_upgrade(request.headers());
        prepare(
            &mut request,
            &forwarded_for("10.1.1.1".parse().unwrap()),
            upgrade,
            || Some(HeaderValue::from_static("cart.shop")),
        );
        request
    }

    #[test]
    fn a_target_that_names_a_host_counts_before_the_header() {
        let done = prepare_one(to("http://cart.shop/a?b=1", &[("host", "bank")]));
        assert_eq!(done.headers()["host"], "cart.shop");
        assert_eq!(done.headers()["x-forwarded-host"], "cart.shop");
        assert_eq!(done.uri(), "/a?b=1");
        let user: Authority = "me:secret@cart:80".parse().unwrap();
        assert_eq!(without_user(&user), "cart:80");
    }

    #[test]
    fn only_a_client_of_http_1_0_may_name_no_host_and_gets_one() {
        for (version, host) in [
            (Version::HTTP_10, Some("cart.shop")),
            (Version::HTTP_11, None),
        ] {
            let mut request = Request::get("/a").version(version).body(()).unwrap();
            let unnamed = || Some(HeaderValue::from_static("cart.shop"));
            prepare(
                &mut request,
                &HeaderValue::from_static("10.1.1.1"),
                None,
                unnamed,
            );
            assert_eq!(request.version(), Version::HTTP_11);
            let found = request
                .headers()
                .get("host")
                .map(|host| host.to_str().unwrap());
            assert_eq!(found, host);
            assert!(!request.headers().contains_key("x-forwarded-host"));
        }
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
    fn framing_and_host_stay_even_if_connection_names_them() {
        let done = prepared(&[
            ("connection", "content-length, host"),
            ("content-length", "3"),
            ("host", "cart"),
        ]);
        assert_eq!(done.headers()["content-length"], "3");
        assert_eq!(done.headers()["host"], "cart");
    }

    #[test]
    fn of_two_hosts_only_the_first_goes_on() {
        let done = prepared(&[("host", "cart"), ("host", "bank")]);
        let hosts: Vec<_> = done.headers().get_all("host").iter().collect();
        assert_eq!(hosts, ["cart"]);
    }

    #[test]
    fn te_stays_for_trailers_only() {
        for (te, stays) in [("trailers", true), ("gzip", false)] {
            let done = prepared(&[("te", te), ("host", "cart")]);
            assert_eq!(done.headers().contains_key("te"), stays, "{te}");
        }
    }

    #[test]
    fn every_connection_field_counts_and_an_odd_one_harms_nothing() {
        let done = prepared(&[
            ("connection", "keep-alive"),
            ("connection", "x-mine, ,(),close"),
            ("x-mine", "1"),
            ("host", "cart"),
        ]);
        assert!(!done.headers().contains_key("connection"));
        assert!(!done.headers().contains_key("x-mine"));
    }

    #[test]
    fn an_upgrade_stays_if_it_was_requested_and_is_not_h2c() {
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
    fn forwarding_fields_are_appended_and_those_of_an_outer_proxy_stay() {
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
