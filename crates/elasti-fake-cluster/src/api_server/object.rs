//! Reading and writing fields of JSON objects by JSON pointer.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Field access that never panics: a missing field reads as empty.
pub(crate) trait Object {
    /// The value at `pointer`, `null` if absent.
    fn at(&self, pointer: &str) -> &Value;
    /// The string at `pointer`, empty if absent.
    fn text(&self, pointer: &str) -> &str;
    /// The integer at `pointer`.
    fn number(&self, pointer: &str) -> Option<i64>;
    /// The list at `pointer`, empty if absent.
    fn list(&self, pointer: &str) -> &[Value];
    /// The string map at `pointer`, empty if absent.
    fn strings(&self, pointer: &str) -> BTreeMap<String, String>;
    /// Writes `value` at `pointer`, creating objects on the way.
    fn put(&mut self, pointer: &str, value: impl Into<Value>);
    /// Writes `value` at `pointer` only where there is nothing (or null).
    fn put_default(&mut self, pointer: &str, value: impl Into<Value>);
    /// Removes the field at `pointer`.
    fn drop_at(&mut self, pointer: &str) -> Option<Value>;
    /// The list at `pointer` for changes.
    fn list_mut(&mut self, pointer: &str) -> &mut [Value];
}

static NULL: Value = Value::Null;

impl Object for Value {
    fn at(&self, pointer: &str) -> &Value {
        self.pointer(pointer).unwrap_or(&NULL)
    }

    fn text(&self, pointer: &str) -> &str {
        self.at(pointer).as_str().unwrap_or_default()
    }

    fn number(&self, pointer: &str) -> Option<i64> {
        self.at(pointer).as_i64()
    }

    fn list(&self, pointer: &str) -> &[Value] {
        self.at(pointer).as_array().map_or(&[], Vec::as_slice)
    }

    fn strings(&self, pointer: &str) -> BTreeMap<String, String> {
        let entries = self.at(pointer).as_object().into_iter().flatten();
        entries
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect()
    }

    fn put(&mut self, pointer: &str, value: impl Into<Value>) {
        let steps = pointer.split('/').skip(1);
        *steps.fold(self, |here, step| field(here, &unescape(step))) = value.into();
    }

    fn put_default(&mut self, pointer: &str, value: impl Into<Value>) {
        if self.at(pointer).is_null() {
            self.put(pointer, value);
        }
    }

    fn drop_at(&mut self, pointer: &str) -> Option<Value> {
        let (parent, last) = pointer.rsplit_once('/')?;
        self.pointer_mut(parent)?
            .as_object_mut()?
            .remove(&unescape(last))
    }

    fn list_mut(&mut self, pointer: &str) -> &mut [Value] {
        self.pointer_mut(pointer)
            .and_then(Value::as_array_mut)
            .map_or(&mut [], Vec::as_mut_slice)
    }
}

/// The field `key` of `value`, which becomes an object if it is none.
pub(crate) fn field<'a>(value: &'a mut Value, key: &str) -> &'a mut Value {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    &mut value[key]
}

fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// A map key as one step of a JSON pointer.
pub(crate) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Is there nothing to say: null, `{}`, `[]`, `""`?
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}
