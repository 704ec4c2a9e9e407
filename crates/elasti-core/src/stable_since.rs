//! What one process has observed over time: since when each fact has held without interruption.
//! Do not persist it: after a restart every span must start again, which is slower but always safe.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::coverage;
use crate::observed::{Observed, Pod, Settings, SliceShape};
use crate::step::Step;

/// Since when each fact has held without interruption, up to now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StableSince {
    /// This process has watched since then.
    pub watching_since: Timestamp,
    /// The last renewal of the lease by the leader before; `None` if there is none.
    pub watched_before_until: Option<Timestamp>,
    /// Our slice as it is now, and since when.
    pub slice: Option<(Vec<SliceShape>, Timestamp)>,
    /// Our slice has been gone since then.
    pub slice_gone_since: Option<Timestamp>,
    /// The Service's own slices have shown a pod that receives traffic since then.
    pub rotation_since: Option<Timestamp>,
    /// The Service's own slices have shown no such pod since then.
    pub no_rotation_since: Option<Timestamp>,
    /// No living pod has been `Ready` since then.
    pub pods_out_since: Option<Timestamp>,
    /// Each living pod that is `Ready`, and since when it has been without any change.
    pub ready_since: BTreeMap<String, Timestamp>,
    /// No resolver has been ready since then.
    pub no_resolver_since: Option<Timestamp>,
    /// Some clients would not have reached a resolver since then.
    pub gap_since: Option<Timestamp>,
    /// The version of the Service's own slices at the last reconcile.
    pub endpoints_version: Option<String>,
    /// The versions of the living pods at the last reconcile.
    pub pod_versions: BTreeMap<String, String>,
    /// The pods that had our mark at the last reconcile, by their uid.
    pub marks: BTreeMap<String, Mark>,
    /// For each node that hosts pods which we drain: the last tick that undid a mark.
    pub ticks: BTreeMap<String, ObservedTick>,
    /// The nodes on which a drain failed because their ticks leave no gap.
    pub too_dense_on: Option<BTreeSet<String>>,
    /// When the target was last observed at zero, in a series of reconciles that ends with the last one or with a wake.
    pub zero_at: Option<Timestamp>,
    /// The wake since then, as far as it was observed.
    pub wake: Option<WakeTimeline>,
    /// We may have scaled to zero until then, even if no reconcile has observed it.
    pub zeroed_at: Option<Timestamp>,
}

/// When each part of a wake was first observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakeTimeline {
    /// The target is scaled up.
    pub scaled: Timestamp,
    /// A pod has a node.
    pub scheduled: Option<Timestamp>,
    /// The containers of a pod run.
    pub started: Option<Timestamp>,
    /// A pod is ready.
    pub ready: Option<Timestamp>,
}

/// A mark of ours that existed at the last reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The pod's node.
    pub node: String,
    /// Since when it has been observed without interruption.
    pub since: Timestamp,
    /// When it was last observed.
    pub seen_at: Timestamp,
}

/// A tick that happened between two reconciles: the first still saw the mark, the second no longer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObservedTick {
    /// The reconcile that still saw the mark.
    pub after: Timestamp,
    /// The reconcile that no longer did.
    pub by: Timestamp,
}

/// What the ticks allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickWindow {
    /// No tick is due before then.
    ClearUntil(Timestamp),
    /// No node that hosts a pod ticks.
    NoTicks,
    /// A node's tick is not known yet; it will be by then.
    WaitUntil(Timestamp),
    /// The ticks of several nodes leave no gap that is wide enough.
    TooDense,
}

impl StableSince {
    /// What a process knows that has just started.
    #[must_use]
    pub fn fresh(now: Timestamp, watched_before_until: Option<Timestamp>) -> Self {
        Self {
            watching_since: now,
            watched_before_until,
            slice: None,
            slice_gone_since: None,
            rotation_since: None,
            no_rotation_since: None,
            pods_out_since: None,
            ready_since: BTreeMap::new(),
            no_resolver_since: None,
            gap_since: None,
            endpoints_version: None,
            pod_versions: BTreeMap::new(),
            marks: BTreeMap::new(),
            ticks: BTreeMap::new(),
            too_dense_on: None,
            zero_at: None,
            wake: None,
            zeroed_at: None,
        }
    }

