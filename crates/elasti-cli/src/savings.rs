//! `elasti savings`: what sleep has saved, by service, namespace, label or month, for people and for spreadsheets.

mod csv;
mod group;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use elasti_api::ElastiService;
use elasti_dashboard::Price;
use elasti_view::view::View;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use serde::Serialize;

use crate::access::{Scope, block_on};
use crate::choice::bare;
use crate::fleet::Fleet;
use crate::output::{Format, Output, print};
use crate::span::{amount, short};
use crate::table::{Cell, Table};
use crate::terminal::{Terminal, Tone};
use elasti_runtime::exit::{self, Failed};
use group::{By, Group};

const HOUR_SECONDS: f64 = 3600.0;

/// Of both sums together.
const ROUNDING_SECONDS: f64 = 1.0;

/// Shows what sleep has saved: hours of pods, of requested CPU and memory, and of extended resources such as GPUs.
///
/// Each sleep counts with the requests that its pods had as it began, the current one included. With a price it shows
/// money too, for CPU and memory. Months are those of UTC, at most the last 12.
///
/// Example: elasti savings -A --by label=team --price 0.03,0.004,EUR
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment)]
pub struct Savings {
    /// Only these ElastiServices; default: all of the namespace
    #[arg(value_name = "NAME", conflicts_with = "selector")]
    names: Vec<String>,
    #[command(flatten)]
    scope: Scope,
    /// Only ElastiServices with these labels, for example team=shop
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// One row for each service, namespace, month, or value of a label: service, namespace, month or label=KEY
    #[arg(long, value_name = "BY", default_value = "service")]
    by: By,
    /// Price of a CPU core-hour and a GiB-hour of memory, to show savings in money: 0.03,0.004,EUR; and of an hour of
    /// extended resources: 0.03,0.004,EUR,nvidia.com/gpu=2.1
    #[arg(long, value_name = "CPU,GIB,CURRENCY")]
    price: Option<Price>,
    /// Output format
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "table"
    )]
    format: SavingsFormat,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SavingsFormat {
    /// For people
    Table,
    /// Data, documented in docs/cli.md
    Json,
    /// The same data as YAML
    Yaml,
    /// For spreadsheets
    Csv,
}

/// What is shown.
#[derive(Debug, Serialize)]
struct Report<'a> {
    items: &'a [Group],
    total: &'a Group,
    currency: Option<&'a str>,
}

impl Savings {
    pub(crate) fn run(self) -> Result<(), Failed> {
        block_on(self.show())
    }

