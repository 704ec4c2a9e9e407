//! What one ElastiService says by itself: schema, triggers, window, probe answers.

use std::net::IpAddr;

use elasti_api::{ElastiService, ElastiServiceSpec, ProbeResponse, Trigger};
use elasti_core::probe_response::{ProbeRequest, ProbeRules};
use elasti_operator::triggers::address;
use elasti_schema::{Refusal, RefusalKind, admit};
use kube::core::CustomResourceExt as _;
use kube::core::Resource as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::document::Document;
use super::finding::Severity::{Error, Warning};
use super::finding::{Finding, Rule};
use super::window;

/// The keys of a Prometheus trigger.
const TRIGGER_KEYS: [&str; 5] = [
    "query",
    "threshold",
    "serverAddress",
    "uptimeFilter",
    "headers",
];

/// The schema that the API server has, with its rules.
pub(crate) struct Gate {
    schema: Value,
}

impl Gate {
    pub(crate) fn new() -> serde_json::Result<Self> {
        let mut crd = serde_json::to_value(ElastiService::crd())?;
        let schema = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema");
        Ok(Self {
            schema: schema.map(Value::take).unwrap_or_default(),
        })
    }

    /// Everything that is wrong, and the spec as it would be stored, if it would.
    pub(crate) fn check(
        &self,
        document: &Document,
        source: &str,
    ) -> (Vec<Finding>, Option<ElastiServiceSpec>) {
        let mut found = check_head(document);
        self.unknown_fields(document, &self.schema, &document.value, "", &mut found);
        let admitted = admit(&self.schema, &document.value, None);
        let stored = match admitted {
            Ok(stored) => stored.get("spec").cloned(),
            Err(refusals) => {
                found.extend(refusals.iter().map(|one| self.refused(document, one)));
                None
            }
        };
        // Other problems are reported too, as far as the spec can be parsed.
        let written = document.value.get("spec").cloned().unwrap_or_default();
        let spec: Option<ElastiServiceSpec> =
            stored.and_then(|spec| serde_json::from_value(spec).ok());
        check_triggers(document, source, &parts(&written, "triggers"), &mut found);
        if let Some(period) = part(&written, "enabledPeriod") {
            window::check(document, "spec.enabledPeriod", &period, &mut found);
        }
        for (index, period) in parts(&written, "enabledPeriods") {
            let path = format!("spec.enabledPeriods[{index}]");
            window::check(document, &path, &period, &mut found);
        }
        check_probes(document, &parts(&written, "probeResponse"), &mut found);
        // A value that cannot be read is refused by the schema and by its reader: once is enough.
        let refused: Vec<String> = of_schema(&found);
        found.retain(|one| {
            let is_same = |path: &String| {
                one.field.starts_with(path) || (one.is_error() && path.starts_with(&one.field))
            };
            one.rule == Rule::Schema || !refused.iter().any(is_same)
        });
        let fits = !found.iter().any(Finding::is_error);
        (found, spec.filter(|_| fits))
    }

    /// What the API server refuses in place of the object that it has: fields that cannot be changed.
    pub(crate) fn check_update(&self, document: &Document, old: &Value) -> Vec<Finding> {
        let alone = admit(&self.schema, &document.value, None)
            .err()
            .unwrap_or_default();
        let refusals = admit(&self.schema, &document.value, Some(old)).err();
        let refusals = refusals.unwrap_or_default();
        let new = refusals
            .iter()
            .filter(|one| !alone.contains(one) && !one.field.is_empty());
        new.map(|refusal| self.refused(document, refusal)).collect()
    }

    fn refused(&self, document: &Document, refusal: &Refusal) -> Finding {
        let what = (Error, Rule::Schema);
        // The server says so beside faults of shape.
        if refusal.field.is_empty() {
            let message = "some rules were not checked because of other errors";
            let fix = "correct those, and lint again";
            return Finding::new(document, (Warning, Rule::Schema), "spec", message, fix);
        }
        let of_rules = matches!(refusal.kind, RefusalKind::Invalid | RefusalKind::Forbidden);
        let by_rule = of_rules && !refusal.detail.contains(" in body ");
        if by_rule {
            // A rule's sentence says what to write.
            let message = "the API server rejects this value";
            return Finding::new(document, what, &refusal.field, message, &refusal.detail);
        }
        let text = refusal.to_string();
        let message = text.strip_prefix(&format!("{}: ", refusal.field));
        let fix = self.fix(&refusal.field, refusal.kind);
        let message = message.unwrap_or(&text);
        Finding::new(document, what, &refusal.field, message, fix)
    }