    /// Updated with the facts of one more reconcile.
    #[must_use]
    pub fn observe(mut self, o: &Observed) -> Self {
        let now = o.now;
        self.clamp_to_now(now);
        self.slice = o.slice.ours().map(|shape| match self.slice.take() {
            Some((before, since)) if before == *shape => (before, since),
            _ => (shape.clone(), now),
        });
        self.slice_gone_since = span(self.slice_gone_since, self.slice.is_none(), now);
        // A change that was undone between two reconciles still ends the span: nodes may be applying it now.
        if self.endpoints_version.as_ref() != Some(&o.endpoints_version) {
            (self.rotation_since, self.no_rotation_since) = (None, None);
            self.endpoints_version = Some(o.endpoints_version.clone());
        }
        self.rotation_since = span(self.rotation_since, o.in_rotation(), now);
        self.no_rotation_since = span(self.no_rotation_since, !o.in_rotation(), now);
        let versions: BTreeMap<String, String> = o
            .pods
            .iter()
            .filter(|p| !p.terminating)
            .map(|p| (p.name.clone(), p.version.clone()))
            .collect();
        self.observe_readiness(o, &versions);
        if self.pod_versions != versions {
            self.pods_out_since = None;
            self.pod_versions = versions;
        }
        self.pods_out_since = span(self.pods_out_since, !o.any_pod_ready(), now);
        let no_resolver = o.ready_resolvers().next().is_none();
        self.no_resolver_since = span(self.no_resolver_since, no_resolver, now);
        self.gap_since = span(self.gap_since, coverage::gap(o).is_some(), now);
        self.observe_wake(o);
        // What was sent before this reconcile was sent before now.
        self.zeroed_at = self.zeroed_at.map(|at| at.min(now));
        self.observe_marks(&o.pods, now);
        // A tick that was not followed by another when that was due predicts nothing any more.
        let known_for = o.settings.tick_period + o.settings.margin;
        self.ticks
            .retain(|_, tick| now.duration_since(tick.by) <= known_for);
        if self.slice.is_none() {
            // No drain is in progress, so what is known about ticks would only become stale.
            self.marks.clear();
            self.ticks.clear();
        }
        let nodes = hosting_nodes(&o.pods);
        if self.tick_window(&o.pods, &o.settings, now) == TickWindow::TooDense {
            self.too_dense_on = Some(nodes);
        } else if self
            .too_dense_on
            .as_ref()
            .is_some_and(|dense| *dense != nodes)
        {
            self.too_dense_on = None;
        }
        self
    }

    /// The clock was set back: a span that began later than now began now, and the kubelets' ticks that were
    /// observed no longer predict the next one.
    fn clamp_to_now(&mut self, now: Timestamp) {
        let spans = [
            &mut self.slice_gone_since,
            &mut self.rotation_since,
            &mut self.no_rotation_since,
            &mut self.pods_out_since,
            &mut self.no_resolver_since,
            &mut self.gap_since,
        ];
        let spans = spans.into_iter().flatten();
        let ready = self.ready_since.values_mut();
        let slice = self.slice.iter_mut().map(|(_, since)| since);
        for since in spans.chain(ready).chain(slice) {
            *since = now.min(*since);
        }
        self.watching_since = now.min(self.watching_since);
        let marked = self.marks.values().map(|mark| mark.seen_at);
        let ticked = self.ticks.values().map(|tick| tick.by);
        if marked.chain(ticked).any(|at| at > now) {
            self.marks.clear();
            self.ticks.clear();
        }
    }

    /// Updated after the process has begun to carry out `steps`: a mark that we take off ourselves is not a kubelet's
    /// tick, and a scale to zero may be undone again by the next reconcile.
    #[must_use]
    pub fn after(mut self, steps: &[Step]) -> Self {
        for step in steps {
            if let Step::ScaleToZero(_) = step {
                self.zeroed_at = step.expires();
            }
        }
        if steps.iter().any(|step| matches!(step, Step::Unmark(_))) {
            self.marks.clear();
            self.ticks.clear();
        }
        self
    }

    fn observe_readiness(&mut self, o: &Observed, versions: &BTreeMap<String, String>) {
        let ready = o.pods.iter().filter(|p| p.ready && !p.terminating);
        self.ready_since = ready
            .map(|pod| {
                let unchanged = self.pod_versions.get(&pod.name) == versions.get(&pod.name);
                let since = self.ready_since.get(&pod.name).filter(|_| unchanged);
                (pod.name.clone(), since.copied().unwrap_or(o.now))
            })
            .collect();
    }

    /// For the status only; no decision depends on it.
    fn observe_wake(&mut self, o: &Observed) {
        match o.replicas() {
            Some(0) => (self.zero_at, self.wake) = (Some(o.now), None),
            Some(_) if self.zero_at.is_some() && self.wake.is_none() => {
                self.wake = Some(WakeTimeline {
                    scaled: o.now,
                    scheduled: None,
                    started: None,
                    ready: None,
                });
            }
            Some(_) => {}
            None => (self.zero_at, self.wake) = (None, None),
        }
        let Some(wake) = &mut self.wake else {
            return;
        };
        let living = || o.pods.iter().filter(|p| !p.terminating);
        let first = |before: Option<Timestamp>, holds: bool| before.or(holds.then_some(o.now));
        wake.scheduled = first(wake.scheduled, living().any(|p| !p.node.is_empty()));
        wake.started = first(wake.started, living().any(|p| p.started));
        wake.ready = first(wake.ready, living().any(|p| p.ready));
    }

