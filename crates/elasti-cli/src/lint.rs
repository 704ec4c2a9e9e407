//! `elasti lint`: problems of ElastiServices in files, and how to fix them.

mod document;
mod finding;
mod fit;
mod related;
mod series;
mod spec;
mod window;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use elasti_api::ElastiServiceSpec;
use serde::Serialize;

use crate::access::{Access, Cluster, block_on};
use crate::output::{Output, print};
use document::Document;
use elasti_runtime::exit::{CODES, Failed};
use finding::{Finding, Rule, Severity};
use related::Lookup;
use series::Series;
use spec::Gate;

/// Finds problems of ElastiServices in files: schema, queries, windows, and whether they fit the cluster.
///
/// Files may hold several YAML documents, and other objects beside ElastiServices: a Service or a Deployment in them
/// counts as if it were in the cluster. With a cluster (the kubeconfig's), Services, targets, autoscalers and other
/// ElastiServices are looked up there too. Each finding has a position and a fix.
#[derive(Args, Debug)]
#[command(after_help = CODES, after_long_help = LONG)]
pub struct Lint {
    /// Files and folders (*.yaml, *.yml, *.json below them); `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Do not use a cluster
    #[arg(long)]
    offline: bool,
    /// Ask this Prometheus whether the metrics of the queries exist
    #[arg(long, value_name = "URL")]
    prometheus: Option<String>,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    output: Output,
}

const LONG: &str = "\
Examples:
  elasti lint elastiservice.yaml
  elasti lint --offline manifests/
  helm template my-chart | elasti lint -
  elasti lint --prometheus http://localhost:9090 elastiservice.yaml
  elasti lint -o json . | jq '.findings[].message'

Exit codes: 0 ok or only warnings, 1 at least one error, 2 wrong usage.";

const RENDER: &str = "render it first: helm template CHART | elasti lint -";

/// Everything that was found, as data.
#[derive(Debug, Serialize)]
struct Report {
    findings: Vec<Finding>,
    /// How many ElastiServices were checked.
    services: usize,
    errors: usize,
    warnings: usize,
    /// Whether the cluster was asked: `asked`, `offline` or `unreachable`.
    cluster: &'static str,
    /// What was not checked, a sentence each.
    unread: Vec<String>,
}

/// A file and its content.
struct Source {
    name: String,
    text: String,
    /// Its folder was named, not itself.
    is_found: bool,
}

impl Lint {
    pub(crate) fn run(self) -> Result<(), Failed> {
        self.output.without_names()?;
        let sources = sources(&self.files)?;
        let report = block_on(self.check(&sources))?;
        match self.output.is_text() {
            true => print(&report.text())?,
            false => self.output.data(&report)?,
        }
        match report.errors {
            0 => Ok(()),
            _ => Err(Failed::Reported),
        }
    }

    async fn check(&self, sources: &[Source]) -> Result<Report, Failed> {
        let (cluster, state, mut unread) = self.cluster().await?;
        let namespace = match (&cluster, &self.access.namespace) {
            (Some(cluster), _) => cluster.namespace.clone(),
            (None, Some(namespace)) => namespace.clone(),
            (None, None) => "default".to_owned(),
        };
        let mut findings = Vec::new();
        let documents = parse_sources(sources, &mut findings, &mut unread);
        let lookup = Lookup {
            documents: &documents,
            cluster: cluster.as_ref(),
            namespace,
        };
        let gate = Gate::new().context("cannot load the schema of the CRD")?;
        let mut series = self.prometheus.as_deref().map(Series::new).transpose()?;
        let ours = documents.iter().filter(|one| spec::is_elasti_service(one));
        let mut services = 0;
        for document in ours {
            services += 1;
            let source = sources.iter().find(|source| source.name == document.file);
            let source = source
                .map(|source| source.text.as_str())
                .unwrap_or_default();
            let (found, spec) = one(&gate, &lookup, document, source, &mut unread).await;
            findings.extend(found);
            if let (Some(series), Some(spec)) = (&mut series, &spec) {
                findings.extend(series.check(document, spec).await?);
            }
        }
        if services == 0 && findings.is_empty() {
            return Err(Failed::Other(anyhow::anyhow!(
                "no ElastiService found in input"
            )));
        }
        findings.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        unread.dedup();
        let errors = findings.iter().filter(|one| one.is_error()).count();
        Ok(Report {
            services,
            errors,
            warnings: findings.len() - errors,
            findings,
            cluster: state,
            unread,
        })
    }

