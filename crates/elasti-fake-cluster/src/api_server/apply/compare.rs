//! What changed between two versions of an object, as field sets.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::{FieldSet, Step};
use crate::api_server::schema::{Form, ListType, Shape};

#[derive(Clone, Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Comparison {
    pub(crate) fn between(old: &Value, new: &Value, shape: Shape<'_>) -> Self {
        let mut comparison = Self::default();
        comparison.walk(Some(old), Some(new), shape, &mut Vec::new());
        comparison
    }

    /// Added and modified.
    pub(crate) fn written(&self) -> FieldSet {
        self.added.union(&self.modified)
    }

    fn walk(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        shape: Shape<'_>,
        path: &mut Vec<Step>,
    ) {
        // A null that is no longer mentioned is still null.
        let still_null = old.is_some_and(Value::is_null) && new.is_none();
        if still_null || old == new && old.is_some() {
            return;
        }
        let some = old.or(new).unwrap_or(&Value::Null);
        let same_form = match (old, new) {
            (Some(old), Some(new)) => std::mem::discriminant(old) == std::mem::discriminant(new),
            _ => true,
        };
        match (some, shape.form()) {
            (Value::Object(_), Form::Struct | Form::Map | Form::Any)
                if same_form && !shape.is_atomic_map() =>
            {
                self.walk_fields(old, new, shape, path);
                self.note_presence(old, new, shape, path);
            }
            (Value::Array(_), Form::List) if same_form && shape.list_type() != ListType::Atomic => {
                self.walk_items(old, new, shape, path);
                self.note_presence(old, new, shape, path);
            }
            _ => match (old, new) {
                (None, Some(_)) => self.added.insert(path),
                (Some(_), None) => self.removed.insert(path),
                _ => self.modified.insert(path),
            },
        }
    }

    /// A container that came or went is a change of its own, unless it is always there.
    fn note_presence(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        shape: Shape<'_>,
        path: &[Step],
    ) {
        if path.is_empty()
            || (shape.always_present() && !is_empty_object(old.or(new))) && is_field(path)
        {
            return;
        }
        match (old, new) {
            (None, Some(_)) => self.added.insert(path),
            (Some(_), None) => self.removed.insert(path),
            _ => {}
        }
    }

    fn walk_fields(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        shape: Shape<'_>,
        path: &mut Vec<Step>,
    ) {
        let old = old.and_then(Value::as_object);
        let new = new.and_then(Value::as_object);
        let mut names: Vec<&String> = old.into_iter().flatten().map(|(name, _)| name).collect();
        names.extend(
            new.into_iter()
                .flatten()
                .map(|(name, _)| name)
                .filter(|name| old.is_none_or(|old| !old.contains_key(*name))),
        );
        for name in names {
            path.push(Step::Field(name.clone()));
            let inner = shape.field(name).unwrap_or_else(Shape::any);
            self.walk(
                old.and_then(|map| map.get(name)),
                new.and_then(|map| map.get(name)),
                inner,
                path,
            );
            path.pop();
        }
    }

    fn walk_items(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        shape: Shape<'_>,
        path: &mut Vec<Step>,
    ) {
        let list_type = shape.list_type();
        let by_step = |list: Option<&Value>| -> BTreeMap<Step, Value> {
            let items = list.and_then(Value::as_array).into_iter().flatten();
            items
                .filter_map(|item| Some((Step::to_item(&list_type, shape, item)?, item.clone())))
                .collect()
        };
        let (old, new) = (by_step(old), by_step(new));
        for step in old
            .keys()
            .chain(new.keys().filter(|step| !old.contains_key(step)))
        {
            path.push(step.clone());
            self.walk(old.get(step), new.get(step), shape.item(), path);
            path.pop();
        }
    }
}

fn is_field(path: &[Step]) -> bool {
    matches!(path.last(), Some(Step::Field(_)))
}

fn is_empty_object(value: Option<&Value>) -> bool {
    value
        .and_then(Value::as_object)
        .is_some_and(serde_json::Map::is_empty)
}
