//! The simulated cluster's API server: one process, one store, plain HTTP on loopback.

mod admission;
mod apply;
mod auth;
mod decode;
mod definitions;
mod delete;
mod discovery;
mod http_server;
mod json_path;
mod kinds;
mod kubeconfig;
mod names;
pub(crate) mod object;
mod openapi;
mod patching;
mod proxy;
mod rbac;
mod read;
mod render;
pub(crate) mod request;
pub(crate) mod resources;
mod reviews;
pub(crate) mod scale;
mod schema;
pub(crate) mod selector;
mod serve;
pub(crate) mod session;
mod signing;
pub(crate) mod status;
pub(crate) mod store;
mod strategic;
mod table;
mod watch;
mod write;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub use auth::User;
pub use http_server::Listening;
pub use serve::ConnectionDropped;

use crate::clock::Clock;
use crate::faults::Faults;
use crate::random::Randomness;
use auth::Tokens;
use kinds::services::ServiceAddresses;
use object::Object as _;
use resources::Registry;
use session::{Context, State};
use store::Store;

/// The version of Kubernetes whose behaviour the simulated cluster models.
pub(crate) const GIT_VERSION: &str = "v1.34.4";

/// How a server starts.
#[derive(Clone, Debug)]
pub struct ApiServerConfig {
    /// Seeds uids, generated names and random faults.
    pub seed: u64,
    /// The wall time at the start; `None`: the system's.
    pub epoch: Option<Timestamp>,
    /// Events kept a kind before a watch is too old.
    pub history_limit: usize,
    /// Where cluster addresses come from.
    pub service_range: (Ipv4Addr, u8),
    /// The bearer token of the administrator.
    pub admin_token: String,
    /// Check RBAC for service accounts.
    pub enforce_rbac: bool,
    /// Refuse pods whose service account does not exist.
    pub check_service_accounts: bool,
}

impl Default for ApiServerConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            epoch: None,
            history_limit: 20_000,
            service_range: (Ipv4Addr::new(127, 96, 0, 0), 16),
            admin_token: "fake-cluster-admin".to_owned(),
            enforce_rbac: false,
            check_service_accounts: true,
        }
    }
}

/// One write, as the store keeps it.
#[derive(Clone, Debug)]
pub struct Changed {
    /// When.
    pub at: tokio::time::Instant,
    /// The version that it made.
    pub version: u64,
    /// The resource's plural.
    pub kind: String,
    /// The object was removed.
    pub gone: bool,
    /// The object after it, or its last state; without apiVersion and kind.
    pub object: Value,
}

/// A running API server; clones share it.
#[derive(Clone, Debug)]
pub struct ApiServer {
    pub(crate) state: Arc<Mutex<State>>,
    context: Arc<Context>,
    faults: Arc<Faults>,
    admin_token: String,
}

impl ApiServer {
    /// A server with the namespaces and roles that every cluster has. Call it inside a tokio runtime.
    #[must_use]
    pub fn new(config: ApiServerConfig) -> Self {
        let ApiServerConfig {
            seed,
            epoch,
            history_limit,
            service_range,
            admin_token,
            enforce_rbac,
            check_service_accounts,
        } = config;
        let random = Arc::new(Randomness::seeded(seed));
        let clock = Clock::starting_at(epoch.unwrap_or_else(Timestamp::now));
        let context = Context {
            clock,
            tokens: Tokens::new(&admin_token),
            random,
            enforce_rbac,
            check_service_accounts,
        };
        let state = State {
            store: Store::new(history_limit),
            registry: Registry::builtins(),
            addresses: ServiceAddresses::new(service_range.0, service_range.1),
        };
        let server = Self {
            state: Arc::new(Mutex::new(state)),
            context: Arc::new(context),
            faults: Arc::new(Faults::seeded(seed)),
            admin_token,
        };
        server.bootstrap();
        server
    }

    /// The objects that exist before the first request.
    fn bootstrap(&self) {
        let mut state = self.state.lock();
        let stamp = |mut object: Value| {
            object.put("/metadata/uid", self.context.random.uid());
            object.put("/metadata/creationTimestamp", self.context.timestamp());
            object
        };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let object = json!({
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            });
            state
                .store
                .put(&(String::new(), "namespaces".to_owned()), stamp(object));
        }
        let group = "rbac.authorization.k8s.io".to_owned();
        for (name, bound_to, rules) in default_roles() {
            let role = json!({"metadata": {"name": name}, "rules": rules});
            let binding = json!({
                "metadata": {"name": name},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": group, "kind": "Group", "name": bound_to}],
            });
            for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
                let group_resource = (group.clone(), plural.to_owned());
                state.store.put(&group_resource, stamp(object));
            }
        }
    }

    /// A new key signs tokens from now on; those before it are believed until they are retired.
    pub fn rotate_signing_keys(&self) {
        self.context.tokens.keys.rotate();
    }

    /// A token that says this, signed by the server's own key, however untrue it is.
    #[must_use]
    pub fn sign(&self, claims: &Value) -> String {
        self.context.tokens.keys.sign(claims)
    }

    /// The injector and the journal.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The simulated cluster's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.context.clock
    }

    /// The simulated cluster's randomness.
    #[must_use]
    pub fn randomness(&self) -> Arc<Randomness> {
        self.context.random.clone()
    }

    /// The version of the last write.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.state.lock().store.version()
    }

    /// Everything that happened after `version` and is not forgotten yet, in order.
    #[must_use]
    pub fn changes_after(&self, version: u64) -> Vec<Changed> {
        let state = self.state.lock();
        let mut all: Vec<Changed> = Vec::new();
        for group_resource in state.store.group_resources() {
            let events = state
                .store
                .events_after(&group_resource, version, usize::MAX);
            all.extend(events.unwrap_or_default().iter().map(|event| Changed {
                at: event.at,
                version: event.version(),
                kind: group_resource.1.clone(),
                gone: event.change == store::Change::Deleted,
                object: event.object.value.clone(),
            }));
        }
        all.sort_by_key(|changed| changed.version);
        all
    }

    /// Forgets the history: every watch and list of an older version is too old.
    pub fn compact(&self) {
        self.state.lock().store.compact();
    }

    /// A kubeconfig of the administrator for a server at `address`.
    #[must_use]
    pub fn kubeconfig(&self, address: SocketAddr) -> String {
        kubeconfig::text(address, &self.admin_token)
    }

    /// A kubeconfig that carries another token.
    #[must_use]
    pub fn kubeconfig_with_token(&self, address: SocketAddr, token: &str) -> String {
        kubeconfig::text(address, token)
    }
}

/// The cluster roles of every cluster that matter here, the group that each is bound to, and their rules.
fn default_roles() -> [(&'static str, &'static str, Value); 3] {
    let everything = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let own_access = json!([{
        "apiGroups": ["authorization.k8s.io"],
        "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"],
    }]);
    let keys = json!([{
        "nonResourceURLs": ["/.well-known/openid-configuration", "/.well-known/openid-configuration/",
                            "/openid/v1/jwks", "/openid/v1/jwks/"],
        "verbs": ["get"],
    }]);
    [
        ("cluster-admin", "system:masters", everything),
        ("system:basic-user", "system:authenticated", own_access),
        (
            "system:service-account-issuer-discovery",
            "system:serviceaccounts",
            keys,
        ),
    ]
}
