//! Server-side apply: field ownership, merging, conflicts.
//! Never stores anything: it turns a live object and a request into the next object.

pub(crate) mod compare;
pub(crate) mod fields;
pub(crate) mod managed;
pub(crate) mod merge;
