//! Metrics under exactly the names that the contract fixes, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

/// Most series of one family; past it everything counts under one series whose labels all say `other`.
/// 10,000 services x 3 series x 150 bytes = 4.5 MB.
pub const MOST_SERIES: usize = 30_000;

/// Upper bounds in seconds for requests that may wait for a pod to start.
pub const SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
    600.0,
];

type Text = &'static str;

/// Ends each label value in the key of a series: one string takes a third of what one for each value takes. No value has it.
const END: char = '\0';

#[derive(Clone, Copy, Debug)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
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
        self.family(name, help, labels, Kind::Histogram)
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
    series: Mutex<BTreeMap<Box<str>, Arc<Series>>>,
}

impl Family {
    /// The series with these label values, in the order of the family's labels; keep it where it is used often.
    #[must_use]
    pub fn with(&self, values: &[&str]) -> Arc<Series> {
        let absent = self.labels.len().saturating_sub(values.len());
        let mut key = key_of(values) + &END.to_string().repeat(absent);
        let mut all = self.series.lock();
        if let Some(series) = all.get(key.as_str()) {
            return series.clone();
        }
        if all.len() >= MOST_SERIES {
            key = key_of(&vec!["other"; self.labels.len()]);
        }
        let new = || Arc::new(Series::new(self.kind));
        all.entry(key.into()).or_insert_with(new).clone()
    }

    /// Whether there is a series with these label values.
    #[must_use]
    pub fn has(&self, values: &[&str]) -> bool {
        self.series.lock().contains_key(key_of(values).as_str())
    }

    /// Forgets every series whose first labels have these values: what they spoke of is gone.
    pub fn forget(&self, first: &[&str]) {
        self.forget_prefix(&key_of(first));
    }

    /// Forgets every series whose first label begins so.
    pub fn forget_where_first_begins(&self, text: &str) {
        self.forget_prefix(text);
    }

    fn forget_prefix(&self, prefix: &str) {
        let mut series = self.series.lock();
        series.retain(|key, _| !key.starts_with(prefix));
    }

    fn encode(&self, text: &mut String) {
        let word = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "# HELP {} {}\n# TYPE {} {word}",
            self.name, self.help, self.name
        );
        for (key, series) in self.series.lock().iter() {
            let labels = self.label_text(key);
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
                Kind::Histogram => series.encode(self.name, &labels, text),
            }
        }
    }

    fn label_text(&self, key: &str) -> String {
        let pairs = self.labels.iter().zip(key.split_terminator(END));
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

fn key_of(values: &[&str]) -> String {
    let mut key = String::new();
    for value in values {
        key.extend(value.chars().filter(|letter| *letter != END));
        key.push(END);
    }
    key
}

/// One counted thing.
#[derive(Debug)]
pub struct Series {
    value: AtomicI64,
    /// If it is one of a histogram. Most are not.
    histogram: Option<Box<Histogram>>,
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; SECONDS.len()],
    sum_micros: AtomicU64,
}

impl Series {
    fn new(kind: Kind) -> Self {
        Self {
            value: AtomicI64::new(0),
            histogram: matches!(kind, Kind::Histogram).then(Box::default),
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
        if let Some(histogram) = &self.histogram {
            if let Some(bucket) = fits.and_then(|at| histogram.buckets.get(at)) {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
            let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
            histogram.sum_micros.fetch_add(micros, Ordering::Relaxed);
        }
        self.value.fetch_add(1, Ordering::Relaxed);
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "a sum of seconds is shown with microseconds at most"
    )]
    fn encode(&self, name: &str, labels: &str, text: &mut String) {
        let Some(histogram) = &self.histogram else {
            return;
        };
        let comma = if labels.is_empty() { "" } else { "," };
        let braces = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{labels}}}")
        };
        let count = self.value.load(Ordering::Relaxed);
        let mut below = 0;
        for (bound, bucket) in SECONDS.iter().zip(&histogram.buckets) {
            below += bucket.load(Ordering::Relaxed);
            let _ = writeln!(
                text,
                "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}"
            );
        }
        let sum = histogram.sum_micros.load(Ordering::Relaxed) as f64 / 1e6;
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
    fn values_that_begin_alike_are_told_apart() {
        let registry = Registry::default();
        let family = registry.gauge("held", "Held.", &["namespace", "service"]);
        for labels in [["shop", "a"], ["shop", "ab"], ["shopa", "b"], ["", "shopa"]] {
            family.with(&labels).set(1);
        }
        family.with(&["shop"]).set(1);
        family.forget(&["shop", "a"]);
        assert!(!family.has(&["shop", "a"]) && family.has(&["shop", "ab"]));
        family.forget(&["shop"]);
        let left = [["shopa", "b"], ["", "shopa"]].map(|labels| family.has(&labels));
        assert_eq!(left, [true, true]);
        assert!(!family.has(&["shop", ""]) && !family.has(&["shop", "ab"]));
        family.forget_where_first_begins("sho");
        assert!(!family.has(&["shopa", "b"]) && family.has(&["", "shopa"]));
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
