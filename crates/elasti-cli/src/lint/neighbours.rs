//! What is around an ElastiService: from the files that are linted, and from the cluster where one can be asked.
//! Never writes, and never takes a refusal for an absence.

use std::time::Duration;

use anyhow::Context as _;
use elasti_api::ScaleTargetRef;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Api, discovery};
use serde_json::Value;

use super::document::Document;
use super::fit::{Around, Listed, Other, Seen};
use super::spec::is_elasti_service;
use crate::access::Cluster;

/// A cluster that does not answer by then is not asked.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where neighbours are looked for.
pub(crate) struct Neighbours<'a> {
    /// Everything that the files hold.
    pub(crate) documents: &'a [Document],
    /// `None` without a cluster.
    pub(crate) cluster: Option<&'a Cluster>,
    /// The namespace of objects that name none.
    pub(crate) namespace: String,
}

/// What one look at the cluster gave, beside what it was about.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) around: Around,
    /// The ElastiService as the cluster has it.
    pub(crate) live: Option<Value>,
    /// What could not be read, a sentence each.
    pub(crate) unread: Vec<String>,
}

/// Whether there is a cluster that answers.
pub(crate) async fn answers(cluster: &Cluster) -> anyhow::Result<()> {
    let version = tokio::time::timeout(TIMEOUT, cluster.client.apiserver_version()).await;
    version.context("it does not answer")??;
    Ok(())
}

impl Neighbours<'_> {
    /// Looks around one ElastiService.
    pub(crate) async fn of(
        &self,
        document: &Document,
        spec: &elasti_api::ElastiServiceSpec,
    ) -> Look {
        let namespace = self.namespace_of(document);
        let target = &spec.scale_target_ref;
        let mut look = match self.cluster {
            Some(cluster) => from_cluster(cluster, &namespace, document.name(), spec).await,
            None => Look::default(),
        };
        // What the files hold is what will be there.
        if let Some(found) = self.file("v1", "Service", &namespace, &spec.service) {
            look.around.service = Seen::Found(found.value.clone());
        }
        let kind = target.canonical_kind();
        if let Some(found) = self.file(&target.api_version, kind, &namespace, &target.name) {
            look.around.target = Seen::Found(found.value.clone());
        }
        self.add_files(&namespace, "HorizontalPodAutoscaler", &mut look.around.hpas);
        self.add_files(&namespace, "ScaledObject", &mut look.around.scaled_objects);
        self.add_others(&namespace, document, &mut look.around.others);
        look
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

    fn add_files(&self, namespace: &str, kind: &str, known: &mut Listed) {
        let of_kind = |one: &&Document| one.kind() == kind && self.namespace_of(one) == namespace;
        for document in self.documents.iter().filter(of_kind) {
            let name = document.value.pointer("/metadata/name");
            known
                .items
                .retain(|one| one.pointer("/metadata/name") != name);
            known.items.push(document.value.clone());
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

async fn from_cluster(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    spec: &elasti_api::ElastiServiceSpec,
) -> Look {
    let mut look = Look::default();
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), namespace);
    look.around.service = match services.get_opt(&spec.service).await {
        Ok(Some(found)) => Seen::Found(serde_json::to_value(found).unwrap_or_default()),
        Ok(None) => Seen::Absent,
        Err(error) => look.unread("the Service", &error),
    };
    let target = &spec.scale_target_ref;
    let kind = GroupVersionKind::gvk(target.group(), target.version(), target.canonical_kind());
    look.around.target = match dynamic(cluster, namespace, &kind).await {
        Ok(Some(targets)) => match targets.get_opt(&target.name).await {
            Ok(Some(found)) => Seen::Found(serde_json::to_value(found).unwrap_or_default()),
            Ok(None) => Seen::Absent,
            Err(error) => look.unread("the target", &error),
        },
        Ok(None) => Seen::Absent,
        Err(error) => look.unread("the target's kind", &error),
    };
    let hpas: Api<HorizontalPodAutoscaler> = Api::namespaced(cluster.client.clone(), namespace);
    look.around.hpas = match hpas.list(&ListParams::default()).await {
        Ok(found) => whole(found.items),
        Err(error) => look.unread_list("HorizontalPodAutoscalers", &error),
    };
    let keda = GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject");
    look.around.scaled_objects = all(cluster, namespace, &keda, &mut look).await;
    let ours = GroupVersionKind::gvk(elasti_api::names::GROUP, "v1alpha1", "ElastiService");
    for service in all(cluster, namespace, &ours, &mut look).await.items {
        match service.pointer("/metadata/name").and_then(Value::as_str) == Some(name) {
            true => look.live = Some(service),
            false => look.around.others.extend(other(&service)),
        }
    }
    look
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
    look: &mut Look,
) -> Listed {
    let listed = match dynamic(cluster, namespace, kind).await {
        Ok(Some(objects)) => objects.list(&ListParams::default()).await,
        Ok(None) => return whole::<DynamicObject>(Vec::new()),
        Err(error) => Err(error),
    };
    match listed {
        Ok(found) => whole(found.items),
        Err(error) => look.unread_list(&format!("{}s", kind.kind), &error),
    }
}

fn whole<T: serde::Serialize>(items: Vec<T>) -> Listed {
    let items = items
        .into_iter()
        .filter_map(|one| serde_json::to_value(one).ok());
    Listed {
        items: items.collect(),
        is_whole: true,
    }
}

impl Look {
    fn unread(&mut self, what: &str, error: &kube::Error) -> Seen {
        self.unread.push(format!("{what} cannot be read: {error}"));
        Seen::Unknown
    }

    fn unread_list(&mut self, what: &str, error: &kube::Error) -> Listed {
        self.unread
            .push(format!("{what} cannot be listed: {error}"));
        Listed::default()
    }
}
