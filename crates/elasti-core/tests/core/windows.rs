//! Windows and lists of them around the changes of the clocks of four years, against Python's zoneinfo
//! (windows/record.py).

use elasti_api::{ElastiServiceSpec, EnabledPeriod};
use elasti_core::schedule::{ActiveWindow, ActiveWindows, WindowState};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

const RECORDED: &str = include_str!("windows/recorded.csv");
const STEP: SignedDuration = SignedDuration::from_mins(15);

/// What was recorded of one list of windows.
struct Recorded {
    windows: Vec<EnabledPeriod>,
    first: Timestamp,
    last: Timestamp,
    /// In order; the last one begins after `last`.
    periods: Vec<(Timestamp, Timestamp)>,
}

impl Recorded {
    fn parse(line: &str) -> Self {
        let fields: Vec<&str> = line.split(',').collect();
        let [zone, windows, times @ ..] = &fields[..] else {
            panic!("{line}");
        };
        let window = |text: &str| {
            let (schedule, duration) = text.split_once('=').unwrap();
            EnabledPeriod {
                schedule: schedule.into(),
                duration: duration.into(),
                time_zone: Some((*zone).into()),
            }
        };
        let times: Vec<Timestamp> = times.iter().map(|text| at(text)).collect();
        let mut pairs = times.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        let (first, last) = pairs.next().unwrap();
        Self {
            windows: windows.split(';').map(window).collect(),
            first,
            last,
            periods: pairs.collect(),
        }
    }

    fn state_at(&self, now: Timestamp) -> WindowState {
        let (start, end) = { self.periods.iter() }.find(|(_, end)| *end > now).unwrap();
        match *start <= now {
            true => WindowState::Inside { until: *end },
            false => WindowState::Outside { until: *start },
        }
    }

    /// What is computed, at any time. A window alone is not joined with itself.
    fn computed(&self) -> Box<dyn Fn(Timestamp) -> WindowState> {
        match &self.windows[..] {
            [one] => {
                let window = ActiveWindow::parse(one).unwrap();
                Box::new(move |now| window.state_at(now))
            }
            all => {
                let mut spec = spec();
                spec.enabled_periods = all.to_vec();
                let windows = ActiveWindows::of_spec(&spec).unwrap().unwrap();
                Box::new(move |now| windows.state_at(now))
            }
        }
    }
}

fn spec() -> ElastiServiceSpec {
    let reference = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    serde_json::from_value(json!({"service": "web", "scaleTargetRef": reference})).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.replace('Z', ":00Z").parse().unwrap()
}

#[test]
fn windows_open_and_close_as_zoneinfo_says_when_the_clocks_change() {
    let mut compared = 0;
    for line in RECORDED.lines() {
        let recorded = Recorded::parse(line);
        let computed = recorded.computed();
        let mut now = recorded.first;
        while now < recorded.last {
            assert_eq!(computed(now), recorded.state_at(now), "{now}: {line}");
            compared += 1;
            now += STEP;
        }
    }
    assert!(compared > 150_000, "{compared} comparisons");
}
