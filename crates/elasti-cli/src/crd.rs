//! `elasti crd`: the CustomResourceDefinition of this version.

use anyhow::Context as _;
use clap::Args;
use elasti_api::names;
use serde_json::Value;

use crate::output::{Format, Output, print};
use elasti_runtime::exit::{CODES, Failed};

/// Written by `cargo xtask generate` and compared with the code by a test.
const CRD: &str = include_str!("../../../deploy/crd/elastiservices.yaml");

/// Prints the CustomResourceDefinition of the ElastiService.
///
/// Helm installs it with the chart; this is for those who do not use Helm, and for tools that check manifests.
#[derive(Args, Debug)]
#[command(after_help = CODES)]
pub struct Crd {
    /// Print on standard error how to install it
    #[arg(long)]
    install_hint: bool,
    #[command(flatten)]
    output: Output,
}

impl Crd {
    pub(crate) fn run(self) -> Result<(), Failed> {
        match self.output.format {
            None | Some(Format::Yaml | Format::Wide) => print(CRD)?,
            Some(Format::Json) => {
                let crd: Value = serde_saphyr::from_str(CRD).context("the CRD is invalid YAML")?;
                self.output.data(&crd)?;
            }
            Some(Format::Name) => {
                let kind = "customresourcedefinition.apiextensions.k8s.io";
                print(&format!("{kind}/{}\n", names::CRD))?;
            }
        }
        if self.install_hint {
            eprintln!("Install or update it with:");
            eprintln!("  elasti crd | kubectl apply --server-side -f -");
            eprintln!(
                "  kubectl wait --for=condition=Established crd/{}",
                names::CRD
            );
            eprintln!("Deleting it deletes every ElastiService; wake everything first.");
        }
        Ok(())
    }
}
