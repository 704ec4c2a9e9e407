//! What one process has observed over time: since when each fact has held without interruption.
//! Do not persist it: after a restart every span must start again, which is slower but always safe.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::coverage;
use crate::groups;
use crate::observed::{Author, Observed, Pod, Settings, SliceShape, Standing, Target};
use crate::step::Step;
use crate::user_requests;

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
    /// Each living pod that is `Ready` and that the Service's own slices show as ready, and since when without a doubt.
    pub in_rotation_since: BTreeMap<String, Timestamp>,
    /// The living pods that may have left rotation and come back: the Service's own slices may lag behind that, so any
    /// change of them may take such a pod out of rotation once more.
    pub came_back: BTreeSet<String>,
    /// The Service's own slices, unchanged, have shown a ready pod of another owner since then.
    pub shared_since: Option<Timestamp>,
    /// The Service's own slices have shown no pod that receives traffic since then.
    pub no_rotation_since: Option<Timestamp>,
    /// No terminating pod has been seen since then, neither in the Service's own slices nor among its pods.
    pub no_terminating_since: Option<Timestamp>,
    /// No living pod has been `Ready` since then.
    pub pods_out_since: Option<Timestamp>,
    /// Each living pod that is not `Ready` and that the Service's own slices do not show as ready, and since when.
    pub out_since: BTreeMap<String, Timestamp>,
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
    /// We may have scaled down until then, even if no reconcile has observed it.
    pub zeroed_at: Option<Timestamp>,
    /// The replicas at the last reconcile.
    pub replicas: Option<u32>,
    /// Something else wrote them. The API server's record may not tell: after a zero through `/scale` it names no writer.
    pub by_other: bool,
    /// Something else scaled the target up again during a drain by groups.
    pub pushed_back: Option<PushedBack>,
    /// When the replicas were last written, by the record; without one, when they were first observed as they are.
    pub replicas_at: Option<Timestamp>,
    /// When something else last scaled the target up from more than zero.
    pub raised_at: Option<Timestamp>,
    /// When the target was first observed above zero again. The status may not tell of that wake: the answer to its write may
    /// have been lost, and with it the status.
    pub left_zero_at: Option<Timestamp>,
    /// The zero that the target is at.
    pub zero: Option<ObservedZero>,
    /// The scale-down that we have begun to send since the last reconcile, or that none has observed yet.
    pub sent: Option<SentScaleDown>,
    /// Our last scale-down to more than zero, as long as nothing has changed the target since.
    pub shrunk: Option<SentScaleDown>,
    /// To what we have begun to restore the replicas since the last reconcile.
    pub raising: Option<u32>,
    /// The generation of a target that stops no pod: our scale-down has had its effect, and since then only we have
    /// changed it, upwards.
    pub steady: Option<i64>,
    /// The last wake request with which the target was observed above zero.
    pub served_wake: Option<Timestamp>,
    /// The pods among which the target's controller should choose those that it stops for our last scale-down.
    pub stopping: Option<BTreeSet<String>>,
    /// It chose another one, as this reconcile observed for the first time.
    pub stopped_unmarked: Option<String>,
    /// The same for each other Service of the pods, by its name; only what is about a Service is used of it.
    pub others: BTreeMap<String, StableSince>,
}

/// How often something else undid our scale-down before the target was at zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PushedBack {
    /// So often in a row.
    pub times: u32,
    /// The last time.
    pub at: Timestamp,
}

/// A scale-down as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SentScaleDown {
    /// To so many replicas.
    pub to: u32,
    /// The target's generation before it.
    pub generation: Option<i64>,
}

impl SentScaleDown {
    /// It was the last change of the target's spec, so what stands there now is ours.
    fn stands(&self, target: &Target) -> bool {
        let ours = self.generation.is_none() || self.one_change_since(target);
        ours && self.to == target.replicas
    }

    /// The target's spec has changed once since, by this or by a write of others because of which this was refused.
    fn one_change_since(&self, target: &Target) -> bool {
        let next = self.generation.map(|before| before + 1);
        next.is_some() && next == target.generation
    }

    /// The target is shown as it was before.
    fn is_unseen(&self, target: &Target) -> bool {
        self.generation.is_some() && target.generation == self.generation
    }
}

/// A zero that has stood since it was first observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObservedZero {
    /// Since then.
    pub since: Timestamp,
    /// Something else wrote it.
    pub by_other: bool,
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

