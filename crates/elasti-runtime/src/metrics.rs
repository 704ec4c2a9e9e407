//! Metrics under exactly the names that the contract fixes, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Most series of one family; past it everything counts under one series whose labels all say `other`.
/// 10,000 services x 3 series x 200 bytes = 6 MB.
pub const MOST_SERIES: usize = 30_000;

/// Upper bounds in seconds for requests that may wait for a pod to start.
pub const SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
    600.0,
];

type Text = &'static str;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Counter,
    Gauge,
    Histogram(&'static [f64]),
}

/// All families of one process.
#[derive(Debug, Default)]
pub struct Registry {
    families: Mutex<Vec<Arc<Family>>>,
}

impl Registry {
    /// A family of counts that only grow.
    pub fn counter(&self, name: Text, help: Text, labels: &'static [Text]) -> Arc<Family> {
        self.family(name, help, labels, Kind::Counter)
    }

    /// A family of values that go up and down.
    pub fn gauge(&self, name: Text, help: Text, labels: &'static [Text]) -> Arc<Family> {
        self.family(name, help, labels, Kind::Gauge)
    }

    /// A family of durations in [`SECONDS`].
    pub fn histogram(&self, name: Text, help: Text, labels: &'static [Text]) -> Arc<Family> {
        self.family(name, help, labels, Kind::Histogram(SECONDS))
    }

    fn family(&self, name: Text, help: Text, labels: &'static [Text], kind: Kind) -> Arc<Family> {
        let family = Arc::new(Family {
            name,
            help,
            labels,
            kind,
            series: Mutex::default(),
        });
        self.families.lock().push(family.clone());
        family
    }

    /// Everything in Prometheus' text format.
    #[must_use]
    pub fn encode(&self) -> String {
        self.encode_only(None)
    }

    /// The same, of the family of this name alone.
    #[must_use]
    pub fn encode_only(&self, name: Option<&str>) -> String {
        let mut text = String::new();
        let families = self.families.lock();
        let wanted = families
            .iter()
            .filter(|family| name.is_none_or(|name| family.name == name));
        for family in wanted {
            family.encode(&mut text);
        }
        text
    }
}

/// All series of one name.
#[derive(Debug)]
pub struct Family {
    name: Text,
    help: Text,
    labels: &'static [Text],
    kind: Kind,
    series: Mutex<BTreeMap<Vec<String>, Arc<Series>>>,
}

impl Family {
    /// The series with these label values, in the order of the family's labels; keep it where it is used often.
    #[must_use]
    pub fn with(&self, values: &[&str]) -> Arc<Series> {
        let mut key: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        key.resize(self.labels.len(), String::new());
        let mut series = self.series.lock();
        if series.len() >= MOST_SERIES && !series.contains_key(&key) {
            key.fill("other".to_owned());
        }
        let buckets = match self.kind {
            Kind::Histogram(bounds) => bounds.len(),
            Kind::Counter | Kind::Gauge => 0,
        };
        series
            .entry(key)
            .or_insert_with(|| Arc::new(Series::new(buckets)))
            .clone()
    }

    /// Whether there is a series with these label values.
    #[must_use]
    pub fn has(&self, values: &[&str]) -> bool {
        let key: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        self.series.lock().contains_key(&key)
    }

    /// Forgets every series whose first labels have these values: what they spoke of is gone.
    pub fn forget(&self, first: &[&str]) {
        self.forget_where(|key| {
            let same = key.iter().zip(first).all(|(have, gone)| have == gone);
            same && key.len() >= first.len()
        });
    }

    /// Forgets every series with such label values.
    pub fn forget_where(&self, gone: impl Fn(&[String]) -> bool) {
        self.series.lock().retain(|key, _| !gone(key));
    }

    fn encode(&self, text: &mut String) {
        let word = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "# HELP {} {}\n# TYPE {} {word}",
            self.name, self.help, self.name
        );
        for (values, series) in self.series.lock().iter() {
            let labels = self.label_text(values);
            match self.kind {
                Kind::Counter | Kind::Gauge => {
                    let braces = if labels.is_empty() {
                        String::new()
                    } else {
                        format!("{{{labels}}}")
                    };
                    let _ = writeln!(
                        text,
                        "{}{braces} {}",
                        self.name,
                        series.value.load(Ordering::Relaxed)
                    );
                }
                Kind::Histogram(bounds) => series.encode(self.name, &labels, bounds, text),
            }
        }
    }

    fn label_text(&self, values: &[String]) -> String {
        let pairs = self.labels.iter().zip(values);
        let written: Vec<String> = pairs
            .map(|(name, value)| {
                let escaped = value
                    .replace('\\', "\\\\")
                    .replace('"', "\\\"")
                    .replace('\n', "\\n");
                format!("{name}=\"{escaped}\"")
            })
            .collect();
        written.join(",")
    }
}

/// One counted thing.
#[derive(Debug)]
pub struct Series {
    value: AtomicI64,
    buckets: Vec<AtomicU64>,
    sum_micros: AtomicU64,
}

