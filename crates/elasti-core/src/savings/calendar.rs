//! What sleep saved by month and by day of UTC. A sleep counts in each month and day that it touches.

use elasti_api::{CurrentSleep, ElastiServiceStatus, SavedMonth, SavedSeconds, SavingsCalendar};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};

use super::{bounded, goes_on, plus, saved_by};

/// A year, with the month that goes on.
pub const MAX_MONTHS: usize = 12;
/// Thirty days, with the day that goes on.
pub const MAX_DAYS: usize = 31;

/// The calendar of a service, the sleep that goes on included. `None` if what it has slept is not known by month: it
/// slept before that was recorded, and not since.
#[must_use]
pub fn calendar(
    status: &ElastiServiceStatus,
    replicas: Option<u32>,
    now: Timestamp,
) -> Option<SavingsCalendar> {
    let sleep = status.current_sleep.as_ref();
    match sleep.filter(|_| goes_on(status, replicas)) {
        Some(sleep) => Some(with_sleep(status, sleep, now)),
        None => {
            let before = status.savings_calendar.clone();
            before.or_else(|| (!has_slept(status)).then(SavingsCalendar::default))
        }
    }
}

/// The calendar of a status with a sleep that lasts until then.
#[must_use]
pub fn with_sleep(
    status: &ElastiServiceStatus,
    sleep: &CurrentSleep,
    until: Timestamp,
) -> SavingsCalendar {
    let began = sleep.since.as_ref().map_or(until, |since| since.0);
    let first = || SavingsCalendar {
        since: has_slept(status).then_some(elasti_api::Time(began)),
        ..SavingsCalendar::default()
    };
    let mut calendar = status.savings_calendar.clone().unwrap_or_else(first);
    let last = until.to_zoned(TimeZone::UTC).date();
    add_months(&mut calendar.months, sleep, began, until, last);
    add_days(&mut calendar, sleep, began, until, last);
    calendar
}

/// Sleep that is in no month, if there is no calendar.
fn has_slept(status: &ElastiServiceStatus) -> bool {
    let saved = status.saved.as_ref().is_some_and(|sum| sum.pod_seconds > 0);
    saved || status.asleep_seconds.is_some_and(|seconds| seconds > 0)
}

fn add_months(
    months: &mut Vec<SavedMonth>,
    sleep: &CurrentSleep,
    began: Timestamp,
    until: Timestamp,
    last: Date,
) {
    let mut first_day = last.first_of_month();
    let mut added = Vec::new();
    for _ in 0..MAX_MONTHS {
        let (Some(start), Ok(next)) = (
            midnight(first_day),
            first_day.checked_add(Span::new().months(1)),
        ) else {
            break;
        };
        let end = midnight(next).unwrap_or(until).min(until);
        let from = start.max(began);
        if from < end {
            added.push(SavedMonth {
                month: month_name(first_day),
                asleep_seconds: end.duration_since(from).as_secs(),
                saved: part(sleep, from, end),
            });
        }
        let before = first_day.checked_sub(Span::new().months(1));
        let (true, Ok(before)) = (began < start, before) else {
            break;
        };
        first_day = before;
    }
    for more in added {
        add_month(months, more);
    }
    // What a wrong clock has put into the future would stand in the way of the months that come.
    let current = month_name(last);
    months.retain(|one| one.month <= current);
    months.sort_by(|a, b| a.month.cmp(&b.month));
    let surplus = months.len().saturating_sub(MAX_MONTHS);
    months.drain(..surplus);
}

fn add_month(months: &mut Vec<SavedMonth>, more: SavedMonth) {
    match months.iter_mut().find(|one| one.month == more.month) {
        Some(one) => {
            let sum = i128::from(one.asleep_seconds) + i128::from(more.asleep_seconds);
            one.asleep_seconds = bounded(sum);
            one.saved = plus(std::mem::take(&mut one.saved), &more.saved);
        }
        None => months.push(more),
    }
}

/// Days without sleep are zeros between others; before the first one with sleep there are none.
fn add_days(
    calendar: &mut SavingsCalendar,
    sleep: &CurrentSleep,
    began: Timestamp,
    until: Timestamp,
    last: Date,
) {
    let known = days(calendar);
    let mut sums = Vec::new();
    let mut day = last;
    for _ in 0..MAX_DAYS {
        let before = known.iter().find(|(date, _)| *date == day);
        let start = midnight(day).unwrap_or(until);
        let next = day.tomorrow().ok().and_then(midnight).unwrap_or(until);
        let (from, end) = (start.max(began), next.min(until));
        let more = match from < end {
            true => part(sleep, from, end).pod_seconds,
            false => 0,
        };
        let sum = i128::from(before.map_or(0, |(_, seconds)| *seconds)) + i128::from(more);
        sums.push(bounded(sum));
        let Ok(yesterday) = day.yesterday() else {
            break;
        };
        day = yesterday;
    }
    while sums.last() == Some(&0) {
        sums.pop();
    }
    sums.reverse();
    calendar.last_day = last.to_string();
    calendar.pod_seconds_by_day = sums;
}

/// The days of a calendar with their pod seconds, oldest first. None where the last day is not a date.
#[must_use]
pub fn days(calendar: &SavingsCalendar) -> Vec<(Date, i64)> {
    let Ok(mut day) = calendar.last_day.parse::<Date>() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for seconds in calendar.pod_seconds_by_day.iter().rev().take(MAX_DAYS) {
        all.push((day, (*seconds).max(0)));
        let Ok(yesterday) = day.yesterday() else {
            break;
        };
        day = yesterday;
    }
    all.reverse();
    all
}

/// What a part of a sleep saved.
fn part(sleep: &CurrentSleep, from: Timestamp, end: Timestamp) -> SavedSeconds {
    let since = Some(elasti_api::Time(from));
    let sleep = CurrentSleep {
        since,
        ..sleep.clone()
    };
    saved_by(&sleep, end)
}

/// `2026-03`.
fn month_name(day: Date) -> String {
    format!("{:04}-{:02}", day.year(), day.month())
}

fn midnight(day: Date) -> Option<Timestamp> {
    let zoned = day.to_zoned(TimeZone::UTC).ok()?;
    Some(zoned.timestamp())
}
