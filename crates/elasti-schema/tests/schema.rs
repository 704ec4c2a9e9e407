//! Admission as users of a cluster see it: what is stored, and what is refused in which words.
//! The words were compared with a real API server, version 1.34.
#![allow(
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "tests read better so, and may panic"
)]

use elasti_schema::{Refusal, admit};
use serde_json::{Value, json};

/// A schema with one of everything.
fn schema() -> Value {
    json!({
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {
                    "type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]*$",
                    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "name cannot be changed"}],
                },
                "size": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
                "share": {"type": "number", "exclusiveMinimum": true, "minimum": 0, "multipleOf": 0.5},
                "colour": {"type": "string", "enum": ["red", "blue"]},
                "code": {"type": "integer", "enum": [200, 404]},
                "port": {"x-kubernetes-int-or-string": true},
                "since": {"type": "string", "format": "date-time"},
                "note": {"type": "string", "nullable": true},
                "labels": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string"}},
                "free": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
                },
                "parts": {
                    "type": "array", "minItems": 1, "maxItems": 3,
                    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                    "items": {
                        "type": "object", "required": ["id"],
                        "properties": {
                            "id": {"type": "string"},
                            "low": {"type": "integer", "default": 0},
                            "high": {"type": "integer"},
                        },
                        "x-kubernetes-validations": [
                            {"rule": "!has(self.high) || self.low <= self.high", "message": "low must not be above high"},
                            {"rule": "!has(oldSelf.high) || has(self.high)", "message": "high cannot be taken away", "reason": "FieldValueForbidden"},
                        ],
                    },
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            },
        }},
    })
}

fn create(spec: Value) -> Result<Value, Vec<String>> {
    let object = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "x"}, "spec": spec});
    admit(&schema(), &object, None)
        .map(|stored| stored["spec"].clone())
        .map_err(words)
}

fn update(old: Value, new: Value) -> Result<Value, Vec<String>> {
    admit(
        &schema(),
        &json!({"spec": new}),
        Some(&json!({"spec": old})),
    )
    .map(|stored| stored["spec"].clone())
    .map_err(words)
}

fn words(refusals: Vec<Refusal>) -> Vec<String> {
    let said = refusals.iter().map(ToString::to_string);
    said.filter(|words| !words.contains("some validation rules were not checked"))
        .collect()
}

#[test]
fn unknown_fields_go_and_defaults_come() {
    let stored = admit(
        &schema(),
        &json!({
            "apiVersion": "v1", "kind": "K", "metadata": {"name": "x", "labels": {"a": "b"}}, "extra": 1,
            "spec": {"name": "abc", "unknown": {}, "parts": [{"id": "p", "x": 1}]},
        }),
        None,
    );
    assert_eq!(
        stored.unwrap(),
        json!({
            "apiVersion": "v1", "kind": "K", "metadata": {"name": "x", "labels": {"a": "b"}},
            "spec": {"name": "abc", "size": 3, "parts": [{"id": "p", "low": 0}]},
        })
    );
}

#[test]
fn free_form_data_is_kept_but_its_known_parts_are_pruned() {
    let stored = create(json!({
        "name": "abc", "size": 1,
        "free": {"any": [{"thing": null}], "known": {"a": "x", "b": "y"}},
        "labels": {"one": "1"},
    }));
    assert_eq!(
        stored.unwrap(),
        json!({
            "name": "abc", "size": 1,
            "free": {"any": [{"thing": null}], "known": {"a": "x"}},
            "labels": {"one": "1"},
        })
    );
}

#[test]
fn embedded_resources_keep_their_metadata_and_free_lists_their_contents() {
    let schema = json!({"type": "object", "properties": {
        "template": {
            "type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
        },
        "list": {
            "type": "array", "x-kubernetes-preserve-unknown-fields": true,
            "items": {"type": "object", "properties": {"known": {"type": "object"}}},
        },
    }});
    let stored = admit(
        &schema,
        &json!({
            "template": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "x"}, "spec": {"a": "", "b": ""}, "c": 1},
            "list": [{"any": {"deep": 1}, "known": {"x": 1}}],
        }),
        None,
    );
    assert_eq!(
        stored.unwrap(),
        json!({
            "template": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "x"}, "spec": {"a": ""}},
            "list": [{"any": {"deep": 1}, "known": {}}],
        })
    );
}

