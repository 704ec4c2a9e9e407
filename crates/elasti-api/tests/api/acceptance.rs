//! The acceptance table: what KubeElasti accepts stays accepted, and what is wrong is refused with a sentence.
//! The same table runs against a real API server with `cargo xtask crd-conformance`.

mod table;

use elasti_api::{ElastiService, ElastiServiceSpec};
use elasti_schema::admit;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use table::{Case, Outcome, cases};

pub fn schema() -> Value {
    let crd = serde_json::to_value(ElastiService::crd()).unwrap();
    crd.pointer("/spec/versions/0/schema/openAPIV3Schema")
        .unwrap()
        .clone()
}

/// The stored spec, or the whole message to the user.
fn run(schema: &Value, case: &Case) -> Result<Value, String> {
    let old = case
        .old
        .as_ref()
        .map(|old| admit(schema, old, None).unwrap());
    admit(schema, &case.new, old.as_ref())
        .map(|stored| stored.get("spec").unwrap().clone())
        .map_err(|refusals| {
            let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            lines.join("\n")
        })
}

#[test]
fn every_case_of_the_table_has_its_expected_outcome() {
    let schema = schema();
    let mut wrong = Vec::new();
    for case in cases().unwrap() {
        match (run(&schema, &case), &case.outcome) {
            (Ok(stored), Outcome::Stored(wanted)) if stored == *wanted => {}
            (Err(said), Outcome::Says(wanted)) if said.contains(wanted) => {}
            (came, _) => wrong.push(format!("{}: {came:#?}", case.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_stored_spec_round_trips_unchanged() {
    for case in cases().unwrap() {
        if let Outcome::Stored(stored) = case.outcome {
            let read: ElastiServiceSpec = serde_json::from_value(stored.clone()).unwrap();
            let again = admit(
                &schema(),
                &json!({"spec": serde_json::to_value(&read).unwrap()}),
                Some(&json!({"spec": stored})),
            );
            let written = again.unwrap().get("spec").unwrap().clone();
            assert_eq!(
                without_empty(written),
                without_empty(stored),
                "{}",
                case.name
            );
        }
    }
}

/// An empty list and a list that is left out mean the same.
fn without_empty(mut spec: Value) -> Value {
    spec.as_object_mut()
        .unwrap()
        .retain(|_, value| *value != json!([]));
    spec
}

#[test]
fn the_table_is_large_enough() {
    let cases = cases().unwrap();
    let is_refused = |case: &&Case| matches!(case.outcome, Outcome::Says(_));
    assert!(cases.iter().filter(|case| case.predecessor).count() >= 25);
    assert!(cases.iter().filter(is_refused).count() >= 80);
    assert!(
        cases
            .iter()
            .filter(is_refused)
            .filter(|case| case.old.is_some())
            .count()
            >= 5
    );
}

#[test]
fn every_example_is_accepted() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let yaml = std::fs::read_to_string(&path).unwrap();
        let example: Value = serde_saphyr::from_str(&yaml).unwrap();
        let stored = admit(&schema(), &example, None)
            .unwrap_or_else(|refusals| panic!("{}: {refusals:?}", path.display()));
        let read: ElastiService = serde_json::from_value(stored.clone()).unwrap();
        for trigger in &read.spec.triggers {
            trigger.prometheus().unwrap();
        }
        let written = example.get("spec").unwrap().as_object().unwrap();
        for (key, value) in written.iter().filter(|(key, _)| *key != "probeResponse") {
            assert_eq!(
                stored.get("spec").unwrap().get(key),
                Some(value),
                "{}",
                path.display()
            );
        }
        count += 1;
    }
    assert!(count >= 8, "only {count} examples were found");
}

#[test]
fn a_spec_with_fields_of_a_later_version_is_read() {
    let spec: ElastiServiceSpec = serde_json::from_value(json!({
        "service": "my-api",
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "deployments", "name": "my-api", "uid": "1"},
        "later": {"a": 1},
    }))
    .unwrap();
    assert_eq!(spec.scale_target_ref.canonical_kind(), "Deployment");
    assert_eq!(
        (spec.min_target_replicas, spec.cooldown_seconds()),
        (1, 900)
    );
    assert!(spec.triggers.is_empty());
}

#[test]
fn a_cooldown_of_zero_means_the_default() {
    let spec: ElastiServiceSpec = serde_json::from_value(json!({
        "service": "my-api",
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "my-api"},
        "cooldownPeriod": 0,
    }))
    .unwrap();
    assert_eq!((spec.cooldown_period, spec.cooldown_seconds()), (0, 900));
}

/// KubeElasti accepted any value there. A rule fails on a value of another type, and Kubernetes then refuses
/// every later write to the object, even the one that removes its finalizer.
#[test]
fn no_rule_applies_to_what_kube_elasti_left_free() {
    let whole = schema();
    let rules_at = |pointer: &str| {
        let node = whole.pointer(pointer).unwrap();
        node.get("x-kubernetes-validations").is_some()
    };
    assert!(!rules_at("") && !rules_at("/properties/spec"));
    let triggers = whole
        .pointer("/properties/spec/properties/triggers")
        .unwrap();
    assert!(!triggers.to_string().contains("x-kubernetes-validations"));
}

/// A limit without a case could be lost without a failing test, so each is removed in turn.
#[test]
fn every_limit_and_every_rule_has_a_refused_case() {
    let whole = schema();
    let cases: Vec<Case> = cases().unwrap();
    let mut unshown = Vec::new();
    let mut count = 0;
    for limit in limits(&whole, "") {
        count += 1;
        let mut weaker = whole.clone();
        let (node, keyword) = limit.rsplit_once('/').unwrap();
        match weaker.pointer_mut(node).unwrap() {
            Value::Object(map) => drop(map.remove(keyword)),
            Value::Array(rules) => drop(rules.remove(keyword.parse().unwrap())),
            other => panic!("{other} holds no limit"),
        }
        let shows = |case: &&Case| match &case.outcome {
            Outcome::Says(wanted) => !run(&weaker, case).is_err_and(|said| said.contains(wanted)),
            Outcome::Stored(_) => false,
        };
        if !cases.iter().any(|case| shows(&case)) {
            unshown.push(limit);
        }
    }
    assert!(unshown.is_empty(), "no case shows:\n{}", unshown.join("\n"));
    assert!(count >= 55, "only {count} limits were found");
}

/// Pointers to every limit of `spec`, and to every rule.
fn limits(node: &Value, at: &str) -> Vec<String> {
    const KEYWORDS: [&str; 10] = [
        "enum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "pattern",
        "required",
    ];
    let Value::Object(map) = node else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (key, value) in map {
        let here = format!("{at}/{key}");
        match (key.as_str(), value) {
            // `status` has no limits that matter, and whole numbers of 16 bits have limits of their own.
            ("status", _) if at == "/properties" => {}
            ("minimum" | "maximum", _) if map.contains_key("enum") => {}
            ("required", _) if at.is_empty() => {}
            ("x-kubernetes-validations", Value::Array(rules)) => {
                found.extend((0..rules.len()).map(|index| format!("{here}/{index}")));
            }
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties
                    .iter()
                    .filter(|(name, _)| here != "/properties" || *name == "spec")
                {
                    found.extend(limits(property, &format!("{here}/{name}")));
                }
            }
            (keyword, _) if KEYWORDS.contains(&keyword) => found.push(here),
            _ => found.extend(limits(value, &here)),
        }
    }
    found
}
