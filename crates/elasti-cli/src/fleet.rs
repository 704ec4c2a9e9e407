//! The ElastiServices of a namespace or a cluster with their targets: one list call for each kind, whatever their number.
//! Never lists pods: the targets have their counts.

use std::collections::{BTreeMap, BTreeSet};

use elasti_api::{ElastiService, ScaleTargetRef};
use elasti_view::held::{Ask, Counts, HeldState};
use elasti_view::view::{Facts, Lookup, View, Workload, view};
use futures::future::join_all;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _, discovery};

use crate::access::Cluster;
use crate::refusal::{Call, Refusal};
use elasti_dashboard::held::{HeldSource as _, Proxy};
use elasti_runtime::exit::Failed;

/// Group, version and kind of a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    group: String,
    version: String,
    kind: String,
}

/// Targets of one kind, by namespace and name.
pub(crate) type OfKind = BTreeMap<(String, String), Lookup<Workload>>;

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) services: Vec<ElastiService>,
    pub(crate) targets: BTreeMap<Kind, Lookup<OfKind>>,
    /// Kinds that the user may not see, in words.
    pub(crate) unseen: Vec<String>,
    /// Held requests, where the resolvers were asked.
    pub(crate) held: HeldState,
}

impl From<&ScaleTargetRef> for Kind {
    fn from(target: &ScaleTargetRef) -> Self {
        Self {
            group: target.group().to_owned(),
            version: target.version().to_owned(),
            kind: target.canonical_kind().to_owned(),
        }
    }
}

impl Kind {
    /// Where its objects are found; `None` if the cluster does not know the kind.
    pub(crate) async fn resource(&self, client: &Client) -> Result<Option<ApiResource>, Refusal> {
        let Self {
            group,
            version,
            kind,
        } = self;
        let gvk = GroupVersionKind::gvk(group, version, kind);
        // The common ones need no discovery.
        if matches!(
            (group.as_str(), kind.as_str()),
            ("apps", "Deployment" | "StatefulSet" | "ReplicaSet") | ("argoproj.io", "Rollout")
        ) {
            return Ok(Some(ApiResource::from_gvk(&gvk)));
        }
        match discovery::pinned_kind(client, &gvk).await {
            Ok((resource, _)) => Ok(Some(resource)),
            Err(kube::Error::Discovery(_)) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => {
                let asked = Call {
                    verb: "get",
                    group,
                    resource: kind,
                    namespace: None,
                    name: None,
                };
                Err(asked.refused(&error))
            }
        }
    }

    /// All of this kind in a namespace, or everywhere.
    async fn list(
        &self,
        client: &Client,
        namespace: Option<&str>,
    ) -> Result<Lookup<OfKind>, Refusal> {
        let Some(resource) = self.resource(client).await? else {
            return Ok(Lookup::Missing);
        };
        let objects: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        match objects.list(&ListParams::default()).await {
            Ok(list) => {
                let items = list.items.iter();
                Ok(Lookup::Found(
                    items.map(|one| (key(one), workload(one))).collect(),
                ))
            }
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Lookup::Missing),
            Err(error) => {
                let asked = Call {
                    verb: "list",
                    group: &self.group,
                    resource: &resource.plural,
                    namespace,
                    name: None,
                };
                Err(asked.refused(&error))
            }
        }
    }
}

/// Namespace and name.
pub(crate) fn key(object: &DynamicObject) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// What is shown of it.
pub(crate) fn workload(object: &DynamicObject) -> Lookup<Workload> {
    Lookup::Found(Workload::from_object(&object.data))
}

impl Fleet {
    /// Loads everything: first the ElastiServices, then each kind of target that they name, all at once.
    pub(crate) async fn load(
        cluster: &Cluster,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Self, Failed> {
        let mut fleet = Self::without_targets(cluster, namespace, labels).await?;
        let kinds = fleet.kinds();
        let lists = kinds
            .iter()
            .map(|kind| kind.list(&cluster.client, namespace));
        for (kind, list) in kinds.iter().zip(join_all(lists).await) {
            let seen = match list {
                Ok(seen) => seen,
                // Without permission to see the targets, the rest is still worth showing.
                Err(refusal @ Refusal::Forbidden(_)) => {
                    fleet.unseen.push(refusal.to_string());
                    Lookup::Unknown
                }
                Err(refusal) => return Err(refusal.into()),
            };
            fleet.targets.insert(kind.clone(), seen);
        }
        Ok(fleet)
    }

    /// Loads the ElastiServices alone; of their targets the statuses tell.
    pub(crate) async fn without_targets(
        cluster: &Cluster,
        namespace: Option<&str>,
        labels: Option<&str>,
    ) -> Result<Self, Failed> {
        let services: Api<ElastiService> = match namespace {
            Some(namespace) => cluster.services_in(namespace),
            None => Api::all(cluster.client.clone()),
        };
        let params = ListParams {
            label_selector: labels.map(str::to_owned),
            ..ListParams::default()
        };
        let listed = services.list(&params).await;
        let listed =
            listed.map_err(|error| Call::services("list", namespace, None).refused(&error))?;
        Ok(Self {
            services: listed.items,
            ..Self::default()
        })
    }

    /// The kinds of target that the services name.
    pub(crate) fn kinds(&self) -> BTreeSet<Kind> {
        let targets = self.services.iter().map(|one| &one.spec.scale_target_ref);
        targets.map(Kind::from).collect()
    }

    /// Asks the resolvers once for held requests. Without an answer the statuses count.
    pub(crate) async fn ask_resolvers(&mut self, cluster: &Cluster) {
        let now = Timestamp::now();
        let answer = match self.ask() {
            Ask::NoService | Ask::Needless => Ok(Counts::new()),
            Ask::Resolvers => Proxy::new(cluster.client.clone()).ask().await,
        };
        let answer = answer.map_err(|error| error.to_string());
        self.held = HeldState::Unasked.after(answer, now);
    }

    /// Whether the resolvers need to be asked.
    pub(crate) fn ask(&self) -> Ask {
        Ask::about(1, self.services.iter())
    }

    /// One view for each service, by namespace and name.
    pub(crate) fn views(&self, now: Timestamp) -> Vec<View> {
        let mut views: Vec<View> = self.services.iter().map(|me| self.view(me, now)).collect();
        views.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        views
    }

    /// Another text after each change of a service or of the counts of its target.
    pub(crate) fn version(&self, namespace: &str, name: &str) -> String {
        let is = |one: &&ElastiService| {
            one.namespace().as_deref() == Some(namespace) && one.name_any() == name
        };
        let me = self.services.iter().find(is);
        me.map_or_else(String::new, |me| {
            format!("{:?} {:?}", me.resource_version(), self.target(me))
        })
    }

    fn target(&self, me: &ElastiService) -> &Lookup<Workload> {
        let target = &me.spec.scale_target_ref;
        let key = (me.namespace().unwrap_or_default(), target.name.clone());
        match self.targets.get(&Kind::from(target)) {
            Some(Lookup::Found(all)) => all.get(&key).unwrap_or(&Lookup::Missing),
            Some(Lookup::Missing) => &Lookup::Missing,
            Some(Lookup::Unknown) | None => &Lookup::Unknown,
        }
    }

    /// What is shown of one of them.
    pub(crate) fn view(&self, me: &ElastiService, now: Timestamp) -> View {
        view(Facts {
            me,
            target: self.target(me),
            held: self.held.held(me),
            now,
        })
    }
}
