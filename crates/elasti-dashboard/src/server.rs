//! The running dashboard: watches, timers, and an HTTP server with limits.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use elasti_runtime::http_server::HttpServer;
use elasti_view::held::HeldState;
use jiff::Timestamp;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};
use tower::ServiceExt as _;

use super::broadcast::{Broadcast, Frame};
use super::guard::Guard;
use super::held::{self, HeldSource};
use super::price::Price;
use super::routes::{AppState, Explain, router};
use super::state::{FleetState, Scope, TargetKind};
use super::watch::{Collection, WatchUpdate, watch_forever};

/// A browser opens 6; 40 of them fit.
const SERVER: HttpServer = HttpServer {
    max_connections: 256,
    max_connections_per_peer: 256,
    header_timeout: Duration::from_secs(30),
};
/// Changes within this time are sent together.
const BATCH_TIME: Duration = Duration::from_millis(80);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Shares and savings grow with time alone.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// Kinds of target that are watched: Deployments, StatefulSets, Rollouts and some more.
const MAX_KINDS: usize = 12;

/// Settings of a dashboard.
pub struct Settings {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Empty: all of them.
    pub namespaces: Vec<String>,
    /// Host names that browsers may use, besides its address.
    pub hosts: Vec<String>,
    /// Whether the token allows waking, sleeping and pausing.
    pub writes: bool,
    /// Price of an hour, where configured.
    pub price: Option<Price>,
    /// What is shown, for the page's header.
    pub place: String,
    /// Explains a service from live objects; without it, from what the watches know.
    pub explain: Option<Explain>,
}

/// A running dashboard; it ends when this is dropped.
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    token: Option<String>,
    _tasks: JoinSet<()>,
}

impl Running {
    /// Starts watching and serving.
    pub async fn start(
        settings: Settings,
        client: Client,
        held_source: impl HeldSource,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(settings.listen).await?;
        let address = listener.local_addr()?;
        let token = settings.writes.then(token);
        let guard = Guard::new(address.ip(), settings.hosts, token.clone());
        let broadcast = Arc::new(Broadcast::new(Frame {
            writes: settings.writes,
            place: settings.place,
            price: settings.price,
            since: Timestamp::now(),
        }));
        let state = Arc::new(Mutex::new(FleetState::default()));
        let watches = Watches {
            client: client.clone(),
            scopes: match settings.namespaces.is_empty() {
                true => vec![Scope(None)],
                false => settings
                    .namespaces
                    .into_iter()
                    .map(|one| Scope(Some(one)))
                    .collect(),
            },
            state: state.clone(),
            changed: Arc::new(Notify::new()),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(publish(watches.clone(), broadcast.clone()));
        tasks.spawn(poll_held(watches.clone(), broadcast.clone(), held_source));
        tasks.spawn(watches.run());
        tasks.spawn(serve(
            listener,
            router(
                AppState {
                    state,
                    broadcast,
                    client,
                    explain: settings.explain,
                },
                guard,
            ),
        ));
        Ok(Self {
            address,
            token,
            _tasks: tasks,
        })
    }

    /// The address to open. Browsers do not send what follows the `#`.
    pub fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        match &self.token {
            Some(token) => format!("http://{address}/#token={token}"),
            None => format!("http://{address}/"),
        }
    }
}

/// 128 random bits.
fn token() -> String {
    let number: u128 = rand::random();
    format!("{number:032x}")
}

/// The watches: one a kind.
#[derive(Clone)]
struct Watches {
    client: Client,
    scopes: Vec<Scope>,
    state: Arc<Mutex<FleetState>>,
    changed: Arc<Notify>,
}

impl Watches {
    async fn run(self) {
        let mut tasks = JoinSet::new();
        let services = ApiResource::erase::<elasti_api::ElastiService>(&());
        self.spawn(&mut tasks, &services, None, |state, scope, update| {
            state.services(scope, update, Timestamp::now());
        });
        let events = ApiResource::erase::<k8s_openapi::api::events::v1::Event>(&());
        let ours = Some("regarding.kind=ElastiService");
        self.spawn(&mut tasks, &events, ours, FleetState::events);
        let mut kinds = BTreeSet::new();
        loop {
            // A kind is watched once a service has such a target.
            let wanted = self.state.lock().target_kinds();
            for kind in wanted {
                if kinds.len() < MAX_KINDS && kinds.insert(kind.clone()) {
                    let resource = resource(&kind);
                    self.spawn(&mut tasks, &resource, None, move |state, scope, update| {
                        state.targets(&kind, scope, update);
                    });
                }
            }
            sleep(BATCH_TIME.saturating_mul(3)).await;
        }
    }

    /// Watches a kind in every namespace that is shown: one watch where all are.
    fn spawn(
        &self,
        tasks: &mut JoinSet<()>,
        resource: &ApiResource,
        fields: Option<&str>,
        apply: impl Fn(&mut FleetState, &Scope, WatchUpdate) + Clone + Send + 'static,
    ) {
        for scope in &self.scopes {
            let collection = Collection {
                path: path(resource, scope),
                fields: fields.map(str::to_owned),
            };
            let (client, scope, apply) = (self.client.clone(), scope.clone(), apply.clone());
            let (state, changed) = (self.state.clone(), self.changed.clone());
            tasks.spawn(watch_forever(client, collection, move |update| {
                apply(&mut state.lock(), &scope, update);
                changed.notify_one();
            }));
        }
    }
}

fn path(resource: &ApiResource, scope: &Scope) -> String {
    let root = match resource.group.is_empty() {
        true => format!("/api/{}", resource.version),
        false => format!("/apis/{}", resource.api_version),
    };
    let plural = &resource.plural;
    match &scope.0 {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{plural}"),
    }
}

fn resource(kind: &TargetKind) -> ApiResource {
    let TargetKind { api_version, kind } = kind;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Publishes changes in batches.
async fn publish(watches: Watches, broadcast: Arc<Broadcast>) {
    let (mut heartbeat, mut refresh) = (interval(HEARTBEAT_INTERVAL), interval(REFRESH_INTERVAL));
    loop {
        tokio::select! {
            () = watches.changed.notified() => sleep(BATCH_TIME).await,
            _ = heartbeat.tick() => broadcast.heartbeat(Timestamp::now()),
            _ = refresh.tick() => watches.state.lock().touch_all(),
        }
        broadcast.publish(&mut watches.state.lock(), Timestamp::now());
    }
}

/// Keeps the held requests up to date, while a browser is connected.
async fn poll_held(watches: Watches, broadcast: Arc<Broadcast>, held_source: impl HeldSource) {
    let ask = || watches.state.lock().ask(broadcast.watching());
    let watched = || broadcast.clone().until_watched();
    let on_change = |held: &HeldState| {
        watches.state.lock().set_held(held.clone());
        watches.changed.notify_one();
    };
    held::poll(held_source, ask, watched, on_change).await;
}

async fn serve(listener: TcpListener, router: Router) {
    let answer = move |_, request| router.clone().oneshot(request);
    SERVER.serve(listener, answer).await;
}
