//! Sets of fields as Kubernetes writes them in `managedFields` (FieldsV1), and their algebra.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::api_server::schema::{Form, ListType, Shape};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// `f:name`
    Field(String),
    /// `k:{…}`: the item of a list with these keys, in the order of their names.
    Key(String),
    /// `v:…`: the item of a set.
    Item(String),
    /// `i:n`
    Index(String),
}

impl Step {
    fn parse(text: &str) -> Option<Self> {
        let (tag, rest) = text.split_once(':')?;
        let rest = rest.to_owned();
        match tag {
            "f" => Some(Self::Field(rest)),
            "k" => Some(Self::Key(rest)),
            "v" => Some(Self::Item(rest)),
            "i" => Some(Self::Index(rest)),
            _ => None,
        }
    }

    fn spell(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => format!("k:{keys}"),
            Self::Item(value) => format!("v:{value}"),
            Self::Index(at) => format!("i:{at}"),
        }
    }

    /// The step to one item of an associative list.
    pub(crate) fn to_item(list: &ListType, shape: Shape<'_>, item: &Value) -> Option<Self> {
        match list {
            ListType::Atomic => None,
            ListType::Set => Some(Self::Item(item.to_string())),
            ListType::Map(keys) => {
                let mut found = Map::new();
                for key in keys {
                    let default = || shape.item().field(key).and_then(Shape::default);
                    // `protocol` is TCP everywhere; the published schema says so only in places.
                    let value = item.get(key).or_else(default).cloned();
                    let value = value.or_else(|| (key == "protocol").then(|| Value::from("TCP")));
                    found.insert(key.clone(), value?);
                }
                Some(Self::Key(Value::Object(found).to_string()))
            }
        }
    }

    fn display(&self, out: &mut String) {
        match self {
            Self::Field(name) => out.push_str(&format!(".{name}")),
            Self::Item(value) => out.push_str(&format!("[={value}]")),
            Self::Index(at) => out.push_str(&format!("[{at}]")),
            Self::Key(keys) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let all: Vec<String> = keys
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                let _ = write!(out, "[{}]", all.join(","));
            }
        }
    }
}

/// A set of paths as a tree: a node is a member or only on the way to members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    pub(crate) member: bool,
    pub(crate) children: BTreeMap<Step, FieldSet>,
}

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    pub(crate) fn insert(&mut self, path: &[Step]) {
        match path.split_first() {
            None => self.member = true,
            Some((step, rest)) => self.children.entry(step.clone()).or_default().insert(rest),
        }
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.member |= other.member;
        for (step, child) in &other.children {
            let mine = all.children.entry(step.clone()).or_default();
            *mine = mine.union(child);
        }
        all
    }

    /// Members of `self` that are not members of `other`.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut rest = Self {
            member: self.member && !other.member,
            children: BTreeMap::new(),
        };
        for (step, child) in &self.children {
            let child = other
                .children
                .get(step)
                .map_or_else(|| child.clone(), |theirs| child.difference(theirs));
            if !child.is_empty() {
                rest.children.insert(step.clone(), child);
            }
        }
        rest
    }

    /// Members of both.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self {
            member: self.member && other.member,
            children: BTreeMap::new(),
        };
        for (step, child) in &self.children {
            if let Some(theirs) = other.children.get(step) {
                let child = child.intersection(theirs);
                if !child.is_empty() {
                    both.children.insert(step.clone(), child);
                }
            }
        }
        both
    }

    /// Removes every member of `removed` together with everything below it.
    pub(crate) fn without_trees(&self, removed: &Self) -> Self {
        let mut rest = Self {
            member: self.member && !removed.member,
            children: BTreeMap::new(),
        };
        for (step, child) in &self.children {
            let child = match removed.children.get(step) {
                Some(gone) if gone.member => continue,
                Some(gone) => child.without_trees(gone),
                None => child.clone(),
            };
            if !child.is_empty() {
                rest.children.insert(step.clone(), child);
            }
        }
        rest
    }

    /// Every member as text: `.spec.containers[name="c"].image`.
    pub(crate) fn paths(&self) -> Vec<String> {
        fn walk(set: &FieldSet, prefix: &str, all: &mut Vec<String>) {
            if set.member {
                all.push(prefix.to_owned());
            }
            for (step, child) in &set.children {
                let mut path = prefix.to_owned();
                step.display(&mut path);
                walk(child, &path, all);
            }
        }
        let mut all = Vec::new();
        walk(self, "", &mut all);
        all
    }

    /// FieldsV1.
    pub(crate) fn to_json(&self) -> Value {
        let mut map = Map::new();
        if self.member && !self.children.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (step, child) in &self.children {
            map.insert(step.spell(), child.to_json());
        }
        Value::Object(map)
    }

    /// Reads FieldsV1.
    pub(crate) fn from_json(fields: &Value) -> Self {
        let mut set = Self::default();
        let Some(map) = fields.as_object() else {
            return set;
        };
        for (name, child) in map {
            if name == "." {
                set.member = true;
            } else if let Some(step) = Step::parse(name) {
                let mut child_set = Self::from_json(child);
                child_set.member |= child.as_object().is_some_and(Map::is_empty);
                set.children.insert(step, child_set);
            }
        }
        set
    }

    /// All fields that `value` states.
    pub(crate) fn from_value(value: &Value, shape: Shape<'_>) -> Self {
        let mut set = Self::default();
        match (value, shape.form()) {
            (Value::Object(map), Form::Struct | Form::Map | Form::Any)
                if !shape.is_atomic_map() =>
            {
                for (name, child) in map {
                    let inner = shape.field(name).unwrap_or_else(Shape::any);
                    let mut child_set = Self::from_value(child, inner);
                    let empty = child.is_null() || child.as_object().is_some_and(Map::is_empty);
                    child_set.member |= empty || !shape.declares(name);
                    if !child_set.is_empty() {
                        set.children.insert(Step::Field(name.clone()), child_set);
                    }
                }
            }
            (Value::Array(items), Form::List) if shape.list_type() != ListType::Atomic => {
                for item in items {
                    if let Some(step) = Step::to_item(&shape.list_type(), shape, item) {
                        let mut child_set = Self::from_value(item, shape.item());
                        child_set.member = true;
                        set.children.insert(step, child_set);
                    }
                }
            }
            _ => set.member = true,
        }
        set
    }
}
