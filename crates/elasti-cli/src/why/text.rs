//! An explanation as text; `-o json` has the same content.

use elasti_api::{Mode, Reason};
use elasti_view::explanation::{Cause, Explanation, PodView};
use elasti_view::view::{TriggerView, View, WakeView};
use jiff::Timestamp;

use crate::list::{phase, tone};
use crate::span::{amount, clock, millis, short};
use crate::terminal::{Terminal, Tone};

/// The whole text.
pub(crate) fn render(explanation: &Explanation, now: Timestamp, terminal: Terminal) -> String {
    let mut page = Page {
        terminal,
        now,
        text: String::new(),
    };
    let view = &explanation.view;
    page.headline(view);
    // Problems are shown below, with their fixes.
    if explanation
        .causes
        .first()
        .is_none_or(|first| first.sentence != view.sentence)
    {
        page.line(&format!("  {}: {}", view.reason, view.sentence));
    }
    page.notes(view);
    page.standing(explanation);
    page.causes(&explanation.causes);
    page.pods(&explanation.pods, view);
    page.triggers(&view.triggers, &view.warnings);
    page.sleep(view);
    page.wake(view.last_wake.as_ref());
    page.failed_wake(view);
    page.saved(view);
    page.text
}

struct Page {
    terminal: Terminal,
    now: Timestamp,
    text: String,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn heading(&mut self, heading: &str) {
        let painted = self.terminal.paint(Tone::Strong, heading);
        self.line("");
        self.line(&painted);
    }

    fn headline(&mut self, view: &View) {
        let name = format!("{}/{}", view.namespace, view.name);
        let name = self.terminal.paint(Tone::Strong, &name);
        let phase = self.terminal.paint(tone(view), &phase(view));
        let line = match (view.phase, view.since) {
            (None, _) => format!("{name} has no phase yet."),
            (Some(_), None) => format!("{name} is {phase}."),
            (Some(_), Some(since)) => {
                let ago = short(self.now.duration_since(since));
                format!("{name} is {phase}, for {ago} (since {}).", clock(since))
            }
        };
        self.line(&line);
    }

    fn notes(&mut self, view: &View) {
        if view.paused {
            self.line("  Paused: it stays awake until: elasti resume");
        }
        if view.outdated {
            self.line("  The operator has not processed the last change of its spec yet.");
        }
    }

    fn standing(&mut self, explanation: &Explanation) {
        let view = &explanation.view;
        let target = &view.target;
        let pods = match (view.ready, view.replicas) {
            (Some(ready), Some(replicas)) => format!(", {ready} of {replicas} pods ready"),
            _ if target.found == Some(false) => ", which does not exist".to_owned(),
            _ => ", which you may not read".to_owned(),
        };
        self.line(&format!(
            "  Target:   {} {}{pods}",
            target.kind, target.name
        ));
        let traffic = match view.mode {
            Some(Mode::Proxy) => "requests go to the resolvers",
            Some(Mode::Serve) => "requests go straight to the pods",
            None => "unknown",
        };
        let held = match view.held {
            0 => String::new(),
            1 => "; 1 held when last reported".to_owned(),
            n => format!("; {n} held when last reported"),
        };
        self.line(&format!("  Service:  {}: {traffic}{held}", view.service));
        if let Some(ready) = explanation.resolvers_ready {
            self.line(&format!("  Resolvers ready: {ready}"));
        }
    }

    fn causes(&mut self, causes: &[Cause]) {
        if causes.is_empty() {
            return;
        }
        self.heading("Problems");
        for cause in causes {
            let reason = self
                .terminal
                .paint(Tone::Alert, &format!("!{}", cause.reason));
            self.line(&format!("  {reason}: {}", cause.sentence));
            if let Some(message) = &cause.message {
                self.line(&format!("    Kubernetes: {message}"));
            }
            for inspect in &cause.inspect {
                self.line(&format!("    Inspect: {inspect}"));
            }
            for fix in &cause.fix {
                self.line(&format!("    Fix:     {fix}"));
            }
        }
    }

