//! One view on the schemas of built-in kinds (published by Kubernetes) and of custom resources.

use std::sync::LazyLock;

use serde_json::{Map, Value};

/// The published schemas of the kinds this server serves, descriptions cut to one sentence.
static DEFINITIONS: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(include_str!("schemas.json")).unwrap_or_default());

static EMPTY: Value = Value::Null;

/// All published definitions, by definition name.
pub(crate) fn definitions() -> &'static Map<String, Value> {
    &DEFINITIONS
}

/// How a list is merged by server-side apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListType {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// How a list or object is merged by a strategic patch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PatchStrategy<'a> {
    pub(crate) merge: bool,
    pub(crate) merge_key: Option<&'a str>,
}

/// The kind of value that a schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Struct,
    Map,
    List,
    Scalar,
    Any,
}

/// A place in a schema: the field's own annotations and the type that it refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'a> {
    field: &'a Value,
    target: &'a Value,
    definition: &'a str,
    custom: bool,
    root: bool,
    required: bool,
}

impl<'a> Shape<'a> {
    /// The shape of a built-in kind by its definition name.
    pub(crate) fn builtin(name: &'a str) -> Self {
        let target = DEFINITIONS.get(name).unwrap_or(&EMPTY);
        Self {
            field: target,
            target,
            definition: name,
            custom: false,
            root: true,
            required: false,
        }
    }

    /// The shape of a custom resource by its `openAPIV3Schema`.
    pub(crate) fn custom(schema: &'a Value) -> Self {
        Self {
            field: schema,
            target: schema,
            definition: "",
            custom: true,
            root: true,
            required: false,
        }
    }

    /// A shape that knows nothing, as below `x-kubernetes-preserve-unknown-fields`.
    pub(crate) fn any() -> Self {
        Self {
            field: &EMPTY,
            target: &EMPTY,
            definition: "",
            custom: true,
            root: false,
            required: false,
        }
    }

    fn descend(self, schema: &'a Value) -> Self {
        let by_ref = schema
            .get("$ref")
            .or_else(|| schema.pointer("/allOf/0/$ref"))
            .and_then(Value::as_str);
        match by_ref.and_then(|path| path.rsplit('/').next()) {
            Some(name) => Self {
                field: schema,
                root: false,
                ..Shape::builtin(name)
            },
            None => Self {
                field: schema,
                target: schema,
                definition: self.definition,
                custom: self.custom,
                root: false,
                required: false,
            },
        }
    }

    fn get(self, key: &str) -> Option<&'a Value> {
        self.field.get(key).or_else(|| self.target.get(key))
    }

    /// Is the list, map or object replaced as a whole?
    pub(crate) fn form(self) -> Form {
        if self.is_opaque() {
            return Form::Any;
        }
        match self.target.get("type").and_then(Value::as_str) {
            Some("array") => Form::List,
            Some("object") if self.target.get("properties").is_some() || self.root => Form::Struct,
            Some("object") if self.target.get("additionalProperties").is_some() => Form::Map,
            Some("object") => Form::Any,
            Some(_) => Form::Scalar,
            None if self.target.get("oneOf").is_some() => Form::Scalar,
            None if self.target.get("x-kubernetes-int-or-string").is_some() => Form::Scalar,
            None if self.target.get("properties").is_some() => Form::Struct,
            None => Form::Any,
        }
    }

    /// FieldsV1 and raw JSON: kept as they are, whatever they hold.
    fn is_opaque(self) -> bool {
        self.definition.ends_with(".FieldsV1")
    }

    /// The shape of one field; `None` where the schema does not declare it.
    pub(crate) fn field(self, name: &str) -> Option<Self> {
        if self.custom && self.root {
            match name {
                "metadata" => {
                    return Some(Shape {
                        root: false,
                        ..Shape::builtin(OBJECT_META)
                    });
                }
                "apiVersion" | "kind" => return Some(Shape::any()),
                _ => {}
            }
        }
        if let Some(schema) = self
            .target
            .get("properties")
            .and_then(|fields| fields.get(name))
        {
            let required = self.target.get("required").and_then(Value::as_array);
            let required = required.is_some_and(|names| names.iter().any(|one| one == name));
            return Some(Self {
                required,
                ..self.descend(schema)
            });
        }
        match self.target.get("additionalProperties") {
            Some(schema) if schema.is_object() => Some(self.descend(schema)),
            _ if self.form() == Form::Any || self.preserves_unknown() => Some(Shape::any()),
            _ => None,
        }
    }

    /// Is `name` a declared field, rather than a key of a map?
    pub(crate) fn declares(self, name: &str) -> bool {
        (self.custom && self.root && name == "metadata")
            || self
                .target
                .get("properties")
                .is_some_and(|fields| fields.get(name).is_some())
    }

    /// The shape of a list's items.
    pub(crate) fn item(self) -> Self {
        self.target
            .get("items")
            .map_or_else(Shape::any, |items| self.descend(items))
    }

    pub(crate) fn preserves_unknown(self) -> bool {
        self.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
    }

    /// A Go struct that is not a pointer is always there, if only as `{}`; a required list as `null`.
    pub(crate) fn always_present(self) -> bool {
        let default = self.field.get("default").and_then(Value::as_object);
        !self.custom && (self.required || default.is_some_and(Map::is_empty))
    }

    pub(crate) fn list_type(self) -> ListType {
        match self.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => ListType::Set,
            Some("map") => {
                let keys = self
                    .get("x-kubernetes-list-map-keys")
                    .and_then(Value::as_array);
                ListType::Map(
                    keys.into_iter()
                        .flatten()
                        .filter_map(Value::as_str)
                        .map(str::to_owned)
                        .collect(),
                )
            }
            Some(_) => ListType::Atomic,
            // Kubernetes derives the list type from the patch strategy where none is declared.
            None if !self.custom && self.patch_strategy().merge => {
                match self.patch_strategy().merge_key {
                    Some(key) => ListType::Map(vec![key.to_owned()]),
                    None => ListType::Set,
                }
            }
            None => ListType::Atomic,
        }
    }

    pub(crate) fn is_atomic_map(self) -> bool {
        self.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic")
    }

    pub(crate) fn patch_strategy(self) -> PatchStrategy<'a> {
        let strategies = self
            .get("x-kubernetes-patch-strategy")
            .and_then(Value::as_str)
            .unwrap_or_default();
        PatchStrategy {
            merge: strategies.split(',').any(|one| one == "merge"),
            merge_key: self
                .get("x-kubernetes-patch-merge-key")
                .and_then(Value::as_str),
        }
    }

    /// The default of a scalar field (used for the keys of list items).
    pub(crate) fn default(self) -> Option<&'a Value> {
        self.get("default")
    }

    pub(crate) fn scalar_type(self) -> (&'a str, &'a str) {
        let read = |key| {
            self.target
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        (read("type"), read("format"))
    }

    /// `DeploymentSpec` out of `io.k8s.api.apps.v1.DeploymentSpec`.
    pub(crate) fn struct_name(self) -> &'a str {
        self.definition.rsplit('.').next().unwrap_or_default()
    }
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
