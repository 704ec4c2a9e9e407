//! `elasti check`: is this installation of Elasti well, and if not, what to do.
//! Never changes anything; what the user may not look at is said and not guessed.

mod definition;
mod fleet;
pub mod installation;
pub mod line;
mod network;
mod permissions;
mod remains;

use clap::Args;
use serde::Serialize;

use crate::access::{Access, Cluster, block_on};
use crate::output::{Output, say};
use crate::terminal::{Terminal, Tone, while_waiting};
use elasti_runtime::exit::Failed;
use fleet::Fleet;
use installation::Installation;
use line::{Line, Verdict};

/// Looks at an installation: CRD, operator, resolver, leader, rights, wake path, slices, network policies, remains.
///
/// Each line is ok, warn or FAIL, with what to do. The installation is found by itself; -n names its namespace where
/// there are several, or where you may not list Deployments of all namespaces.
#[derive(Args, Debug)]
#[command(after_help = CODES)]
pub struct Check {
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    output: Output,
}

const CODES: &str = "Exit codes: 0 fine or only warnings, 1 something fails, 2 wrong usage.";

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
        let lines = block_on(self.look())?;
        let of = |verdict| lines.iter().filter(|line| line.verdict == verdict).count();
        let report = Report {
            ok: of(Verdict::Fail) == 0,
            failures: of(Verdict::Fail),
            warnings: of(Verdict::Warn),
            checks: lines,
        };
        match self.output.is_text() {
            true => say(&report.text(Terminal::of_output()))?,
            false => self.output.data(&report)?,
        }
        match report.ok {
            true => Ok(()),
            false => Err(Failed::Reported),
        }
    }

    async fn look(&self) -> Result<Vec<Line>, Failed> {
        let cluster = self.access.connect().await?;
        let looked = look(&cluster, self.access.namespace.as_deref());
        Ok(while_waiting(|| "looking at the installation".to_owned(), looked).await)
    }
}

/// One question after another: each needs what the one before found.
async fn look(cluster: &Cluster, namespace: Option<&str>) -> Vec<Line> {
    let mut lines = Vec::new();
    let client = &cluster.client;
    match client.apiserver_version().await {
        Ok(version) => lines.push(Line::ok(
            "cluster",
            format!("Kubernetes {} answers", version.git_version),
        )),
        Err(error) => {
            lines.push(Line::fail(
                "cluster",
                format!("the API server does not answer: {error}"),
                "check the kubeconfig and its context: kubectl config current-context",
            ));
            return lines;
        }
    }
    let definition = definition::check(client).await;
    let is_defined = definition.verdict != Verdict::Fail;
    lines.push(definition);
    let installation = Installation::find(client, namespace, &mut lines).await;
    installation.check(client, &mut lines).await;
    permissions::check(client, &installation, &mut lines).await;
    if is_defined && let Some(fleet) = Fleet::read(client, &installation, &mut lines).await {
        fleet.check(&mut lines);
        network::check(client, &installation, &fleet, &mut lines).await;
        remains::check(&installation, &fleet, &mut lines);
    }
    lines
}

impl Report {
    fn text(&self, terminal: Terminal) -> String {
        let mut text = String::new();
        for line in &self.checks {
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
        let sum = match (self.failures, self.warnings) {
            (0, 0) => "all is well".to_owned(),
            (0, warnings) => format!("nothing fails, {warnings} to look at"),
            (failures, warnings) => format!("{failures} failed, {warnings} to look at"),
        };
        text + &format!("{sum}\n")
    }
}
