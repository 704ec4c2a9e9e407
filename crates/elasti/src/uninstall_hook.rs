//! `elasti uninstall-hook`: wakes every target and routes every Service to its pods before an installation is removed.
//! Never takes traffic from a resolver before a pod is ready.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use elasti_api::{AutoscalerType, ElastiService, names};
use elasti_core::facts::{self, SliceFacts};
use elasti_core::observed::Autoscaler;
use elasti_runtime::{kube_client, logs};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _, discovery};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use elasti_runtime::exit::Failed;

/// Services that are restored concurrently.
const CONCURRENCY: usize = 16;
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Wakes every target and routes its Service to its pods; Helm runs this before it deletes the release.
///
/// The operator is stopped first, so that nothing goes to sleep again. ElastiServices stay, without our finalizer: with
/// no operator, nothing else would remove it. Exits with code 1 if a target does not become ready in time.
#[derive(Args, Debug)]
pub(crate) struct UninstallHook {
    /// Namespace of the operator
    #[arg(long, env = "ELASTI_OPERATOR_NAMESPACE", default_value = "elasti")]
    operator_namespace: String,
    /// Deployment of the operator
    #[arg(
        long,
        env = "ELASTI_OPERATOR_DEPLOYMENT_NAME",
        default_value = "elasti-operator-controller-manager"
    )]
    operator: String,
    /// The namespaces to restore; default: all
    #[arg(long, env = "WATCH_NAMESPACES", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// How long all of it may take
    #[arg(long, default_value_t = 300)]
    patience_seconds: u64,
    /// How long pods must be ready before traffic leaves the resolver
    #[arg(long, default_value_t = 2)]
    settle_seconds: u64,
}

impl UninstallHook {
    pub(crate) fn run(self) -> Result<(), Failed> {
        logs::to_stdout()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the async runtime")?;
        Ok(runtime.block_on(self.wake_everything())?)
    }

    async fn wake_everything(&self) -> anyhow::Result<()> {
        let client = kube_client::from_environment().await?;
        let deadline = Instant::now() + Duration::from_secs(self.patience_seconds);
        self.stop_operator(&client, deadline).await?;
        let all = self.services(&client).await?;
        tracing::info!(services = all.len(), "waking everything");
        let attempts = all
            .iter()
            .map(|service| self.restore(&client, service, deadline));
        let ended: Vec<_> = futures::stream::iter(attempts)
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        let failed: Vec<String> = ended.into_iter().filter_map(Result::err).collect();
        match failed.as_slice() {
            [] => Ok(()),
            some => anyhow::bail!("not restored: {}", some.join("; ")),
        }
    }

    /// Scales the operator to zero and waits until its last pod is gone.
    async fn stop_operator(&self, client: &Client, deadline: Instant) -> anyhow::Result<()> {
        let operators: Api<Deployment> = Api::namespaced(client.clone(), &self.operator_namespace);
        let Some(scale) = absent_is_none(operators.get_scale(&self.operator).await)? else {
            tracing::info!("no operator found");
            return Ok(());
        };
        let selector = scale
            .status
            .as_ref()
            .and_then(|status| status.selector.clone());
        set_replicas(&operators, scale, 0).await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.operator_namespace);
        let of_operator = ListParams::default().labels(selector.as_deref().unwrap_or("!elasti"));
        while !pods.list(&of_operator).await?.items.is_empty() {
            anyhow::ensure!(Instant::now() < deadline, "the operator does not stop");
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn services(&self, client: &Client) -> anyhow::Result<Vec<ElastiService>> {
        let named: Vec<&String> = self
            .namespaces
            .iter()
            .filter(|one| !one.is_empty())
            .collect();
        let scopes: Vec<Api<ElastiService>> = match named.as_slice() {
            [] => vec![Api::all(client.clone())],
            some => some
                .iter()
                .map(|namespace| Api::namespaced(client.clone(), namespace))
                .collect(),
        };
        let mut all = Vec::new();
        for scope in scopes {
            // Without the CRD there is nothing to wake.
            let found = absent_is_none(scope.list(&ListParams::default()).await)?;
            all.extend(found.into_iter().flat_map(|list| list.items));
        }
        Ok(all)
    }

    /// Retries until it is done or the deadline has passed.
    async fn restore(
        &self,
        client: &Client,
        service: &ElastiService,
        deadline: Instant,
    ) -> Result<(), String> {
        let name = format!(
            "{}/{}",
            service.namespace().unwrap_or_default(),
            service.name_any()
        );
        let mut last = "no time was left".to_owned();
        while Instant::now() < deadline {
            match timeout(deadline - Instant::now(), self.try_restore(client, service)).await {
                Ok(Ok(())) => {
                    tracing::info!(service = name, "service restored");
                    return Ok(());
                }
                Ok(Err(error)) => last = format!("{error:#}"),
                Err(_) => {}
            }
            sleep(POLL_INTERVAL).await;
        }
        Err(format!("{name}: {last}"))
    }

    async fn try_restore(&self, client: &Client, service: &ElastiService) -> anyhow::Result<()> {
        let namespace = service.namespace().unwrap_or_default();
        release_autoscaler(client, service, &namespace).await?;
        let has_target = wake(client, service, &namespace).await?;
        let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &namespace);
        if has_target {
            self.until_pods_answer(&slices, &service.spec.service)
                .await?;
        }
        for slice in of_service(&slices, &service.spec.service, leads_to_resolvers).await? {
            absent_is_none(
                slices
                    .delete(&slice.name_any(), &DeleteParams::default())
                    .await,
            )?;
        }
        finalize(client, service, &namespace).await
    }

