//! Which ElastiServices a command that changes something is about.

use clap::Args;
use elasti_api::ElastiService;
use kube::ResourceExt as _;
use kube::api::ListParams;

use crate::access::{Cluster, Scope};
use crate::refusal::Call;
use elasti_runtime::exit::Failed;

/// Which ElastiServices.
#[derive(Args, Clone, Debug)]
pub(crate) struct Choice {
    /// ElastiServices by name; `elastiservice/NAME` is understood too
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "selector"])]
    names: Vec<String>,
    /// All of the namespace, or with -A of the cluster
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Those with these labels, for example team=shop
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with_all = ["names", "all"])]
    selector: Option<String>,
    #[command(flatten)]
    pub(crate) scope: Scope,
}

/// One that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Choice {
    /// Those that were meant; whether a named one exists is found out later, by asking for it.
    pub(crate) async fn chosen(&self, cluster: &Cluster) -> Result<Vec<Chosen>, Failed> {
        if !self.all && self.selector.is_none() {
            return self.named(&cluster.namespace);
        }
        let (services, namespace) = match self.scope.all_namespaces {
            true => (kube::Api::all(cluster.client.clone()), None),
            false => (
                cluster.services_in(&cluster.namespace),
                Some(cluster.namespace.as_str()),
            ),
        };
        let params = ListParams {
            label_selector: self.selector.clone(),
            ..ListParams::default()
        };
        let listed = services.list(&params).await;
        let listed =
            listed.map_err(|error| Call::services("list", namespace, None).refused(&error))?;
        match (&self.selector, listed.items.is_empty()) {
            // A typing mistake must not pass for work done.
            (Some(labels), true) => Err(Failed::from(anyhow::anyhow!(
                "no ElastiService has the labels {labels}; see: kubectl get els --show-labels"
            ))),
            _ => Ok(listed.items.iter().map(Chosen::from).collect()),
        }
    }

    fn named(&self, namespace: &str) -> Result<Vec<Chosen>, Failed> {
        if self.scope.all_namespaces {
            let line = "-A requires --all or -l; for one service name its namespace: -n NAMESPACE";
            return Err(Failed::Usage(line.to_owned()));
        }
        self.names
            .iter()
            .map(|written| {
                Ok(Chosen {
                    namespace: namespace.to_owned(),
                    name: bare(written)?.to_owned(),
                })
            })
            .collect()
    }
}

impl From<&ElastiService> for Chosen {
    fn from(service: &ElastiService) -> Self {
        Self {
            namespace: service.namespace().unwrap_or_default(),
            name: service.name_any(),
        }
    }
}

/// A name as a person or another program writes it: with or without its kind.
pub(crate) fn bare(written: &str) -> Result<&str, Failed> {
    let Some((kind, name)) = written.split_once('/') else {
        return Ok(written);
    };
    let kind = kind.split('.').next().unwrap_or_default();
    match kind.to_ascii_lowercase().as_str() {
        "elastiservice" | "elastiservices" | "els" => Ok(name),
        _ => Err(Failed::Usage(format!(
            "{written:?} is not an ElastiService; write its name, or elastiservice/NAME"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::bare;

    #[test]
    fn a_name_is_understood_as_kubectl_prints_it() {
        for written in ["web", "els/web", "elastiservice.elasti.truefoundry.com/web"] {
            assert_eq!(bare(written).ok(), Some("web"), "{written}");
        }
        assert!(bare("deployment/web").is_err());
    }
}
