//! The JSON of the API: rows of the fleet, one service in detail, and recent activity.

use elasti_api::HistoryState;
use elasti_api::names::condition;
use elasti_view::view::{Calendar, Saved};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::history::word;
use super::masked;
use super::state::{FleetState, Name};

/// Of the activity list: a few screens.
const MAX_ENTRIES: usize = 300;
/// A warning within this time before a problem is about that problem.
const SAME_PROBLEM_SECONDS: i64 = 60;
const QUARTER_SECONDS: i64 = 15 * 60;

/// One row of the fleet: the read model without what only the service's own page shows, rounded so that
/// the passing of time alone does not send every row again and again.
pub(crate) fn row(state: &FleetState, name: &Name, now: Timestamp) -> Option<Value> {
    let one = state.one(name)?;
    let view = state.view(name, now)?;
    let cold_start = one.history.cold_starts();
    let mut row = serde_json::to_value(&view).ok()?;
    let fields = row.as_object_mut()?;
    // Whether held requests are live is the same for all services and sent once.
    for left_out in ["triggers", "warnings", "blockers", "heldLive"] {
        fields.remove(left_out);
    }
    fields.insert("coldStart".into(), json!(cold_start));
    fields.insert("history".into(), json!(one.day(now)));
    fields.insert("labels".into(), json!(one.labels()));
    fields.insert(
        "asleep".into(),
        json!({"share": rounded(view.asleep.share)}),
    );
    fields.insert("saved".into(), json!(rounded_sums(view.saved)));
    let calendar = one.calendar(view.replicas, quarter(now));
    fields.insert(
        "savedCalendar".into(),
        json!(calendar.map(rounded_calendar)),
    );
    Some(row)
}

/// The start of the quarter of an hour: sums of a day and of a new month change all the time while a service sleeps.
fn quarter(now: Timestamp) -> Timestamp {
    let second = now.as_second();
    Timestamp::from_second(second - second.rem_euclid(QUARTER_SECONDS)).unwrap_or(now)
}

fn rounded_sums(saved: Saved) -> Saved {
    let resources = saved.resource_hours.into_iter();
    Saved {
        pod_hours: rounded(saved.pod_hours),
        cpu_hours: rounded(saved.cpu_hours),
        gib_hours: rounded(saved.gib_hours),
        resource_hours: resources
            .map(|(name, hours)| (name, rounded(hours)))
            .collect(),
    }
}

fn rounded_calendar(mut calendar: Calendar) -> Calendar {
    for month in &mut calendar.months {
        month.saved = rounded_sums(std::mem::take(&mut month.saved));
    }
    for hours in &mut calendar.pod_hours_by_day {
        *hours = rounded(*hours);
    }
    calendar
}

/// Three digits that count.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let unit = 10_f64.powf(value.abs().log10().floor() - 2.0);
    (value / unit).round() * unit
}

/// All about one service.
pub(crate) fn service(state: &FleetState, name: &Name, now: Timestamp) -> Option<Value> {
    let one = state.one(name)?;
    let view = state.view(name, now)?;
    let conditions = one.conditions().map(|c| {
        let bad = matches!(
            c.type_.as_str(),
            condition::CONFLICT
                | condition::CONTENDED
                | condition::UNMANAGED_SERVICES
                | condition::STEP_FAILED
                | condition::METRICS_MISSING
        );
        let neutral = matches!(
            c.type_.as_str(),
            condition::ASLEEP | condition::TRAFFIC_REDIRECTED
        );
        json!({
            "type": c.type_,
            "status": c.status,
            "reason": c.reason,
            "message": c.message,
            "since": c.last_transition_time.0,
            "good": neutral || (c.status == "True") != bad,
        })
    });
    Some(json!({
        "now": now,
        "service": view,
        "coldStart": one.history.cold_starts(),
        "wakes": one.history.wakes(),
        "timeline": one.history.spans(),
        "history": one.day(now),
        "conditions": conditions.collect::<Vec<_>>(),
        "events": state.events_of(name).collect::<Vec<_>>(),
        "eventsForbidden": state.events_forbidden,
        "yaml": masked::yaml(&one.object),
    }))
}

