//! `elasti list --watch`: the services, and then each that changes, until Ctrl-C.

use std::collections::BTreeMap;

use anyhow::Context as _;
use elasti_runtime::exit::Failed;
use elasti_runtime::signals::EndSignals;
use elasti_view::held::HeldState;
use elasti_view::view::View;
use jiff::Timestamp;

use super::{List, table};
use crate::access::Cluster;
use crate::output::{Format, print, resource_name};
use crate::table::Columns;
use crate::watched::Watched;

impl List {
    /// The services, and then each that changes, until Ctrl-C.
    pub(super) async fn follow(
        &self,
        cluster: &Cluster,
        namespace: Option<&str>,
    ) -> Result<(), Failed> {
        let mut signals = EndSignals::listen().context("cannot listen for signals")?;
        let mut watched = Watched::start(cluster, namespace, self.selector.as_deref()).await?;
        watched.fleet.ask_resolvers(cluster).await;
        self.say_what_is_not_shown(&watched.fleet);
        let mut columns = Columns::default();
        let now = Timestamp::now();
        let views = self.views(&watched.fleet, now);
        if views.is_empty() {
            self.say_that_none_is_there(namespace);
        }
        self.print_changed(&views, &mut columns, now)?;
        // What was held when the command began says nothing about now.
        watched.fleet.held = HeldState::Unasked;
        let mut previous = self.states(&self.views(&watched.fleet, now));
        loop {
            tokio::select! {
                changed = watched.next() => changed?,
                () = signals.next() => return Ok(()),
            }
            let now = Timestamp::now();
            let mut views = self.views(&watched.fleet, now);
            let next = self.states(&views);
            views.retain(|view| previous.get(&key(view)) != next.get(&key(view)));
            self.print_changed(&views, &mut columns, now)?;
            previous = next;
        }
    }

    /// Rows in the columns of those before, or one document for each.
    fn print_changed(
        &self,
        views: &[View],
        columns: &mut Columns,
        now: Timestamp,
    ) -> Result<(), Failed> {
        match self.output.format {
            _ if views.is_empty() => Ok(()),
            Some(Format::Json | Format::Yaml) => {
                views.iter().try_for_each(|view| self.output.document(view))
            }
            Some(Format::Name) => {
                let lines = views.iter().map(|view| resource_name(&view.name) + "\n");
                print(&lines.collect::<String>())
            }
            None | Some(Format::Wide) => {
                let all = self.scope.all_namespaces;
                let table = table(views, all, self.output.is_wide(), now);
                print(&table.more_lines(columns, self.terminal()))
            }
        }
    }

    /// By namespace and name, what a change is seen by.
    fn states(&self, views: &[View]) -> BTreeMap<(String, String), String> {
        let state = |view| (key(view), state(view, !self.output.is_default()));
        views.iter().map(state).collect()
    }
}

fn key(view: &View) -> (String, String) {
    (view.namespace.clone(), view.name.clone())
}

/// What is shown of it, without what changes by itself as time goes by: ages, shares, hours.
fn state(view: &View, wide: bool) -> String {
    let next = (view.sleeps_at.is_some(), view.wakes_at.is_some());
    let View {
        phase,
        reason,
        trouble,
        replicas,
        ready,
        held,
        ..
    } = view;
    let narrow = format!("{phase:?} {reason} {trouble} {ready:?}/{replicas:?} {held} {next:?}");
    match wide {
        true => {
            let wake = view.last_wake.as_ref();
            let wake = wake.map(|wake| (wake.at, wake.cold_start_ms));
            let (service, target, mode) = (&view.service, &view.target, view.mode);
            format!("{narrow} {service} {target:?} {mode:?} {wake:?}")
        }
        false => narrow,
    }
}
