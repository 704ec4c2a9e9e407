//! The active window: a cron expression in UTC and a duration in Go's format. UTC, so daylight saving cannot move it.

use std::str::FromStr;
use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use elasti_api::EnabledPeriod;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

/// The periods in which sleep is allowed.
#[derive(Clone, Debug)]
pub struct ActiveWindow {
    schedule: Cron,
    duration: SignedDuration,
}

/// Why an `enabledPeriod` is invalid; each says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WindowError {
    /// The schedule is not a cron expression.
    #[error(
        "enabledPeriod.schedule {0:?} is not a five-field cron expression such as \"0 20 * * *\""
    )]
    Schedule(String),
    /// The schedule names a date that never occurs.
    #[error("enabledPeriod.schedule {0:?} names a date that never occurs")]
    Never(String),
    /// The duration is not in Go's format.
    #[error("enabledPeriod.duration {0:?} is not a positive duration such as \"8h\" or \"1h30m\"")]
    Duration(String),
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

impl ActiveWindow {
    /// Parses the spec.
    ///
    /// # Errors
    /// If the schedule or the duration is invalid.
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
        let window = Self { schedule, duration };
        window
            .schedule
            .find_next_occurrence(&DateTime::constant(2024, 1, 1, 0, 0, 0, 0), true)
            .map_err(|_| WindowError::Never(period.schedule.clone()))?;
        Ok(window)
    }

    /// Where `now` lies.
    #[must_use]
    pub fn state_at(&self, now: Timestamp) -> WindowState {
        let civil = now.to_zoned(TimeZone::UTC).datetime();
        let started = self
            .schedule
            .find_previous_occurrence(&civil, true)
            .ok()
            .and_then(utc);
        if let Some(end) = started.and_then(|start| start.checked_add(self.duration).ok())
            && now < end
        {
            return WindowState::Inside { until: end };
        }
        let next = self
            .schedule
            .find_next_occurrence(&civil, false)
            .ok()
            .and_then(utc);
        WindowState::Outside {
            until: next.unwrap_or(Timestamp::MAX),
        }
    }
}

fn utc(civil: DateTime) -> Option<Timestamp> {
    civil
        .to_zoned(TimeZone::UTC)
        .ok()
        .map(|zoned| zoned.timestamp())
}

/// A duration above zero, as Go writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoDuration(pub Duration);

impl FromStr for GoDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let duration = parse_go_duration(text).and_then(|duration| duration.try_into().ok());
        let above_zero = duration.filter(|duration: &Duration| !duration.is_zero());
        above_zero.map(Self).ok_or(InvalidDuration)
    }
}

/// The text is not a duration above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidDuration;

/// Parses a duration as Go's `time.ParseDuration` does: `1h30m`, `1.5h`, `300ms`, `-2m`; `None` if it is not one.
#[must_use]
pub fn parse_go_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total_nanos: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number_end);
        let unit_end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        total_nanos = total_nanos.checked_add(part_nanos(number, unit_nanos(unit)?)?)?;
        rest = next;
    }
    let nanos = i64::try_from(total_nanos).ok()?;
    Some(SignedDuration::from_nanos(if negative {
        -nanos
    } else {
        nanos
    }))
}

fn unit_nanos(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// `number` (digits with at most one point) times `unit`, cut to whole nanoseconds.
fn part_nanos(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    // Eighteen digits are more than a nanosecond of an hour needs; the rest cannot change the result.
    let digits = fraction.get(..fraction.len().min(18))?;
    let scale = 10_i128.pow(u32::try_from(digits.len()).ok()?);
    let fraction: i128 = if digits.is_empty() {
        0
    } else {
        digits.parse().ok()?
    };
    whole
        .checked_mul(unit)?
        .checked_add(fraction.checked_mul(unit)? / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(schedule: &str, duration: &str) -> Result<ActiveWindow, WindowError> {
        ActiveWindow::parse(&EnabledPeriod {
            schedule: schedule.into(),
            duration: duration.into(),
        })
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn go_durations_parse_as_in_go() {
        let good = [
            ("24h", 86_400_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("300ms", 300),
            ("0", 0),
            ("+5s", 5_000),
            ("-2m", -120_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("2h45m30.25s", 9_930_250),
            ("1000us", 1),
            ("1000µs", 1),
        ];
        for (text, millis) in good {
            assert_eq!(
                parse_go_duration(text),
                Some(SignedDuration::from_millis(millis)),
                "{text}"
            );
        }
        for text in [
            "",
            "24",
            "h",
            "1d",
            "1h ",
            " 1h",
            "1..5h",
            ".s",
            "-",
            "1h-30m",
            "9999999999h",
            "1e3s",
        ] {
            assert_eq!(parse_go_duration(text), None, "{text}");
        }
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
}
