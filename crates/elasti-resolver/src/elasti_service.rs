//! What the routes need of an ElastiService. Annotations, triggers and conditions, which may be as large as the API server
//! allows, are dropped when it is read.

use elasti_api::{ElastiService, Hold, Mode, Phase, ProbeResponse, Reason, ServicePorts, Time};
use kube::ResourceExt as _;

use crate::follow::Kept;

/// One ElastiService.
#[derive(Clone, Debug)]
pub(crate) struct ElastiServiceView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) created: Option<Time>,
    /// The Service that its spec names, and where the resolvers listen for each of its ports.
    pub(crate) service: ServicePorts,
    /// Other Services of the same pods.
    pub(crate) others: Vec<ServicePorts>,
    pub(crate) probe_response: Vec<ProbeResponse>,
    pub(crate) hold: Option<Hold>,
    pub(crate) waiting_page: bool,
    pub(crate) probe_ahead: bool,
    pub(crate) mode: Option<Mode>,
    pub(crate) phase: Option<Phase>,
    pub(crate) reason: Option<Reason>,
}

impl Kept for ElastiServiceView {
    type Object = ElastiService;

    fn from_object(object: ElastiService) -> Self {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let (spec, status) = (object.spec, object.status.unwrap_or_default());
        let mut others = status.services;
        others.retain(|other| other.name != spec.service);
        Self {
            namespace,
            name,
            created: object.metadata.creation_timestamp,
            service: ServicePorts {
                name: spec.service,
                ports: status.ports,
            },
            others,
            probe_response: spec.probe_response,
            hold: spec.hold,
            waiting_page: spec.waiting_page.unwrap_or_default(),
            probe_ahead: spec.wake.and_then(|wake| wake.probe_ahead).unwrap_or(true),
            mode: status.mode,
            phase: status.phase,
            reason: status.reason.as_deref().and_then(Reason::from_word),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_an_elasti_service_only_what_the_routes_need_is_kept() {
        let object = json!({
            "metadata": {
                "name": "cart", "namespace": "shop",
                "annotations": {"a": "UNUSED"},
                "labels": {"b": "UNUSED"},
                "managedFields": [{"manager": "UNUSED"}],
            },
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "UNUSED"},
                "service": "front",
                "triggers": [{"type": "prometheus", "metadata": {"query": "UNUSED"}}],
                "hold": {"maxRequests": 7},
            },
            "status": {
                "mode": "proxy", "phase": "Waking", "reason": "UNUSED",
                "ports": [{"name": "http", "port": 80, "listenPort": 20_001}],
                "services": [
                    {"name": "front", "ports": []},
                    {"name": "back", "ports": [{"name": "http", "port": 81, "listenPort": 20_002}]},
                ],
                "conditions": [{
                    "type": "Ready", "status": "False", "reason": "UNUSED", "message": "UNUSED",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "triggers": [{
                    "type": "prometheus", "reading": "UNUSED", "since": "2026-01-01T00:00:00Z",
                }],
            },
        });
        let kept = ElastiServiceView::from_object(serde_json::from_value(object).unwrap());
        let text = format!("{kept:?}");
        assert!(!text.contains("UNUSED"), "{text}");
        let names = (kept.namespace.as_str(), kept.service.name.as_str());
        assert_eq!(names, ("shop", "front"));
        assert_eq!(kept.service.ports[0].listen_port, 20_001);
        let others: Vec<&str> = { kept.others.iter() }
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(others, ["back"]);
        assert_eq!(kept.hold.and_then(|hold| hold.max_requests), Some(7));
        assert!(kept.probe_ahead && !kept.waiting_page);
    }
}
