//! What is kept of each watched object: only what a decision needs.
//! Never decides anything, and never fails on a value that it does not need.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use elasti_api::{ElastiService, ElastiServiceSpec, ElastiServiceStatus, names};
use elasti_core::facts;
use elasti_core::observed::{Author, Endpoint, Family, Obstacle, Service, UserRequest};
use elasti_core::view::Requests;
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core_v1;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::name::Name;

/// Something that is kept of a watched object.
pub(crate) trait Slim: Sized + Clone + Send + 'static {
    /// Reads one object; an error means that this object cannot be used.
    fn read(object: Value) -> Result<Self, serde_json::Error>;
    /// Which object it is.
    fn name(&self) -> &Name;
}

/// An ElastiService.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) name: Name,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) created: Timestamp,
    pub(crate) generation: i64,
    pub(crate) deleting_since: Option<Timestamp>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) wake_request: UserRequest,
    pub(crate) sleep_request: UserRequest,
    pub(crate) spec: Arc<ElastiServiceSpec>,
    pub(crate) status: Arc<ElastiServiceStatus>,
}

impl Declared {
    /// The Service that it is about.
    pub(crate) fn service(&self) -> Name {
        self.name.sibling(self.spec.service.as_str())
    }

    pub(crate) fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|one| one == names::FINALIZER)
    }
}

