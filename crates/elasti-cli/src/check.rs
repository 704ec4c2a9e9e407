//! `elasti check`: the health of an installation, with a fix for each problem.

pub(crate) mod definition;
mod flags;
mod fleet;
pub mod installation;
mod leftovers;
pub mod line;
mod migration;
mod network;
mod permissions;
mod pre;

use clap::Args;
use serde::Serialize;

use crate::access::{Access, Cluster, block_on};
use crate::output::{Output, print};
use crate::refusal::Call;
use crate::terminal::{Terminal, Tone, while_waiting};
use elasti_runtime::exit::Failed;
use fleet::Fleet;
use installation::Installation;
use line::{Line, Verdict};

/// Checks an installation: CRD, operator, resolver, leader, permissions, wake path, slices, network policies, leftovers.
///
/// Each line is ok, warn or FAIL, with a fix. The installation is found automatically; use -n to name its namespace if
/// there are several, or if you may not list Deployments in all namespaces.
#[derive(Args, Debug)]
#[command(after_help = CODES)]
pub struct Check {
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    output: Output,
    /// Check a migration from KubeElasti: what blocks it before, what is left to do after
    #[arg(long)]
    migration: bool,
    /// Check before an install: is the cluster new enough, and may you install?
    #[arg(long, conflicts_with = "migration")]
    pre: bool,
}

const CODES: &str = "Exit codes: 0 ok or only warnings, 1 something failed, 2 wrong usage.";

/// All lines, as data.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether nothing fails.
    ok: bool,
    failures: usize,
    warnings: usize,
    checks: Vec<Line>,
}

impl Check {
    pub(crate) fn run(self) -> Result<(), Failed> {
        self.output.without_names()?;
        let lines = block_on(self.check())?;
        let of = |verdict| lines.iter().filter(|line| line.verdict == verdict).count();
        let report = Report {
            ok: of(Verdict::Fail) == 0,
            failures: of(Verdict::Fail),
            warnings: of(Verdict::Warn),
            checks: lines,
        };
        match self.output.is_text() {
            true => print(&report.text(Terminal::of_output()))?,
            false => self.output.data(&report)?,
        }
        match report.ok {
            true => Ok(()),
            false => Err(Failed::Reported),
        }
    }

    async fn check(&self) -> Result<Vec<Line>, Failed> {
        let cluster = self.access.connect().await?;
        let namespace = self.access.namespace.as_deref();
        let checked = check(&cluster, namespace, self.migration, self.pre);
        Ok(while_waiting(|| "checking the installation".to_owned(), checked).await)
    }
}

/// In order: each check needs what the one before found.
async fn check(
    cluster: &Cluster,
    namespace: Option<&str>,
    migration: bool,
    pre: bool,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let client = &cluster.client;
    let version = match client.apiserver_version().await {
        Ok(version) => {
            let message = format!("Kubernetes {} answers", version.git_version);
            lines.push(Line::ok("cluster", message));
            version
        }
        Err(error) => {
            let asked = Call::services("get", None, None);
            lines.push(Line::fail(
                "cluster",
                asked.refused(&error).to_string(),
                "choose the cluster with --context or --kubeconfig",
            ));
            return lines;
        }
    };
    if pre {
        let namespace = namespace.unwrap_or(installation::USUAL_NAMESPACE);
        pre::check(client, &version, namespace, &mut lines).await;
        return lines;
    }
    if migration {
        // That Elasti is not installed yet is no fault before a move.
        let installation = Installation::find(client, namespace, &mut Vec::new()).await;
        migration::check(client, &installation, &mut lines).await;
        if installation.operator.is_none() {
            return lines;
        }
    }
    let definition = definition::check(client).await;
    let is_defined = definition.verdict != Verdict::Fail;
    lines.push(definition);
    let installation = Installation::find(client, namespace, &mut lines).await;
    installation.check(client, &mut lines).await;
    permissions::check(client, &installation, &mut lines).await;
    if is_defined && let Some(fleet) = Fleet::load(client, &installation, &mut lines).await {
        fleet.check(&mut lines);
        network::check(client, &installation, &fleet, &mut lines).await;
        leftovers::check(&installation, &fleet, &mut lines);
    }
    lines
}

impl Report {
    fn text(&self, terminal: Terminal) -> String {
        let mut text = String::new();
        let mut section = None;
        for line in &self.checks {
            if section != Some(line.section()) {
                let (title, page) = line.section();
                section = Some((title, page));
                text += &format!(
                    "{}\n",
                    terminal.paint(Tone::Strong, &format!("{title} ({page})"))
                );
            }
            let (word, tone) = match line.verdict {
                Verdict::Ok => ("ok  ", Tone::Plain),
                Verdict::Warn => ("warn", Tone::Alert),
                Verdict::Fail => ("FAIL", Tone::Alert),
            };
            let word = terminal.paint(tone, word);
            text += &format!("{word}  {:<11} {}\n", line.check, line.message);
            if let Some(fix) = &line.fix {
                text += &format!("{:17} fix: {fix}\n", "");
            }
        }
        let counted = |warnings| match warnings {
            1 => "1 warning".to_owned(),
            n => format!("{n} warnings"),
        };
        let sum = match (self.failures, self.warnings) {
            (0, 0) => "ok: no problems found".to_owned(),
            (0, warnings) => format!("0 failed, {}", counted(warnings)),
            (failures, warnings) => format!("{failures} failed, {}", counted(warnings)),
        };
        text + &format!("{sum}\n")
    }
}
