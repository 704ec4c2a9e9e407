//! Finds the service that a request's host names, for gateways that address the resolver itself.

use elasti_core::ports::ServiceKey;
use http::{HeaderName, Request, header};

use crate::forward::headers::without_user;
use crate::reach::Destination;
use crate::table::{RouteTable, Service};

/// How a host becomes a service.
#[derive(Debug, Default)]
pub(crate) struct HostRoute {
    pub(crate) cluster_domain: String,
    /// The header that names the host, before `Host`.
    pub(crate) host_header: Option<HeaderName>,
}

impl HostRoute {
    /// Where a request on the host route goes.
    pub(crate) fn find<B>(&self, table: &RouteTable, request: &Request<B>) -> Option<Destination> {
        let headers = request.headers();
        let named = self.host_header.as_ref().and_then(|name| headers.get(name));
        // A target that names a host counts before `Host`, for the pod as well.
        let host = match (named, request.uri().authority()) {
            (None, Some(authority)) => without_user(authority),
            (named, _) => named.or_else(|| headers.get(header::HOST))?.to_str().ok()?,
        };
        let (key, port) = parse(host, &self.cluster_domain)?;
        let service = table.service(&key)?;
        Some(Destination::new(&service, listen_port(&service, port)?))
    }
}

/// The port that was named, or else the one for plain HTTP, or else the only sensible guess: the first.
fn listen_port(service: &Service, named: Option<u16>) -> Option<u16> {
    let ports = service.ports.iter().map(|port| &port.listen);
    let mut by_number = ports.clone().filter(|port| Some(port.port) == named);
    let mut by_name = ports
        .clone()
        .filter(|port| port.port == 80 || port.name == "http");
    by_number
        .next()
        .or_else(|| by_name.next())
        .or_else(|| ports.clone().next())
        .map(|port| port.listen_port)
}

/// `svc.ns`, `svc.ns.svc` or `svc.ns.svc.<cluster domain>`, each with or without a port and a final dot.
/// Envoy's `x-envoy-decorator-operation` adds the route behind it (`…:80/*`), which says nothing about the service.
pub(crate) fn parse(host: &str, cluster_domain: &str) -> Option<(ServiceKey, Option<u16>)> {
    let host = host.split_once('/').map_or(host, |(host, _)| host);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, Some(port.parse().ok()?)),
        None => (host, None),
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let short = name
        .strip_suffix(&format!(".svc.{}", cluster_domain.to_ascii_lowercase()))
        .or_else(|| name.strip_suffix(".svc"))
        .unwrap_or(&name);
    let (service, namespace) = short.split_once('.')?;
    let label = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    (label(service) && label(namespace)).then(|| (ServiceKey::new(namespace, service), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_of_a_host_name_the_same_service() {
        for host in [
            "cart.shop",
            "cart.shop:80",
            "cart.shop.svc",
            "cart.shop.svc:80",
            "CART.shop.svc.cluster.local",
            "cart.shop.svc.cluster.local:80",
            "cart.shop.svc.cluster.local.",
            "cart.shop.svc.cluster.local:80/*",
            "cart.shop.svc.cluster.local/api/*",
        ] {
            let (key, port) = parse(host, "cluster.local").unwrap_or_else(|| panic!("{host}"));
            assert_eq!(key, ServiceKey::new("shop", "cart"), "{host}");
            assert_eq!(port, host.contains(':').then_some(80), "{host}");
        }
    }

    #[test]
    fn anything_else_names_no_service() {
        for host in [
            "",
            "cart",
            "cart.shop.svc.other.domain",
            "a.b.c",
            "cart.shop:x",
            ".shop",
            "cart.",
            "10.0.0.1",
            "[::1]:80",
            "a_b.c",
            "/cart.shop",
        ] {
            let named = parse(host, "cluster.local").map(|(key, _)| key);
            assert!(named.is_none(), "{host}: {named:?}");
        }
    }
}
