//! Does an ElastiService fit what is around it: its Service, its target, autoscalers, other ElastiServices?
//! Pure: it never asks a cluster, and what is unknown is no finding.

use std::collections::BTreeMap;
use std::net::IpAddr;

use elasti_api::{
    Autoscaler, AutoscalerType, ElastiService, ElastiServiceSpec, Handover, ScaleTargetRef,
};
use elasti_core::facts::{AutoscalerFacts, TemplateFacts};
use elasti_core::observed::{Service, ServiceKind};
use elasti_core::services;

use super::document::Document;
use super::finding::Severity::{Error, Warning};
use super::finding::{Finding, Rule};
use crate::reachability::{self, Trouble};

/// An object that a spec names.
#[derive(Clone, Debug, Default)]
pub(crate) enum Seen<T> {
    /// As it is.
    Found(T),
    /// It does not exist.
    Absent,
    /// It could not be looked up.
    #[default]
    Unknown,
}

impl<T> Seen<T> {
    pub(crate) fn found(&self) -> Option<&T> {
        match self {
            Self::Found(value) => Some(value),
            Self::Absent | Self::Unknown => None,
        }
    }
}

/// The autoscalers of one kind in the namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    pub(crate) items: Vec<AutoscalerFacts>,
    /// Whether these are all: the files alone may leave some out.
    pub(crate) is_whole: bool,
}

/// Another ElastiService of the same namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Other {
    pub(crate) name: String,
    pub(crate) service: String,
    pub(crate) target: ScaleTargetRef,
}

/// What is around one ElastiService.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    pub(crate) service: Seen<Service>,
    /// The Services of the namespace, by their names.
    pub(crate) services: BTreeMap<String, Service>,
    /// Addresses of the ready resolvers; `None` where they are not known.
    pub(crate) resolvers: Option<Vec<IpAddr>>,
    /// The target's pod template, if it has one.
    pub(crate) target: Seen<Option<TemplateFacts>>,
    pub(crate) hpas: Listed,
    pub(crate) scaled_objects: Listed,
    pub(crate) others: Vec<Other>,
}

/// Everything that does not fit.
pub(crate) fn check(
    document: &Document,
    spec: &ElastiServiceSpec,
    around: &Around,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut report = |(severity, rule), field: &str, message: String, fix: String| {
        found.push(Finding::new(
            document,
            (severity, rule),
            field,
            message,
            fix,
        ));
    };
    check_service(spec, around, &mut report);
    check_other_services(spec, around, &mut report);
    check_target(spec, around, &mut report);
    check_ports(around, &mut report);
    check_autoscalers(spec, around, &mut report);
    check_others(spec, around, &mut report);
    found
}

type Report<'a> = &'a mut dyn FnMut((super::finding::Severity, Rule), &str, String, String);

const SERVICE: &str = "spec.service";
const TARGET: &str = "spec.scaleTargetRef";

fn check_service(spec: &ElastiServiceSpec, around: &Around, report: Report<'_>) {
    let name = &spec.service;
    let service = match &around.service {
        Seen::Unknown => return,
        Seen::Absent => {
            let message = format!("there is no Service {name} in this namespace");
            let fix = "create the Service, or correct the name".to_owned();
            return report((Error, Rule::Service), SERVICE, message, fix);
        }
        Seen::Found(service) => service,
    };
    let mut refuse = |message: String, fix: &str| {
        report((Error, Rule::Service), SERVICE, message, fix.to_owned());
    };
    if service.kind == ServiceKind::ExternalName {
        return refuse(
            format!("Service {name} is an ExternalName: a DNS alias cannot be redirected"),
            "name a Service with a selector and a cluster IP",
        );
    }
    if service.kind == ServiceKind::Headless {
        return refuse(
            format!(
                "Service {name} is headless: clients connect to the pods directly, and nothing can hold their requests"
            ),
            "create a second Service with a cluster IP and the same selector, point clients to it, and name it here",
        );
    }
    if service.selector.is_empty() {
        return refuse(
            format!("Service {name} has no selector, so its pods are unknown"),
            "give the Service a selector that matches the target's pods",
        );
    }
    if !service.ports.iter().any(|port| port.tcp) {
        return refuse(
            format!("Service {name} has no TCP port, and only TCP can be held"),
            "name a Service with a TCP port",
        );
    }
    check_reachability(spec, (name, service), around, report);
    if service.publishes_unready && spec.handover != Some(Handover::Redirect) {
        let message = format!(
            "Service {name} publishes pods that are not ready, so a drain cannot take them out of rotation, and the target stays awake"
        );
        let fix = "remove publishNotReadyAddresses from the Service, or write handover: redirect";
        report((Error, Rule::Service), SERVICE, message, fix.to_owned());
    }
}

