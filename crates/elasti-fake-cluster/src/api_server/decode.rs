//! Bodies into objects: JSON or YAML, the right kind, the right types, no unknown fields.

use serde_json::{Map, Value};

use super::object::{Object as _, is_empty};
use super::resources::Resource;
use super::schema::{Form, Shape};
use super::status::{About, ApiError, Cause};

/// What to do about fields that the schema does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

const UNKNOWN_FORMAT: &str = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The body of a write that is not a patch.
pub(crate) fn body(content_type: &str, bytes: &[u8], kind: &str) -> Result<Value, ApiError> {
    match content_type {
        "" | "application/json" => json(bytes).map_err(|why| {
            let shown = if bytes.is_empty() { "<empty>".to_owned() } else { String::from_utf8_lossy(bytes).into_owned() };
            ApiError::BadRequest(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} ({shown})"
            ))
        }),
        "application/yaml" => yaml(bytes).map_err(ApiError::BadRequest),
        _ => Err(ApiError::UnsupportedMediaType(UNKNOWN_FORMAT)),
    }
}

/// JSON with Go's words for the commonest mistakes.
pub(crate) fn json(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        if error.is_eof() {
            return "unexpected end of JSON input".to_owned();
        }
        let offset = offset_of(bytes, error.line(), error.column());
        let letter = bytes
            .get(offset)
            .map(|byte| char::from(*byte))
            .unwrap_or_default();
        match letter {
            '}' | ']' | ',' | ':' => {
                format!("invalid character '{letter}' looking for beginning of value")
            }
            _ if error.to_string().starts_with("key must be a string") => {
                format!("invalid character '{letter}' looking for beginning of object key string")
            }
            _ => format!("invalid character '{letter}' looking for beginning of value"),
        }
    })
}

fn offset_of(bytes: &[u8], line: usize, column: usize) -> usize {
    let before: usize = bytes
        .split(|byte| *byte == b'\n')
        .take(line.saturating_sub(1))
        .map(|line| line.len() + 1)
        .sum();
    before + column.saturating_sub(1)
}

/// YAML (and so JSON) into a JSON value.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    if let Ok(value) = serde_json::from_str(text) {
        return Ok(value);
    }
    serde_saphyr::from_str(text).map_err(|error| format!("error converting YAML to JSON: {error}"))
}

/// Completes a missing apiVersion and kind, refuses wrong ones.
pub(crate) fn expect_kind(
    object: &mut Value,
    api_version: &str,
    kind: &str,
    custom: bool,
) -> Result<(), ApiError> {
    if custom {
        return expect_custom_kind(object, api_version, kind);
    }
    if !object.is_object() {
        let text = format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct",
            json_type(object)
        );
        return Err(ApiError::BadRequest(text));
    }
    object.put_default("/apiVersion", api_version);
    object.put_default("/kind", kind);
    let (got_version, got_kind) = (object.text("/apiVersion"), object.text("/kind"));
    if got_version == api_version && got_kind == kind {
        return Ok(());
    }
    let short = got_version.rsplit('/').next().unwrap_or_default();
    let why = if got_kind == kind {
        format!(
            "no kind \"{got_kind}\" is registered for version \"{got_version}\" in scheme \"pkg/runtime/scheme.go:110\""
        )
    } else {
        format!("converting ({short}.{got_kind}) to (core.{kind}): unknown conversion")
    };
    Err(ApiError::BadRequest(format!(
        "{got_kind} in version \"{short}\" cannot be handled as a {kind}: {why}"
    )))
}

/// Custom resources must say what they are.
fn expect_custom_kind(object: &Value, api_version: &str, kind: &str) -> Result<(), ApiError> {
    let (got_version, got_kind) = (object.text("/apiVersion"), object.text("/kind"));
    for (field, text) in [("Kind", got_kind), ("apiVersion", got_version)] {
        if text.is_empty() {
            let body = object.to_string();
            let shown: String = body.chars().take(30).collect();
            let shown = if shown.len() < body.len() {
                format!("{shown} ...")
            } else {
                shown
            };
            let why = format!(
                "the object provided is unrecognized (must be of type {kind}): Object '{field}' is missing in '{body}' ({shown})"
            );
            return Err(ApiError::BadRequest(why));
        }
    }
    if got_version != api_version {
        let why = format!(
            "the API version in the data ({got_version}) does not match the expected API version ({api_version})"
        );
        return Err(ApiError::BadRequest(why));
    }
    if got_kind != kind {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let about = About::new(group, got_kind, object.text("/metadata/name"));
        let cause = Cause::invalid("kind", &got_kind.into(), &format!("must be {kind}"));
        return Err(ApiError::Invalid {
            about,
            causes: vec![cause],
        });
    }
    Ok(())
}

