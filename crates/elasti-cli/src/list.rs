//! `elasti list`: every service with its phase, its pods, when it sleeps next and why.

use std::cmp::Reverse;

use clap::{Args, ValueEnum};
use elasti_api::Phase;
use elasti_view::view::View;
use jiff::Timestamp;
use serde::Serialize;

use crate::access::{Scope, block_on};
use crate::fleet::Fleet;
use crate::output::{Format, Output, print, resource_name};
use crate::span::{age, amount, millis, short};
use crate::table::{Cell, Table};
use crate::terminal::{Terminal, Tone};
use elasti_runtime::exit::{self, Failed};

/// Lists services: phase, pods, held requests, when each sleeps next, and why.
///
/// READY is ready pods out of desired pods; FOR is the time in this phase; ASLEEP is the share of its lifetime that a
/// service has slept; NEXT is what happens next without traffic. A reason with a `!` is a problem: `elasti why NAME`
/// says how to fix it.
///
/// Example: elasti list -A --sort asleep
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment, visible_alias = "ls")]
pub struct List {
    #[command(flatten)]
    scope: Scope,
    /// Only ElastiServices with these labels, for example team=shop
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Sort order
    #[arg(long, value_name = "BY", default_value = "name")]
    sort: Order,
    #[command(flatten)]
    output: Output,
}

/// Sort order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// By namespace and name
    #[default]
    Name,
    /// Problems, then transitioning services, then the rest
    Urgency,
    /// Longest asleep first
    Asleep,
    /// Most CPU-hours saved first, then pod-hours
    Saved,
    /// Most held requests first
    Held,
    /// Last woken first
    LastWake,
}

impl Order {
    /// Sorts; within one rank the order by name stays.
    pub(crate) fn sort(self, views: &mut [View]) {
        let permille = |share: f64| Reverse((share * 1000.0) as i64);
        match self {
            Self::Name => {}
            Self::Urgency => views.sort_by_key(urgency),
            Self::Asleep => views.sort_by_key(|view| permille(view.asleep.share)),
            Self::Saved => views.sort_by_key(|view| {
                (
                    permille(view.saved.cpu_hours),
                    permille(view.saved.pod_hours),
                )
            }),
            Self::Held => views.sort_by_key(|view| Reverse(view.held)),
            Self::LastWake => {
                views.sort_by_key(|view| Reverse(view.last_wake.as_ref().map(|wake| wake.at)));
            }
        }
    }
}

fn urgency(view: &View) -> u8 {
    match (view.trouble, view.phase) {
        (true, _) => 0,
        (false, Some(Phase::Waking)) => 1,
        (false, Some(Phase::Restoring | Phase::Redirecting | Phase::Draining)) => 2,
        (false, Some(Phase::Serving) | None) => 3,
        (false, Some(Phase::Asleep)) => 4,
    }
}

/// All of them, as data.
#[derive(Debug, Serialize)]
struct Views<'a> {
    items: &'a [View],
}

impl List {
    pub(crate) fn run(self) -> Result<(), Failed> {
        block_on(self.list())
    }

    async fn list(&self) -> Result<(), Failed> {
        let cluster = self.scope.access.connect().await?;
        let all = self.scope.all_namespaces;
        let namespace = (!all).then_some(cluster.namespace.as_str());
        let fleet = Fleet::load(&cluster, namespace, self.selector.as_deref()).await?;
        let now = Timestamp::now();
        let mut views = fleet.views(now);
        self.sort.sort(&mut views);
        for unseen in &fleet.unseen {
            eprintln!("elasti: targets not shown: {unseen}");
        }
        match self.output.format {
            Some(Format::Json | Format::Yaml) => self.output.data(&Views { items: &views }),
            Some(Format::Name) => {
                let lines = views.iter().map(|view| resource_name(&view.name) + "\n");
                print(&lines.collect::<String>())
            }
            None | Some(Format::Wide) if views.is_empty() => {
                let place =
                    namespace.map_or_else(String::new, |one| format!(" in namespace {one}"));
                eprintln!("No ElastiServices found{place}.");
                Ok(())
            }
            None | Some(Format::Wide) => {
                let table = table(&views, all, self.output.is_wide(), now);
                let mut terminal = Terminal::of_output();
                // Wide means: everything, whatever the terminal.
                terminal.columns = terminal.columns.filter(|_| !self.output.is_wide());
                print(&table.lines(terminal))
            }
        }
    }
}

