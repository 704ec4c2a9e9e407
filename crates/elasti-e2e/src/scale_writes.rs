//! When each Deployment of a namespace first asks for replicas.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::TryStreamExt as _;
use kube::core::WatchEvent;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::test_env::TestEnv;

/// Follows the namespace of apps that name no other until it is dropped.
#[derive(Debug)]
pub struct ScaleWrites {
    seen: Arc<Mutex<BTreeMap<String, Instant>>>,
    _watch: JoinSet<()>,
}

impl ScaleWrites {
    /// Follows them from now on.
    pub async fn watch(env: &TestEnv) -> Self {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments", env.home());
        let list = env.api().get(&path).await;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let uri = format!("{path}?watch=true&resourceVersion={version}");
        let request = http::Request::get(uri).body(Vec::new()).unwrap();
        let events = env.api().0.request_events::<Value>(request).await.unwrap();
        let seen = Arc::<Mutex<BTreeMap<String, Instant>>>::default();
        let (mut watch, noted) = (JoinSet::new(), seen.clone());
        watch.spawn(async move {
            let mut events = std::pin::pin!(events);
            while let Ok(Some(event)) = events.try_next().await {
                let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event else {
                    continue;
                };
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                if object["spec"]["replicas"].as_u64() > Some(0) {
                    let mut noted = noted.lock();
                    noted.entry(name.to_owned()).or_insert_with(Instant::now);
                }
            }
        });
        Self {
            seen,
            _watch: watch,
        }
    }

    /// The moments in their order.
    #[must_use]
    pub fn moments(&self) -> Vec<Instant> {
        let mut moments: Vec<Instant> = self.seen.lock().values().copied().collect();
        moments.sort_unstable();
        moments
    }
}
