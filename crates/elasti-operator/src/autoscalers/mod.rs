//! The autoscalers that may stand beside Elasti: what is known of them, and how they are told.
//! Never decides when to tell them: that is the brain's work.

pub(crate) mod hpa;
pub(crate) mod keda;