impl Series {
    fn new(buckets: usize) -> Self {
        Self {
            value: AtomicI64::new(0),
            buckets: (0..buckets).map(|_| AtomicU64::new(0)).collect(),
            sum_micros: AtomicU64::new(0),
        }
    }

    /// One more.
    pub fn increment(&self) {
        self.value.fetch_add(1, Ordering::Relaxed);
    }

    /// So many more.
    pub fn add(&self, more: usize) {
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        self.value.fetch_add(more, Ordering::Relaxed);
    }

    /// One less.
    pub fn decrement(&self) {
        self.value.fetch_sub(1, Ordering::Relaxed);
    }

    /// Exactly this.
    pub fn set(&self, value: i64) {
        self.value.store(value, Ordering::Relaxed);
    }

    /// At least this: a counter never goes back.
    pub fn raise(&self, value: i64) {
        self.value.fetch_max(value, Ordering::Relaxed);
    }

    /// What it stands at; for a histogram, how many were observed.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    /// One more duration, in a histogram of [`SECONDS`].
    pub fn observe(&self, duration: std::time::Duration) {
        let seconds = duration.as_secs_f64();
        let fits = SECONDS.iter().position(|bound| seconds <= *bound);
        if let Some(bucket) = fits.and_then(|at| self.buckets.get(at)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
        self.value.fetch_add(1, Ordering::Relaxed);
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "a sum of seconds is shown with microseconds at most"
    )]
    fn encode(&self, name: &str, labels: &str, bounds: &[f64], text: &mut String) {
        let comma = if labels.is_empty() { "" } else { "," };
        let braces = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{labels}}}")
        };
        let count = self.value.load(Ordering::Relaxed);
        let mut below = 0;
        for (bound, bucket) in bounds.iter().zip(&self.buckets) {
            below += bucket.load(Ordering::Relaxed);
            let _ = writeln!(
                text,
                "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}"
            );
        }
        let sum = self.sum_micros.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        let _ = writeln!(
            text,
            "{name}_sum{braces} {sum}\n{name}_count{braces} {count}"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_stand_exactly_as_given_and_values_are_escaped() {
        let registry = Registry::default();
        let family = registry.counter(
            "elasti_resolver_traffic_switch_count",
            "Switches.",
            &["namespace", "service"],
        );
        family.with(&["shop", "a\"b\\c\nd"]).increment();
        assert_eq!(
            registry.encode(),
            "# HELP elasti_resolver_traffic_switch_count Switches.\n\
             # TYPE elasti_resolver_traffic_switch_count counter\n\
             elasti_resolver_traffic_switch_count{namespace=\"shop\",service=\"a\\\"b\\\\c\\nd\"} 1\n"
        );
        let alone = registry.encode_only(Some("elasti_resolver_traffic_switch_count"));
        assert_eq!(alone, registry.encode());
        assert_eq!(registry.encode_only(Some("elasti_resolver")), "");
    }

    #[test]
    fn a_histogram_counts_up_to_each_bound() {
        let registry = Registry::default();
        let series = registry.histogram("waits", "Waits.", &[]).with(&[]);
        series.observe(Duration::from_millis(7));
        series.observe(Duration::from_secs(1000));
        let text = registry.encode();
        assert!(text.contains("waits_bucket{le=\"0.005\"} 0\n"), "{text}");
        assert!(text.contains("waits_bucket{le=\"0.01\"} 1\n"), "{text}");
        assert!(text.contains("waits_bucket{le=\"+Inf\"} 2\n"), "{text}");
        assert!(
            text.contains("waits_sum 1000.007\nwaits_count 2\n"),
            "{text}"
        );
    }

    #[test]
    fn labels_past_the_bound_count_together_and_gone_ones_are_forgotten() {
        let registry = Registry::default();
        let family = registry.gauge("held", "Held.", &["namespace", "service"]);
        for at in 0..=MOST_SERIES {
            family.with(&["shop", &at.to_string()]).set(1);
        }
        let text = registry.encode();
        assert!(text.contains("held{namespace=\"other\",service=\"other\"} 1\n"));
        assert_eq!(text.lines().count(), MOST_SERIES + 3);
        family.forget(&["shop", "7"]);
        assert!(!registry.encode().contains("service=\"7\""));
    }

    /// Why no label comes from a client's text.
    #[test]
    fn a_label_that_clients_choose_makes_a_series_of_each_value() {
        for (label, series) in [("made-up", 1), ("", 1_000)] {
            let registry = Registry::default();
            let family = registry.counter("requests", "Requests.", &["host"]);
            for at in 0..1_000 {
                let host = match label {
                    "" => format!("made-up-{at}.default"),
                    fixed => fixed.to_owned(),
                };
                family.with(&[host.as_str()]).increment();
            }
            let text = registry.encode();
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            assert_eq!(lines.count(), series);
        }
    }
}