    /// Only where traffic goes to resolvers is there anything to wait for.
    async fn until_pods_answer(
        &self,
        slices: &Api<EndpointSlice>,
        service: &str,
    ) -> anyhow::Result<()> {
        let ours = of_service(slices, service, leads_to_resolvers).await?;
        if !ours.iter().any(has_ready_endpoint) {
            return Ok(());
        }
        let settle = Duration::from_secs(self.settle_seconds);
        let start = Instant::now();
        loop {
            let own = of_service(slices, service, |slice| slice.by_kubernetes).await?;
            anyhow::ensure!(own.iter().any(has_ready_endpoint), "no pod is ready");
            if start.elapsed() >= settle {
                return Ok(());
            }
            sleep(POLL_INTERVAL.min(settle)).await;
        }
    }
}

/// Scales a target up from zero; a target that is not there needs no waking.
async fn wake(client: &Client, service: &ElastiService, namespace: &str) -> anyhow::Result<bool> {
    let target = &service.spec.scale_target_ref;
    let kind = GroupVersionKind::gvk(target.group(), target.version(), target.canonical_kind());
    let resource = match discovery::pinned_kind(client, &kind).await {
        Ok((resource, _)) => resource,
        Err(kube::Error::Discovery(_)) => return Ok(false),
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
        Err(error) => return Err(error).context("cannot look up the target's kind"),
    };
    let targets: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let Some(scale) = absent_is_none(targets.get_scale(&target.name).await)? else {
        return Ok(false);
    };
    let replicas = scale
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(0);
    if replicas == 0 {
        let wanted = i32::try_from(service.spec.min_target_replicas.max(1)).unwrap_or(i32::MAX);
        set_replicas(&targets, scale, wanted).await?;
    }
    Ok(true)
}

/// Writes replicas, unless the scale has changed since it was read.
async fn set_replicas<K>(
    api: &Api<K>,
    mut scale: k8s_openapi::api::autoscaling::v1::Scale,
    replicas: i32,
) -> anyhow::Result<()>
where
    K: Clone + serde::de::DeserializeOwned,
{
    let name = scale.metadata.name.clone().unwrap_or_default();
    scale.spec.get_or_insert_default().replicas = Some(replicas);
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.into()),
        ..PostParams::default()
    };
    api.replace_scale(&name, &params, &scale)
        .await
        .with_context(|| format!("{name} cannot be scaled"))?;
    Ok(())
}

/// Un-pauses a ScaledObject that we, or KubeElasti, have paused.
async fn release_autoscaler(
    client: &Client,
    service: &ElastiService,
    namespace: &str,
) -> anyhow::Result<()> {
    let keda = |one: &&elasti_api::Autoscaler| one.type_ == AutoscalerType::Keda;
    let Some(autoscaler) = service.spec.autoscaler.as_ref().filter(keda) else {
        return Ok(());
    };
    let kind = GroupVersionKind::gvk("keda.sh", "v1alpha1", "ScaledObject");
    let Ok((resource, _)) = discovery::pinned_kind(client, &kind).await else {
        return Ok(());
    };
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let Some(object) = objects.get_opt(&autoscaler.name).await? else {
        return Ok(());
    };
    let pause = facts::keda_pause(&serde_json::to_value(&object)?);
    let Some(released) = elasti_core::autoscaler::release(&Autoscaler::Keda(pause)) else {
        return Ok(());
    };
    let patch = json!({"metadata": {"annotations": {
        names::KEDA_PAUSED_ANNOTATION: released.paused,
        names::KEDA_PAUSED_REPLICAS_ANNOTATION: released.paused_replicas,
        names::KEDA_BEFORE_ANNOTATION: null,
    }}});
    let params = PatchParams::apply(names::FIELD_MANAGER);
    objects
        .patch(&autoscaler.name, &params, &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Takes our finalizer off, and no other.
async fn finalize(client: &Client, service: &ElastiService, namespace: &str) -> anyhow::Result<()> {
    let services: Api<ElastiService> = Api::namespaced(client.clone(), namespace);
    let Some(now) = services.get_opt(&service.name_any()).await? else {
        return Ok(());
    };
    let others: Vec<&String> = now
        .finalizers()
        .iter()
        .filter(|one| *one != names::FINALIZER)
        .collect();
    if others.len() == now.finalizers().len() {
        return Ok(());
    }
    // With its version, so that a concurrent change of other finalizers is not lost.
    let patch =
        json!({"metadata": {"finalizers": others, "resourceVersion": now.resource_version()}});
    let params = PatchParams::apply(names::FIELD_MANAGER);
    absent_is_none(
        services
            .patch(&now.name_any(), &params, &Patch::Merge(&patch))
            .await,
    )?;
    Ok(())
}

/// A slice of ours, or one of KubeElasti's that was not adopted yet.
fn leads_to_resolvers(slice: &SliceFacts) -> bool {
    slice.by_elasti || slice.by_predecessor
}

async fn of_service(
    slices: &Api<EndpointSlice>,
    service: &str,
    which: fn(&SliceFacts) -> bool,
) -> anyhow::Result<Vec<EndpointSlice>> {
    let labels = format!("{}={service}", names::SERVICE_NAME_LABEL);
    let all = slices.list(&ListParams::default().labels(&labels)).await?;
    let mut found = all.items;
    found.retain(|slice| which(&SliceFacts::from_object(slice)));
    Ok(found)
}

/// Kubernetes takes an endpoint without this condition for ready.
fn has_ready_endpoint(slice: &EndpointSlice) -> bool {
    slice.endpoints.iter().any(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        conditions.and_then(|conditions| conditions.ready) != Some(false)
    })
}

fn absent_is_none<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}
