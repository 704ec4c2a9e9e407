//! The settings that the contract's environment variables give.
//! Never panics on a value: the first wrong one is named, once.

use std::net::{IpAddr, SocketAddr};

use jiff::SignedDuration;

use crate::settings::Settings;

/// A value that cannot be used: the operator of the cluster must change it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?} cannot be used: {needed}")]
pub struct WrongValue {
    /// The variable.
    pub name: &'static str,
    /// What it says.
    pub value: String,
    /// What it should say.
    pub needed: &'static str,
}

/// Variables of the predecessor for which this design has no use; they are accepted.
const WITHOUT_USE: [&str; 10] = [
    "MAX_QUEUE_CONCURRENCY",
    "INITIAL_CAPACITY",
    "MAX_IDLE_PROXY_CONNS",
    "MAX_IDLE_PROXY_CONNS_PER_HOST",
    "ENABLE_H2C",
    "TRAFFIC_RE_ENABLE_DURATION",
    "TRAFFIC_DISABLE_GRACE_DURATION",
    "OPERATOR_RETRY_DURATION",
    "QUEUE_RETRY_DURATION",
    "CRD_CACHE_POLL_INTERVAL_MINUTES",
];

impl Settings {
    /// Reads the contract's variables through `get`; an empty one counts as absent. Says in one log line which of the
    /// predecessor's variables have no use here.
    ///
    /// # Errors
    /// If a value cannot be used.
    pub fn from_environment(get: impl Fn(&str) -> Option<String>) -> Result<Self, WrongValue> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let mut settings = Self::default();
        let any = settings.bind;
        if let Some(port) = parsed(&get, "ELASTI_RESOLVER_PORT", "a port number")? {
            settings.admin = SocketAddr::new(any, port);
        }
        if let Some(port) = parsed(&get, "ELASTI_RESOLVER_PROXY_PORT", "a port number")? {
            settings.proxy = SocketAddr::new(any, port);
        }
        if let Some(seconds) = parsed::<u32>(&get, "REQ_TIMEOUT", "a whole number of seconds")? {
            settings.limits.timeout = SignedDuration::from_secs(seconds.max(1).into());
        }
        if let Some(size) = parsed::<u32>(&get, "QUEUE_SIZE", "a whole number of requests")? {
            settings.limits.service_requests = size.max(1);
        }
        settings.host_header = parsed(&get, "HEADER_FOR_HOST", "the name of a header")?;
        settings.namespaces = list(get("WATCH_NAMESPACES"));
        settings
            .resolvers
            .extend(parsed::<IpAddr>(&get, "POD_IP", "an IP address")?);
        if let Some(domain) = get("KUBERNETES_CLUSTER_DOMAIN") {
            settings.cluster_domain = domain;
        }
        settings.operator = operator(&get, &settings.cluster_domain)?;
        let unused: Vec<&str> = WITHOUT_USE
            .into_iter()
            .filter(|name| get(name).is_some())
            .collect();
        if !unused.is_empty() {
            tracing::info!(
                variables = unused.join(", "),
                "these variables are accepted and have no use here"
            );
        }
        Ok(settings)
    }
}

fn operator(get: &impl Fn(&str) -> Option<String>, domain: &str) -> Result<String, WrongValue> {
    let service = get("ELASTI_OPERATOR_SERVICE_NAME")
        .unwrap_or_else(|| "elasti-operator-controller-service".into());
    let namespace = get("ELASTI_OPERATOR_NAMESPACE").unwrap_or_else(|| "elasti".into());
    let port: u16 = parsed(get, "ELASTI_OPERATOR_PORT", "a port number")?.unwrap_or(8013);
    Ok(format!("{service}.{namespace}.svc.{domain}:{port}"))
}

fn list(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

fn parsed<T: std::str::FromStr>(
    get: &impl Fn(&str) -> Option<String>,
    name: &'static str,
    needed: &'static str,
) -> Result<Option<T>, WrongValue> {
    let Some(value) = get(name) else {
        return Ok(None);
    };
    match value.trim().parse() {
        Ok(parsed) => Ok(Some(parsed)),
        Err(_) => Err(WrongValue {
            name,
            value,
            needed,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Settings, WrongValue> {
        Settings::from_environment(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_contracts_variables_are_read() {
        let settings = of(&[
            ("ELASTI_RESOLVER_PORT", "9013"),
            ("ELASTI_RESOLVER_PROXY_PORT", "9012"),
            ("ELASTI_OPERATOR_SERVICE_NAME", "op"),
            ("ELASTI_OPERATOR_NAMESPACE", "ns"),
            ("ELASTI_OPERATOR_PORT", "1"),
            ("KUBERNETES_CLUSTER_DOMAIN", "c.l"),
            ("REQ_TIMEOUT", "120"),
            ("QUEUE_SIZE", "7"),
            ("HEADER_FOR_HOST", "X-Envoy-Decorator-Operation"),
            ("WATCH_NAMESPACES", "a, b"),
            ("POD_IP", "10.0.0.7"),
            ("ENABLE_H2C", "false"),
        ])
        .unwrap();
        assert_eq!((settings.admin.port(), settings.proxy.port()), (9013, 9012));
        assert_eq!(settings.operator, "op.ns.svc.c.l:1");
        assert_eq!(settings.limits.timeout, SignedDuration::from_secs(120));
        assert_eq!(settings.limits.service_requests, 7);
        assert_eq!(settings.host_header.unwrap(), "x-envoy-decorator-operation");
        assert_eq!(settings.namespaces, ["a", "b"]);
        assert!(settings.resolvers.contains(&"10.0.0.7".parse().unwrap()));
    }

    #[test]
    fn what_is_left_out_or_empty_has_its_default() {
        let settings = of(&[("REQ_TIMEOUT", "")]).unwrap();
        assert_eq!(settings.operator, Settings::default().operator);
        assert_eq!(settings.limits.timeout, SignedDuration::from_secs(600));
        assert!(settings.namespaces.is_empty());
    }

    #[test]
    fn a_wrong_value_is_named_in_one_line() {
        let wrong = of(&[("REQ_TIMEOUT", "10m")]).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "REQ_TIMEOUT=\"10m\" cannot be used: a whole number of seconds"
        );
    }
}
