//! The objects that an ElastiService refers to, from the linted files and from the cluster.
//! Never takes a refusal for an absence.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context as _;
use elasti_api::{ScaleTargetRef, names};
use elasti_core::facts::{AutoscalerFacts, PodFacts, ServiceFacts, TemplateFacts};
use elasti_core::observed;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::ListParams;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt as _, discovery};
use serde_json::Value;

use super::document::Document;
use super::fit::{Around, Listed, Other, Seen, is_dual_stack};
use super::spec::is_elasti_service;
use crate::access::Cluster;

/// A cluster that does not answer by then is not used.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// Where related objects are looked up.
pub(crate) struct Lookup<'a> {
    /// Everything that the files hold.
    pub(crate) documents: &'a [Document],
    /// `None` without a cluster.
    pub(crate) cluster: Option<&'a Cluster>,
    /// The namespace of objects that name none.
    pub(crate) namespace: String,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Related {
    pub(crate) around: Around,
    /// The ElastiService as the cluster has it.
    pub(crate) live: Option<Value>,
    /// What could not be read, a sentence each.
    pub(crate) unread: Vec<String>,
}

/// Whether there is a cluster that answers.
pub(crate) async fn answers(cluster: &Cluster) -> anyhow::Result<()> {
    let version = tokio::time::timeout(VERSION_TIMEOUT, cluster.client.apiserver_version()).await;
    version.context("it does not answer")??;
    Ok(())
}

impl Lookup<'_> {
    /// Everything that one ElastiService refers to.
    pub(crate) async fn related(
        &self,
        document: &Document,
        spec: &elasti_api::ElastiServiceSpec,
    ) -> Related {
        let namespace = self.namespace_of(document);
        let target = &spec.scale_target_ref;
        let mut related = match self.cluster {
            Some(cluster) => from_cluster(cluster, &namespace, document.name(), spec).await,
            None => Related::default(),
        };
        // What the files hold is what will be there.
        if let Some(found) = self.file("v1", "Service", &namespace, &spec.service) {
            related.around.service = match serde_json::from_value(found.value.clone()) {
                Ok(found) => Seen::Found(ServiceFacts::from_object(found).service),
                Err(error) => related.unread("the Service", &error),
            };
        }
        self.add_services(&namespace, &mut related.around);
        if let Some(cluster) = self.cluster {
            add_resolvers(cluster, &mut related).await;
        }
        let kind = target.canonical_kind();
        if let Some(found) = self.file(&target.api_version, kind, &namespace, &target.name) {
            related.around.target = Seen::Found(TemplateFacts::from_object(&found.value));
        }
        self.add_files(
            &namespace,
            "HorizontalPodAutoscaler",
            &mut related.around.hpas,
        );
        self.add_files(
            &namespace,
            "ScaledObject",
            &mut related.around.scaled_objects,
        );
        self.add_others(&namespace, document, &mut related.around.others);
        related
    }

    fn namespace_of(&self, document: &Document) -> String {
        document.namespace().unwrap_or(&self.namespace).to_owned()
    }

    fn file(&self, version: &str, kind: &str, namespace: &str, name: &str) -> Option<&Document> {
        self.documents.iter().find(|one| {
            one.kind() == kind
                && one.api_version() == version
                && one.name() == name
                && self.namespace_of(one) == namespace
        })
    }

    fn add_services(&self, namespace: &str, around: &mut Around) {
        let is_service = |one: &&Document| {
            one.kind() == "Service"
                && one.api_version() == "v1"
                && self.namespace_of(one) == namespace
        };
        for document in self.documents.iter().filter(is_service) {
            // The Service that a spec names is reported where it is read; nothing is known of another.
            if let Ok(found) = serde_json::from_value(document.value.clone()) {
                around.services.extend(a_users(found));
            }
        }
    }

    fn add_files(&self, namespace: &str, kind: &str, known: &mut Listed) {
        let of_kind = |one: &&Document| one.kind() == kind && self.namespace_of(one) == namespace;
        for document in self.documents.iter().filter(of_kind) {
            known.items.retain(|one| one.name != document.name());
            known
                .items
                .push(AutoscalerFacts::from_object(&document.value));
        }
    }

    fn add_others(&self, namespace: &str, me: &Document, known: &mut Vec<Other>) {
        let is_other = |one: &&Document| {
            is_elasti_service(one) && self.namespace_of(one) == namespace && !std::ptr::eq(*one, me)
        };
        for document in self.documents.iter().filter(is_other) {
            known.retain(|one| one.name != document.name());
            // Twice the same object in the files is no conflict in the cluster.
            if document.name() != me.name() {
                known.extend(other(&document.value));
            }
        }
    }
}

fn other(service: &Value) -> Option<Other> {
    let target = service.pointer("/spec/scaleTargetRef")?.clone();
    Some(Other {
        name: service.pointer("/metadata/name")?.as_str()?.to_owned(),
        service: service.pointer("/spec/service")?.as_str()?.to_owned(),
        target: serde_json::from_value::<ScaleTargetRef>(target).ok()?,
    })
}

/// A Service with its name, unless it is a private one of ours.
fn a_users(service: Service) -> Option<(String, observed::Service)> {
    let name = service.name_any();
    let facts = ServiceFacts::from_object(service);
    facts.owner.is_none().then_some((name, facts.service))
}

