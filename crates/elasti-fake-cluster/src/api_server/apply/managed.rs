//! `metadata.managedFields`: who owns which field after an apply, an update or a patch.

use serde_json::{Value, json};

use super::compare::Comparison;
use super::fields::{FieldSet, Step};
use super::merge;
use crate::api_server::object::Object as _;
use crate::api_server::schema::Shape;
use crate::api_server::status::{ApiError, Cause};

/// One entry of managedFields.
#[derive(Clone, Debug, PartialEq)]
struct Manager {
    name: String,
    applies: bool,
    api_version: String,
    subresource: String,
    time: String,
    fields: FieldSet,
}

impl Manager {
    fn parse(entry: &Value) -> Self {
        Self {
            name: entry.text("/manager").to_owned(),
            applies: entry.text("/operation") == "Apply",
            api_version: entry.text("/apiVersion").to_owned(),
            subresource: entry.text("/subresource").to_owned(),
            time: entry.text("/time").to_owned(),
            fields: FieldSet::from_json(entry.at("/fieldsV1")),
        }
    }

    fn write(&self) -> Value {
        let mut entry = json!({
            "manager": self.name,
            "operation": if self.applies { "Apply" } else { "Update" },
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.to_json(),
        });
        if !self.time.is_empty() {
            entry.put("/time", self.time.as_str());
        }
        if !self.subresource.is_empty() {
            entry.put("/subresource", self.subresource.as_str());
        }
        entry
    }

    fn is(&self, writer: &Writer<'_>, applies: bool) -> bool {
        let same_version = applies || self.api_version == writer.api_version;
        self.name == writer.manager
            && self.applies == applies
            && self.subresource == writer.subresource
            && same_version
    }

    fn conflict_text(&self) -> String {
        let mut text = format!("conflict with \"{}\"", self.name);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource \"{}\"", self.subresource));
        }
        if !self.applies {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

/// Who writes, through which subresource, when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) time: &'a str,
}

/// Fields that no manager owns: the server's own.
fn unowned() -> FieldSet {
    let mut set = FieldSet::default();
    let field = |name: &str| Step::Field(name.to_owned());
    set.insert(&[field("apiVersion")]);
    set.insert(&[field("kind")]);
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        set.insert(&[field("metadata"), field(name)]);
    }
    set
}

fn owned(set: &FieldSet) -> FieldSet {
    let mut set = set.without_trees(&unowned());
    // "metadata" itself is never owned.
    if let Some(metadata) = set.children.get_mut(&Step::Field("metadata".to_owned())) {
        metadata.member = false;
        if metadata.is_empty() {
            set.children.remove(&Step::Field("metadata".to_owned()));
        }
    }
    set.member = false;
    set
}

fn managers(object: &Value) -> Vec<Manager> {
    object
        .list("/metadata/managedFields")
        .iter()
        .map(Manager::parse)
        .collect()
}

fn write(object: &mut Value, mut managers: Vec<Manager>) {
    managers.retain(|manager| !manager.fields.is_empty());
    // Kubernetes' order: appliers first, then by time, then by name.
    managers.sort_by(|a, b| {
        (b.applies, &a.time, &a.name, &a.api_version, &a.subresource).cmp(&(
            a.applies,
            &b.time,
            &b.name,
            &b.api_version,
            &b.subresource,
        ))
    });
    if managers.is_empty() {
        object.drop_at("/metadata/managedFields");
    } else {
        object.put(
            "/metadata/managedFields",
            managers.iter().map(Manager::write).collect::<Vec<_>>(),
        );
    }
}

/// Ownership after a create, update or non-apply patch. A client that sent an empty list resets it.
pub(crate) fn after_update(live: &Value, next: &mut Value, shape: Shape<'_>, writer: Writer<'_>) {
    let reset = next
        .at("/metadata/managedFields")
        .as_array()
        .is_some_and(Vec::is_empty);
    if reset {
        next.drop_at("/metadata/managedFields");
        return;
    }
    let mut managers = managers(live);
    let comparison = Comparison::between(&bare(live), &bare(next), shape);
    let written = owned(&comparison.written());
    let removed = owned(&comparison.removed);
    for manager in &mut managers {
        if !manager.is(&writer, false) {
            manager.fields = manager.fields.difference(&written).without_trees(&removed);
        }
    }
    let before = managers
        .iter()
        .position(|manager| manager.is(&writer, false))
        .map(|at| managers.remove(at));
    let old_fields = before
        .as_ref()
        .map(|manager| manager.fields.clone())
        .unwrap_or_default();
    let fields = old_fields.union(&written).without_trees(&removed);
    // Only a request that took fields moves the time.
    let time = match before {
        Some(before) if written.is_empty() => before.time,
        _ => writer.time.to_owned(),
    };
    managers.push(manager(writer, false, time, fields));
    write(next, managers);
}

