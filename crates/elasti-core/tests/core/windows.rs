//! Windows over both changes of the clocks in two zones, against Python's zoneinfo (windows/record.py).

use elasti_api::EnabledPeriod;
use elasti_core::schedule::{ActiveWindow, WindowState};
use jiff::{SignedDuration, Timestamp};

const RECORDED: &str = include_str!("windows/recorded.csv");
/// As in the recording.
const STEP: SignedDuration = SignedDuration::from_mins(15);

#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    zone: &'a str,
    schedule: &'a str,
    hours: &'a str,
    from: Timestamp,
    state: WindowState,
}

fn at(text: &str) -> Timestamp {
    text.replace('Z', ":00Z").parse().unwrap()
}

fn line(text: &str) -> Line<'_> {
    let fields: Vec<&str> = text.split(',').collect();
    let [zone, schedule, hours, from, word, until] = fields[..] else {
        panic!("{text}");
    };
    let until = at(until);
    let state = match word {
        "open" => WindowState::Inside { until },
        _ => WindowState::Outside { until },
    };
    Line {
        zone,
        schedule,
        hours,
        from: at(from),
        state,
    }
}

#[test]
fn windows_open_and_close_as_zoneinfo_says_when_the_clocks_change() {
    let lines: Vec<Line<'_>> = RECORDED.lines().map(line).collect();
    let mut compared = 0;
    for (index, recorded) in lines.iter().enumerate() {
        let window = ActiveWindow::parse(&EnabledPeriod {
            schedule: recorded.schedule.into(),
            duration: format!("{}h", recorded.hours),
            time_zone: Some(recorded.zone.into()),
        })
        .unwrap();
        // Each line holds until the next one of the same window.
        let next = lines.get(index + 1);
        let next = next.filter(|next| next.from > recorded.from && same(recorded, next));
        let last = next.map_or(recorded.from + STEP, |next| next.from);
        let mut now = recorded.from;
        while now < last {
            assert_eq!(window.state_at(now), recorded.state, "{now} {recorded:?}");
            compared += 1;
            now += STEP;
        }
    }
    assert!(compared > 10_000, "{compared} comparisons");
}

fn same(one: &Line<'_>, other: &Line<'_>) -> bool {
    (one.zone, one.schedule, one.hours) == (other.zone, other.schedule, other.hours)
}
