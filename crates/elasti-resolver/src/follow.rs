//! Follows one kind of object; watches are renewed faster while something is held.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use elasti_runtime::watch::{Collection, Event, Lifetime, Watch};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use tokio::sync::watch;

/// What happened.
#[derive(Debug)]
pub(crate) enum Change<K> {
    /// These and no others exist.
    All(Vec<K>),
    /// This one exists, and this is its state.
    Set(K),
    /// This one was deleted.
    Deleted(K),
}

/// What is kept of an object. The rest is dropped as soon as the object is read, so that no list of whole objects is in
/// memory.
pub(crate) trait Kept: Clone + Debug {
    type Object: Resource + DeserializeOwned;

    fn from_object(object: Self::Object) -> Self;

    /// Of a list, whether this one is kept at all.
    fn is_needed(&self) -> bool {
        true
    }
}

/// One object as it is read.
#[derive(Clone, Debug)]
struct Item<T> {
    version: Option<String>,
    kept: T,
}

impl<T> Item<T> {
    fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}

impl<'de, T: Kept> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = T::Object::deserialize(deserializer)?;
        Ok(Self {
            version: object.meta().resource_version.clone(),
            kept: T::from_object(object),
        })
    }
}

/// While something is held: 1 + 1 = 2 s.
const URGENT_LIFETIME: Lifetime = Lifetime {
    seconds: 1,
    silence: Duration::from_secs(2),
};

/// Watches for one service each that all of them together begin in a second: a thousand a second would take the API server
/// from the wakes themselves.
const RENEWALS_PER_SECOND: usize = 20;

/// How long a watch for one service lasts while so many of them are urgent. Should it die, the watch of all slices, which
/// is renewed each second, shows the pod a moment later.
fn urgent_lifetime(services: usize) -> Lifetime {
    let seconds = services.div_ceil(RENEWALS_PER_SECOND);
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    let seconds = seconds.clamp(URGENT_LIFETIME.seconds, Lifetime::SHORT.seconds);
    Lifetime {
        seconds,
        silence: Duration::from_secs(u64::from(seconds) + 1),
    }
}

/// How soon a watch that has died must be noticed.
pub(crate) enum Urgency {
    /// Within two seconds while this is true, and as usual otherwise.
    While(watch::Receiver<bool>),
    /// The same for one of so many services, later if there are many.
    ForOneOf(watch::Receiver<bool>, Box<dyn Fn() -> usize + Send + Sync>),
    /// Always within 20 s.
    Always,
}

/// Follows the objects that `labels` select, as long as the future lives. Of a list at most so many are kept.
pub(crate) async fn follow<T: Kept>(
    api: Api<T::Object>,
    labels: Option<String>,
    most: usize,
    urgency: Urgency,
    mut on_change: impl FnMut(Change<T>),
) {
    let collection = Collection {
        path: api.resource_url().to_owned(),
        labels,
        ..Collection::default()
    };
    let listed = Arc::new(AtomicUsize::new(0));
    let count = listed.clone();
    let keep =
        move |item: &Item<T>| item.kept.is_needed() && count.fetch_add(1, Ordering::Relaxed) < most;
    let watch = Watch::new(api.into_client(), collection, Item::version).keep_only(keep);
    let watch = match urgency {
        Urgency::While(urgent) => watch.while_urgent(urgent, || URGENT_LIFETIME),
        Urgency::ForOneOf(urgent, services) => {
            watch.while_urgent(urgent, move || urgent_lifetime(services()))
        }
        Urgency::Always => watch.lifetime(Lifetime::SHORT),
    };
    let on_event = |event, _: &str| match event {
        Event::Listed(items) => {
            let all = items.into_iter().map(|item: Item<T>| item.kept);
            on_change(Change::All(all.collect()));
        }
        Event::Applied(item) => on_change(Change::Set(item.kept)),
        Event::Deleted(item) => on_change(Change::Deleted(item.kept)),
        Event::Failed { error, .. } => tracing::debug!(%error, "list or watch failed"),
        Event::Listing => listed.store(0, Ordering::Relaxed),
        Event::Calling | Event::Watching | Event::Alive => {}
    };
    watch.run(on_event).await;
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;
    use kube::{Client, ResourceExt as _};
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;

    /// Pods with an even number in their name.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Even(String);

    impl Kept for Even {
        type Object = Pod;

        fn from_object(object: Pod) -> Self {
            Self(object.name_any())
        }

        fn is_needed(&self) -> bool {
            self.0.ends_with(['0', '2', '4', '6', '8'])
        }
    }

    #[test]
    fn the_watches_of_many_services_are_not_renewed_more_often_than_those_of_a_few() {
        for services in [1, 10, 20] {
            assert_eq!(urgent_lifetime(services), URGENT_LIFETIME);
        }
        for services in [21, 100, 200, 360] {
            let Lifetime { seconds, silence } = urgent_lifetime(services);
            assert!(
                services <= RENEWALS_PER_SECOND * seconds as usize,
                "{services}"
            );
            assert!(silence > Duration::from_secs(seconds.into()));
        }
        assert_eq!(
            urgent_lifetime(usize::MAX),
            Lifetime {
                seconds: 18,
                silence: Duration::from_secs(19)
            }
        );
    }

    #[tokio::test]
    async fn of_a_list_only_what_is_needed_is_kept_and_no_more_than_may_be() {
        let server = tower::service_fn(|request: http::Request<Body>| async move {
            let page = |first: u32, token: &str| {
                let pod =
                    |at| json!({"metadata": {"name": format!("pod-{at}"), "resourceVersion": "1"}});
                let pods: Vec<_> = (first..first + 10).map(pod).collect();
                json!({"metadata": {"resourceVersion": "1", "continue": token}, "items": pods})
            };
            let query = request.uri().query().unwrap_or_default();
            let body = match query {
                query if query.contains("watch=true") => return std::future::pending().await,
                query if query.contains("continue=") => page(10, ""),
                _ => page(0, "more"),
            };
            Ok::<_, std::io::Error>(http::Response::new(Body::from(
                body.to_string().into_bytes(),
            )))
        });
        let api: Api<Pod> = Api::all(Client::new(server, "default"));
        let (send, mut changes) = mpsc::unbounded_channel();
        let on_change = move |change: Change<Even>| send.send(change).unwrap();
        tokio::spawn(follow(api, None, 7, Urgency::Always, on_change));
        let Some(Change::All(kept)) = changes.recv().await else {
            panic!("no list");
        };
        let names: Vec<&str> = kept.iter().map(|pod| pod.0.as_str()).collect();
        let even = [
            "pod-0", "pod-2", "pod-4", "pod-6", "pod-8", "pod-10", "pod-12",
        ];
        assert_eq!(names, even);
    }
}