/// The Services that select the target's pods too, and are managed with the one that the spec names.
fn check_other_services(spec: &ElastiServiceSpec, around: &Around, report: Report<'_>) {
    let Some(Some(template)) = around.target.found() else {
        return;
    };
    for (name, service) in &around.services {
        let claimed = around.others.iter().any(|other| other.service == *name);
        let mut selector = service.selector.iter();
        let selects = !service.selector.is_empty()
            && selector
                .all(|(key, value)| template.labels.get(key).is_some_and(|one| one == value));
        if *name != spec.service && !claimed && selects && services::can_be_held(service) {
            check_reachability(spec, (name, service), around, report);
        }
    }
}

/// What of a Service that can be redirected keeps it from being reached, or from sleeping.
fn check_reachability(
    spec: &ElastiServiceSpec,
    (name, service): (&str, &Service),
    around: &Around,
    report: Report<'_>,
) {
    let me = ElastiService::new("", spec.clone());
    // The family of a Service that names one alone, or none, is the cluster's to choose.
    let resolvers = around.resolvers.as_deref();
    let resolvers = resolvers.filter(|_| is_dual_stack(service));
    for trouble in reachability::troubles(&me, service, resolvers) {
        let severity = match trouble.keeps_awake {
            true => Error,
            false => Warning,
        };
        let Trouble { sentence, fix, .. } = trouble.about(name);
        report((severity, Rule::Service), SERVICE, sentence, fix);
    }
}

/// It has both address families.
pub(crate) fn is_dual_stack(service: &Service) -> bool {
    service.families.len() > 1
}

fn check_target(spec: &ElastiServiceSpec, around: &Around, report: Report<'_>) {
    let reference = &spec.scale_target_ref;
    let what = format!("{} {}", reference.canonical_kind(), reference.name);
    let template = match &around.target {
        Seen::Unknown => return,
        Seen::Absent => {
            let message = format!(
                "there is no {what} ({}) in this namespace",
                reference.api_version
            );
            let fix = "create it, or correct apiVersion, kind and name".to_owned();
            return report((Error, Rule::Target), TARGET, message, fix);
        }
        Seen::Found(None) => return,
        Seen::Found(Some(template)) => template,
    };
    if let Some(service) = around.service.found() {
        for (key, wanted) in service.selector.iter() {
            let has = match template.labels.get(key) {
                Some(has) if has == wanted => continue,
                Some(has) => format!("have {key}={has}"),
                None => format!("have no label {key}"),
            };
            let message = format!(
                "Service {} selects pods with {key}={wanted}, but the pods of {what} {has}: the Service does not route to the target",
                spec.service
            );
            let fix = format!(
                "give the pod template of {what} the label {key}: {wanted}, or name the target that the Service selects"
            );
            report((Error, Rule::Target), TARGET, message, fix);
        }
    }
    if !template.readiness_probe {
        let message = format!(
            "the pods of {what} have no readiness probe: they count as ready before the app listens"
        );
        let fix = "add a readinessProbe, so that traffic goes to a pod only when it can answer";
        report((Warning, Rule::Target), TARGET, message, fix.to_owned());
    }
}

fn check_ports(around: &Around, report: Report<'_>) {
    let (Some(service), Some(Some(template))) = (around.service.found(), around.target.found())
    else {
        return;
    };
    let open = &template.ports;
    for port in service.ports.iter().filter(|port| port.tcp) {
        let (number, wanted) = (port.port, &port.target_port);
        match wanted.parse::<u16>() {
            Err(_) if !open.iter().any(|(name, _)| name == wanted) => {
                let message = format!(
                    "port {number} of the Service targets the container port {wanted:?}, which no container of the target has"
                );
                let fix = format!(
                    "name a container port {wanted}, or write its number as the Service's targetPort"
                );
                report((Error, Rule::Ports), SERVICE, message, fix);
            }
            Ok(wanted) if !open.is_empty() && !open.iter().any(|(_, one)| *one == wanted) => {
                let message = format!(
                    "port {number} of the Service targets port {wanted} of the pods, which no container of the target declares"
                );
                let fix = "check the Service's targetPort against the port that the app listens on";
                report((Warning, Rule::Ports), SERVICE, message, fix.to_owned());
            }
            _ => {}
        }
    }
}

