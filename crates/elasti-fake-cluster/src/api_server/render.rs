//! Answers into bytes: objects, lists, tables, metadata only.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::object::Object as _;
use super::request::{ApiRequest, Output};
use super::resources::Resource;
use super::session::{Answer, header, partial_metadata, present, shows_stored_bytes};
use super::store::Stored;
use super::table;
use crate::clock::Clock;

/// The code and body of an answer.
pub(crate) fn answer(answer: Answer, request: &ApiRequest, clock: Clock) -> (u16, Bytes) {
    let resource = &request.resource;
    match answer {
        Answer::Body { code, body } => (code, Bytes::from(body.to_string())),
        Answer::Object { code, object } => {
            let body = match request.output {
                Output::Table => {
                    let metadata =
                        json!({"resourceVersion": object.value.text("/metadata/resourceVersion")});
                    Bytes::from(self::table(resource, &[object], &metadata, clock).to_string())
                }
                output => one(resource, &object, output),
            };
            (code, body)
        }
        Answer::List { items, metadata } => (
            200,
            list(resource, &items, &metadata, request.output, clock),
        ),
    }
}

/// One object on its own.
pub(crate) fn one(resource: &Resource, object: &Arc<Stored>, output: Output) -> Bytes {
    if output == Output::PartialMetadata {
        return Bytes::from(partial_metadata(&object.value).to_string());
    }
    if shows_stored_bytes(output, resource) {
        return Bytes::from(object.whole_json(&header(resource)));
    }
    Bytes::from(present(resource, &object.value).to_string())
}

fn list(
    resource: &Resource,
    items: &[Arc<Stored>],
    metadata: &Value,
    output: Output,
    clock: Clock,
) -> Bytes {
    if output == Output::Table {
        return Bytes::from(table(resource, items, metadata, clock).to_string());
    }
    let (kind, api_version) = match output {
        Output::PartialMetadata => ("PartialObjectMetadataList", "meta.k8s.io/v1".to_owned()),
        _ => (resource.list_kind.as_str(), resource.api_version()),
    };
    let size: usize = items.iter().map(|item| item.json().len() + 64).sum();
    let mut body = Vec::with_capacity(size + 256);
    body.extend_from_slice(
        format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
            Value::from(kind),
            Value::from(api_version)
        )
        .as_bytes(),
    );
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        // Items of built-in lists carry no apiVersion and kind; those of custom resources do.
        if resource.custom.is_none() && shows_stored_bytes(output, resource) {
            body.extend_from_slice(&item.json());
        } else {
            body.extend_from_slice(&one(resource, item, output));
        }
    }
    body.extend_from_slice(b"]}");
    Bytes::from(body)
}

/// A `meta.k8s.io/v1` Table.
pub(crate) fn table(
    resource: &Resource,
    items: &[Arc<Stored>],
    metadata: &Value,
    clock: Clock,
) -> Value {
    let rows: Vec<Value> = items
        .iter()
        .map(|item| json!({"cells": table::cells(resource, &item.value, clock), "object": partial_metadata(&item.value)}))
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": table::columns(resource), "rows": rows,
    })
}