#[test]
fn null_means_absent_unless_it_is_allowed() {
    let stored = create(json!({"name": "abc", "size": null, "colour": null, "note": null}));
    assert_eq!(
        stored.unwrap(),
        json!({"name": "abc", "size": 3, "note": null})
    );
}

fn refuses(spec: &Value, message: &str) {
    let created = create(spec.clone());
    assert_eq!(created, Err(vec![message.to_owned()]), "{spec}");
}

#[test]
fn each_limit_is_refused_in_the_words_of_kubernetes() {
    for (spec, message) in [
        (json!({}), "spec.name: Required value"),
        (json!({"name": null}), "spec.name: Required value"),
        (
            json!({"name": "a"}),
            "spec.name: Invalid value: \"a\": spec.name in body should be at least 2 chars long",
        ),
        (
            json!({"name": "abcdef"}),
            "spec.name: Too long: may not be more than 5 bytes",
        ),
        (
            json!({"name": "ABC"}),
            "spec.name: Invalid value: \"ABC\": spec.name in body should match '^[a-z]*$'",
        ),
        (
            json!({"name": 7}),
            "spec.name: Invalid value: \"integer\": spec.name in body must be of type string: \"integer\"",
        ),
        (
            json!({"name": "abc", "size": 0}),
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"name": "abc", "size": 11}),
            "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10",
        ),
        (
            json!({"name": "abc", "size": 1.5}),
            "spec.size: Invalid value: \"number\": spec.size in body must be of type integer: \"number\"",
        ),
        (
            json!({"name": "abc", "size": "1"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"name": "abc", "share": 0}),
            "spec.share: Invalid value: 0: spec.share in body should be greater than 0",
        ),
        (
            json!({"name": "abc", "share": 0.7}),
            "spec.share: Invalid value: 0.7: spec.share in body should be a multiple of 0.5",
        ),
        (
            json!({"name": "abc", "colour": "green"}),
            "spec.colour: Unsupported value: \"green\": supported values: \"red\", \"blue\"",
        ),
        (
            json!({"name": "abc", "code": 201}),
            "spec.code: Unsupported value: 201: supported values: \"200\", \"404\"",
        ),
        (
            json!({"name": "abc", "port": 1.5}),
            "spec.port: Invalid value: \"number\": spec.port in body must be of type integer,string: \"number\"",
        ),
        (
            json!({"name": "abc", "since": "now"}),
            "spec.since: Invalid value: \"now\": spec.since in body must be of type date-time: \"now\"",
        ),
        (
            json!({"name": "abc", "since": 5}),
            "spec.since: Invalid value: \"int64\": spec.since in body must be of type date-time: \"int64\"",
        ),
    ] {
        refuses(&spec, message);
    }
}

#[test]
fn each_limit_of_maps_and_lists_is_refused_in_the_words_of_kubernetes() {
    for (spec, message) in [
        (
            json!({"name": "abc", "labels": {"a": 1}}),
            "spec.labels.a: Invalid value: \"integer\": spec.labels.a in body must be of type string: \"integer\"",
        ),
        (
            json!({"name": "abc", "labels": {"a": "", "b": "", "c": ""}}),
            "spec.labels: Too many: 3: must have at most 2 items",
        ),
        (
            json!({"name": "abc", "parts": []}),
            "spec.parts: Invalid value: 0: spec.parts in body should have at least 1 items",
        ),
        (
            json!({"name": "abc", "parts": [{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "d"}]}),
            "spec.parts: Too many: 4: must have at most 3 items",
        ),
        (
            json!({"name": "abc", "parts": [{"id": "a"}, {"id": "a", "low": 1}]}),
            "spec.parts[1]: Duplicate value: {\"id\":\"a\"}",
        ),
        (
            json!({"name": "abc", "tags": ["x", "y", "x", "x"]}),
            "spec.tags[2]: Duplicate value: \"x\"",
        ),
        (
            json!({"name": "abc", "parts": [{"id": "a", "high": -1}]}),
            "spec.parts[0]: Invalid value: \"object\": low must not be above high",
        ),
    ] {
        refuses(&spec, message);
    }
}

