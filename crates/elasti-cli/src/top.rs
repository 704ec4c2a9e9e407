//! `elasti top`: all services live, problems first, with what sleep has saved.
//! Watches bring every change; only held requests are polled.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use elasti_api::ElastiService;
use elasti_runtime::signals::EndSignals;
use elasti_view::held::HeldState;
use elasti_view::view::{Lookup, Totals, View};
use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::access::{Cluster, Scope, block_on};
use crate::fleet::{Fleet, Kind, key, workload};
use crate::list::{Order, phase, table};
use crate::output::{Format, Output, print};
use crate::refusal::{self, Refusal};
use crate::span::amount;
use crate::terminal::{Terminal, Tone};
use elasti_dashboard::held::{self, Proxy};
use elasti_runtime::exit::{self, Failed};

/// Watches end by themselves before the client gives them up.
const WATCH_SECONDS: u32 = 15;
/// How often the screen is drawn at most; a thousand services may change at once.
const DRAW_INTERVAL: Duration = Duration::from_millis(500);
/// Lines around the rows: totals, headings, and what did not fit.
const FRAME: usize = 4;

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_BELOW: &str = "\x1b[J";
const CLEAR_RIGHT: &str = "\x1b[K";

/// Shows all services live, problems first; Ctrl-C ends it.
///
/// On a terminal the screen is updated with every change. Otherwise it prints the services once, and then a line for
/// each change of a phase or reason. With --once it prints once and exits.
///
/// Example: elasti top -A
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment)]
pub struct Top {
    #[command(flatten)]
    scope: Scope,
    /// Print once and exit
    #[arg(long)]
    once: bool,
    /// Sort order
    #[arg(long, value_name = "BY", default_value = "urgency")]
    sort: Order,
    #[command(flatten)]
    output: Output,
}

/// One change in the cluster.
enum Event {
    Service(Box<watcher::Event<ElastiService>>),
    Target(Kind, Box<watcher::Event<DynamicObject>>),
}

type Feed = SelectAll<BoxStream<'static, Result<Event, Refusal>>>;

impl Top {
    pub(crate) fn run(self) -> Result<(), Failed> {
        block_on(self.show())
    }

    async fn show(&self) -> Result<(), Failed> {
        let cluster = self.scope.access.connect().await?;
        let namespace = self.namespace(&cluster);
        if self.once || !self.output.is_text() {
            let mut fleet = Fleet::load(&cluster, namespace, None).await?;
            fleet.ask_resolvers(&cluster).await;
            return self.print_once(&fleet);
        }
        let mut signals = EndSignals::listen().context("cannot listen for signals")?;
        let is_screen = Terminal::of_output().live;
        if is_screen {
            print(ENTER)?;
        }
        let shown = async {
            match is_screen {
                true => self.redraw(&cluster).await,
                false => self.print_changes(&cluster).await,
            }
        };
        // Ctrl-C is not an error here.
        let ended = tokio::select! {
            ended = shown => ended,
            () = signals.next() => Ok(()),
        };
        if is_screen {
            print(LEAVE)?;
        }
        ended
    }