    /// What the schema allows at a path, as a sentence.
    fn fix(&self, path: &str, kind: RefusalKind) -> String {
        let Some(node) = self.node(path) else {
            return format!("correct {path}");
        };
        let number = |key: &str| node.get(key).and_then(Value::as_f64);
        let words = |values: &Vec<Value>| {
            let words: Vec<String> = values.iter().map(plain).collect();
            words.join(", ")
        };
        if kind == RefusalKind::Required {
            return format!("add {path}{}", of_what(node));
        }
        if let Some(values) = node.get("enum").and_then(Value::as_array) {
            return format!("write one of {}", words(values));
        }
        match (
            node.get("type").and_then(Value::as_str),
            number("minimum"),
            number("maximum"),
        ) {
            (_, Some(least), Some(most)) => format!("write a whole number from {least} to {most}"),
            (_, Some(least), None) => format!("write a whole number of at least {least}"),
            (Some("array"), ..) => {
                let count = |key: &str| node.get(key).and_then(Value::as_u64);
                match (count("minItems"), count("maxItems")) {
                    (Some(least), Some(most)) => {
                        format!("write {least} to {most} entries, or leave the list out")
                    }
                    (None, Some(most)) => format!("write at most {most} entries"),
                    _ => "write a list".to_owned(),
                }
            }
            (Some("boolean"), ..) => "write true or false".to_owned(),
            (Some("object"), ..) => "write a map of fields".to_owned(),
            // A threshold: a number, or a text that is one.
            (None, ..) => "write a number in quotes, for example \"0.5\"".to_owned(),
            _ => match node.get("maxLength").and_then(Value::as_u64) {
                Some(most) => format!("write a text of at most {most} characters{}", of_what(node)),
                None => format!("write a text{}", of_what(node)),
            },
        }
    }

    /// The schema of the value at a path.
    fn node(&self, path: &str) -> Option<&Value> {
        let flat = path.replace('[', ".[").replace(']', "");
        let parts = flat.split('.').filter(|part| !part.is_empty());
        parts
            .into_iter()
            .try_fold(&self.schema, |node, part| match part.starts_with('[') {
                true => node.get("items"),
                false => node
                    .get("properties")
                    .and_then(|fields| fields.get(part))
                    .or_else(|| node.get("additionalProperties")),
            })
    }

    /// Fields that the API server would drop without a word.
    fn unknown_fields(
        &self,
        document: &Document,
        schema: &Value,
        value: &Value,
        path: &str,
        found: &mut Vec<Finding>,
    ) {
        match (value, schema.get("properties").and_then(Value::as_object)) {
            (Value::Array(items), _) => {
                let Some(schema) = schema.get("items") else {
                    return;
                };
                for (index, item) in items.iter().enumerate() {
                    self.unknown_fields(document, schema, item, &format!("{path}[{index}]"), found);
                }
            }
            (Value::Object(fields), Some(known)) => {
                let keeps = schema.get("x-kubernetes-preserve-unknown-fields").is_some();
                for (key, item) in fields {
                    let below = match path {
                        "" => key.clone(),
                        path => format!("{path}.{key}"),
                    };
                    match known.get(key) {
                        // Kubernetes' own.
                        Some(_) if below == "metadata" || below == "status" => {}
                        Some(schema) => self.unknown_fields(document, schema, item, &below, found),
                        None if path.is_empty()
                            && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") => {}
                        None => found.push(unknown(document, &below, key, known.keys(), keeps)),
                    }
                }
            }
            _ => {}
        }
    }
}

/// One field of the spec, if it can be read: a fault elsewhere must not hide what is wrong here.
fn part<T: DeserializeOwned>(spec: &Value, name: &str) -> Option<T> {
    serde_json::from_value(spec.get(name)?.clone()).ok()
}

/// The entries of a list of the spec, with their places, as far as they can be read.
fn parts<T: DeserializeOwned>(spec: &Value, name: &str) -> Vec<(usize, T)> {
    let entries = spec
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let read = |(index, value): (usize, &Value)| {
        Some((index, serde_json::from_value(value.clone()).ok()?))
    };
    entries.enumerate().filter_map(read).collect()
}

fn of_schema(found: &[Finding]) -> Vec<String> {
    let schema = found
        .iter()
        .filter(|one| one.rule == Rule::Schema && one.is_error());
    schema.map(|one| one.field.clone()).collect()
}

