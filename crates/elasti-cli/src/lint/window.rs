//! The active windows of a spec.

use elasti_api::EnabledPeriod;
use elasti_core::schedule::{ActiveWindow, WindowError};

use super::document::Document;
use super::finding::{Finding, Rule, Severity};

/// What is wrong with one window of the spec, each part alone, so that one fault does not hide the other.
pub(super) fn check(
    document: &Document,
    path: &str,
    period: &EnabledPeriod,
    found: &mut Vec<Finding>,
) {
    let usual = EnabledPeriod {
        schedule: "0 0 * * *".to_owned(),
        duration: "24h".to_owned(),
        time_zone: None,
    };
    let schedule = EnabledPeriod {
        schedule: period.schedule.clone(),
        ..usual.clone()
    };
    let duration = EnabledPeriod {
        duration: period.duration.clone(),
        ..usual.clone()
    };
    let zone = EnabledPeriod {
        time_zone: period.time_zone.clone(),
        ..usual
    };
    for alone in [schedule, duration, zone] {
        let Err(error) = ActiveWindow::parse(&alone) else {
            continue;
        };
        let (field, fix) = match error {
            WindowError::Schedule(_) => (
                "schedule",
                "write minute, hour, day of month, month and day of week, for example \"0 20 * * *\"",
            ),
            WindowError::Never(_) => ("schedule", "write a day that exists in that month"),
            WindowError::Duration(_) => (
                "duration",
                "write hours, minutes and seconds, for example 8h or 1h30m",
            ),
            WindowError::TimeZone(_) => (
                "timeZone",
                "write a name of the IANA database, for example Europe/Berlin; daylight saving is followed",
            ),
        };
        let field = format!("{path}.{field}");
        let message = format!(
            "{}.{error}; the service never sleeps",
            path.trim_start_matches("spec.")
        );
        found.push(Finding::new(
            document,
            (Severity::Error, Rule::Window),
            &field,
            message,
            fix,
        ));
    }
}
