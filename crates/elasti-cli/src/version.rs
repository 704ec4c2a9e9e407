//! `elasti version`: this program, the operator and resolver that run in the cluster, and the CRD.

use clap::Args;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use serde::Serialize;

use crate::access::{Access, block_on};
use crate::check::definition;
use crate::check::installation::{Installation, container, place};
use crate::check::line::{Line, UNREAD, Verdict};
use crate::output::{Output, print};
use elasti_runtime::exit::{self, Failed};

/// Shows the versions of this program, of the operator and the resolver in the cluster, and of the CRD.
///
/// Example: elasti version
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment)]
pub struct Version {
    /// Only this program: no cluster is asked
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    output: Output,
}

/// What was found; a part that is not installed is absent.
#[derive(Debug, Serialize)]
struct Versions {
    client: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolver: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crd: Option<String>,
}

impl Version {
    pub(crate) fn run(self) -> Result<(), Failed> {
        self.output.without_names()?;
        let none = Versions {
            client: env!("CARGO_PKG_VERSION"),
            operator: None,
            resolver: None,
            crd: None,
        };
        let (versions, all_read) = match self.client {
            true => (none, true),
            false => block_on(self.ask(none))?,
        };
        match self.output.is_text() {
            true => print(&self.text(&versions))?,
            false => self.output.data(&versions)?,
        }
        match all_read {
            true => Ok(()),
            false => Err(Failed::Reported),
        }
    }

    /// The versions, and whether everything could be read. What could not says so in place of a version: it may well be
    /// installed.
    async fn ask(&self, none: Versions) -> Result<(Versions, bool), Failed> {
        let cluster = self.access.connect().await?;
        let namespace = self.access.namespace.as_deref();
        let mut lines = vec![definition::check(&cluster.client).await];
        let crd = lines.first().map(|line| line.message.clone());
        let found = Installation::find(&cluster.client, namespace, &mut lines).await;
        let unread = |word: &str| {
            let line = lines
                .iter()
                .find(|line| line.check == word && is_unread(line));
            line.map(|line| line.message.clone())
        };
        let of = |deployment: Option<&Deployment>, word| deployment.map(version).or(unread(word));
        let versions = Versions {
            operator: of(found.operator.as_ref(), "operator"),
            resolver: of(found.resolver.as_ref(), "resolver"),
            crd,
            ..none
        };
        Ok((versions, !lines.iter().any(is_unread)))
    }

    fn text(&self, versions: &Versions) -> String {
        let mut text = format!("client    {}\n", versions.client);
        if self.client {
            return text;
        }
        let or_none = |found: &Option<String>| found.clone().unwrap_or_else(|| "not found".into());
        for (word, found) in [
            ("operator", &versions.operator),
            ("resolver", &versions.resolver),
            ("crd", &versions.crd),
        ] {
            text += &format!("{word:<9} {}\n", or_none(found));
        }
        text
    }
}

fn is_unread(line: &Line) -> bool {
    line.verdict == Verdict::Warn && line.message.starts_with(UNREAD)
}

/// The version that a Deployment's label says, and its image.
fn version(deployment: &Deployment) -> String {
    let version = deployment.labels().get("app.kubernetes.io/version");
    let image = container(deployment).and_then(|one| one.image.as_deref());
    let place = place(deployment);
    match (version, image) {
        (Some(version), Some(image)) => format!("{version} ({image} in {place})"),
        (None, Some(image)) => format!("{image} in {place}"),
        (version, None) => version.cloned().unwrap_or(place),
    }
}