    fn observe_marks(&mut self, pods: &[Pod], now: Timestamp) {
        for pod in pods.iter().filter(|p| !p.terminating) {
            if pod.marked {
                let since = self.marks.get(&pod.uid).map_or(now, |mark| mark.since);
                let mark = Mark {
                    node: pod.node.clone(),
                    since,
                    seen_at: now,
                };
                self.marks.insert(pod.uid.clone(), mark);
            } else if let Some(mark) = self.marks.remove(&pod.uid) {
                let tick = ObservedTick {
                    after: mark.seen_at,
                    by: now,
                };
                self.ticks.insert(mark.node, tick);
            }
        }
        let living: BTreeSet<&str> = pods
            .iter()
            .filter(|p| !p.terminating)
            .map(|p| p.uid.as_str())
            .collect();
        self.marks.retain(|pod, _| living.contains(pod.as_str()));
        let nodes = hosting_nodes(pods);
        self.ticks.retain(|node, _| nodes.contains(node));
    }

    /// What the ticks of the nodes that host marked pods allow at `now`.
    #[must_use]
    pub fn tick_window(&self, pods: &[Pod], settings: &Settings, now: Timestamp) -> TickWindow {
        let mut wait_until: Option<Timestamp> = None;
        let mut next: Option<Timestamp> = None;
        let mut ticked: BTreeSet<(&str, Timestamp)> = BTreeSet::new();
        for pod in pods.iter().filter(|p| p.marked && !p.terminating) {
            let since = self.marks.get(&pod.uid).map_or(now, |mark| mark.since);
            let timeout = since + settings.tick_timeout;
            match self.ticks.get(&pod.node) {
                Some(tick) => {
                    ticked.insert((&pod.node, tick.by));
                    let due = next_tick(*tick, settings.tick_period, now);
                    next = Some(next.map_or(due, |n| n.min(due)));
                }
                None if timeout > now => {
                    wait_until = Some(wait_until.map_or(timeout, |w| w.max(timeout)));
                }
                None => {}
            }
        }
        let ticked: Vec<Timestamp> = ticked.into_iter().map(|(_, by)| by).collect();
        if let Some(until) = wait_until {
            return TickWindow::WaitUntil(until);
        }
        if widest_gap(&ticked, settings.tick_period) < gap_needed(settings) {
            return TickWindow::TooDense;
        }
        next.map_or(TickWindow::NoTicks, TickWindow::ClearUntil)
    }
}

/// A gap must fit the new mark and its propagation to the slices (a margin), the settle time, and the margin before the
/// next tick.
fn gap_needed(settings: &Settings) -> SignedDuration {
    settings.margin + settings.settle + settings.margin
}

/// The earliest time, from `now` on, of a kubelet's next tick after `last`.
fn next_tick(last: ObservedTick, period: SignedDuration, now: Timestamp) -> Timestamp {
    let period_millis = period.as_millis().max(1).unsigned_abs();
    let since_by = now
        .duration_since(last.by)
        .as_millis()
        .max(0)
        .unsigned_abs();
    // The first period whose latest possible tick is not over yet.
    let periods = since_by.div_ceil(period_millis).max(1);
    let ahead = i64::try_from(periods * period_millis).unwrap_or(i64::MAX);
    let earliest = last.after.checked_add(SignedDuration::from_millis(ahead));
    earliest.unwrap_or(Timestamp::MAX).max(now)
}

/// The widest stretch without a tick, over all nodes; a whole period where at most one node ticks.
fn widest_gap(ticked: &[Timestamp], period: SignedDuration) -> SignedDuration {
    let period_millis = i64::try_from(period.as_millis()).unwrap_or(i64::MAX).max(1);
    let mut phases: Vec<i64> = ticked
        .iter()
        .map(|at| at.as_millisecond().rem_euclid(period_millis))
        .collect();
    phases.sort_unstable();
    let (Some(first), Some(last)) = (phases.first(), phases.last()) else {
        return period;
    };
    let around = first + period_millis - last;
    let widest = phases
        .iter()
        .zip(phases.iter().skip(1))
        .map(|(a, b)| b - a)
        .fold(around, i64::max);
    SignedDuration::from_millis(widest)
}

fn hosting_nodes(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter()
        .filter(|p| !p.terminating)
        .map(|p| p.node.clone())
        .collect()
}

/// Keeps the start of a span while it holds, starts it at `now`, or ends it.
fn span(since: Option<Timestamp>, holds: bool, now: Timestamp) -> Option<Timestamp> {
    holds.then(|| since.unwrap_or(now))
}
