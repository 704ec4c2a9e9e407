//! `elasti list`: every service with its phase, its pods, when it sleeps next and why.

mod changes;

use std::cmp::Reverse;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use elasti_api::Phase;
use elasti_view::held::HeldState;
use elasti_view::view::View;
use jiff::Timestamp;
use serde::Serialize;

use crate::access::{Scope, block_on};
use crate::choice::bare;
use crate::fleet::Fleet;
use crate::output::{Format, Output, print, resource_name};
use crate::span::{age, amount, millis, short};
use crate::table::{Cell, Table};
use crate::terminal::{Terminal, Tone};
use elasti_runtime::exit::{self, Failed};

/// Lists services: phase, pods, held requests, when each sleeps next, and why.
///
/// READY is ready pods out of desired pods; FOR is the time in this phase; ASLEEP is the share of its lifetime that a
/// service has slept; NEXT is what happens next without traffic. HELD with a `*` is what the operator last reported,
/// not what the resolvers hold now. A reason with a `!` is a problem: `elasti why NAME` says how to fix it.
///
/// Example: elasti list -A --sort asleep
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment, visible_alias = "ls")]
pub struct List {
    /// Only these ElastiServices; default: all of the namespace
    #[arg(value_name = "NAME", conflicts_with = "selector")]
    names: Vec<String>,
    #[command(flatten)]
    scope: Scope,
    /// Only ElastiServices with these labels, for example team=shop
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Sort order
    #[arg(long, value_name = "BY", default_value = "name")]
    sort: Order,
    /// After the list, print a row (or a document) for each change; Ctrl-C ends it
    #[arg(short, long)]
    watch: bool,
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
    /// The one after it, and after the last the first.
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Name => Self::Urgency,
            Self::Urgency => Self::Asleep,
            Self::Asleep => Self::Saved,
            Self::Saved => Self::Held,
            Self::Held => Self::LastWake,
            Self::LastWake => Self::Name,
        }
    }

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
        if self.watch {
            return self.follow(&cluster, namespace).await;
        }
        let mut fleet = Fleet::load(&cluster, namespace, self.selector.as_deref()).await?;
        fleet.ask_resolvers(&cluster).await;
        self.print(&fleet, namespace)?;
        self.all_found(&fleet)
    }

    fn views(&self, fleet: &Fleet, now: Timestamp) -> Vec<View> {
        let mut views = fleet.views(now);
        if !self.names.is_empty() {
            views.retain(|view| self.names.iter().any(|name| is_named(name, view)));
        }
        self.sort.sort(&mut views);
        views
    }

    /// A name that is not there is an error, as in kubectl.
    fn all_found(&self, fleet: &Fleet) -> Result<(), Failed> {
        let views = self.views(fleet, Timestamp::now());
        for name in &self.names {
            let bare = bare(name)?;
            if !views.iter().any(|view| view.name == bare) {
                return Err(Failed::from(anyhow!(
                    "elastiservices {bare:?} not found; see: elasti list -A"
                )));
            }
        }
        Ok(())
    }

    fn print(&self, fleet: &Fleet, namespace: Option<&str>) -> Result<(), Failed> {
        let now = Timestamp::now();
        let views = self.views(fleet, now);
        self.say_what_is_not_shown(fleet);
        match self.output.format {
            Some(Format::Json | Format::Yaml) => self.output.data(&Views { items: &views }),
            Some(Format::Name) => {
                let lines = views.iter().map(|view| resource_name(&view.name) + "\n");
                print(&lines.collect::<String>())
            }
            None | Some(Format::Wide) if views.is_empty() && !self.names.is_empty() => Ok(()),
            None | Some(Format::Wide) if views.is_empty() => {
                self.say_that_none_is_there(namespace);
                Ok(())
            }
            None | Some(Format::Wide) => {
                let all = self.scope.all_namespaces;
                let table = table(&views, all, self.output.is_wide(), now);
                print(&table.lines(self.terminal()))
            }
        }
    }

    /// Wide means: everything, whatever the terminal.
    fn terminal(&self) -> Terminal {
        let mut terminal = Terminal::of_output();
        terminal.columns = terminal.columns.filter(|_| !self.output.is_wide());
        terminal
    }

    fn say_what_is_not_shown(&self, fleet: &Fleet) {
        for unseen in &fleet.unseen {
            eprintln!("elasti: targets not shown: {unseen}");
        }
        if matches!(fleet.held, HeldState::Told { .. }) && self.output.is_text() {
            eprintln!(
                "elasti: HELD with * is the last reported value; the resolvers could not be asked"
            );
        }
    }

    fn say_that_none_is_there(&self, namespace: Option<&str>) {
        if self.output.is_text() && self.names.is_empty() {
            let place = namespace.map_or_else(String::new, |one| format!(" in namespace {one}"));
            eprintln!("No ElastiServices found{place}.");
        }
    }
}

fn is_named(name: &str, view: &View) -> bool {
    bare(name).is_ok_and(|name| name == view.name)
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
        held(view).into(),
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

/// A number that the resolvers have not told just now is marked.
fn held(view: &View) -> String {
    let mark = if view.held_live { "" } else { "*" };
    format!("{}{mark}", view.held)
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
