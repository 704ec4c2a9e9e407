//! The API: the ElastiService resource, every name in the cluster, and the messages between operator and resolver.

mod activity;
mod answer_reason;
mod client_text;
#[allow(unreachable_pub, reason = "the schema derive copies the structs")]
mod elasti_service;
mod history;
pub mod names;
mod probe_response;
mod reason;
mod savings_calendar;
mod status;
mod structural;
#[allow(unreachable_pub, reason = "the schema derive copies the struct")]
mod target;
mod trigger;
mod wake;
mod wake_client;

pub use activity::{Activity, ActivityReport, RouteGeneration};
pub use answer_reason::AnswerReason;
pub use client_text::client_text;
pub use elasti_service::{
    AllowFrom, Autoscaler, AutoscalerType, DEFAULT_COOLDOWN_SECONDS, ElastiService,
    ElastiServiceSpec, EnabledPeriod, Handover, Hold, MAX_DURATION_CHARS, MAX_SCHEDULE_CHARS,
    UnmanagedServices, Wake,
};
pub use history::{HistoryEntry, HistoryState};
pub use probe_response::{
    HeaderMatch, Method, PathMatch, PathMatchType, ProbeAnswer, ProbeResponse, QueryParamMatch,
    ValueMatchType,
};
pub use reason::Reason;
pub use savings_calendar::{SavedMonth, SavingsCalendar};
pub use status::{
    CurrentSleep, ElastiServiceStatus, FailedWake, LastWake, ListenPort, Mode, Phase, SavedSeconds,
    ServicePorts, TriggerStatus,
};
pub use target::ScaleTargetRef;
pub use trigger::{
    DEFAULT_UPTIME_FILTER, PrometheusTrigger, Trigger, TriggerError, TriggerType, reduce_triggers,
};
pub use wake::{MOST_WAKES_AT_ONCE, PromisedPod, WakeAnswer, WakePromise, WakeRequest};
pub use wake_client::WakeClient;

/// The Kubernetes types that the status is made of, so that other crates need not depend on theirs.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
