//! Server-side apply: field ownership, merging, conflicts.

pub(crate) mod compare;
pub(crate) mod fields;
pub(crate) mod managed;
pub(crate) mod merge;
