//! Which cluster, as whom, and in which namespace: the arguments that kubectl has too, and the client they give.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use elasti_api::ElastiService;
use elasti_runtime::kube_client;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config};

use crate::refusal;
use elasti_runtime::exit::Failed;

/// Which cluster and which namespace; everything left out is as kubectl has it.
#[derive(Args, Clone, Debug, Default)]
pub struct Access {
    /// Namespace; default: the one of the kubeconfig's context
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Context of the kubeconfig; default: its current one
    #[arg(long, value_name = "CONTEXT")]
    context: Option<String>,
    /// Path of the kubeconfig; default: $KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// One namespace, or all of them.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Scope {
    #[command(flatten)]
    pub(crate) access: Access,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
}

/// A cluster, and the namespace to work in.
#[derive(Clone)]
pub struct Cluster {
    /// With the user's own permissions.
    pub client: Client,
    /// The namespace where none is named.
    pub namespace: String,
}

impl Access {
    /// For a command without `-n`.
    pub fn new(context: Option<String>, kubeconfig: Option<PathBuf>) -> Self {
        Self {
            namespace: None,
            context,
            kubeconfig,
        }
    }

    /// A client with the user's own permissions: tokens, client certificates and exec plugins as the kubeconfig says.
    pub async fn connect(&self) -> Result<Cluster, Failed> {
        let config = self.config().await?;
        let namespace = self.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        let client = kube_client::from_config(config).map_err(|error| {
            let why = refusal::root(&error);
            anyhow::anyhow!("the credentials of the kubeconfig cannot be used: {why}")
        })?;
        Ok(Cluster { client, namespace })
    }

    /// The context and its cluster, for people; `None` in a pod without a kubeconfig.
    pub(crate) fn place(&self) -> Option<String> {
        let read = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let read = read.ok()?;
        let name = self.context.clone().or(read.current_context)?;
        let found = read.contexts.into_iter().find(|one| one.name == name);
        let cluster = found.and_then(|one| one.context).map(|one| one.cluster);
        Some(match cluster {
            Some(cluster) if cluster != name => format!("{name} (cluster {cluster})"),
            _ => name,
        })
    }

    async fn config(&self) -> Result<Config, Failed> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let read = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let named = self.kubeconfig.is_some() || self.context.is_some();
        let config = match read {
            Ok(read) => Config::from_custom_kubeconfig(read, &options).await,
            Err(error) if named => Err(error),
            // A pod without a kubeconfig has a service account.
            Err(error) => {
                let missing = matches!(
                    error,
                    KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath
                );
                match Config::incluster() {
                    Ok(config) => return Ok(config),
                    Err(_) if missing => {
                        let line =
                            "no cluster is configured: set KUBECONFIG or pass --kubeconfig FILE";
                        return Err(Failed::from(anyhow::anyhow!(line)));
                    }
                    Err(_) => Err(error),
                }
            }
        };
        config.map_err(|error| self.unusable(&error))
    }

    /// A file or a context that the user named, and that cannot be used.
    fn unusable(&self, error: &KubeconfigError) -> Failed {
        Failed::Usage(match (error, &self.context) {
            (KubeconfigError::LoadContext(_), Some(context)) => format!(
                "the kubeconfig has no context {context:?}; see: kubectl config get-contexts"
            ),
            (KubeconfigError::ReadConfig(why, path), _) => format!(
                "the kubeconfig {} cannot be read: {}; pass --kubeconfig FILE or set KUBECONFIG",
                path.display(),
                refusal::root(why)
            ),
            _ => format!("the kubeconfig cannot be used: {error}"),
        })
    }
}

impl Cluster {
    /// The ElastiServices of one namespace.
    pub(crate) fn services_in(&self, namespace: &str) -> Api<ElastiService> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// Runs a command that talks to a cluster.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(work)
}