impl Observed {
    /// What is remembered of it after the process has begun to carry out `steps`.
    #[must_use]
    pub fn after(&self, steps: &[Step]) -> StableSince {
        let generation = self.target.as_ref().and_then(|target| target.generation);
        self.stable_since.clone().after(steps, generation)
    }
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
            in_rotation_since: BTreeMap::new(),
            came_back: BTreeSet::new(),
            shared_since: None,
            no_rotation_since: None,
            no_terminating_since: None,
            pods_out_since: None,
            out_since: BTreeMap::new(),
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
            replicas: None,
            by_other: false,
            pushed_back: None,
            replicas_at: None,
            raised_at: None,
            left_zero_at: None,
            zero: None,
            sent: None,
            shrunk: None,
            raising: None,
            steady: None,
            served_wake: None,
            stopping: None,
            stopped_unmarked: None,
            others: BTreeMap::new(),
        }
    }

    /// Updated with the facts of one more reconcile.
    #[must_use]
    pub fn observe(mut self, o: &Observed) -> Self {
        let now = o.now;
        self.clamp_to_now(now);
        let mut before = std::mem::take(&mut self.others);
        for (name, view) in o.other_views() {
            let seen = before.remove(name);
            let seen = seen.unwrap_or_else(|| Self::fresh(now, None));
            self.others.insert(name.to_owned(), seen.observe(&view));
        }
        self.slice = o.slice.ours().map(|shape| match self.slice.take() {
            Some((before, since)) if before == *shape => (before, since),
            _ => (shape.clone(), now),
        });
        self.slice_gone_since = span(self.slice_gone_since, self.slice.is_none(), now);
        let versions: BTreeMap<String, String> = o
            .pods
            .iter()
            .filter(|p| !p.terminating)
            .map(|p| (p.name.clone(), p.version.clone()))
            .collect();
        self.observe_rotation(o, &versions);
        // A change that was undone between two reconciles still ends the span: nodes may be applying it now.
        if self.endpoints_version.as_ref() != Some(&o.endpoints_version) {
            self.out_since.clear();
            self.no_rotation_since = None;
            self.endpoints_version = Some(o.endpoints_version.clone());
        }
        self.no_rotation_since = span(self.no_rotation_since, !o.in_rotation(), now);
        let terminating =
            o.endpoints.iter().any(|e| e.terminating) || o.pods.iter().any(|p| p.terminating);
        self.no_terminating_since = span(self.no_terminating_since, !terminating, now);
        self.observe_readiness(o, &versions);
        self.observe_pods_out(o, &versions);
        self.observe_replicas(o);
        self.observe_stops(o, &versions);
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
        self.forget_ticks(&o.settings, now);
        if !o.is_redirected() {
            // No drain is in progress, so what is known about ticks would only become stale.
            self.marks.clear();
            self.ticks.clear();
        }
        let nodes = hosting_nodes(&o.pods);
        let whole = !groups::apply(o);
        if whole && self.tick_window(&o.pods, &o.settings, now) == TickWindow::TooDense {
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
            &mut self.shared_since,
            &mut self.no_rotation_since,
            &mut self.no_terminating_since,
            &mut self.pods_out_since,
            &mut self.no_resolver_since,
            &mut self.gap_since,
        ];
        let spans = spans.into_iter().flatten();
        let ready = self.ready_since.values_mut();
        let rotation = self.in_rotation_since.values_mut();
        let out = self.out_since.values_mut();
        let pushed_back = self.pushed_back.iter_mut().map(|back| &mut back.at);
        let zero = self.zero.iter_mut().map(|zero| &mut zero.since);
        let slice = self.slice.iter_mut().map(|(_, since)| since);
        for since in spans
            .chain(ready)
            .chain(rotation)
            .chain(out)
            .chain(slice)
            .chain(pushed_back)
            .chain(zero)
            .chain(&mut self.raised_at)
            .chain(&mut self.left_zero_at)
        {
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

    /// After the process has begun to carry out `steps`: a mark that we take off ourselves is not a kubelet's
    /// tick, and a scale-down may be undone again by the next reconcile.
    fn after(mut self, steps: &[Step], generation: Option<i64>) -> Self {
        for step in steps {
            if let Step::ScaleToZero(_) | Step::Shrink(_) = step {
                self.zeroed_at = step.expires();
                self.sent = Some(SentScaleDown { to: 0, generation });
                // Its answer may get lost: until it is observed, pods may be stopped for it.
                self.steady = None;
            }
            if let Step::Shrink(group) = step {
                let to = group.replicas();
                self.sent = Some(SentScaleDown { to, generation });
                self.stopping = Some(group.pods().iter().cloned().collect());
            }
        }
        let raised = steps.iter().find_map(|step| match step {
            Step::RestoreReplicas(to) => Some(*to),
            _ => None,
        });
        self.raising = raised.or(self.raising);
        if steps.iter().any(|step| matches!(step, Step::Unmark(_))) {
            self.marks.clear();
            self.ticks.clear();
        }
        self
    }

    /// It depends on the target's generation.
    #[must_use]
    pub fn knows_generation(&self) -> bool {
        self.sent.is_some() || self.shrunk.is_some() || self.steady.is_some()
    }

    /// Updated after the scale-down among the steps did not happen: a zero that is found all the same is not ours.
    pub fn scale_down_refused(&mut self) {
        self.sent = None;
    }

    /// A pod is judged by itself: the changes of others do not take it out of rotation.
    fn observe_rotation(&mut self, o: &Observed, versions: &BTreeMap<String, String>) {
        let unchanged = |pod: &Pod| self.pod_versions.get(&pod.name) == versions.get(&pod.name);
        let came_back = |pod: &&Pod| {
            let left = self.ready_since.contains_key(&pod.name) && !unchanged(pod);
            let known = self.endpoints_version.is_some() && !self.came_back.contains(&pod.name);
            left || pod.marked || !known
        };
        let living = || o.pods.iter().filter(|p| !p.terminating);
        let back: BTreeSet<String> = (living().filter(came_back).map(|p| p.name.clone())).collect();
        let same_slices = self.endpoints_version.as_ref() == Some(&o.endpoints_version);
        self.in_rotation_since = living()
            .filter(|pod| pod.ready && o.shows_ready(&pod.name))
            .map(|pod| {
                let steady = unchanged(pod) && (same_slices || !back.contains(&pod.name));
                let since = self.in_rotation_since.get(&pod.name).filter(|_| steady);
                (pod.name.clone(), since.copied().unwrap_or(o.now))
            })
            .collect();
        self.came_back = back;
        let shared_since = self.shared_since.filter(|_| same_slices);
        self.shared_since = span(shared_since, o.standing == Standing::Shared, o.now);
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

    fn observe_pods_out(&mut self, o: &Observed, versions: &BTreeMap<String, String>) {
        let in_slices = |pod: &Pod| o.endpoints.iter().any(|e| e.ready && e.pod == pod.name);
        let living = o.pods.iter().filter(|p| !p.terminating && !p.ready);
        self.out_since = living
            .filter(|pod| !in_slices(pod))
            .map(|pod| {
                let unchanged = self.pod_versions.get(&pod.name) == versions.get(&pod.name);
                let since = self.out_since.get(&pod.name).filter(|_| unchanged);
                (pod.name.clone(), since.copied().unwrap_or(o.now))
            })
            .collect();
    }

    fn observe_replicas(&mut self, o: &Observed) {
        let before = std::mem::replace(&mut self.replicas, o.replicas());
        let (sent, raising) = (self.sent.take(), self.raising);
        self.observe_shrink(sent, o);
        self.observe_zero(before, sent, o);
        let Some(target) = &o.target else {
            return;
        };
        // Its answer was lost, and the cache lags behind it.
        self.sent = sent.filter(|sent| sent.is_unseen(target));
        if before == Some(0) && target.replicas > 0 {
            self.left_zero_at = Some(o.now);
        }
        let unchanged = before == Some(target.replicas);
        let observed_at = self.replicas_at.filter(|_| unchanged).unwrap_or(o.now);
        let written = self
            .replicas_at
            .replace(target.replicas_at.unwrap_or(observed_at));
        let rewritten = target.replicas_at.is_some() && target.replicas_at > written;
        let undone = unchanged && (sent.is_some() && rewritten || was_undone(sent, target));
        self.by_other = match (&target.replicas_by, before) {
            (Author::Other(_), _) => true,
            // After a start only the record tells, and what is not zero any more was woken, mostly by us.
            (Author::Elasti, _) | (Author::Unknown, None | Some(0)) => false,
            (Author::Unknown, Some(_)) if unchanged => self.by_other || undone,
            (Author::Unknown, Some(_)) => !self.has_written(sent, raising, target),
        };
        // Without a record, the status tells what stood there before this process started.
        let known = before.or(o.me.remembered.replicas);
        let raised = known.is_some_and(|known| 0 < known && known < target.replicas);
        self.observe_raise(before.is_none(), raised || undone, o);
        if target.replicas == 0 {
            self.pushed_back = None;
        } else if before.is_some()
            && raised
            && self.by_other
            && o.me.remembered.replicas_before_drain.is_some()
        {
            let times = self.pushed_back.map_or(0, |back| back.times);
            self.pushed_back = Some(PushedBack {
                times: times.saturating_add(1),
                at: o.now,
            });
        }
    }

    /// The replicas are other ones than at the last reconcile because of a scale-down of ours, because we restored what a
    /// cancelled drain took away, or because of a wake after a zero of ours that no reconcile observed.
    fn has_written(
        &self,
        sent: Option<SentScaleDown>,
        raising: Option<u32>,
        target: &Target,
    ) -> bool {
        let lowered = sent.or(self.shrunk).is_some_and(|one| one.stands(target));
        let woken = sent.is_some_and(|one| one.to == 0 && !one.one_change_since(target));
        lowered || woken || raising == Some(target.replicas)
    }

    /// Whether pods may still be stopped for our last scale-down.
    fn observe_shrink(&mut self, sent: Option<SentScaleDown>, o: &Observed) {
        let raised = self.raising.take();
        let target = o.target.as_ref().filter(|t| t.replicas > 0);
        let generation = target.and_then(|target| target.generation);
        let stands = |one: &SentScaleDown| {
            generation.is_some() && target.is_some_and(|target| one.stands(target))
        };
        self.shrunk = sent.or(self.shrunk).filter(stands);
        let left = o.pods.iter().filter(|pod| !pod.terminating).count();
        let stopped = { self.shrunk }.is_some_and(|shrunk| left <= shrunk.to as usize);
        let ours = raised.is_some() && raised == o.replicas();
        let before = { self.steady }.map(|before| before + i64::from(ours));
        let is_steady = stopped || self.steady == generation || before == generation;
        self.steady = generation.filter(|_| is_steady);
    }

    /// Something else scaled up, also if that undid a scale-down of ours which no reconcile observed. After a start it is
    /// not known what stood there before, so its last write counts.
    fn observe_raise(&mut self, is_first: bool, raised: bool, o: &Observed) {
        let Some(target) = &o.target else {
            return;
        };
        let at = match target.replicas_at.filter(|_| is_first) {
            Some(at) => Some(at),
            None => raised.then_some(o.now),
        };
        let by_other = self.by_other || is_first && target.replicas_by == Author::Unknown;
        if by_other && target.replicas > 0 {
            self.raised_at = self.raised_at.max(at.map(|at| at.min(o.now)));
        }
    }

    /// Which zero it is, and which requests have had their answer when it came.
    fn observe_zero(&mut self, before: Option<u32>, sent: Option<SentScaleDown>, o: &Observed) {
        if o.replicas() != Some(0) {
            self.zero = None;
            if o.replicas().is_some() {
                self.served_wake = self.served_wake.max(user_requests::wake_requested_at(o));
            }
            return;
        }
        let woken_since = |zero: &ObservedZero| o.woken_at > Some(zero.since);
        let recorded = { o.target.iter() }.any(|t| matches!(t.replicas_by, Author::Other(_)));
        let ours = sent.zip(o.target.as_ref());
        let ours = ours.is_some_and(|(sent, target)| sent.stands(target));
        self.zero = match self.zero {
            Some(zero) if !woken_since(&zero) => Some(zero),
            // Our wake was undone before a reconcile observed it.
            Some(_) => Some(ObservedZero {
                since: o.now,
                by_other: true,
            }),
            // After a restart, only the record says who wrote it.
            None => Some(ObservedZero {
                since: o.now,
                by_other: recorded || before.is_some() && !ours,
            }),
        };
    }

    /// For the report only; no decision depends on it.
    fn observe_stops(&mut self, o: &Observed, versions: &BTreeMap<String, String>) {
        let expected = |pod: &&String| self.stopping.as_ref().is_none_or(|p| p.contains(*pod));
        let mut stopped = self
            .pod_versions
            .keys()
            .filter(|p| !versions.contains_key(*p));
        self.stopped_unmarked = stopped.find(|pod| !expected(pod)).cloned();
        let replicas = o.replicas().and_then(|n| usize::try_from(n).ok());
        if replicas.is_none_or(|n| versions.len() <= n) {
            self.stopping = None;
        }
    }

    /// A tick predicts the next ones, on the node's own clock, until one of them is not observed although a pod was
    /// marked, or for a few periods if none was.
    fn forget_ticks(&mut self, settings: &Settings, now: Timestamp) {
        let Settings {
            tick_period,
            margin,
            ..
        } = *settings;
        let marks = &self.marks;
        self.ticks.retain(|node, tick| {
            let on_node = marks.values().filter(|mark| mark.node == *node);
            let missed = on_node.map(|mark| next_tick(*tick, tick_period, mark.since).1 + margin);
            let unseen_until = tick.by + tick_period * TICK_KNOWN_PERIODS + margin;
            missed.fold(unseen_until, Timestamp::min) >= now
        });
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
        let marked = || pods.iter().filter(|p| p.marked && !p.terminating);
        let window = self.group_window(marked(), settings, now);
        let ticked: BTreeMap<&str, Timestamp> = marked()
            .filter_map(|pod| Some((pod.node.as_str(), self.ticks.get(&pod.node)?.by)))
            .collect();
        let ticked: Vec<Timestamp> = ticked.into_values().collect();
        let dense = widest_gap(&ticked, settings.tick_period) < gap_needed(settings);
        match window {
            TickWindow::ClearUntil(_) if dense => TickWindow::TooDense,
            window => window,
        }
    }

    /// What the ticks of the nodes of these marked pods allow at `now`, whether or not they fit together.
    pub(crate) fn group_window<'p>(
        &self,
        marked: impl Iterator<Item = &'p Pod>,
        settings: &Settings,
        now: Timestamp,
    ) -> TickWindow {
        let mut wait_until: Option<Timestamp> = None;
        let mut next: Option<Timestamp> = None;
        for pod in marked {
            let since = self.marks.get(&pod.uid).map_or(now, |mark| mark.since);
            let timeout = since + settings.tick_timeout;
            match self.next_tick(&pod.node, settings, now) {
                Some(due) => next = Some(next.map_or(due, |n| n.min(due))),
                None if timeout > now => {
                    wait_until = Some(wait_until.map_or(timeout, |w| w.max(timeout)));
                }
                None => {}
            }
        }
        if let Some(until) = wait_until {
            return TickWindow::WaitUntil(until);
        }
        next.map_or(TickWindow::NoTicks, TickWindow::ClearUntil)
    }

    /// The earliest time of a node's next tick; `None` if its ticks are not known.
    pub(crate) fn next_tick(
        &self,
        node: &str,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let tick = self.ticks.get(node)?;
        Some(next_tick(*tick, settings.tick_period, now).0)
    }
}

/// For so many periods a tick predicts the next ones without being observed again. A drain by groups uses what it
/// learned within two: one to learn all ticks, one in which each node has its turn.
pub const TICK_KNOWN_PERIODS: i32 = 3;

/// A gap must fit the new mark and its propagation to the slices (a margin), the settle time, and the margin before the
/// next tick.
pub(crate) fn gap_needed(settings: &Settings) -> SignedDuration {
    settings.margin + settings.settle + settings.margin
}

/// A scale-down of ours happened and was undone again before a reconcile observed it.
fn was_undone(sent: Option<SentScaleDown>, target: &Target) -> bool {
    let before = sent.and_then(|sent| sent.generation);
    before.is_some() && target.generation > before
}

/// The earliest and the latest time, from `now` on, of a kubelet's next tick after `last`.
fn next_tick(last: ObservedTick, period: SignedDuration, now: Timestamp) -> (Timestamp, Timestamp) {
    let period_millis = period.as_millis().max(1).unsigned_abs();
    let since_by = now
        .duration_since(last.by)
        .as_millis()
        .max(0)
        .unsigned_abs();
    // The first period whose latest possible tick is not over yet.
    let periods = since_by.div_ceil(period_millis).max(1);
    let ahead = i64::try_from(periods * period_millis).unwrap_or(i64::MAX);
    let due = |seen: Timestamp| seen.checked_add(SignedDuration::from_millis(ahead));
    let [earliest, latest] = [last.after, last.by].map(|at| due(at).unwrap_or(Timestamp::MAX));
    (earliest.max(now), latest)
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