fn steps(pointer: &str) -> Vec<Step> {
    let names = pointer.split('/').skip(1);
    names.map(|name| Step::Field(name.to_owned())).collect()
}

/// Whether a manager owns one field.
pub(crate) fn is_owned(object: &Value, pointer: &str) -> bool {
    let mut field = FieldSet::default();
    field.insert(&steps(pointer));
    let owns = |manager: &Manager| !manager.fields.intersection(&field).is_empty();
    managers(object).iter().any(owns)
}

/// Takes one field away from every manager.
pub(crate) fn disown(object: &mut Value, pointer: &str) {
    let mut gone = FieldSet::default();
    gone.insert(&steps(pointer));
    let mut managers = managers(object);
    for manager in &mut managers {
        manager.fields = manager.fields.without_trees(&gone);
    }
    write(object, managers);
}

fn manager(writer: Writer<'_>, applies: bool, time: String, fields: FieldSet) -> Manager {
    Manager {
        name: writer.manager.to_owned(),
        applies,
        api_version: writer.api_version.to_owned(),
        subresource: writer.subresource.to_owned(),
        time,
        fields,
    }
}

/// The next object after an apply, with its ownership, or the conflicts that forbid it.
pub(crate) fn after_apply(
    live: &Value,
    applied: &Value,
    ignored: &FieldSet,
    shape: Shape<'_>,
    writer: Writer<'_>,
    force: bool,
) -> Result<Value, ApiError> {
    let mut managers = managers(live);
    let fields = owned(&FieldSet::from_value(&bare(applied), shape)).without_trees(ignored);
    let last = managers
        .iter()
        .position(|manager| manager.is(&writer, true))
        .map(|at| managers.remove(at));
    let mut next = merge::merge(&bare(live), &bare(applied), shape);
    if let Some(last) = &last {
        let kept = managers
            .iter()
            .fold(fields.clone(), |all, manager| all.union(&manager.fields));
        merge::prune(&mut next, &last.fields, &kept, shape);
    }
    let comparison = Comparison::between(&bare(live), &next, shape);
    let written = owned(&comparison.written()).without_trees(ignored);
    let removed = owned(&comparison.removed);
    refuse_conflicts(&mut managers, &written, force)?;
    for manager in &mut managers {
        manager.fields = manager.fields.without_trees(&removed);
    }
    // An apply that changes nothing but ownership leaves no time.
    let changed = !written.is_empty() || !removed.is_empty();
    let time = match last {
        _ if changed => writer.time.to_owned(),
        Some(last) => last.time,
        None => String::new(),
    };
    managers.push(manager(writer, true, time, fields));
    write(&mut next, managers);
    Ok(next)
}

fn refuse_conflicts(
    managers: &mut [Manager],
    written: &FieldSet,
    force: bool,
) -> Result<(), ApiError> {
    let mut causes: Vec<Cause> = Vec::new();
    let mut listed = Vec::new();
    for manager in managers {
        let contested = manager.fields.intersection(written);
        if contested.is_empty() {
            continue;
        }
        if force {
            manager.fields = manager.fields.difference(&contested);
            continue;
        }
        let who = manager.conflict_text();
        let paths = contested.paths();
        listed.push(format!(
            "{}:\n- {}",
            who.replacen("conflict", "conflicts", 1),
            paths.join("\n- ")
        ));
        causes.extend(
            paths
                .into_iter()
                .map(|path| Cause::new("FieldManagerConflict", path, who.as_str())),
        );
    }
    let message = match causes.as_slice() {
        [] => return Ok(()),
        [one] => format!(
            "Apply failed with 1 conflict: {}: {}",
            one.message, one.field
        ),
        many => format!(
            "Apply failed with {} conflicts: {}",
            many.len(),
            listed.join("\n")
        ),
    };
    Err(ApiError::ApplyConflict { message, causes })
}

fn bare(object: &Value) -> Value {
    let mut bare = object.clone();
    bare.drop_at("/metadata/managedFields");
    bare
}
