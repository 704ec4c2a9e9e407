//! The path to a value, written as Kubernetes writes it.

use std::fmt;

/// `spec.triggers[0].type`; the root is empty.
#[derive(Clone, Default)]
pub(crate) struct Path(String);

impl Path {
    pub(crate) fn field(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self(name.to_owned())
        } else {
            Self(format!("{}.{name}", self.0))
        }
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// A path below this one that is already written out; empty means this one.
    pub(crate) fn below(&self, written: &str) -> Self {
        match written {
            "" => self.clone(),
            _ if written.starts_with('[') => Self(format!("{}{written}", self.0)),
            _ => self.field(written),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