    async fn show(&self) -> Result<(), Failed> {
        let cluster = self.scope.access.connect().await?;
        let all = self.scope.all_namespaces;
        let namespace = (!all).then_some(cluster.namespace.as_str());
        let mut fleet =
            Fleet::without_targets(&cluster, namespace, self.selector.as_deref()).await?;
        let names = self.names.iter().map(|name| bare(name));
        let names = names.collect::<Result<Vec<&str>, Failed>>()?;
        if !names.is_empty() {
            let named = |one: &ElastiService| names.contains(&one.name_any().as_str());
            fleet.services.retain(named);
        }
        let now = Timestamp::now();
        let services = { fleet.services.iter() }.map(|me| (me, fleet.view(me, now)));
        let mut services: Vec<(&ElastiService, View)> = services.collect();
        services.sort_by(|(_, a), (_, b)| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        self.print(&services, namespace)?;
        let missing = { names.iter() }.find(|name| !services.iter().any(|(_, v)| v.name == **name));
        match missing {
            // A name that is not there is an error, as in kubectl.
            Some(name) => Err(Failed::from(anyhow!(
                "elastiservices {name:?} not found; see: elasti list -A"
            ))),
            None => Ok(()),
        }
    }

    fn print(
        &self,
        services: &[(&ElastiService, View)],
        namespace: Option<&str>,
    ) -> Result<(), Failed> {
        let price = self.price.as_ref();
        let groups = group::groups(&self.by, services, price);
        let total = Group::total(&groups, services.len(), price);
        let data = |format| {
            let currency = price.map(Price::currency);
            let report = Report {
                items: &groups,
                total: &total,
                currency,
            };
            let output = Output {
                format: Some(format),
            };
            output.data(&report)
        };
        match self.by {
            By::Month => warn_of_months(services),
            By::Service | By::Namespace | By::Label(_) => warn_of_unrecorded(services),
        }
        match self.format {
            SavingsFormat::Json => data(Format::Json),
            SavingsFormat::Yaml => data(Format::Yaml),
            SavingsFormat::Csv => print(&csv::lines(&self.by, &groups, &total, price)),
            SavingsFormat::Table if services.is_empty() => {
                if self.names.is_empty() {
                    let place =
                        namespace.map_or_else(String::new, |n| format!(" in namespace {n}"));
                    eprintln!("No ElastiServices found{place}.");
                }
                Ok(())
            }
            SavingsFormat::Table => {
                let table = table(&self.by, &groups, &total, price);
                print(&table.lines(Terminal::of_output()))
            }
        }
    }
}

/// Sleep from before Elasti recorded what it saves is not in the sums: at least one pod does not run in each second.
fn warn_of_unrecorded(services: &[(&ElastiService, View)]) {
    let unrecorded = |view: &View| {
        let asleep = SignedDuration::from_secs(view.asleep.seconds).as_secs_f64();
        asleep > view.saved.pod_hours * HOUR_SECONDS + ROUNDING_SECONDS
    };
    let count = services.iter().filter(|(_, v)| unrecorded(v)).count();
    if count > 0 {
        let all = services.len();
        eprintln!(
            "elasti: {count} of {all} services slept before Elasti recorded savings; that sleep is not counted"
        );
    }
}

/// Earlier sleep than the calendar knows is in no month.
fn warn_of_months(services: &[(&ElastiService, View)]) {
    let incomplete = |view: &View| match &view.saved_calendar {
        Some(calendar) => calendar.since.is_some(),
        None => true,
    };
    let count = services.iter().filter(|(_, v)| incomplete(v)).count();
    if count == 0 {
        return;
    }
    let all = services.len();
    let calendars = { services.iter() }.filter_map(|(_, v)| v.saved_calendar.as_ref());
    let since = calendars.filter_map(|calendar| calendar.since).min();
    let from = since.map_or_else(String::new, |at| {
        let day = at.strftime("%Y-%m-%d");
        format!(" (the first since {day})")
    });
    eprintln!(
        "elasti: {count} of {all} services slept before Elasti counted by month; that sleep is in no month{from}"
    );
}

/// The groups as rows, and their sum as the last.
fn table(by: &By, groups: &[Group], total: &Group, price: Option<&Price>) -> Table {
    let resources: Vec<&String> = total.saved.resource_hours.keys().collect();
    let mut headings = by.headings();
    headings.extend(["ASLEEP", "POD-H", "CPU-H", "GIB-H"].map(str::to_owned));
    headings.extend(resources.iter().map(|name| format!("{name}-H")));
    headings.extend(price.map(|price| price.currency().to_owned()));
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new(&headings);
    let amounts = |group: &Group, tone: Tone| {
        let saved = &group.saved;
        let of = |resource: &&String| saved.resource_hours.get(*resource).copied();
        let more = resources.iter().map(|one| amount(of(one).unwrap_or(0.0)));
        let asleep = short(SignedDuration::from_secs(group.asleep_seconds));
        let hours = [saved.pod_hours, saved.cpu_hours, saved.gib_hours].map(amount);
        let texts = [asleep].into_iter().chain(hours).chain(more);
        let texts = texts.chain(group.cost.map(|cost| format!("{cost:.2}")));
        texts
            .map(|text| Cell::toned(text, tone))
            .collect::<Vec<_>>()
    };
    for group in groups {
        let mut row: Vec<Cell> = { by.cells(group).into_iter() }.map(Cell::from).collect();
        row.extend(amounts(group, Tone::Plain));
        table.row(row);
    }
    if groups.len() > 1 {
        let cells = { by.total_cells(total).into_iter() };
        let mut row: Vec<Cell> = cells.map(|text| Cell::toned(text, Tone::Strong)).collect();
        row.extend(amounts(total, Tone::Strong));
        table.row(row);
    }
    table
}