/// The services as rows.
pub(crate) fn table(views: &[View], namespaces: bool, wide: bool, now: Timestamp) -> Table {
    let mut headings = Vec::new();
    if namespaces {
        headings.push("NAMESPACE");
    }
    headings.extend([
        "NAME", "PHASE", "READY", "FOR", "HELD", "ASLEEP", "NEXT", "REASON",
    ]);
    if wide {
        headings.extend([
            "SERVICE",
            "TARGET",
            "MODE",
            "LAST-WAKE",
            "COLD-START",
            "POD-H",
            "CPU-H",
            "GIB-H",
            "AGE",
        ]);
    }
    let mut table = Table::new(&headings);
    for view in views {
        let mut row: Vec<Cell> = Vec::new();
        if namespaces {
            row.push(view.namespace.clone().into());
        }
        row.extend(narrow(view, now));
        if wide {
            row.extend(more(view, now));
        }
        table.row(row);
    }
    table
}

fn narrow(view: &View, now: Timestamp) -> [Cell; 8] {
    let count = |number: Option<u32>| number.map_or_else(|| "?".to_owned(), |n| n.to_string());
    [
        view.name.clone().into(),
        Cell::toned(phase(view), tone(view)),
        format!("{}/{}", count(view.ready), count(view.replicas)).into(),
        age(view.since, now).into(),
        view.held.to_string().into(),
        format!("{:.0}%", view.asleep.share * 100.0).into(),
        next(view, now).into(),
        reason(view),
    ]
}

fn more(view: &View, now: Timestamp) -> [Cell; 9] {
    let dash = || "-".to_owned();
    let wake = view.last_wake.as_ref();
    let target = &view.target;
    [
        view.service.clone().into(),
        format!("{}/{}", target.kind, target.name).into(),
        view.mode
            .map_or_else(dash, |mode| format!("{mode:?}").to_lowercase())
            .into(),
        age(wake.map(|wake| wake.at), now).into(),
        wake.and_then(|wake| wake.cold_start_ms)
            .map_or_else(dash, millis)
            .into(),
        amount(view.saved.pod_hours).into(),
        amount(view.saved.cpu_hours).into(),
        amount(view.saved.gib_hours).into(),
        age(view.created, now).into(),
    ]
}

pub(crate) fn phase(view: &View) -> String {
    view.phase
        .map_or_else(|| "-".to_owned(), |phase| format!("{phase:?}"))
}

pub(crate) fn tone(view: &View) -> Tone {
    match view.phase {
        Some(Phase::Asleep) => Tone::Calm,
        Some(Phase::Waking) => Tone::Alert,
        _ => Tone::Plain,
    }
}

/// A problem is marked by a sign, for output without colour.
fn reason(view: &View) -> Cell {
    match view.trouble {
        true => Cell::toned(format!("!{}", view.reason), Tone::Alert),
        false => view.reason.clone().into(),
    }
}

/// What happens next without traffic.
fn next(view: &View, now: Timestamp) -> String {
    let within = |at: Timestamp| short(at.duration_since(now));
    match (view.sleeps_at, view.wakes_at) {
        (Some(at), _) if at <= now => "sleep".to_owned(),
        (Some(at), _) => format!("sleep {}", within(at)),
        (None, Some(at)) => format!("wake {}", within(at)),
        (None, None) => "-".to_owned(),
    }
}