    fn pods(&mut self, pods: &[PodView], view: &View) {
        if pods.is_empty() {
            if view.replicas.is_some_and(|replicas| replicas > 0) {
                self.heading("Pods");
                self.line("  none yet");
            }
            return;
        }
        self.heading("Pods");
        for pod in pods {
            let node = pod
                .node
                .as_ref()
                .map_or_else(String::new, |node| format!(" on {node}"));
            self.line(&format!("  {}{node}: {}", pod.name, pod.state));
        }
    }

    fn triggers(&mut self, triggers: &[TriggerView], warnings: &[String]) {
        self.heading("Triggers");
        if triggers.is_empty() {
            self.line("  none: without a trigger it is never put to sleep");
        }
        for (index, trigger) in triggers.iter().enumerate() {
            let since = trigger.since.map_or_else(String::new, |since| {
                format!(" for {}", short(self.now.duration_since(since)))
            });
            let read = trigger.read_at.map_or_else(String::new, |at| {
                format!(", read {} ago", short(self.now.duration_since(at)))
            });
            let value = trigger.value.as_deref().map(|value| {
                let threshold = trigger.threshold.as_deref().unwrap_or_default();
                sample(value, threshold)
            });
            let line = match (trigger.reading.as_str(), &value, &trigger.threshold) {
                ("active", Some(value), Some(threshold)) => {
                    format!("active{since}: {value} >= {threshold}{read}")
                }
                ("quiet", Some(value), Some(threshold)) => {
                    format!("quiet{since}: {value} < {threshold}{read}")
                }
                ("unread", _, _) => "not read yet".to_owned(),
                (reading, _, _) => format!("{reading}{since}{read}"),
            };
            self.line(&format!("  {index}  {}  {line}", trigger.kind));
            if let Some(query) = &trigger.query {
                self.line(&format!("     {}", one_line(query)));
            }
            if let Some(message) = &trigger.message {
                self.line(&format!("     {message}"));
            }
        }
        for warning in warnings {
            self.line(&format!("  Warning: {warning}"));
        }
    }

    fn sleep(&mut self, view: &View) {
        self.heading("Sleep");
        let now = self.now;
        if view.target.found == Some(false) {
            self.line("  There is nothing to put to sleep or to wake.");
            return;
        }
        if view.replicas == Some(0) {
            let wakes = view.wakes_at.map_or_else(
                || "It wakes on the first request, or when a trigger becomes active.".to_owned(),
                |at| {
                    let within = short(at.duration_since(now));
                    format!(
                        "It wakes on the first request, when a trigger becomes active, or in {within} when its active window ends ({}).",
                        clock(at)
                    )
                },
            );
            self.line(&format!("  {wakes}"));
            return;
        }
        let next = match view.sleeps_at {
            None if view.phase.is_none() => "Not before an operator has processed it.".to_owned(),
            None => "It stays awake until this changes:".to_owned(),
            Some(at) if at <= now => "Due now: nothing blocks it.".to_owned(),
            Some(at) => {
                let within = short(at.duration_since(now));
                format!(
                    "It sleeps in {within} ({}) without further traffic:",
                    clock(at)
                )
            }
        };
        self.line(&format!("  {next}"));
        for blocker in &view.blockers {
            self.line(&format!("  - {}: {}", blocker.reason, blocker.sentence));
        }
    }

