//! YAML documents with the line and column of every value.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// Line and column, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

/// One object of a file.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// The file as it was named, or `-`.
    pub(crate) file: String,
    pub(crate) value: Value,
    /// Position of each value, by its path as Kubernetes writes it: `spec.triggers[0].type`.
    positions: BTreeMap<String, Position>,
}

/// Why a file cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) position: Option<Position>,
    pub(crate) what: String,
}

/// Every object of a text: documents apart by `---`, and the items of lists.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Document>, Unreadable> {
    let trees: Vec<Spanned<Tree>> =
        serde_saphyr::from_multiple(text).map_err(|error| Unreadable {
            position: error.location().map(position),
            what: first_line(&error.without_snippet().to_string()),
        })?;
    let mut found = Vec::new();
    for tree in trees {
        let mut positions = BTreeMap::new();
        let value = flatten(tree, "", &mut positions);
        if value.is_null() {
            continue;
        }
        let document = Document {
            file: file.to_owned(),
            value,
            positions,
        };
        found.extend(document.items());
    }
    Ok(found)
}

/// Without the position, which is reported separately.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let end = line.find(" at line ").unwrap_or(line.len());
    line.get(..end).unwrap_or(line).to_owned()
}

impl Document {
    pub(crate) fn kind(&self) -> &str {
        self.text("/kind")
    }

    pub(crate) fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    pub(crate) fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        Some(self.text("/metadata/namespace")).filter(|name| !name.is_empty())
    }

    fn text(&self, pointer: &str) -> &str {
        let value = self.value.pointer(pointer);
        value.and_then(Value::as_str).unwrap_or_default()
    }

    /// Position of a value; for one that is absent, of its parent.
    pub(crate) fn position(&self, path: &str) -> Option<Position> {
        let mut path = path;
        loop {
            if let Some(found) = self.positions.get(path) {
                return Some(*found);
            }
            if path.is_empty() {
                return None;
            }
            path = parent(path);
        }
    }

    /// The place of one character of a text, where the file shows the text as it is; else that of the text.
    pub(crate) fn position_within(&self, source: &str, path: &str, at: usize) -> Option<Position> {
        let start = self.position(path)?;
        let text = self.at(path).and_then(Value::as_str)?;
        let before: String = text.chars().take(at).collect();
        let line_of_text = before.matches('\n').count();
        let column_of_line = before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count();
        let line = text
            .lines()
            .nth(line_of_text)
            .unwrap_or_default()
            .trim_end();
        let from = usize::try_from(start.line).ok()?.saturating_sub(1);
        // A block of text starts a line below its sign, and its lines follow each other.
        let shown = source
            .lines()
            .enumerate()
            .skip(from)
            .take(text.lines().count() + 2);
        for (number, written) in shown {
            if let (false, Some(byte)) = (line.is_empty(), written.find(line)) {
                let indent = written.get(..byte).unwrap_or_default().chars().count();
                return Some(Position {
                    line: u64::try_from(number + 1).ok()?,
                    column: u64::try_from(indent + column_of_line + 1).ok()?,
                });
            }
        }
        Some(start)
    }

    /// The value at a path as Kubernetes writes it.
    pub(crate) fn at(&self, path: &str) -> Option<&Value> {
        let pointer = path.replace('[', ".").replace(']', "");
        pointer
            .split('.')
            .filter(|part| !part.is_empty())
            .try_fold(&self.value, |value, part| match value {
                Value::Array(items) => items.get(part.parse::<usize>().ok()?),
                other => other.get(part),
            })
    }

    /// Itself, or what a `List` holds.
    fn items(self) -> Vec<Self> {
        let is_list = self.kind() == "List" && self.api_version() == "v1";
        let Some(items) = self.value.get("items").and_then(Value::as_array) else {
            return vec![self];
        };
        if !is_list {
            return vec![self];
        }
        let item = |(index, value): (usize, &Value)| {
            let prefix = format!("items[{index}]");
            let below = self.positions.iter().filter_map(|(path, position)| {
                let rest = path.strip_prefix(&prefix)?;
                let path = rest.strip_prefix('.').unwrap_or(rest);
                Some((path.to_owned(), *position))
            });
            Self {
                file: self.file.clone(),
                value: value.clone(),
                positions: below.collect(),
            }
        };
        items.iter().enumerate().map(item).collect()
    }
}

/// The path above: `a.b[0]` is above `a.b[0].c`, and `a.b` above that.
fn parent(path: &str) -> &str {
    let end = path.rfind(['.', '[']).unwrap_or(0);
    path.get(..end).unwrap_or_default()
}

fn position(location: serde_saphyr::Location) -> Position {
    Position {
        line: location.line(),
        column: location.column(),
    }
}

fn flatten(tree: Spanned<Tree>, path: &str, positions: &mut BTreeMap<String, Position>) -> Value {
    positions.insert(path.to_owned(), position(tree.referenced));
    match tree.value {
        Tree::Leaf(value) => value,
        Tree::List(items) => {
            let item = |(index, item)| flatten(item, &format!("{path}[{index}]"), positions);
            Value::Array(items.into_iter().enumerate().map(item).collect())
        }
        Tree::Map(entries) => {
            let mut map = Map::new();
            for (key, item) in entries {
                let below = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                map.insert(key, flatten(item, &below, positions));
            }
            Value::Object(map)
        }
    }
}

/// A value whose parts have positions.
#[derive(Debug)]
enum Tree {
    Leaf(Value),
    List(Vec<Spanned<Tree>>),
    Map(Vec<(String, Spanned<Tree>)>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Leaf(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Leaf(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        let number = Number::from_f64(value);
        Ok(Tree::Leaf(number.map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Leaf(Value::String(value.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::{Position, parse};

    const TWO: &str = "# first\na: 1\nb:\n  - c: x\n    d: |\n      one\n      two\n---\nkind: List\napiVersion: v1\nitems:\n  - kind: A\n  - kind: B\n    metadata: {name: b}\n";

    fn at(line: u64, column: u64) -> Option<Position> {
        Some(Position { line, column })
    }

    #[test]
    fn every_value_has_its_place_across_documents_and_lists() {
        let found = parse("f", TWO).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(
            found[0].value,
            json!({"a": 1, "b": [{"c": "x", "d": "one\ntwo\n"}]})
        );
        assert_eq!(found[0].position("b[0].c"), at(4, 8));
        assert_eq!(found[0].position("a.missing"), at(2, 4));
        assert_eq!(found[2].kind(), "B");
        assert_eq!(found[2].position("metadata.name"), at(14, 22));
        assert_eq!(found[2].at("metadata.name"), Some(&json!("b")));
    }

    #[test]
    fn a_character_of_a_text_has_its_place() {
        let found = parse("f", TWO).unwrap();
        assert_eq!(found[0].position_within(TWO, "b[0].d", 5), at(7, 8));
        assert_eq!(found[0].position_within(TWO, "b[0].c", 0), at(4, 8));
    }

    #[test]
    fn invalid_yaml_is_reported_with_its_position() {
        let wrong = parse("f", "a: 1\nb: [\n").unwrap_err();
        assert!(wrong.position.is_some(), "{wrong:?}");
    }
}
