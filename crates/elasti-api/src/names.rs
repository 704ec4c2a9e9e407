//! Every label, annotation, finalizer, object and field-manager name, once.
//! No other file spells one of these.

/// Holds an ElastiService back until its target is awake and our objects are gone.
pub const FINALIZER: &str = "elasti.truefoundry.com/finalizer";
