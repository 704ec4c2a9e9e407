//! `elasti top`: all services live, problems first, with what sleep has saved.
//! Watches bring every change; only held requests are polled.

mod explained;
mod keys;
mod screen;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use elasti_runtime::signals::EndSignals;
use elasti_view::held::HeldState;
use elasti_view::view::{Totals, View};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::access::{Cluster, Scope, block_on};
use crate::fleet::Fleet;
use crate::list::{Order, phase, table};
use crate::output::{Format, Output, print};
use crate::request;
use crate::span::amount;
use crate::terminal::{Terminal, Tone};
use crate::watched::Watched;
use elasti_dashboard::held::{self, Proxy};
use elasti_runtime::exit::{self, Failed};
use explained::Explained;
use keys::Keys;
use screen::{Action, Screen};

/// How often the screen is drawn at most; a thousand services may change at once.
const DRAW_INTERVAL: Duration = Duration::from_millis(500);
/// Lines around the rows: totals, headings, and what did not fit.
const FRAME: usize = 4;
/// Columns of the mark before the selected row.
const MARK: usize = 2;

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_BELOW: &str = "\x1b[J";
const CLEAR_RIGHT: &str = "\x1b[K";

/// Shows all services live, problems first; q or Ctrl-C ends it.
///
/// On a terminal the screen is updated with every change. Keys: q quits, s changes the order, / filters by namespace,
/// name, phase or reason, the arrows select a service, Enter shows why it is so, w wakes it, z puts it to sleep.
/// Without a terminal it prints the services once, and then a line for each change of a phase or reason. With --once it
/// prints once and exits.
///
/// Example: elasti top -A
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment)]
pub struct Top {
    #[command(flatten)]
    scope: Scope,
    /// Only ElastiServices with these labels, for example team=shop
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// Print once and exit
    #[arg(long)]
    once: bool,
    /// Sort order
    #[arg(long, value_name = "BY", default_value = "urgency")]
    sort: Order,
    #[command(flatten)]
    output: Output,
}

impl Top {
    pub(crate) fn run(self) -> Result<(), Failed> {
        block_on(self.show())
    }

    async fn show(&self) -> Result<(), Failed> {
        let cluster = self.scope.access.connect().await?;
        let namespace = self.namespace(&cluster);
        if self.once || !self.output.is_text() {
            let mut fleet = Fleet::load(&cluster, namespace, self.selector.as_deref()).await?;
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
            _ => print(&self.picture(&views, now, Terminal::of_output())),
        }
    }

    /// Totals and rows.
    fn picture(&self, views: &[View], now: Timestamp, terminal: Terminal) -> String {
        let mut text = String::new();
        let line = headline(&Totals::from_views(views));
        let line: String = line
            .chars()
            .take(terminal.columns.unwrap_or(usize::MAX))
            .collect();
        let _ = writeln!(text, "{}\n", terminal.paint(Tone::Strong, &line));
        let wide = self.output.is_wide();
        text.push_str(&table(views, self.scope.all_namespaces, wide, now).lines(terminal));
        text
    }

    /// The screen, until q or Ctrl-C.
    async fn redraw(&self, cluster: &Cluster) -> Result<(), Failed> {
        let labels = self.selector.as_deref();
        let mut watched = Watched::start(cluster, self.namespace(cluster), labels).await?;
        let mut ticks = interval(DRAW_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut drawn = String::new();
        let mut keys = Keys::listen();
        let mut screen = Screen::new(self.sort);
        let mut why = Explained::default();
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
                key = keys.next() => {
                    let views = screen.chosen(watched.fleet.views(Timestamp::now()));
                    let action = screen.press(key, &views);
                    if !act(cluster, &mut screen, &views, action).await {
                        return Ok(());
                    }
                    // The key is answered now, not with the next tick.
                    ticks.reset_immediately();
                }
                _ = ticks.tick() => {
                    watched.fleet.held = held.borrow().clone();
                    ask.send_replace(watched.fleet.ask());
                    why.refresh(cluster, screen.explained.as_ref(), &watched.fleet);
                    let picture = self.draw(&watched, &mut screen, &mut why);
                    if picture != drawn {
                        let lines = picture.replace('\n', &format!("{CLEAR_RIGHT}\n"));
                        print(&format!("{HOME}{}{CLEAR_BELOW}", lines.trim_end_matches('\n')))?;
                        drawn = picture;
                    }
                }
                () = why.changed() => ticks.reset_immediately(),
                ended = watched.next() => ended?,
            }
        }
    }

    /// The services, or why one of them is as it is; and below it the keys.
    fn draw(&self, watched: &Watched, screen: &mut Screen, why: &mut Explained) -> String {
        let terminal = Terminal::of_output();
        let room = terminal.rows.saturating_sub(FRAME);
        let now = Timestamp::now();
        let mut text: String = match &screen.explained {
            Some(one) => {
                let text = why.text(one, now, terminal);
                let shown = text.lines().take(room);
                shown.map(|line| format!("{line}\n")).collect()
            }
            None => {
                let views = screen.chosen(watched.fleet.views(now));
                screen.show(&views);
                self.rows(&views, now, terminal, room, screen)
            }
        };
        let line = match screen.message.is_empty() {
            true => screen.footer(),
            false => format!("{}  ({})", screen.message, screen.footer()),
        };
        let width = terminal.columns.unwrap_or(usize::MAX);
        let line: String = line.chars().take(width).collect();
        text.push_str(&line);
        text
    }

    /// Totals and rows, with the selected one marked and in sight.
    fn rows(
        &self,
        views: &[View],
        now: Timestamp,
        terminal: Terminal,
        room: usize,
        screen: &Screen,
    ) -> String {
        let narrower = Terminal {
            columns: terminal.columns.map(|columns| columns.saturating_sub(MARK)),
            ..terminal
        };
        let first = screen.first(views, room);
        let shown = views.get(first..).unwrap_or_default();
        let shown = shown.get(..room.min(shown.len())).unwrap_or_default();
        let line = headline(&Totals::from_views(views));
        let line: String = { line.chars() }
            .take(terminal.columns.unwrap_or(usize::MAX))
            .collect();
        let mut text = format!("{}\n\n", terminal.paint(Tone::Strong, &line));
        let table = table(shown, self.scope.all_namespaces, self.output.is_wide(), now);
        let selected = screen.selected(views).saturating_sub(first);
        for (index, line) in table.lines(narrower).lines().enumerate() {
            let mark = if index == selected + 1 { "> " } else { "  " };
            let _ = writeln!(text, "{mark}{line}");
        }
        text
    }

    /// Without a terminal: the services, and then each change.
    async fn print_changes(&self, cluster: &Cluster) -> Result<(), Failed> {
        let mut watched =
            Watched::start(cluster, self.namespace(cluster), self.selector.as_deref()).await?;
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

/// Does what a key asked for; `false` ends the screen.
async fn act(cluster: &Cluster, screen: &mut Screen, views: &[View], action: Action) -> bool {
    let (one, wake) = match action {
        Action::Quit => return false,
        Action::Nothing | Action::Explain(_) => return true,
        Action::Wake(one) => (one, true),
        Action::Sleep(one) => (one, false),
    };
    let is = |view: &&View| view.namespace == one.namespace && view.name == one.name;
    if let Some(view) = views.iter().find(is) {
        screen.message = request::send(cluster, &one, view, wake).await;
    }
    true
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