/// The resolvers, wherever Elasti is installed. They matter only to Services of two address families.
async fn add_resolvers(cluster: &Cluster, related: &mut Related) {
    let around = &related.around;
    let named = around.service.found().into_iter();
    if !named.chain(around.services.values()).any(is_dual_stack) {
        return;
    }
    let pods: Api<Pod> = Api::all(cluster.client.clone());
    let label = format!("{}={}", names::RESOLVER_LABEL, names::RESOLVER_LABEL_VALUE);
    match pods.list(&ListParams::default().labels(&label)).await {
        Ok(pods) => {
            let pods = pods.items.iter().map(PodFacts::from_object);
            let ready = pods.filter(|pod| pod.ready && !pod.terminating && !pod.ended);
            let addresses: Vec<IpAddr> = ready.flat_map(|pod| pod.addresses).collect();
            related.around.resolvers = Some(addresses);
        }
        Err(error) => {
            related
                .unread
                .push(format!("cannot list the resolvers: {error}"));
        }
    }
}

async fn from_cluster(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    spec: &elasti_api::ElastiServiceSpec,
) -> Related {
    let mut related = Related::default();
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), namespace);
    related.around.service = match services.get_opt(&spec.service).await {
        Ok(Some(found)) => Seen::Found(ServiceFacts::from_object(found).service),
        Ok(None) => Seen::Absent,
        Err(error) => related.unread("the Service", &error),
    };
    match services.list(&ListParams::default()).await {
        Ok(found) => {
            let all = found.items.into_iter();
            related.around.services = all.filter_map(a_users).collect();
        }
        Err(error) => related
            .unread
            .push(format!("cannot list Services: {error}")),
    }
    let target = &spec.scale_target_ref;
    let kind = GroupVersionKind::gvk(target.group(), target.version(), target.canonical_kind());
    related.around.target = match dynamic(cluster, namespace, &kind).await {
        Ok(Some(targets)) => match targets.get_opt(&target.name).await {
            Ok(Some(found)) => Seen::Found(TemplateFacts::from_object(&found.data)),
            Ok(None) => Seen::Absent,
            Err(error) => related.unread("the target", &error),
        },
        Ok(None) => Seen::Absent,
        Err(error) => related.unread("the target's kind", &error),
    };
    let hpas: Api<HorizontalPodAutoscaler> = Api::namespaced(cluster.client.clone(), namespace);
    related.around.hpas = match hpas.list(&ListParams::default()).await {
        Ok(found) => listed(&values(found.items)),
        Err(error) => related.unread_list("HorizontalPodAutoscalers", &error),
    };
    let keda = GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject");
    related.around.scaled_objects = match all(cluster, namespace, &keda).await {
        Ok(found) => listed(&found),
        Err(error) => related.unread_list("ScaledObjects", &error),
    };
    let ours = GroupVersionKind::gvk(elasti_api::names::GROUP, "v1alpha1", "ElastiService");
    let services = all(cluster, namespace, &ours).await;
    let services = services.unwrap_or_else(|error| {
        related.unread_list("ElastiServices", &error);
        Vec::new()
    });
    for service in services {
        match service.pointer("/metadata/name").and_then(Value::as_str) == Some(name) {
            true => related.live = Some(service),
            false => related.around.others.extend(other(&service)),
        }
    }
    related
}

/// The API of a kind; `None` if the cluster has no such kind.
async fn dynamic(
    cluster: &Cluster,
    namespace: &str,
    kind: &GroupVersionKind,
) -> kube::Result<Option<Api<DynamicObject>>> {
    match discovery::pinned_kind(&cluster.client, kind).await {
        Ok((resource, _)) => Ok(Some(Api::namespaced_with(
            cluster.client.clone(),
            namespace,
            &resource,
        ))),
        Err(kube::Error::Discovery(_)) => Ok(None),
        // Of a group that it does not know a server says so in plain text, without a reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Every object of a kind; none where the cluster does not have the kind.
async fn all(
    cluster: &Cluster,
    namespace: &str,
    kind: &GroupVersionKind,
) -> kube::Result<Vec<Value>> {
    match dynamic(cluster, namespace, kind).await? {
        Some(objects) => Ok(values(objects.list(&ListParams::default()).await?.items)),
        None => Ok(Vec::new()),
    }
}

fn values<T: serde::Serialize>(items: Vec<T>) -> Vec<Value> {
    { items.into_iter() }
        .filter_map(|one| serde_json::to_value(one).ok())
        .collect()
}

/// All autoscalers of a kind.
fn listed(objects: &[Value]) -> Listed {
    Listed {
        items: objects.iter().map(AutoscalerFacts::from_object).collect(),
        is_whole: true,
    }
}

impl Related {
    fn unread<T>(&mut self, what: &str, error: &dyn std::error::Error) -> Seen<T> {
        self.unread.push(format!("cannot read {what}: {error}"));
        Seen::Unknown
    }

    fn unread_list(&mut self, what: &str, error: &kube::Error) -> Listed {
        self.unread.push(format!("cannot list {what}: {error}"));
        Listed::default()
    }
}