/// What a field is for, by the first sentence of its description.
fn of_what(node: &Value) -> String {
    let text = node.get("description").and_then(Value::as_str);
    let sentence = text.and_then(|text| text.split(". ").next());
    match sentence {
        Some(sentence) => format!(": {}", sentence.trim_end_matches('.').replace('\n', " ")),
        None => String::new(),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn unknown<'a>(
    document: &Document,
    path: &str,
    key: &str,
    known: impl Iterator<Item = &'a String>,
    keeps: bool,
) -> Finding {
    let close = known
        .map(|one| (distance(&one.to_lowercase(), &key.to_lowercase()), one))
        .min()
        .filter(|(distance, _)| *distance <= 2)
        .map(|(_, one)| one.clone());
    let fix = match (&close, keeps) {
        (Some(close), _) => format!("write {close} instead"),
        (None, true) => format!(
            "remove it; a Prometheus trigger reads {}",
            TRIGGER_KEYS.join(", ")
        ),
        (None, false) => {
            "remove it; kubectl explain elastiservice.spec lists the fields".to_owned()
        }
    };
    let message = match keeps {
        true => "nothing reads this setting",
        false => "the CRD has no such field, so the API server drops it",
    };
    let severity = if keeps { Warning } else { Error };
    Finding::new(document, (severity, Rule::UnknownField), path, message, fix)
}

/// How many letters must change to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut next = vec![index + 1];
        for (column, (against, pair)) in other.iter().zip(row.windows(2)).enumerate() {
            let (&[diagonal, above], Some(&left)) = (pair, next.get(column)) else {
                return usize::MAX;
            };
            let changed = diagonal + usize::from(letter != *against);
            next.push(changed.min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// What the API server checks before the schema.
fn check_head(document: &Document) -> Vec<Finding> {
    let mut found = Vec::new();
    let version = ElastiService::api_version(&());
    if document.api_version() != version {
        let message = match document.api_version() {
            "" => "apiVersion is missing".to_owned(),
            other => format!("not an ElastiService: unknown apiVersion {other}"),
        };
        let fix = format!("write apiVersion: {version}");
        found.push(Finding::new(
            document,
            (Error, Rule::Schema),
            "apiVersion",
            message,
            fix,
        ));
    }
    let name = document.name();
    let inner = |letter: char| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-' || letter == '.'
    };
    let edges_fit = !name.starts_with(['-', '.']) && !name.ends_with(['-', '.']);
    let generated = document.value.pointer("/metadata/generateName").is_some();
    if !generated && (name.is_empty() || name.len() > 253 || !edges_fit || !name.chars().all(inner))
    {
        let message = match name {
            "" => "metadata.name is missing".to_owned(),
            name => format!("{name:?} is not a valid Kubernetes name"),
        };
        let fix = "write lower-case letters, digits, '-' and '.', for example my-api";
        found.push(Finding::new(
            document,
            (Error, Rule::Schema),
            "metadata.name",
            message,
            fix,
        ));
    }
    found
}

fn check_triggers(
    document: &Document,
    source: &str,
    triggers: &[(usize, Trigger)],
    found: &mut Vec<Finding>,
) {
    let list = document.at("spec.triggers").and_then(Value::as_array);
    if list.is_none_or(Vec::is_empty) {
        found.push(Finding::new(
            document,
            (Warning, Rule::Trigger),
            "spec.triggers",
            "without triggers the target is never put to sleep; it is only woken after something else scales it to 0",
            "add a trigger to let Elasti put the target to sleep",
        ));
    }
    for (index, trigger) in triggers {
        let path = format!("spec.triggers[{index}].metadata");
        if let Some(query) = trigger.metadata.get("query").and_then(Value::as_str) {
            check_query(document, source, &format!("{path}.query"), query, found);
        }
        let settings = match trigger.prometheus() {
            Ok(settings) => settings,
            Err(error) => {
                let (message, fix) = sentence(&error.0);
                found.push(Finding::new(
                    document,
                    (Error, Rule::Trigger),
                    &path,
                    message,
                    fix,
                ));
                continue;
            }
        };
        if settings.threshold <= 0.0 {
            found.push(Finding::new(
                document,
                (Warning, Rule::Trigger),
                &format!("{path}.threshold"),
                format!(
                    "a reading is quiet only below {}, which a count or a rate never is",
                    settings.threshold
                ),
                "write a threshold above 0, for example \"0.5\"",
            ));
        }
        if let Some(written) = &settings.server_address {
            check_address(document, &format!("{path}.serverAddress"), written, found);
        }
        let filter = format!("up{{{}}}", settings.uptime_filter);
        if let Err(wrong) = elasti_promql::parse(&filter) {
            let mut finding = Finding::new(
                document,
                (Error, Rule::Promql),
                &format!("{path}.uptimeFilter"),
                wrong.what,
                "write label matchers such as container=\"prometheus\"",
            );
            // Three characters of the query are ours.
            let at = wrong.at.saturating_sub(3);
            place(document, source, at, &mut finding);
            found.push(finding);
        }
    }
}

/// `what is wrong; what to write` of the contract's own sentences.
fn sentence(text: &str) -> (String, String) {
    let (message, fix) = text.rsplit_once("; ").unwrap_or((text, "correct it"));
    (message.to_owned(), fix.to_owned())
}

fn place(document: &Document, source: &str, at: usize, finding: &mut Finding) {
    if let Some(position) = document.position_within(source, &finding.field, at) {
        finding.line = Some(position.line);
        finding.column = Some(position.column);
    }
}

fn check_query(
    document: &Document,
    source: &str,
    path: &str,
    query: &str,
    found: &mut Vec<Finding>,
) {
    let read = match elasti_promql::parse(query) {
        Ok(read) => read,
        Err(wrong) => {
            let message = format!("{} (character {} of the query)", wrong.what, wrong.at + 1);
            let fix = "correct the query; promtool and the Prometheus UI show the error too";
            let mut finding = Finding::new(document, (Error, Rule::Promql), path, message, fix);
            place(document, source, wrong.at, &mut finding);
            found.push(finding);
            return;
        }
    };
    for wrong in read.unknown {
        let fix = "check its name; a query that the server rejects is an unknown reading, and the service never sleeps";
        let mut finding = Finding::new(document, (Warning, Rule::Promql), path, wrong.what, fix);
        place(document, source, wrong.at, &mut finding);
        found.push(finding);
    }
    let warn = |message: &str, fix: &str| {
        Finding::new(document, (Warning, Rule::Promql), path, message, fix)
    };
    if !read.single {
        found.push(warn(
            "the query may return several series, which is an unknown reading, and the service never sleeps",
            "wrap it in sum(…) or max(…)",
        ));
    } else if !read.always {
        found.push(warn(
            "the query returns nothing while no series exists, which is an unknown reading, and the service never sleeps",
            "append \"or vector(0)\"",
        ));
    }
}

fn check_address(document: &Document, path: &str, written: &str, found: &mut Vec<Finding>) {
    let rest = written.split_once("://").map_or(written, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let refused = match host {
        "" => Some("it has no host".to_owned()),
        "localhost" => Some(address::Forbidden::Loopback.to_string()),
        host => host
            .parse::<IpAddr>()
            .ok()
            .and_then(|address| address::check(address).err())
            .map(|forbidden| forbidden.to_string()),
    };
    if let Some(why) = refused {
        let fix =
            "write the Service of your Prometheus, for example http://prometheus.monitoring:9090";
        let message = format!("the operator does not query this server: {why}");
        found.push(Finding::new(
            document,
            (Error, Rule::Trigger),
            path,
            message,
            fix,
        ));
    }
    if authority.contains('@') {
        found.push(Finding::new(
            document,
            (Warning, Rule::Trigger),
            path,
            "everyone who can read the ElastiService can read this password",
            "set the operator's header instead (PROMETHEUS_TRIGGER_AUTHORIZATION_HEADER)",
        ));
    }
}

fn check_probes(document: &Document, rules: &[(usize, ProbeResponse)], found: &mut Vec<Finding>) {
    for (index, rule) in rules {
        let path = format!("spec.probeResponse[{index}]");
        let (alone, invalid) = ProbeRules::compile(std::slice::from_ref(rule));
        for wrong in invalid {
            let message = format!("this rule matches nothing: {}", wrong.error);
            let fix = "correct the rule, or remove it";
            found.push(Finding::new(
                document,
                (Error, Rule::Probe),
                &path,
                message,
                fix,
            ));
        }
        // A request that no rule is written for.
        let any = ProbeRequest {
            method: "POST",
            path: "/elasti-lint/no-such-path",
            query: None,
            headers: &[],
        };
        if alone.answer(&any).is_some() {
            found.push(Finding::new(
                document,
                (Warning, Rule::Probe),
                &path,
                "this rule answers every request, so no request wakes the target",
                "add a path, a method or a header that only probes have",
            ));
        }
    }
}

/// The kind that is linted; a wrong group is a finding, not a reason to skip it.
pub(crate) fn is_elasti_service(document: &Document) -> bool {
    document.kind() == "ElastiService"
}