impl Slim for Declared {
    fn read(object: Value) -> Result<Self, serde_json::Error> {
        let ElastiService {
            metadata,
            spec,
            status,
        } = serde_json::from_value(object)?;
        let annotations = metadata.annotations.as_ref();
        let user_request =
            |name: &str| facts::user_request(annotations.and_then(|all| all.get(name)));
        Ok(Self {
            name: Name::of(&metadata),
            wake_request: user_request(names::WAKE_REQUESTED_ANNOTATION),
            sleep_request: user_request(names::SLEEP_REQUESTED_ANNOTATION),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            created: metadata
                .creation_timestamp
                .map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            generation: metadata.generation.unwrap_or_default(),
            deleting_since: metadata.deletion_timestamp.map(|t| t.0),
            finalizers: metadata.finalizers.unwrap_or_default(),
            spec: Arc::new(spec),
            status: Arc::new(status.unwrap_or_default()),
        })
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

/// A Service, public or ours.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceView {
    pub(crate) name: Name,
    pub(crate) version: String,
    pub(crate) uid: String,
    pub(crate) owner: Option<String>,
    /// ClusterIP without anything that a private Service must not have.
    pub(crate) plain: bool,
    pub(crate) service: Service,
}

impl Slim for ServiceView {
    fn read(object: Value) -> Result<Self, serde_json::Error> {
        let core_v1::Service { metadata, spec, .. } = serde_json::from_value(object)?;
        let spec = spec.unwrap_or_default();
        let plain = matches!(spec.type_.as_deref(), None | Some("ClusterIP"))
            && spec.external_ips.is_none();
        let service = facts::service(spec);
        Ok(Self {
            name: Name::of(&metadata),
            owner: owner(&metadata),
            version: metadata.resource_version.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            plain,
            service,
        })
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

/// The uid of the ElastiService that an object belongs to.
fn owner(metadata: &ObjectMeta) -> Option<String> {
    let owners = metadata.owner_references.iter().flatten();
    owners
        .filter(|one| one.kind == "ElastiService" && one.api_version.starts_with(names::GROUP))
        .map(|one| one.uid.clone())
        .next()
}

/// An EndpointSlice of a managed Service: Kubernetes' own, or ours.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SliceView {
    pub(crate) name: Name,
    pub(crate) version: String,
    pub(crate) uid: String,
    /// The Service that it belongs to.
    pub(crate) service: Option<Name>,
    pub(crate) by_kubernetes: bool,
    pub(crate) by_elasti: bool,
    pub(crate) owner: Option<String>,
    pub(crate) family: Family,
    pub(crate) ports: Vec<(String, u16)>,
    pub(crate) endpoints: Vec<Endpoint>,
    /// Only kept where no pod stands behind the endpoints.
    pub(crate) addresses: BTreeSet<IpAddr>,
}

impl Slim for SliceView {
    fn read(object: Value) -> Result<Self, serde_json::Error> {
        let EndpointSlice {
            metadata,
            address_type,
            endpoints,
            ports,
        } = serde_json::from_value(object)?;
        let name = Name::of(&metadata);
        let owner = owner(&metadata);
        let labels = metadata.labels.unwrap_or_default();
        let manager = labels
            .get(names::SLICE_MANAGED_BY_LABEL)
            .map(String::as_str);
        let by_kubernetes = manager == Some(names::SLICE_MANAGED_BY_KUBERNETES);
        let mut view = Self {
            service: labels
                .get(names::SERVICE_NAME_LABEL)
                .map(|service| name.sibling(service.as_str())),
            name,
            version: metadata.resource_version.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            by_kubernetes,
            by_elasti: manager == Some(names::SLICE_MANAGED_BY_ELASTI),
            owner,
            family: match address_type.as_str() {
                "IPv6" => Family::V6,
                _ => Family::V4,
            },
            ports: Vec::new(),
            endpoints: Vec::new(),
            addresses: BTreeSet::new(),
        };
        if !by_kubernetes {
            let ports = ports.unwrap_or_default().into_iter();
            view.ports = ports
                .map(|p| {
                    let number = p.port.and_then(|n| u16::try_from(n).ok());
                    (p.name.unwrap_or_default(), number.unwrap_or_default())
                })
                .collect();
        }
        for endpoint in endpoints {
            let conditions = endpoint.conditions.unwrap_or_default();
            let pod = endpoint.target_ref.and_then(|target| target.name);
            if pod.is_none() {
                let parsed = endpoint
                    .addresses
                    .iter()
                    .filter_map(|a| a.parse::<IpAddr>().ok());
                view.addresses.extend(parsed);
            }
            if by_kubernetes {
                view.endpoints.push(Endpoint {
                    pod: pod.unwrap_or_default(),
                    ready: conditions.ready.unwrap_or(true),
                    terminating: conditions.terminating.unwrap_or(false),
                });
            }
        }
        Ok(view)
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

/// A pod that a managed Service selects, or a resolver's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodView {
    pub(crate) name: Name,
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) node: String,
    /// Its containers run.
    pub(crate) started: bool,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) ready: bool,
    pub(crate) containers_ready: bool,
    pub(crate) marked: bool,
    pub(crate) terminating: bool,
    /// It has ended and will not come back.
    pub(crate) ended: bool,
    pub(crate) obstacle: Option<Obstacle>,
    /// It runs and has not been ready since then.
    pub(crate) unready_since: Option<Timestamp>,
}

impl Slim for PodView {
    fn read(object: Value) -> Result<Self, serde_json::Error> {
        let core_v1::Pod {
            metadata,
            spec,
            status,
        } = serde_json::from_value(object)?;
        let status = status.unwrap_or_default();
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let condition = |type_: &str| conditions.iter().find(|c| c.type_ == type_);
        let holds = |type_: &str| condition(type_).is_some_and(|c| c.status == "True");
        let ready = holds("Ready");
        let phase = status.phase.as_deref().unwrap_or_default();
        let mut addresses: Vec<IpAddr> = Vec::new();
        let one = status.pod_ip.iter().cloned();
        let all = status.pod_ips.iter().flatten().map(|ip| ip.ip.clone());
        for address in one.chain(all).filter_map(|text| text.parse().ok()) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(Self {
            name: Name::of(&metadata),
            node: spec.and_then(|s| s.node_name).unwrap_or_default(),
            addresses,
            started: facts::started(&status),
            ready,
            containers_ready: holds("ContainersReady"),
            marked: condition("Ready").is_some_and(|c| {
                c.status != "True" && c.reason.as_deref() == Some(names::DRAIN_REASON)
            }),
            terminating: metadata.deletion_timestamp.is_some(),
            ended: matches!(phase, "Succeeded" | "Failed"),
            obstacle: facts::obstacle(&status),
            unready_since: facts::unready_since(&status),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
        })
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

/// A workload that can be scaled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TargetView {
    pub(crate) name: Name,
    pub(crate) uid: String,
    pub(crate) version: String,
    /// `spec.replicas`; `None` if this kind keeps them elsewhere, so that only `/scale` tells.
    pub(crate) replicas: Option<u32>,
    pub(crate) by: Author,
    pub(crate) at: Option<Timestamp>,
    /// What refuses its pods, in the workload's own words.
    pub(crate) refused: Option<String>,
    /// What one of its pods requests.
    pub(crate) requests: Requests,
}

impl Slim for TargetView {
    fn read(mut object: Value) -> Result<Self, serde_json::Error> {
        let metadata = object.get_mut("metadata").map(Value::take);
        let metadata: ObjectMeta = serde_json::from_value(metadata.unwrap_or_default())?;
        let replicas = object
            .pointer("/spec/replicas")
            .and_then(Value::as_u64)
            .and_then(|n| u32::try_from(n).ok());
        let (by, at) = facts::author(metadata.managed_fields.as_deref().unwrap_or_default());
        let refused = facts::refused(&object);
        let pod = object.pointer("/spec/template/spec");
        let requests = pod.map(Requests::of_pod).unwrap_or_default();
        Ok(Self {
            name: Name::of(&metadata),
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            replicas,
            by,
            at,
            refused,
            requests,
        })
    }

