//! The ElastiServices and what leads their traffic: are the slices of sleeping services where a resolver answers?

use std::collections::BTreeMap;
use std::net::IpAddr;

use elasti_api::{ElastiService, Mode, Phase, names};
use elasti_core::facts::{ServiceFacts, SliceFacts};
use elasti_core::observed;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::installation::{Installation, ready_addresses};
use super::line::Line;
use crate::reachability::{self, Trouble};

/// More would fill the screen.
const SHOWN: usize = 5;

/// All of them, and what is ours beside them.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) services: Vec<ElastiService>,
    /// `None` where they cannot be read.
    pub(super) slices: Option<Vec<EndpointSlice>>,
    /// Every Service: ours, and those of others.
    pub(super) all_services: Option<Vec<Service>>,
    ready_resolvers: Option<Vec<String>>,
    has_default_prometheus: bool,
}

impl Fleet {
    /// `None` where not even the ElastiServices can be read.
    pub(super) async fn load(
        client: &Client,
        installation: &Installation,
        lines: &mut Vec<Line>,
    ) -> Option<Self> {
        let watched = installation.watched();
        let everything = ListParams::default();
        let services: Vec<ElastiService> = match list(client, &watched, &everything).await {
            Ok(services) => services,
            Err(error) => {
                lines.push(Line::unseen("services", "ElastiServices", &error));
                return None;
            }
        };
        let mut installation = installation.clone();
        let known = installation.read_resolvers(client, lines).await;
        let mut seen =
            |what: &str, error: &kube::Error| lines.push(Line::unseen("slices", what, error));
        let slices = list(client, &watched, &everything).await;
        let slices = slices.map_err(|error| seen("EndpointSlices", &error)).ok();
        let all_services = list(client, &watched, &everything).await;
        let all_services = all_services.map_err(|error| seen("Services", &error)).ok();
        Some(Self {
            services,
            slices,
            all_services,
            ready_resolvers: known.then_some(installation.ready_resolvers.clone()),
            has_default_prometheus: installation.has_default_prometheus(),
        })
    }

    pub(super) fn check(&self, lines: &mut Vec<Line>) {
        if self.services.is_empty() {
            lines.push(Line::ok("services", "no ElastiServices yet"));
            return;
        }
        lines.push(self.sum());
        self.check_slices(lines);
        self.check_policies(lines);
        self.check_prometheus(lines);
    }

    fn sum(&self) -> Line {
        let asleep = self
            .services
            .iter()
            .filter(|one| phase(one) == Some(Phase::Asleep))
            .count();
        let unwell: Vec<String> = self.services.iter().filter_map(unwell).collect();
        let message = counted(
            self.services.len(),
            "ElastiService",
            &format!(", {asleep} asleep"),
        );
        match unwell.is_empty() {
            true => Line::ok("services", message),
            false => Line::warn(
                "services",
                format!("{message}, {} not ready: {}", unwell.len(), some(&unwell)),
                "elasti why NAME -n NAMESPACE shows the cause",
            ),
        }
    }

    fn check_slices(&self, lines: &mut Vec<Line>) {
        let (Some(slices), Some(resolvers)) = (&self.slices, &self.ready_resolvers) else {
            return;
        };
        let mut wrong = Vec::new();
        let mut led = 0;
        for service in self
            .services
            .iter()
            .filter(|one| mode(one) == Some(Mode::Proxy))
        {
            led += 1;
            let ours: Vec<&EndpointSlice> = slices
                .iter()
                .filter(|slice| leads(slice, service))
                .collect();
            let addresses: Vec<String> = ours
                .iter()
                .flat_map(|slice| ready_addresses(slice))
                .collect();
            let unknown: Vec<String> = addresses
                .iter()
                .filter(|one| !resolvers.contains(one))
                .cloned()
                .collect();
            let what = if addresses.is_empty() {
                "no resolver in its slices".to_owned()
            } else if !unknown.is_empty() {
                format!(
                    "routed to {}, where no resolver is ready",
                    unknown.join(", ")
                )
            } else {
                continue;
            };
            wrong.push(format!("{}: {what}", name(service)));
        }
        lines.push(match (wrong.is_empty(), led) {
            (true, 0) => Line::ok("slices", "no service is routed to the resolvers now"),
            (true, led) => Line::ok(
                "slices",
                counted(led, "service", " routed to ready resolvers"),
            ),
            (false, _) => Line::fail(
                "slices",
                format!(
                    "requests to these services reach no resolver: {}",
                    some(&wrong)
                ),
                "check that there is a leader; it corrects slices within a second",
            ),
        });
    }