fn check_autoscalers(spec: &ElastiServiceSpec, around: &Around, report: Report<'_>) {
    let target = &spec.scale_target_ref;
    if let Some(autoscaler) = &spec.autoscaler {
        check_named(autoscaler, target, around, report);
    }
    let is_named = |kind: AutoscalerType, name: &str| {
        let named = spec.autoscaler.as_ref();
        named.is_some_and(|one| one.type_ == kind && one.name == name)
    };
    let objects = &around.scaled_objects.items;
    for object in objects.iter().filter(|one| one.scales(target)) {
        let name = object.name.as_str();
        if !is_named(AutoscalerType::Keda, name) {
            let message = format!(
                "the ScaledObject {name} scales this target too, and would scale it up again while it sleeps"
            );
            let fix = format!(
                "add autoscaler: {{type: keda, name: {name}}}, so that it is paused during sleep"
            );
            report((Error, Rule::Autoscaler), "spec.autoscaler", message, fix);
        }
        if object.reaches_zero {
            let message = format!(
                "the ScaledObject {name} may scale to 0 by itself, without holding requests first"
            );
            let fix = "set minReplicaCount: 1 there; Elasti takes the last step";
            report(
                (Warning, Rule::Autoscaler),
                "spec.autoscaler",
                message,
                fix.to_owned(),
            );
        }
    }
    let hpas = &around.hpas.items;
    for hpa in hpas.iter().filter(|one| one.scales(target) && !one.of_keda) {
        let name = hpa.name.as_str();
        if !is_named(AutoscalerType::Hpa, name) {
            let message = format!(
                "the HorizontalPodAutoscaler {name} scales this target too; a wake asks for minTargetReplicas and not for its minReplicas"
            );
            let fix = format!("add autoscaler: {{type: hpa, name: {name}}}");
            report((Warning, Rule::Autoscaler), "spec.autoscaler", message, fix);
        }
    }
}

fn check_named(
    autoscaler: &Autoscaler,
    target: &ScaleTargetRef,
    around: &Around,
    report: Report<'_>,
) {
    let (known, kind) = match autoscaler.type_ {
        AutoscalerType::Keda => (&around.scaled_objects, "ScaledObject"),
        AutoscalerType::Hpa => (&around.hpas, "HorizontalPodAutoscaler"),
    };
    let name = &autoscaler.name;
    match known.items.iter().find(|one| one.name == *name) {
        None if !known.is_whole => {}
        None => {
            let message = format!(
                "there is no {kind} {name} in this namespace, so the target is never put to sleep"
            );
            let fix = "correct the name, or remove autoscaler".to_owned();
            report(
                (Error, Rule::Autoscaler),
                "spec.autoscaler.name",
                message,
                fix,
            );
        }
        Some(found) if !found.scales(target) => {
            let message = format!(
                "the {kind} {name} scales {}, not this target",
                found.target_name
            );
            let fix = format!(
                "name the {kind} of {} {}",
                target.canonical_kind(),
                target.name
            );
            report(
                (Error, Rule::Autoscaler),
                "spec.autoscaler.name",
                message,
                fix,
            );
        }
        Some(_) => {}
    }
}

fn check_others(spec: &ElastiServiceSpec, around: &Around, report: Report<'_>) {
    for other in &around.others {
        let target = &spec.scale_target_ref;
        let same_target = other.target.is_same_workload(target);
        let (field, what) = match (other.service == spec.service, same_target) {
            (true, _) => (SERVICE, format!("Service {}", spec.service)),
            (false, true) => (
                TARGET,
                format!("{} {}", target.canonical_kind(), target.name),
            ),
            (false, false) => continue,
        };
        let message = format!(
            "the ElastiService {} has {what} too; the older of the two takes precedence, the other does nothing",
            other.name
        );
        let fix = "keep one of the two".to_owned();
        report((Error, Rule::Conflict), field, message, fix);
    }
}
