//! A resolver as a process of its own, for the bench and profilers. Its cluster is one fixed service; everything past the
//! two lists is the resolver's real code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use elasti_api::names;
use elasti_resolver::{Running, Settings};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};

const USAGE: &str = "usage: resolver_alone THREADS HTTP_ADDRESS TCP_PORT POD_ADDRESS";

/// One service with two ports: HTTP and raw TCP.
#[derive(Clone, Copy)]
struct FixedCluster {
    http: SocketAddr,
    tcp_port: u16,
    pod: SocketAddr,
}

impl FixedCluster {
    fn services(self) -> Value {
        json!({
            "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiServiceList",
            "metadata": {"resourceVersion": "1"},
            "items": [{
                "metadata": {"name": "cart", "namespace": "shop"},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart"},
                    "service": "cart",
                    "triggers": [{"type": "prometheus", "metadata": {"query": "x", "threshold": "1"}}],
                },
                "status": {"mode": "proxy", "phase": "Waking", "ports": [
                    {"name": "http", "port": 80, "listenPort": self.http.port()},
                    {"name": "tcp", "port": 81, "listenPort": self.tcp_port},
                ]},
            }],
        })
    }

    fn slices(self) -> Value {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList",
            "metadata": {"resourceVersion": "1"},
            "items": [{
                "metadata": {"name": "cart-1", "namespace": "shop", "labels": {
                    names::ELASTI_SERVICE_LABEL: "cart",
                    names::SERVICE_NAME_LABEL: names::private_service("cart"),
                    names::SLICE_MANAGED_BY_LABEL: names::SLICE_MANAGED_BY_KUBERNETES,
                }},
                "addressType": "IPv4",
                "ports": [
                    {"name": "http", "port": self.pod.port(), "protocol": "TCP"},
                    {"name": "tcp", "port": self.pod.port(), "protocol": "TCP", "appProtocol": "tcp"},
                ],
                "endpoints": [{
                    "addresses": [self.pod.ip().to_string()],
                    "conditions": {"ready": true},
                    "targetRef": {"kind": "Pod", "namespace": "shop", "name": "cart-1"},
                }],
            }],
        })
    }

    /// A list is answered at once; a watch stays open without an event.
    fn answer(self, request: &Request<Body>) -> Response<BoxBody<Bytes, Infallible>> {
        let watches = request.uri().query().unwrap_or("").contains("watch=true");
        let body = if watches {
            StreamBody::new(futures::stream::pending()).boxed()
        } else {
            let list = if request.uri().path().ends_with("elastiservices") {
                self.services()
            } else {
                self.slices()
            };
            Full::new(Bytes::from(list.to_string())).boxed()
        };
        Response::new(body)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [threads, http, tcp_port, pod] = arguments.as_slice() else {
        panic!("{USAGE}");
    };
    let cluster = FixedCluster {
        http: http.parse().expect(USAGE),
        tcp_port: tcp_port.parse().expect(USAGE),
        pod: pod.parse().expect(USAGE),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.parse().expect(USAGE))
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let service = tower::service_fn(move |request: Request<Body>| {
            std::future::ready(Ok::<_, Infallible>(cluster.answer(&request)))
        });
        let settings = Settings {
            bind: cluster.http.ip(),
            admin: SocketAddr::new(cluster.http.ip(), 0),
            health: SocketAddr::new(cluster.http.ip(), 0),
            proxy: Some(SocketAddr::new(cluster.http.ip(), 0)),
            allow_loopback: true,
            ..Settings::default()
        };
        let _running = Running::start(settings, kube::Client::new(service, "shop")).unwrap();
        std::future::pending::<()>().await;
    });
}