/// Checks the types of a built-in kind and removes fields it does not have; returns their names.
pub(crate) fn conform(object: &mut Value, resource: &Resource) -> Result<Vec<String>, String> {
    if resource.custom.is_some() {
        let mut unknown = Vec::new();
        if let Some(metadata) = object.get_mut("metadata")
            && let Some(shape) = resource.shape().field("metadata")
        {
            check(metadata, shape, "metadata", "ObjectMeta", &mut unknown)?;
        }
        return Ok(unknown);
    }
    conform_to(object, resource.shape())
}

/// Checks types and removes unknown fields along any shape.
pub(crate) fn conform_to(object: &mut Value, shape: Shape<'_>) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    check(object, shape, "", shape.struct_name(), &mut unknown)?;
    Ok(unknown)
}

fn check(
    value: &mut Value,
    shape: Shape<'_>,
    path: &str,
    owner: &str,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    match (shape.form(), value) {
        (_, Value::Null) | (Form::Any, _) => Ok(()),
        (Form::Struct, Value::Object(map)) => check_fields(map, shape, path, unknown),
        (Form::Map, Value::Object(map)) => {
            for (name, child) in map.iter_mut() {
                let inner = shape.field(name).unwrap_or_else(Shape::any);
                check(child, inner, path, owner, unknown)?;
            }
            Ok(())
        }
        (Form::List, Value::Array(items)) => {
            for (at, item) in items.iter_mut().enumerate() {
                check(item, shape.item(), &format!("{path}[{at}]"), owner, unknown)?;
            }
            Ok(())
        }
        (Form::Scalar, value) if scalar_fits(value, shape) => Ok(()),
        (_, value) => Err(mismatch(value, shape, path, owner)),
    }
}

fn check_fields(
    map: &mut Map<String, Value>,
    shape: Shape<'_>,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    let mut strange = Vec::new();
    for (name, child) in map.iter_mut() {
        let here = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match shape.field(name) {
            Some(inner) => check(child, inner, &here, shape.struct_name(), unknown)?,
            None => strange.push((name.clone(), here)),
        }
    }
    for (name, here) in strange {
        map.remove(&name);
        unknown.push(here);
    }
    // Go writes an absent field for null, and for empty lists and maps of metadata; an empty list of
    // managedFields has a meaning of its own.
    let metadata = shape.struct_name() == "ObjectMeta";
    map.retain(|name, child| {
        let dropped = metadata && name != "managedFields" && is_empty(child);
        !child.is_null() && !dropped
    });
    Ok(())
}

fn scalar_fits(value: &Value, shape: Shape<'_>) -> bool {
    match shape.scalar_type() {
        ("string", _) => value.is_string(),
        ("integer", "int32") => value
            .as_i64()
            .is_some_and(|number| i32::try_from(number).is_ok()),
        ("integer", _) => value.is_i64() || value.is_u64(),
        ("number", _) => value.is_number(),
        ("boolean", _) => value.is_boolean(),
        _ => value.is_string() || value.is_number(),
    }
}

/// Go's words for a value of the wrong type.
fn mismatch(value: &Value, shape: Shape<'_>, path: &str, owner: &str) -> String {
    let wanted = match (shape.form(), shape.scalar_type()) {
        (Form::Struct, _) => format!("v1.{}", shape.struct_name()),
        (Form::Map, _) => "map[string]string".to_owned(),
        (Form::List, _) => "[]string".to_owned(),
        (_, ("integer", format)) if !format.is_empty() => format.to_owned(),
        (_, ("boolean", _)) => "bool".to_owned(),
        (_, (name, _)) => name.to_owned(),
    };
    let plain: String = path
        .split('[')
        .map(|part| part.split_once(']').map_or(part, |(_, rest)| rest))
        .collect();
    format!(
        "json: cannot unmarshal {} into Go struct field {owner}.{plain} of type {wanted}",
        json_type(value)
    )
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