    fn namespace<'a>(&self, cluster: &'a Cluster) -> Option<&'a str> {
        (!self.scope.all_namespaces).then_some(cluster.namespace.as_str())
    }

    fn views(&self, fleet: &Fleet, now: Timestamp) -> Vec<View> {
        let mut views = fleet.views(now);
        self.sort.sort(&mut views);
        views
    }

    fn print_once(&self, fleet: &Fleet) -> Result<(), Failed> {
        let now = Timestamp::now();
        let views = self.views(fleet, now);
        match self.output.format {
            Some(Format::Json | Format::Yaml) => self.output.data(&Picture {
                totals: Totals::from_views(&views),
                items: &views,
            }),
            _ => print(&self.picture(&views, now, Terminal::of_output(), None)),
        }
    }

    /// Totals, and as many rows as there is room for.
    fn picture(
        &self,
        views: &[View],
        now: Timestamp,
        terminal: Terminal,
        room: Option<usize>,
    ) -> String {
        let shown = views.len().min(room.unwrap_or(views.len()));
        let rows = views.get(..shown).unwrap_or(views);
        let mut text = String::new();
        let line = headline(&Totals::from_views(views));
        let line: String = line
            .chars()
            .take(terminal.columns.unwrap_or(usize::MAX))
            .collect();
        let _ = writeln!(text, "{}\n", terminal.paint(Tone::Strong, &line));
        let wide = self.output.is_wide();
        text.push_str(&table(rows, self.scope.all_namespaces, wide, now).lines(terminal));
        if shown < views.len() {
            let _ = writeln!(text, "… and {} more; see: elasti list", views.len() - shown);
        }
        text
    }

    /// The screen, until Ctrl-C.
    async fn redraw(&self, cluster: &Cluster) -> Result<(), Failed> {
        let mut watched = Watched::start(cluster, self.namespace(cluster)).await?;
        let mut ticks = interval(DRAW_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut drawn = String::new();
        let (ask, asked) = watch::channel(watched.fleet.ask());
        let (held_sender, held) = watch::channel(HeldState::Unasked);
        let held_source = Proxy::new(cluster.client.clone());
        let on_change = |now: &HeldState| drop(held_sender.send_replace(now.clone()));
        let mut polling = pin!(held::poll(
            held_source,
            || *asked.borrow(),
            || ready(()),
            on_change
        ));
        loop {
            tokio::select! {
                () = &mut polling => {}
                _ = ticks.tick() => {
                    watched.fleet.held = held.borrow().clone();
                    ask.send_replace(watched.fleet.ask());
                    let now = Timestamp::now();
                    let terminal = Terminal::of_output();
                    let room = terminal.rows.saturating_sub(FRAME);
                    let views = self.views(&watched.fleet, now);
                    let picture = self.picture(&views, now, terminal, Some(room));
                    if picture != drawn {
                        let lines = picture.replace('\n', &format!("{CLEAR_RIGHT}\n"));
                        print(&format!("{HOME}{}{CLEAR_BELOW}", lines.trim_end_matches('\n')))?;
                        drawn = picture;
                    }
                }
                ended = watched.next() => ended?,
            }
        }
    }

    /// Without a terminal: the services, and then each change.
    async fn print_changes(&self, cluster: &Cluster) -> Result<(), Failed> {
        let mut watched = Watched::start(cluster, self.namespace(cluster)).await?;
        watched.fleet.ask_resolvers(cluster).await;
        self.print_once(&watched.fleet)?;
        let mut previous = states(&watched.fleet.views(Timestamp::now()));
        loop {
            watched.next().await?;
            let now = Timestamp::now();
            let next = states(&watched.fleet.views(now));
            let mut lines = String::new();
            for (name, state) in &next {
                if previous.get(name) != Some(state) {
                    let at = now.strftime("%H:%M:%S");
                    let _ = writeln!(lines, "{at}  {name}  {state}");
                }
            }
            for name in previous.keys().filter(|name| !next.contains_key(*name)) {
                let _ = writeln!(lines, "{}  {name}  deleted", now.strftime("%H:%M:%S"));
            }
            if !lines.is_empty() {
                print(&lines)?;
            }
            previous = next;
        }
    }
}

/// All of it as data.
#[derive(serde::Serialize)]
struct Picture<'a> {
    totals: Totals,
    items: &'a [View],
}

/// Phase and reason of each.
fn states(views: &[View]) -> BTreeMap<String, String> {
    let state = |view: &View| {
        let sign = if view.trouble { "!" } else { "" };
        format!("{}  {sign}{}", phase(view), view.reason)
    };
    let named = views.iter();
    named
        .map(|view| (format!("{}/{}", view.namespace, view.name), state(view)))
        .collect()
}

fn headline(totals: &Totals) -> String {
    let Totals {
        services,
        asleep,
        waking,
        trouble,
        held,
        held_live,
        saved,
    } = totals;
    let source = if *held_live { "" } else { " (last reported)" };
    format!(
        "{services} services: {asleep} asleep, {waking} waking, {trouble} with problems; {held} held{source}; saved {} CPU-h, {} GiB-h",
        amount(saved.cpu_hours),
        amount(saved.gib_hours),
    )
}

/// A fleet that watches keep up to date.
struct Watched {
    cluster: Cluster,
    namespace: Option<String>,
    fleet: Fleet,
    feed: Feed,
    followed: BTreeSet<Kind>,
    /// What a list that is under way has shown of each kind; the ElastiServices are the kind `None`.
    listing: BTreeMap<Option<Kind>, BTreeSet<(String, String)>>,
}

impl Watched {
    async fn start(cluster: &Cluster, namespace: Option<&str>) -> Result<Self, Failed> {
        let fleet = Fleet::load(cluster, namespace, None).await?;
        let mut watched = Self {
            cluster: cluster.clone(),
            namespace: namespace.map(str::to_owned),
            fleet,
            feed: SelectAll::new(),
            followed: BTreeSet::new(),
            listing: BTreeMap::new(),
        };
        watched.follow_services();
        watched.follow_targets().await;
        Ok(watched)
    }