    /// Services that cannot sleep, or not unnoticed by all of their clients: a line for each way. The other Services of
    /// a target's pods count as the one that the spec names.
    fn check_policies(&self, lines: &mut Vec<Line>) {
        let addresses = { self.ready_resolvers.iter().flatten() };
        let addresses: Vec<IpAddr> = addresses.filter_map(|one| one.parse().ok()).collect();
        let addresses = self.ready_resolvers.is_some().then_some(addresses);
        let mut found: BTreeMap<Trouble, Vec<String>> = BTreeMap::new();
        for me in &self.services {
            let named = me.spec.service.as_str();
            let recorded = me.status.iter().flat_map(|status| &status.services);
            let others = recorded.map(|one| one.name.as_str());
            for service in std::iter::once(named).chain(others) {
                let Some(facts) = self.service(me, service) else {
                    continue;
                };
                for trouble in reachability::troubles(me, &facts, addresses.as_deref()) {
                    let trouble = match service == named {
                        true => trouble,
                        false => trouble.about(service),
                    };
                    found.entry(trouble).or_default().push(name(me));
                }
            }
        }
        for (trouble, names) in found {
            let message = format!("{}: {}", trouble.sentence, some(&names));
            lines.push(Line::warn("policies", message, trouble.fix));
        }
    }

    /// A Service of the namespace of an ElastiService.
    fn service(&self, me: &ElastiService, name: &str) -> Option<observed::Service> {
        let mut services = self.all_services.iter().flatten();
        let found =
            services.find(|one| one.namespace() == me.namespace() && one.name_any() == name);
        Some(ServiceFacts::from_object(found?.clone()).service)
    }

    fn check_prometheus(&self, lines: &mut Vec<Line>) {
        let nameless = |service: &&ElastiService| {
            let mut settings = service
                .spec
                .triggers
                .iter()
                .filter_map(|trigger| trigger.prometheus().ok());
            settings.any(|settings| settings.server_address.is_none())
        };
        let without: Vec<String> = self.services.iter().filter(nameless).map(name).collect();
        if without.is_empty() || self.has_default_prometheus {
            return;
        }
        lines.push(Line::fail(
            "prometheus",
            format!("no default Prometheus is set, and triggers of these services name none, so they never sleep: {}", some(&without)),
            "helm upgrade with elastiController.manager.env.prometheusTriggerServerAddress, or write serverAddress in the trigger",
        ));
    }
}

async fn list<K>(
    client: &Client,
    namespaces: &[String],
    params: &ListParams,
) -> kube::Result<Vec<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    if namespaces.is_empty() {
        return Ok(Api::all(client.clone()).list(params).await?.items);
    }
    let mut found = Vec::new();
    for namespace in namespaces {
        let within: Api<K> = Api::namespaced(client.clone(), namespace);
        found.extend(within.list(params).await?.items);
    }
    Ok(found)
}

fn counted(count: usize, what: &str, more: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}{more}")
}

pub(super) fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(SHOWN);
    let shown = names
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    match more {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

pub(super) fn name(service: &ElastiService) -> String {
    format!(
        "{}/{}",
        service.namespace().unwrap_or_default(),
        service.name_any()
    )
}

fn phase(service: &ElastiService) -> Option<Phase> {
    service.status.as_ref()?.phase
}

fn mode(service: &ElastiService) -> Option<Mode> {
    service.status.as_ref()?.mode
}

/// Name and reason of a service for which Elasti cannot do its work.
fn unwell(service: &ElastiService) -> Option<String> {
    let conditions = service.status.as_ref().map(|status| &status.conditions);
    let ready = conditions
        .into_iter()
        .flatten()
        .find(|one| one.type_ == names::condition::READY);
    match ready {
        None => Some(format!("{} (not processed by an operator)", name(service))),
        Some(ready) if ready.status != "True" => {
            Some(format!("{} ({})", name(service), ready.reason))
        }
        Some(_) => None,
    }
}

/// Whether this slice, ours or one that KubeElasti left, routes this service's traffic.
fn leads(slice: &EndpointSlice, service: &ElastiService) -> bool {
    let label = |key: &str| slice.labels().get(key).map(String::as_str);
    let facts = SliceFacts::from_object(slice);
    (facts.by_elasti || facts.by_predecessor)
        && label(names::SERVICE_NAME_LABEL) == Some(service.spec.service.as_str())
        && slice.namespace() == service.namespace()
}