#[test]
fn whole_floats_are_integers() {
    assert!(create(json!({"name": "abc", "size": 2.0, "share": 1})).is_ok());
    assert!(create(json!({"name": "abc", "port": "http"})).is_ok());
}

#[test]
fn rules_wait_until_the_shape_is_right() {
    let refusals = admit(
        &schema(),
        &json!({"spec": {"name": "abcdef", "parts": [{"id": "a", "high": -1}]}}),
        None,
    );
    let said: Vec<String> = refusals
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        said,
        [
            "spec.name: Too long: may not be more than 5 bytes",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        ]
    );
}

#[test]
fn transition_rules_compare_with_the_same_entry_of_before() {
    let old = json!({"name": "abc", "size": 1, "parts": [{"id": "a", "low": 0, "high": 5}, {"id": "b", "low": 0}]});
    assert!(
        update(
            old.clone(),
            json!({"name": "abc", "parts": [{"id": "b"}, {"id": "a", "high": 9}]})
        )
        .is_ok()
    );
    assert_eq!(
        update(
            old.clone(),
            json!({"name": "abc", "parts": [{"id": "b"}, {"id": "a"}]})
        ),
        Err(vec![
            "spec.parts[1]: Forbidden: high cannot be taken away".to_owned()
        ])
    );
    assert_eq!(
        update(old, json!({"name": "abd"})),
        Err(vec![
            "spec.name: Invalid value: \"string\": name cannot be changed".to_owned()
        ])
    );
}

#[test]
fn what_was_wrong_before_and_did_not_change_is_let_through() {
    let old = json!({"name": "abcdefgh", "size": 99, "parts": [{"id": "a", "low": 9, "high": 1}]});
    let mut new = old.clone();
    new["colour"] = json!("red");
    assert!(update(old.clone(), new.clone()).is_ok());
    new["size"] = json!(98);
    assert_eq!(
        update(old.clone(), new.clone()),
        Err(vec![
            "spec.size: Invalid value: 98: spec.size in body should be less than or equal to 10"
                .to_owned()
        ])
    );
    new["size"] = json!(99);
    new["parts"][0]["low"] = json!(8);
    assert_eq!(
        update(old, new),
        Err(vec![
            "spec.parts[0]: Invalid value: \"object\": low must not be above high".to_owned()
        ])
    );
}

#[test]
fn combined_schemas_are_checked() {
    let schema = json!({"type": "object", "properties": {"x": {
        "type": "integer",
        "allOf": [{"minimum": 1}],
        "anyOf": [{"maximum": 5}, {"minimum": 10}],
        "oneOf": [{"multipleOf": 2}, {"multipleOf": 3}],
        "not": {"enum": [4]},
    }}});
    let said = |x: i64| {
        admit(&schema, &json!({"x": x}), None)
            .map_err(words)
            .err()
            .unwrap_or_default()
            .join("; ")
    };
    assert_eq!(said(2), "");
    assert_eq!(said(10), "");
    assert!(said(0).contains("x in body should be greater than or equal to 1"));
    assert!(said(8).contains("\"x\" must validate at least one schema (anyOf)"));
    assert!(said(5).contains("(oneOf). Found none valid"));
    assert!(said(12).contains("(oneOf). Found 2 valid alternatives"));
    assert!(said(4).contains("\"x\" must not validate the schema (not)"));
}
