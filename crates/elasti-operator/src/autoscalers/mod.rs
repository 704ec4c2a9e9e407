//! Autoscalers that scale the same target: what is cached of them, and how they are paused.

pub(crate) mod hpa;
pub(crate) mod keda;
