//! The dashboard as it runs: watches, a clock, and a server with bounds.
//! Never opens a door wider than it was told: loopback and read-only unless somebody says otherwise.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use elasti_core::held::HeldState;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};
use tower::ServiceExt as _;

use super::follow::{Followed, Told, follow};
use super::guard::Guard;
use super::held::{self, HeldSource};
use super::known::{Known, Scope, TargetKind};
use super::news::{Frame, News};
use super::price::Price;
use super::routes::{Desk, Explain, router};

/// A browser opens 6; 40 of them fit.
const CONNECTIONS: usize = 256;
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Changes within this time are told together.
const TOGETHER: Duration = Duration::from_millis(80);
const BEAT: Duration = Duration::from_secs(10);
/// Shares and savings grow by the passing of time alone.
const GROWN: Duration = Duration::from_secs(10);
/// Kinds of target that are followed: Deployments, StatefulSets, Rollouts and some more.
const MOST_KINDS: usize = 12;

/// How a dashboard is to be.
pub struct Settings {
    /// Address and port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// None named: all of them.
    pub namespaces: Vec<String>,
    /// Names under which it may be called, besides its address.
    pub hosts: Vec<String>,
    /// Whether whoever has the token may wake, sleep and pause.
    pub writes: bool,
    /// What an hour costs, where somebody said so.
    pub price: Option<Price>,
    /// What is shown, in a word or two.
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
    /// Starts to look and to serve.
    pub async fn start(
        settings: Settings,
        client: Client,
        held_source: impl HeldSource,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(settings.listen).await?;
        let address = listener.local_addr()?;
        let token = settings.writes.then(token);
        let guard = Guard::new(address.ip(), settings.hosts, token.clone());
        let news = Arc::new(News::new(Frame {
            writes: settings.writes,
            place: settings.place,
            price: settings.price,
            since: Timestamp::now(),
        }));
        let known = Arc::new(Mutex::new(Known::default()));
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
            known: known.clone(),
            changed: Arc::new(Notify::new()),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(tell(watches.clone(), news.clone()));
        tasks.spawn(hear(watches.clone(), news.clone(), held_source));
        tasks.spawn(watches.run());
        tasks.spawn(serve(
            listener,
            router(
                Desk {
                    known,
                    news,
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

    /// The address to open. What stands behind the `#` stays in the browser.
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

/// 128 bits that nobody guesses.
fn token() -> String {
    let number: u128 = rand::random();
    format!("{number:032x}")
}

/// The watches: one a kind.
#[derive(Clone)]
struct Watches {
    client: Client,
    scopes: Vec<Scope>,
    known: Arc<Mutex<Known>>,
    changed: Arc<Notify>,
}

impl Watches {
    async fn run(self) {
        let mut tasks = JoinSet::new();
        let services = ApiResource::erase::<elasti_api::ElastiService>(&());
        self.spawn(&mut tasks, &services, None, |known, scope, told| {
            known.services(scope, told, Timestamp::now());
        });
        let events = ApiResource::erase::<k8s_openapi::api::events::v1::Event>(&());
        let ours = Some("regarding.kind=ElastiService");
        self.spawn(&mut tasks, &events, ours, Known::events);
        let mut kinds = BTreeSet::new();
        loop {
            // A kind is followed from the first service on that has such a target.
            let wanted = self.known.lock().target_kinds();
            for kind in wanted {
                if kinds.len() < MOST_KINDS && kinds.insert(kind.clone()) {
                    let resource = resource(&kind);
                    self.spawn(&mut tasks, &resource, None, move |known, scope, told| {
                        known.targets(&kind, scope, told);
                    });
                }
            }
            sleep(TOGETHER.saturating_mul(3)).await;
        }
    }

    /// Follows a kind in every namespace that is shown: one watch where all are.
    fn spawn(
        &self,
        tasks: &mut JoinSet<()>,
        resource: &ApiResource,
        fields: Option<&str>,
        take: impl Fn(&mut Known, &Scope, Told) + Clone + Send + 'static,
    ) {
        for scope in &self.scopes {
            let followed = Followed {
                path: path(resource, scope),
                fields: fields.map(str::to_owned),
            };
            let (client, scope, take) = (self.client.clone(), scope.clone(), take.clone());
            let (known, changed) = (self.known.clone(), self.changed.clone());
            tasks.spawn(follow(client, followed, move |told| {
                take(&mut known.lock(), &scope, told);
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

/// Tells browsers what has changed, soon but not for each change alone.
async fn tell(watches: Watches, news: Arc<News>) {
    let (mut beat, mut grown) = (interval(BEAT), interval(GROWN));
    loop {
        tokio::select! {
            () = watches.changed.notified() => sleep(TOGETHER).await,
            _ = beat.tick() => news.beat(Timestamp::now()),
            _ = grown.tick() => watches.known.lock().touch_all(),
        }
        news.tell(&mut watches.known.lock(), Timestamp::now());
    }
}

/// Keeps up with who waits, while a browser looks.
async fn hear(watches: Watches, news: Arc<News>, held_source: impl HeldSource) {
    let whom = || watches.known.lock().ask(news.lookers());
    let somebody = || news.clone().somebody_looks();
    let hear = |hearing: &HeldState| {
        watches.known.lock().hear(hearing.clone());
        watches.changed.notify_one();
    };
    held::poll(held_source, whom, somebody, hear).await;
}

async fn serve(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(connection(router.clone(), stream, place));
            }
            // Usually too many open files; it passes.
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn connection(router: Router, stream: TcpStream, place: OwnedSemaphorePermit) {
    let _ = stream.set_nodelay(true);
    let service =
        service_fn(move |request: hyper::Request<Incoming>| router.clone().oneshot(request));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    // A browser that hangs up is none of our business.
    let _ = served.await;
    drop(place);
}
