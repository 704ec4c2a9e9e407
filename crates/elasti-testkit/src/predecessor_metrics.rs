//! The metrics of KubeElasti as they were recorded, to hold ours against.

use std::collections::{BTreeMap, BTreeSet};

/// `/metrics` of KubeElasti 0.1.30 after two services slept and one was woken: its own families only.
pub const RECORDED: &str = include_str!("predecessor-metrics.txt");

/// The labels of one series.
pub type Labels = BTreeMap<String, String>;

/// One family of metrics.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    /// By the name of the sample, which for a histogram has an ending, and by labels.
    pub series: BTreeMap<(String, Labels), String>,
}

impl Family {
    /// The names of the labels that its series have.
    #[must_use]
    pub fn label_names(&self) -> BTreeSet<&str> {
        let labels = self.series.keys().flat_map(|(_, labels)| labels.keys());
        labels.map(String::as_str).collect()
    }
}

/// The families whose names begin so, in Prometheus' text format.
#[must_use]
pub fn families(text: &str, prefix: &str) -> BTreeMap<String, Family> {
    let mut found: BTreeMap<String, Family> = BTreeMap::new();
    let mut last = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap();
            name.clone_into(&mut last);
            found.entry(last.clone()).or_default().kind = kind.to_owned();
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (sample, labels) = series.split_once('{').unwrap_or((series, ""));
            let key = (sample.to_owned(), parse_labels(labels));
            let family = found.get_mut(&last).unwrap();
            family.series.insert(key, value.to_owned());
        }
    }
    found.retain(|name, _| name.starts_with(prefix));
    found
}

fn parse_labels(text: &str) -> Labels {
    let pairs = text.trim_end_matches('}').split("\",");
    let pairs = pairs.filter_map(|pair| pair.split_once("=\""));
    pairs
        .map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned()))
        .collect()
}

/// What someone who reads the first would miss in the second: a family, its type, a series, or the labels that they
/// have. More families and more series are no loss.
#[must_use]
pub fn lost(theirs: &BTreeMap<String, Family>, ours: &BTreeMap<String, Family>) -> Vec<String> {
    let mut lost = Vec::new();
    for (name, family) in theirs {
        let Some(mine) = ours.get(name) else {
            lost.push(format!("{name} is missing"));
            continue;
        };
        if mine.kind != family.kind {
            lost.push(format!("{name} is a {}", mine.kind));
        }
        if mine.label_names() != family.label_names() {
            lost.push(format!("{name} has labels {:?}", mine.label_names()));
        }
        let missing = family
            .series
            .keys()
            .filter(|k| !mine.series.contains_key(k));
        lost.extend(missing.map(|(sample, labels)| format!("{sample} {labels:?} is missing")));
    }
    lost
}
