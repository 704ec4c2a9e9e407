//! Waits until no EndpointSlice of ours names this resolver any more: until then nodes send it connections for services
//! that nothing has asked for lately, which it must not refuse.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use elasti_api::names;
use elasti_runtime::watch::{Collection, Event, Lifetime, Watch};
use futures::future::join_all;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Client, Resource as _};
use tokio::sync::Notify;

use crate::resolver::scopes;

/// What a resolver needs to find itself in slices.
pub(crate) struct Leaving {
    pub(crate) client: Client,
    /// The namespaces that are served; empty means all.
    pub(crate) namespaces: Vec<String>,
    /// Its own addresses; without one there is nothing to wait for.
    pub(crate) own: BTreeSet<IpAddr>,
}

impl std::fmt::Debug for Leaving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let own = &self.own;
        f.debug_struct("Leaving")
            .field("own", own)
            .finish_non_exhaustive()
    }
}

impl Leaving {
    /// Ends when no slice names it, or when it may not read them any more. Without an API server it does not end.
    pub(crate) async fn until_out_of_slices(&self) {
        if self.own.is_empty() {
            return;
        }
        let own = Arc::new(self.own.clone());
        let scopes = scopes(&self.namespaces).into_iter();
        let all = scopes.map(|scope| until_out_of(self.client.clone(), scope, own.clone()));
        join_all(all).await;
    }
}

async fn until_out_of(client: Client, scope: Option<String>, own: Arc<BTreeSet<IpAddr>>) {
    let collection = Collection {
        path: EndpointSlice::url_path(&(), scope.as_deref()),
        labels: Some(format!(
            "{}={}",
            names::SLICE_MANAGED_BY_LABEL,
            names::SLICE_MANAGED_BY_ELASTI
        )),
        ..Collection::default()
    };
    let kept = own.clone();
    let watch = Watch::new(client, collection, version)
        .lifetime(Lifetime::SHORT)
        .keep_only(move |slice| has_any(slice, &kept));
    let out = Notify::new();
    let mut naming: HashSet<Option<String>> = HashSet::new();
    let on_event = |event, _: &str| {
        match event {
            Event::Listed(slices) => naming = slices.iter().map(uid).collect(),
            Event::Applied(slice) if has_any(&slice, &own) => drop(naming.insert(uid(&slice))),
            Event::Applied(slice) | Event::Deleted(slice) => drop(naming.remove(&uid(&slice))),
            // Uninstalled: its permission is gone, and so is every operator that could take it out of slices.
            Event::Failed { error, .. } if is_denied(&error) => naming.clear(),
            Event::Failed { error, .. } => {
                return tracing::debug!(%error, "list or watch failed");
            }
            Event::Calling | Event::Listing | Event::Watching | Event::Alive => return,
        }
        if naming.is_empty() {
            out.notify_one();
        }
    };
    tokio::select! {
        () = watch.run(on_event) => {}
        () = out.notified() => {}
    }
}

fn is_denied(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403))
}

fn has_any(slice: &EndpointSlice, own: &BTreeSet<IpAddr>) -> bool {
    let addresses = slice.endpoints.iter().flat_map(|one| &one.addresses);
    let mut parsed = addresses.filter_map(|address| address.parse::<IpAddr>().ok());
    parsed.any(|address| own.contains(&address))
}

fn uid(slice: &EndpointSlice) -> Option<String> {
    slice.metadata.uid.clone()
}

fn version(slice: &EndpointSlice) -> Option<&str> {
    slice.metadata.resource_version.as_deref()
}
