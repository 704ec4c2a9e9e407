//! What a resolver reports to the operator about each service. No part of a client's request belongs in it.

use serde::{Deserialize, Serialize};

use crate::ListenPort;

/// Identifies one version of a service's route: equal exactly when the sets of ports are equal.
///
/// It is the ports themselves, sorted and joined by `:`, `>` and `,`. A port name is a DNS label, which
/// contains none of these, so two different routes never look the same.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(transparent)]
pub struct RouteGeneration(String);

impl RouteGeneration {
    /// The generation of a route with these ports, in any order.
    #[must_use]
    pub fn from_ports(ports: &[ListenPort]) -> Self {
        let mut sorted: Vec<&ListenPort> = ports.iter().collect();
        sorted.sort_unstable();
        let parts: Vec<String> = sorted
            .into_iter()
            .map(|p| format!("{}:{}>{}", p.name, p.port, p.listen_port))
            .collect();
        Self(parts.join(","))
    }
}

/// The activity of one service at one resolver.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// Namespace of the service.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
    /// The route that this resolver listens for.
    pub route_generation: RouteGeneration,
    /// Requests that wait for a pod.
    pub held: u32,
    /// Requests and streams in flight to a pod.
    pub open: u32,
    /// Milliseconds since the last use: a request, or a new connection. What a `probeResponse` rule matches is no use, so
    /// with such rules a connection counts only once a request of it matches none, or once it turns out not to be HTTP.
    /// Absent if there was none since the resolver started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_connection_millis_ago: Option<u64>,
    /// Milliseconds since a pod first answered a held request, counted from when requests last began to wait;
    /// absent if none has been answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_answer_millis_ago: Option<u64>,
}

/// `GET /activity`.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct ActivityReport {
    /// One entry for each route.
    pub services: Vec<Activity>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};
    use serde_json::json;

    use super::{Activity, ActivityReport, RouteGeneration};
    use crate::ListenPort;

    fn port(name: &str, port: u16, listen_port: u16) -> ListenPort {
        ListenPort {
            name: name.into(),
            port,
            listen_port,
        }
    }

    #[test]
    fn a_report_has_its_documented_shape() {
        let report = ActivityReport {
            services: vec![
                Activity {
                    namespace: "shop".into(),
                    service: "cart".into(),
                    route_generation: RouteGeneration::from_ports(&[port("http", 80, 20_001)]),
                    held: 2,
                    open: 1,
                    last_connection_millis_ago: Some(350),
                    first_answer_millis_ago: Some(20),
                },
                Activity {
                    namespace: "shop".into(),
                    service: "search".into(),
                    route_generation: RouteGeneration::from_ports(&[]),
                    held: 0,
                    open: 0,
                    last_connection_millis_ago: None,
                    first_answer_millis_ago: None,
                },
            ],
        };
        let written = json!({"services": [
            {
                "namespace": "shop", "service": "cart", "routeGeneration": "http:80>20001",
                "held": 2, "open": 1, "lastConnectionMillisAgo": 350, "firstAnswerMillisAgo": 20,
            },
            {"namespace": "shop", "service": "search", "routeGeneration": "", "held": 0, "open": 0},
        ]});
        assert_eq!(serde_json::to_value(&report).unwrap(), written);
        assert_eq!(
            serde_json::from_value::<ActivityReport>(written).unwrap(),
            report
        );
    }

    #[test]
    fn a_report_of_a_later_version_is_read() {
        let report: ActivityReport = serde_json::from_value(json!({
            "services": [{
                "namespace": "shop", "service": "cart", "routeGeneration": "http:80>20001",
                "held": 0, "open": 0, "bytes": 12,
            }],
            "version": 2,
        }))
        .unwrap();
        assert_eq!(report.services.len(), 1);
    }

    #[test]
    fn the_order_of_ports_does_not_matter() {
        let (http, grpc) = (port("http", 80, 1), port("grpc", 81, 2));
        assert_eq!(
            RouteGeneration::from_ports(&[http.clone(), grpc.clone()]),
            RouteGeneration::from_ports(&[grpc, http])
        );
    }

    fn routes() -> impl Strategy<Value = BTreeSet<ListenPort>> {
        let one = ("([a-b][-a-b0-1]{0,3})?", any::<u16>(), any::<u16>())
            .prop_map(|(name, number, listen)| port(&name, number % 12, listen % 12));
        vec(one, 0..4).prop_map(|ports| ports.into_iter().collect())
    }

    proptest! {
        #[test]
        fn generations_are_equal_exactly_when_the_ports_are(one in routes(), other in routes()) {
            let generation = |route: &BTreeSet<ListenPort>| {
                RouteGeneration::from_ports(&route.iter().cloned().collect::<Vec<_>>())
            };
            prop_assert_eq!(generation(&one) == generation(&other), one == other);
        }
    }
}