    fn wake(&mut self, wake: Option<&WakeView>) {
        let Some(wake) = wake else { return };
        self.heading("Last wake");
        let ago = short(self.now.duration_since(wake.at));
        let by = wake
            .by
            .as_deref()
            .map_or_else(String::new, |by| format!(", by {}", who(by)));
        let cost = match (wake.cold_start_ms, wake.finished) {
            (Some(ms), _) => format!(": {}", millis(ms)),
            (None, false) => ": not finished".to_owned(),
            (None, true) => String::new(),
        };
        self.line(&format!("  {ago} ago ({}){by}{cost}", clock(wake.at)));
        if let Some(client) = &wake.client {
            self.line(&format!("  for {}", client.sentence()));
        }
        let parts: Vec<String> = wake
            .parts
            .iter()
            .map(|part| format!("{} {}", part.name, millis(part.ms)))
            .collect();
        if !parts.is_empty() {
            self.line(&format!("  {}", parts.join(", ")));
        }
    }

    /// One that goes on is among the problems.
    fn failed_wake(&mut self, view: &View) {
        let Some(failed) = &view.failed_wake else {
            return;
        };
        if failed.reason == view.reason {
            return;
        }
        self.heading("Failed wake");
        let ago = short(self.now.duration_since(failed.at));
        self.line(&format!(
            "  {ago} ago ({}), and none has succeeded since",
            clock(failed.at)
        ));
        self.line(&format!("  {}: {}", failed.reason, failed.sentence));
    }

    fn saved(&mut self, view: &View) {
        if view.asleep.seconds == 0 {
            return;
        }
        self.heading("Saved");
        let asleep = short(jiff::SignedDuration::from_secs(view.asleep.seconds));
        let mut line = format!(
            "  asleep {asleep}, {:.0}% of its lifetime: {} pod-hours, {} CPU-hours, {} GiB-hours",
            view.asleep.share * 100.0,
            amount(view.saved.pod_hours),
            amount(view.saved.cpu_hours),
            amount(view.saved.gib_hours),
        );
        for (resource, hours) in &view.saved.resource_hours {
            line.push_str(&format!(", {} {resource}-hours", amount(*hours)));
        }
        self.line(&line);
    }
}

/// What caused a wake, in words.
fn who(by: &str) -> String {
    let words = [
        (Reason::Traffic, "a request"),
        (Reason::TriggerActive, "an active trigger"),
        (Reason::WakeRequested, "a user's request"),
        (Reason::OutsideWindow, "the end of its active window"),
        (Reason::NoResolver, "missing resolvers"),
        (Reason::Manual, "another client, which scaled it up"),
        (Reason::Contended, "another client, which scaled it up"),
    ];
    let known = words.iter().find(|(reason, _)| reason.as_str() == by);
    known.map_or_else(
        || by.to_owned(),
        |(reason, words)| format!("{words} ({reason})"),
    )
}

/// A query may be written over several lines.
fn one_line(query: &str) -> String {
    query.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A sample with at most four decimals, unless more tell it from its threshold.
fn sample(value: &str, threshold: &str) -> String {
    const DIGITS: usize = 4;
    let is_long = value
        .split_once('.')
        .is_some_and(|(_, rest)| rest.len() > DIGITS);
    match (value.parse::<f64>(), threshold.parse::<f64>()) {
        (Ok(number), Ok(threshold)) if is_long => {
            let text = format!("{number:.DIGITS$}");
            let rounded: f64 = text.parse().unwrap_or(number);
            match rounded == 0.0 || rounded == threshold {
                true => value.to_owned(),
                false => text,
            }
        }
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::sample;

    #[test]
    fn a_long_sample_is_shortened_but_for_what_tells_it_from_its_threshold() {
        for (value, threshold, shown) in [
            ("0.04666666666666667", "0.5", "0.0467"),
            ("1234.567891", "1", "1234.5679"),
            ("0.2", "0.5", "0.2"),
            ("3", "0.5", "3"),
            ("0.49999999", "0.5", "0.49999999"),
            ("0.00000012", "1", "0.00000012"),
            ("NaN", "1", "NaN"),
            ("0.123456", "much", "0.123456"),
        ] {
            assert_eq!(sample(value, threshold), shown);
        }
    }
}
