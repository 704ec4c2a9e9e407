//! Services, Endpoints and EndpointSlices: defaults, addresses, validation.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::api_server::names;
use crate::api_server::object::Object as _;
use crate::api_server::status::Cause;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(crate) fn default(object: &mut Value) {
    for condition in object.list_mut("/status/conditions") {
        condition.put_default("/lastTransitionTime", Value::Null);
        condition.put_default("/reason", "");
        condition.put_default("/message", "");
    }
    object.put_default("/spec/sessionAffinity", "None");
    object.put_default("/spec/type", "ClusterIP");
    if object.text("/spec/sessionAffinity") == "ClientIP" {
        object.put_default(
            "/spec/sessionAffinityConfig/clientIP/timeoutSeconds",
            10_800,
        );
    }
    for port in object.list_mut("/spec/ports") {
        port.put_default("/protocol", "TCP");
        let number = port.at("/port").clone();
        if port.at("/targetPort").is_null()
            || port.at("/targetPort") == 0
            || port.at("/targetPort") == ""
        {
            port.put("/targetPort", number);
        }
    }
    match object.text("/spec/type") {
        "ExternalName" => return,
        "LoadBalancer" => {
            object.put_default("/spec/externalTrafficPolicy", "Cluster");
            object.put_default("/spec/allocateLoadBalancerNodePorts", true);
        }
        "NodePort" => object.put_default("/spec/externalTrafficPolicy", "Cluster"),
        _ => {}
    }
    object.put_default("/spec/internalTrafficPolicy", "Cluster");
}

pub(crate) fn default_endpoints(object: &mut Value) {
    for subset in object.list_mut("/subsets") {
        for port in subset.list_mut("/ports") {
            port.put_default("/protocol", "TCP");
        }
    }
}

pub(crate) fn default_slice(object: &mut Value) {
    for port in object.list_mut("/ports") {
        port.put_default("/name", "");
        port.put_default("/protocol", "TCP");
    }
}

/// Go's storage does not distinguish an empty list from none, and writes none.
pub(crate) fn complete_slice(object: &mut Value) {
    for list in ["/endpoints", "/ports"] {
        if object.list(list).is_empty() {
            object.put(list, Value::Null);
        }
    }
}

/// Which cluster addresses and node ports are given out.
#[derive(Debug)]
pub(crate) struct ServiceAddresses {
    first: u32,
    count: u32,
    taken: HashSet<u32>,
    next: u32,
    ports: HashSet<i64>,
    next_port: i64,
}

impl ServiceAddresses {
    /// Addresses of `base/prefix`.
    pub(crate) fn new(base: Ipv4Addr, prefix: u8) -> Self {
        let count = 1_u32
            .checked_shl(u32::from(32_u8.saturating_sub(prefix)))
            .unwrap_or(u32::MAX);
        let first = u32::from(base) & !(count.wrapping_sub(1));
        Self {
            first,
            count,
            taken: HashSet::new(),
            next: 1,
            ports: HashSet::new(),
            next_port: 30_000,
        }
    }

    fn allocate(&mut self) -> Option<Ipv4Addr> {
        for _ in 0..self.count {
            let address = self.first + self.next;
            self.next = if self.next + 2 >= self.count {
                1
            } else {
                self.next + 1
            };
            if self.taken.insert(address) {
                return Some(Ipv4Addr::from(address));
            }
        }
        None
    }