    fn name(&self) -> &Name {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]
    use elasti_core::observed::ObstacleKind;
    use serde_json::json;

    use super::*;

    fn waiting(reason: &str) -> Value {
        json!({"name": "app", "image": "x:1", "imageID": "", "ready": false, "restartCount": 3, "state": {"waiting": {"reason": reason, "message": "back-off 40s"}}})
    }

    fn pod(status: Value) -> PodView {
        let metadata = json!({"name": "p", "namespace": "shop", "resourceVersion": "1"});
        PodView::read(json!({"metadata": metadata, "status": status})).unwrap()
    }

    #[test]
    fn obstacles_are_told_apart_and_their_words_do_not_change_with_every_attempt() {
        for (reason, kind) in [
            ("ImagePullBackOff", Some(ObstacleKind::ImagePull)),
            ("ErrImagePull", Some(ObstacleKind::ImagePull)),
            ("CrashLoopBackOff", Some(ObstacleKind::CrashLoop)),
            ("CreateContainerConfigError", Some(ObstacleKind::Refused)),
            ("ContainerCreating", None),
        ] {
            let pod = pod(json!({"containerStatuses": [waiting(reason)]}));
            assert_eq!(pod.obstacle.map(|o| o.kind), kind, "{reason}");
        }
        let stuck = pod(json!({"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available.",
        }]}));
        let obstacle = stuck.obstacle.unwrap();
        assert_eq!(obstacle.kind, ObstacleKind::Unschedulable);
        assert_eq!(obstacle.message, "0/2 nodes are available");
        let looping = pod(json!({"containerStatuses": [waiting("CrashLoopBackOff")]}));
        assert!(!looping.obstacle.unwrap().message.contains("40s"));
    }

    #[test]
    fn only_our_own_reason_is_our_mark() {
        let ready = |status: &str, reason: &str| {
            pod(json!({"conditions": [{"type": "Ready", "status": status, "reason": reason}]}))
        };
        assert!(ready("False", names::DRAIN_REASON).marked);
        assert!(!ready("False", "ContainersNotReady").marked);
        assert!(!ready("True", names::DRAIN_REASON).marked);
    }

    #[test]
    fn the_last_writer_of_replicas_is_found_in_the_record() {
        let entry = |manager: &str, time: &str, field: &str| json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": {"f:spec": {field: {}}}});
        let target = |entries: Vec<Value>| {
            let metadata = json!({"name": "web", "namespace": "shop", "managedFields": entries});
            TargetView::read(json!({"metadata": metadata, "spec": {"replicas": 3}})).unwrap()
        };
        let early = "2026-01-01T00:00:00Z";
        let late = "2026-01-01T00:00:09Z";
        let ours = target(vec![
            entry("kubectl", early, "f:replicas"),
            entry(names::FIELD_MANAGER, late, "f:replicas"),
        ]);
        assert_eq!(
            (ours.by, ours.at),
            (Author::Elasti, Some(late.parse().unwrap()))
        );
        let theirs = target(vec![
            entry("argocd", late, "f:replicas"),
            entry(names::FIELD_MANAGER, late, "f:template"),
        ]);
        assert_eq!(theirs.by, Author::Other("argocd".into()));
        // After a write of zero through `/scale` nobody owns the field.
        let nobody = target(vec![entry("kubectl", late, "f:template")]);
        assert_eq!((nobody.by, nobody.at), (Author::Unknown, None));
    }

    #[test]
    fn a_workload_tells_what_refuses_its_pods() {
        let status = json!({"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods."}]});
        let object = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 1}, "status": status});
        let view = TargetView::read(object).unwrap();
        assert_eq!(view.refused.as_deref(), Some("exceeded quota: pods"));
    }
}