    fn follow_services(&mut self) {
        let client = self.cluster.client.clone();
        let services: Api<ElastiService> = match &self.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        let namespace = self.namespace.clone();
        let events = watcher(services, watcher::Config::default().timeout(WATCH_SECONDS));
        let events = events
            .default_backoff()
            .map_ok(|event| Event::Service(Box::new(event)));
        let events = events.filter_map(move |event| {
            let kept = match event {
                Ok(event) => Some(Ok(event)),
                Err(error) => lost_permission(&error, namespace.as_deref()).map(Err),
            };
            async move { kept }
        });
        self.feed.push(events.boxed());
    }

    /// Follows each kind of target that is named and may be seen. What cannot be watched stays as it was read.
    async fn follow_targets(&mut self) {
        for kind in self.fleet.kinds() {
            let unseen = matches!(self.fleet.targets.get(&kind), Some(Lookup::Unknown));
            if unseen || self.followed.contains(&kind) {
                continue;
            }
            let Ok(Some(resource)) = kind.resource(&self.cluster.client).await else {
                continue;
            };
            self.followed.insert(kind.clone());
            let client = self.cluster.client.clone();
            let targets: Api<DynamicObject> = match &self.namespace {
                Some(namespace) => Api::namespaced_with(client, namespace, &resource),
                None => Api::all_with(client, &resource),
            };
            let events = watcher(targets, watcher::Config::default().timeout(WATCH_SECONDS));
            let events = events.default_backoff().filter_map(move |event| {
                let event = event
                    .ok()
                    .map(|event| Ok(Event::Target(kind.clone(), Box::new(event))));
                async move { event }
            });
            self.feed.push(events.boxed());
        }
    }

    /// Takes in the next change.
    async fn next(&mut self) -> Result<(), Failed> {
        match self.feed.next().await {
            Some(Ok(Event::Service(event))) => {
                self.take_service(*event);
                self.follow_targets().await;
                Ok(())
            }
            Some(Ok(Event::Target(kind, event))) => {
                self.take_target(kind, *event);
                Ok(())
            }
            Some(Err(refusal)) => Err(refusal.into()),
            // A watcher never ends by itself.
            None => std::future::pending().await,
        }
    }

    fn take_service(&mut self, event: watcher::Event<ElastiService>) {
        let key = |one: &ElastiService| (one.namespace().unwrap_or_default(), one.name_any());
        let listing = self.listing.entry(None).or_default();
        let services = &mut self.fleet.services;
        match event {
            watcher::Event::Init => listing.clear(),
            watcher::Event::InitApply(me) => {
                listing.insert(key(&me));
                put(services, me);
            }
            // What a new list does not show was deleted while the watch was down.
            watcher::Event::InitDone => services.retain(|one| listing.contains(&key(one))),
            watcher::Event::Apply(me) => put(services, me),
            watcher::Event::Delete(me) => services.retain(|one| key(one) != key(&me)),
        }
    }

    fn take_target(&mut self, kind: Kind, event: watcher::Event<DynamicObject>) {
        let listing = self.listing.entry(Some(kind.clone())).or_default();
        let all = self.fleet.targets.entry(kind).or_insert(Lookup::Missing);
        if !matches!(all, Lookup::Found(_)) {
            *all = Lookup::Found(BTreeMap::new());
        }
        let Lookup::Found(all) = all else { return };
        match event {
            watcher::Event::Init => listing.clear(),
            watcher::Event::InitApply(object) => {
                listing.insert(key(&object));
                all.insert(key(&object), workload(&object));
            }
            watcher::Event::InitDone => all.retain(|one, _| listing.contains(one)),
            watcher::Event::Apply(object) => {
                all.insert(key(&object), workload(&object));
            }
            watcher::Event::Delete(object) => {
                all.remove(&key(&object));
            }
        }
    }
}

fn put(services: &mut Vec<ElastiService>, me: ElastiService) {
    let is = |one: &&mut ElastiService| {
        one.namespace() == me.namespace() && one.name_any() == me.name_any()
    };
    match services.iter_mut().find(is) {
        Some(known) => *known = me,
        None => services.push(me),
    }
}

/// Only a missing permission is fatal: the watcher retries everything else.
fn lost_permission(error: &watcher::Error, namespace: Option<&str>) -> Option<Refusal> {
    refusal::of_watch(error, namespace).filter(|one| matches!(one, Refusal::Forbidden(_)))
}