    /// The cluster, if it is wanted and there.
    async fn cluster(&self) -> Result<(Option<Cluster>, &'static str, Vec<String>), Failed> {
        if self.offline {
            return Ok((None, "offline", Vec::new()));
        }
        let unreachable = |why: String| {
            let sentence = format!("cluster not checked: {why}");
            Ok((None, "unreachable", vec![sentence]))
        };
        let cluster = match self.access.connect().await {
            Ok(cluster) => cluster,
            // A context or a file that was named and is wrong is not to be passed over.
            Err(Failed::Other(error)) => return unreachable(error.to_string()),
            Err(usage) => return Err(usage),
        };
        match related::answers(&cluster).await {
            Ok(()) => Ok((Some(cluster), "asked", Vec::new())),
            Err(error) => unreachable(format!("{error:#}")),
        }
    }
}

/// Everything about one ElastiService.
async fn one(
    gate: &Gate,
    lookup: &Lookup<'_>,
    document: &Document,
    source: &str,
    unread: &mut Vec<String>,
) -> (Vec<Finding>, Option<ElastiServiceSpec>) {
    let (mut findings, spec) = gate.check(document, source);
    let Some(spec) = spec else {
        return (findings, None);
    };
    let related = lookup.related(document, &spec).await;
    if let Some(live) = &related.live {
        findings.extend(gate.check_update(document, live));
    }
    findings.extend(fit::check(document, &spec, &related.around));
    unread.extend(related.unread);
    (findings, Some(spec))
}

/// The documents of all sources; what cannot be read is a finding.
fn parse_sources(
    sources: &[Source],
    findings: &mut Vec<Finding>,
    unread: &mut Vec<String>,
) -> Vec<Document> {
    let mut documents = Vec::new();
    for source in sources {
        match document::parse(&source.name, &source.text) {
            Ok(found) => documents.extend(found),
            Err(_) if source.is_found && source.text.contains("{{") => {
                unread.push(format!(
                    "{} is a template and was skipped; {RENDER}",
                    source.name
                ));
            }
            Err(wrong) => findings.push(Finding {
                severity: Severity::Error,
                rule: Rule::Yaml,
                file: source.name.clone(),
                line: wrong.position.map(|position| position.line),
                column: wrong.position.map(|position| position.column),
                object: String::new(),
                field: String::new(),
                message: format!("invalid YAML: {}", wrong.what),
                fix: match source.text.contains("{{") {
                    true => RENDER.to_owned(),
                    false => "correct the file".to_owned(),
                },
            }),
        }
    }
    documents
}

/// Reads what the arguments name.
fn sources(files: &[PathBuf]) -> Result<Vec<Source>, Failed> {
    let mut found = Vec::new();
    for path in files {
        if path == Path::new("-") {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.context("cannot read standard input")?;
            found.push(Source {
                name: "-".to_owned(),
                text,
                is_found: false,
            });
        } else if path.is_dir() {
            let mut below = Vec::new();
            walk(path, &mut below)?;
            for path in below {
                found.push(file(&path, true)?);
            }
        } else {
            found.push(file(path, false)?);
        }
    }
    Ok(found)
}

fn file(path: &Path, is_found: bool) -> Result<Source, Failed> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Source {
            name,
            text,
            is_found,
        }),
        Err(error) => Err(Failed::Usage(format!("{name}: {error}"))),
    }
}

/// The YAML and JSON files below a folder, in order; what starts with a dot is left alone.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failed> {
    let failed = |error: std::io::Error| Failed::Usage(format!("{}: {error}", folder.display()));
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        entries.push(entry.map_err(failed)?.path());
    }
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            walk(&path, found)?;
        } else if [".yaml", ".yml", ".json"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            found.push(path);
        }
    }
    Ok(())
}

impl Report {
    fn text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            text += &format!("{finding}\n");
        }
        for sentence in &self.unread {
            text += &format!("note: {sentence}\n");
        }
        let counted = |count: usize, what: &str| match count {
            1 => format!("1 {what}"),
            count => format!("{count} {what}s"),
        };
        text + &format!(
            "{}, {}, {}{}\n",
            counted(self.services, "ElastiService"),
            counted(self.errors, "error"),
            counted(self.warnings, "warning"),
            match self.cluster {
                "asked" => "",
                _ => " (without a cluster)",
            }
        )
    }
}