/// One line of the activity list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    namespace: String,
    name: String,
    at: Timestamp,
    /// The phase afterwards.
    phase: &'static str,
    failed: bool,
    text: String,
    took_millis: Option<i64>,
}

/// Recent activity, problems first, then newest first: wakes, sleeps, warnings.
pub(crate) fn activity(state: &FleetState, now: Timestamp) -> Vec<Entry> {
    let mut entries = Vec::new();
    for name in state.names() {
        add_activity(state, name, now, &mut entries);
    }
    entries.sort_by(|a, b| {
        (b.failed, b.at, &a.namespace, &a.name).cmp(&(a.failed, a.at, &b.namespace, &b.name))
    });
    entries.truncate(MAX_ENTRIES);
    entries
}

fn add_activity(state: &FleetState, name: &Name, now: Timestamp, entries: &mut Vec<Entry>) {
    let (Some(one), Some(view)) = (state.one(name), state.view(name, now)) else {
        return;
    };
    let mut add = |at, phase, failed, text: String, took_millis| {
        entries.push(Entry {
            namespace: name.namespace.clone(),
            name: name.name.clone(),
            at,
            phase,
            failed,
            text,
            took_millis,
        });
    };
    let failed = view.state() == Some(HistoryState::Failed);
    for (index, wake) in one.history.wakes().iter().enumerate() {
        // It is told as the failure that it is.
        if failed && index == 0 && !wake.finished {
            continue;
        }
        let word = if wake.finished { "Woken" } else { "Waking" };
        let text = match &wake.by {
            Some(by) => format!("{word} by {by}"),
            None => word.to_owned(),
        };
        let phase = if wake.finished { "Serving" } else { "Waking" };
        add(wake.at, phase, false, text, wake.cold_start_ms);
    }
    if let Some(at) = one.slept_at() {
        add(at, "Asleep", false, "Put to sleep".into(), None);
    }
    let ready = one.conditions().find(|c| c.type_ == condition::READY);
    let since = ready
        .filter(|c| c.status == "False")
        .map(|c| c.last_transition_time.0);
    let since = since.or(view.since).unwrap_or(now);
    if view.trouble {
        add(
            since,
            word(&view),
            true,
            format!("{}: {}", view.reason, view.sentence),
            None,
        );
    }
    if let Some(wake) = view.failed_wake.as_ref().filter(|_| !view.trouble) {
        let text = format!("{}: the last wake failed: {}", wake.reason, wake.sentence);
        add(wake.at, word(&view), true, text, None);
    }
    for event in state.events_of(name).filter(|event| event.failed) {
        let Some(at) = event.at else { continue };
        let same = view.trouble && at.as_second() >= since.as_second() - SAME_PROBLEM_SECONDS;
        if !same {
            add(
                at,
                word(&view),
                true,
                format!("{}: {}", event.reason, event.note),
                None,
            );
        }
    }
}

/// Why the service is in its phase, and what blocks sleep.
pub(crate) fn why(state: &FleetState, name: &Name, now: Timestamp) -> Option<String> {
    let view = state.view(name, now)?;
    let phase = word(&view).to_lowercase();
    let is = match view.state() {
        Some(HistoryState::Failed) => "has",
        _ => "is",
    };
    let mut text = format!("{name} {is} {phase}. {}\n", view.sentence);
    for blocker in &view.blockers {
        text.push_str(&format!("\n{}: {}", blocker.reason, blocker.sentence));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::{quarter, rounded};

    #[test]
    fn a_sleep_that_goes_on_changes_its_month_once_a_quarter_of_an_hour() {
        for (now, until) in [
            ("2026-03-01T00:14:59.9Z", "2026-03-01T00:00:00Z"),
            ("2026-03-01T00:15:00Z", "2026-03-01T00:15:00Z"),
        ] {
            let until: Result<jiff::Timestamp, _> = until.parse();
            assert_eq!(quarter(now.parse().unwrap()), until.unwrap());
        }
    }

    #[test]
    fn three_digits_count() {
        for (value, shown) in [
            (0.0, 0.0),
            (0.123_456, 0.123),
            (1234.0, 1230.0),
            (0.999_9, 1.0),
            (f64::NAN, 0.0),
        ] {
            assert!((rounded(value) - shown).abs() < 1e-9, "{value}");
        }
    }
}
