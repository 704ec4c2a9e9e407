//! What sleep saves by month and by day: every second counts once, in a bounded list.

use elasti_api::{CurrentSleep, ElastiServiceStatus, SavedSeconds, SavingsCalendar, Time};
use elasti_core::savings::{MAX_DAYS, MAX_MONTHS, calendar, days, plus, saved_by, with_sleep};
use jiff::{SignedDuration, Timestamp};

/// The most that the calendar adds to a status, as JSON.
const MAX_BYTES: usize = 2500;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn sleep(since: &str) -> CurrentSleep {
    CurrentSleep {
        since: Some(Time(at(since))),
        pods: 2,
        cpu_millicores: 500,
        memory_bytes: 1 << 30,
        resources: [("nvidia.com/gpu".to_owned(), 1)].into(),
    }
}

/// A status in which this sleep has ended then.
fn after(
    status: &ElastiServiceStatus,
    sleep: &CurrentSleep,
    until: Timestamp,
) -> ElastiServiceStatus {
    let more = saved_by(sleep, until);
    ElastiServiceStatus {
        saved: Some(plus(status.saved.clone().unwrap_or_default(), &more)),
        savings_calendar: Some(with_sleep(status, sleep, until)),
        ..ElastiServiceStatus::default()
    }
}

fn months(calendar: &SavingsCalendar) -> Vec<(&str, i64, i64)> {
    let months = calendar.months.iter();
    months
        .map(|one| {
            (
                one.month.as_str(),
                one.asleep_seconds,
                one.saved.pod_seconds,
            )
        })
        .collect()
}

fn by_day(calendar: &SavingsCalendar) -> Vec<(String, i64)> {
    let days = days(calendar).into_iter();
    days.map(|(day, seconds)| (day.to_string(), seconds))
        .collect()
}

#[test]
fn a_sleep_counts_in_each_month_and_each_day_that_it_touches() {
    let slept = after(
        &ElastiServiceStatus::default(),
        &sleep("2026-02-27T22:00:00Z"),
        at("2026-03-01T01:00:00Z"),
    );
    let calendar = slept.savings_calendar.unwrap();
    assert_eq!(calendar.since, None, "every sleep is in it");
    assert_eq!(
        months(&calendar),
        [("2026-02", 26 * 3600, 52 * 3600), ("2026-03", 3600, 7200)]
    );
    let day = |day: &str, hours: i64| (day.to_owned(), hours * 3600);
    assert_eq!(
        by_day(&calendar),
        [
            day("2026-02-27", 4),
            day("2026-02-28", 48),
            day("2026-03-01", 2)
        ]
    );
}

#[test]
fn every_second_counts_once_over_any_sleeps_of_a_month() {
    let mut status = ElastiServiceStatus::default();
    let mut now = at("2026-02-20T00:00:00Z");
    for round in 0..60_i64 {
        let seconds = 1 + round * 997 % 50_000;
        let ends = now + SignedDuration::from_secs(seconds);
        status = after(&status, &sleep(&now.to_string()), ends);
        now = ends + SignedDuration::from_secs(round * 331 % 7_000);
    }
    let calendar = status.savings_calendar.unwrap();
    let sum = calendar.months.iter().map(|one| &one.saved);
    let sum = sum.fold(SavedSeconds::default(), plus);
    assert_eq!(Some(&sum), status.saved.as_ref());
    let of_days: i64 = by_day(&calendar).iter().map(|(_, seconds)| seconds).sum();
    assert_eq!(of_days, sum.pod_seconds);
}

#[test]
fn the_sleep_that_goes_on_counts_without_being_written() {
    let mut status = ElastiServiceStatus {
        current_sleep: Some(sleep("2026-03-31T23:00:00Z")),
        ..ElastiServiceStatus::default()
    };
    let now = at("2026-04-01T02:00:00Z");
    let shown = calendar(&status, Some(0), now).unwrap();
    assert_eq!(
        months(&shown),
        [("2026-03", 3600, 7200), ("2026-04", 7200, 14_400)]
    );
    status.reason = Some("Conflict".into());
    let none = Some(SavingsCalendar::default());
    assert_eq!(calendar(&status, Some(0), now), none, "another one's sleep");
}

#[test]
fn years_of_sleep_stay_within_a_year_of_months_a_month_of_days_and_a_few_bytes() {
    let mut status = ElastiServiceStatus::default();
    let mut night = at("2023-01-01T20:00:00Z");
    for _ in 0..3 * 365 {
        let morning = night + SignedDuration::from_hours(11);
        status = after(&status, &sleep(&night.to_string()), morning);
        night += SignedDuration::from_hours(24);
    }
    let whole = after(
        &status,
        &sleep("2020-01-01T00:00:00Z"),
        at("2026-01-01T00:00:01Z"),
    );
    for calendar in [status.savings_calendar, whole.savings_calendar] {
        let calendar = calendar.unwrap();
        assert_eq!(calendar.months.len(), MAX_MONTHS);
        assert_eq!(calendar.pod_seconds_by_day.len(), MAX_DAYS);
        assert!(calendar.months.is_sorted_by_key(|one| &one.month));
        let bytes = serde_json::to_string(&calendar).unwrap().len();
        assert!(bytes <= MAX_BYTES, "{bytes}");
    }
}

#[test]
fn sleep_from_before_it_was_recorded_is_in_no_month_and_the_calendar_says_since_when_it_counts() {
    let older = ElastiServiceStatus {
        asleep_seconds: Some(100_000),
        ..ElastiServiceStatus::default()
    };
    let now = at("2026-03-10T00:00:00Z");
    assert_eq!(calendar(&older, Some(1), now), None);
    let began = "2026-03-09T20:00:00Z";
    let mut next = after(&older, &sleep(began), now);
    let since = |status: &ElastiServiceStatus| status.savings_calendar.clone().unwrap().since;
    assert_eq!(since(&next), Some(Time(at(began))));
    next = after(
        &next,
        &sleep("2026-03-10T20:00:00Z"),
        at("2026-03-11T00:00:00Z"),
    );
    assert_eq!(since(&next), Some(Time(at(began))));
}

#[test]
fn what_a_wrong_clock_or_another_hand_wrote_does_not_stay_for_ever() {
    let first = after(
        &ElastiServiceStatus::default(),
        &sleep("2031-01-01T00:00:00Z"),
        at("2031-01-02T00:00:00Z"),
    );
    let second = after(
        &first,
        &sleep("2026-03-01T00:00:00Z"),
        at("2026-03-01T01:00:00Z"),
    );
    let calendar = second.savings_calendar.as_ref().unwrap();
    assert_eq!(months(calendar), [("2026-03", 3600, 7200)]);
    assert_eq!(by_day(calendar), [("2026-03-01".to_owned(), 7200)]);

    let mut odd = second.clone();
    let written = odd.savings_calendar.as_mut().unwrap();
    written.last_day = "soon".into();
    written.pod_seconds_by_day = vec![i64::MIN, i64::MAX, -1];
    assert_eq!(by_day(written), []);
    let mended = after(
        &odd,
        &sleep("2026-03-02T00:00:00Z"),
        at("2026-03-02T01:00:00Z"),
    );
    let days = by_day(mended.savings_calendar.as_ref().unwrap());
    assert_eq!(days, [("2026-03-02".to_owned(), 7200)]);
}