    fn reserve(&mut self, text: &str) -> Result<(), &'static str> {
        let address: Ipv4Addr = text.parse().map_err(|_| "the provided IP is not valid")?;
        let number = u32::from(address);
        if number.wrapping_sub(self.first) >= self.count {
            return Err("the provided network does not match the current range");
        }
        if self.taken.insert(number) {
            Ok(())
        } else {
            Err("provided IP is already allocated")
        }
    }

    fn node_port(&mut self) -> i64 {
        while !self.ports.insert(self.next_port) {
            self.next_port = if self.next_port >= 32_767 {
                30_000
            } else {
                self.next_port + 1
            };
        }
        self.next_port
    }

    /// Gives back what a deleted Service held.
    pub(crate) fn release(&mut self, service: &Value) {
        if let Ok(address) = service.text("/spec/clusterIP").parse::<Ipv4Addr>() {
            self.taken.remove(&u32::from(address));
        }
        for port in service.list("/spec/ports") {
            if let Some(port) = port.number("/nodePort") {
                self.ports.remove(&port);
            }
        }
    }

    /// Completes a Service with its cluster address and node ports.
    pub(crate) fn assign(&mut self, service: &mut Value, old: Option<&Value>) -> Result<(), Cause> {
        if service.text("/spec/type") == "ExternalName" {
            for gone in [
                "/spec/clusterIP",
                "/spec/clusterIPs",
                "/spec/ipFamilies",
                "/spec/ipFamilyPolicy",
            ] {
                service.drop_at(gone);
            }
            return Ok(());
        }
        let before = old.map_or("", |old| old.text("/spec/clusterIP"));
        let wanted = service.text("/spec/clusterIP").to_owned();
        let address = match wanted.as_str() {
            "" if !before.is_empty() => before.to_owned(),
            "" => self
                .allocate()
                .ok_or_else(|| Cause::invalid("spec.clusterIPs", &json!([]), "range is full"))?
                .to_string(),
            "None" => wanted,
            same if same == before => wanted,
            _ => {
                let refuse = |why| {
                    Cause::invalid(
                        "spec.clusterIPs",
                        &json!([wanted]),
                        &format!("failed to allocate IP {wanted}: {why}"),
                    )
                };
                self.reserve(&wanted).map_err(refuse)?;
                wanted
            }
        };
        service.put("/spec/clusterIPs", json!([address]));
        service.put("/spec/clusterIP", address);
        service.put_default("/spec/ipFamilies", json!(["IPv4"]));
        service.put_default("/spec/ipFamilyPolicy", "SingleStack");
        let kind = service.text("/spec/type");
        let wants_ports = kind == "NodePort"
            || (kind == "LoadBalancer"
                && service.at("/spec/allocateLoadBalancerNodePorts") != false);
        if wants_ports {
            for at in 0..service.list("/spec/ports").len() {
                let known = old.and_then(|old| old.number(&format!("/spec/ports/{at}/nodePort")));
                let here = service.number(&format!("/spec/ports/{at}/nodePort"));
                let port = here.or(known).unwrap_or_else(|| self.node_port());
                self.ports.insert(port);
                if let Some(entry) = service.list_mut("/spec/ports").get_mut(at) {
                    entry.put("/nodePort", port);
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn validate(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let kind = object.text("/spec/type");
    if !TYPES.contains(&kind) {
        causes.push(Cause::unsupported("spec.type", &json!(kind), TYPES));
    }
    let ports = object.list("/spec/ports");
    if ports.is_empty() && kind != "ExternalName" && object.text("/spec/clusterIP") != "None" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if kind == "ExternalName" && object.text("/spec/externalName").is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (at, port) in ports.iter().enumerate() {
        let name = port.text("/name");
        if name.is_empty() && ports.len() > 1 {
            causes.push(Cause::required(format!("spec.ports[{at}].name"), ""));
        } else if seen.contains(&name) {
            causes.push(Cause::duplicate(
                format!("spec.ports[{at}].name"),
                &json!(name),
            ));
        } else if let Some(why) = names::label(name).filter(|_| !name.is_empty()) {
            causes.push(Cause::invalid(
                format!("spec.ports[{at}].name"),
                &json!(name),
                &why,
            ));
        }
        seen.push(name);
        for field in ["port", "targetPort"] {
            if let Some(number) = port
                .number(&format!("/{field}"))
                .or_else(|| (field == "port").then_some(0))
                && !(1..=65535).contains(&number)
            {
                causes.push(Cause::invalid(
                    format!("spec.ports[{at}].{field}"),
                    &json!(number),
                    "must be between 1 and 65535, inclusive",
                ));
            }
        }
    }
    if let Some(old) = old {
        let (before, after) = (old.text("/spec/clusterIP"), object.text("/spec/clusterIP"));
        let stays = old.text("/spec/type") != "ExternalName" && kind != "ExternalName";
        if stays && !before.is_empty() && !after.is_empty() && before != after {
            causes.push(Cause::invalid(
                "spec.clusterIPs[0]",
                &json!([after]),
                "may not change once set",
            ));
        }
    }
}

pub(crate) fn validate_slice(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let address_type = object.text("/addressType");
    if address_type.is_empty() {
        causes.push(Cause::required("addressType", ""));
    } else if !["FQDN", "IPv4", "IPv6"].contains(&address_type) {
        causes.push(Cause::unsupported(
            "addressType",
            &json!(address_type),
            &["FQDN", "IPv4", "IPv6"],
        ));
    }
    if let Some(old) = old
        && old.text("/addressType") != address_type
    {
        causes.push(Cause::invalid(
            "addressType",
            &json!(address_type),
            "field is immutable",
        ));
    }
    for (at, endpoint) in object.list("/endpoints").iter().enumerate() {
        let addresses = endpoint.list("/addresses");
        if addresses.is_empty() {
            causes.push(Cause::required(
                format!("endpoints[{at}].addresses"),
                "must contain at least 1 endpoint",
            ));
        }
        for (nth, address) in addresses.iter().enumerate() {
            let text = address.as_str().unwrap_or_default();
            let field = format!("endpoints[{at}].addresses[{nth}]");
            let parsed: Option<std::net::IpAddr> = text.parse().ok();
            match (address_type, parsed) {
                ("IPv4" | "IPv6", None) => causes.push(Cause::invalid(
                    field,
                    address,
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                )),
                ("IPv4", Some(ip)) if ip.is_ipv6() => {
                    causes.push(Cause::invalid(field, address, "must be an IPv4 address"))
                }
                ("IPv6", Some(ip)) if ip.is_ipv4() => {
                    causes.push(Cause::invalid(field, address, "must be an IPv6 address"))
                }
                _ => {}
            }
        }
    }
    let mut seen: Vec<&str> = Vec::new();
    for (at, port) in object.list("/ports").iter().enumerate() {
        let name = port.text("/name");
        if seen.contains(&name) {
            causes.push(Cause::duplicate(format!("ports[{at}].name"), &json!(name)));
        }
        seen.push(name);
    }
}
