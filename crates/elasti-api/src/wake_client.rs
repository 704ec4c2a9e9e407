//! Who sent the request that a service was woken for: in wake requests, and in `status.lastWake`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::client_text::client_text;

/// HTTP's longest method has 17 bytes; clients may invent longer ones.
const METHOD_BYTES: usize = 20;
const PATH_BYTES: usize = 256;
const AGENT_BYTES: usize = 128;
/// An IPv6 address, or a name of Kubernetes.
const NAME_BYTES: usize = 253;

/// The request that a wake was for, as its client wrote it: printable ASCII, what else there was escaped, and cut where it
/// is long. No query and no body.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WakeClient {
    /// What the client speaks, which is `http`, `tls` or `tcp`.
    #[serde(default)]
    pub protocol: String,
    /// The method; absent unless it is HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path, without the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The header `User-Agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// Where the connection came from; a proxy's address, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The pod with this address, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The namespace of that pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl WakeClient {
    /// A client of HTTP; its texts are bounded and escaped here.
    #[must_use]
    pub fn http(method: &str, path: &str, user_agent: Option<&[u8]>, address: &str) -> Self {
        Self {
            protocol: "http".to_owned(),
            method: Some(client_text(method.as_bytes(), METHOD_BYTES)),
            path: Some(client_text(path.as_bytes(), PATH_BYTES)),
            user_agent: user_agent.map(|agent| client_text(agent, AGENT_BYTES)),
            address: Some(client_text(address.as_bytes(), NAME_BYTES)),
            ..Self::default()
        }
    }

    /// A client of which only the address is known.
    #[must_use]
    pub fn at(protocol: &str, address: &str) -> Self {
        Self {
            protocol: protocol.to_owned(),
            address: Some(client_text(address.as_bytes(), NAME_BYTES)),
            ..Self::default()
        }
    }

    /// The same with every text within its bound, for one that another process has sent. What is escaped already stays as
    /// it is.
    #[must_use]
    pub fn bounded(self) -> Self {
        let bounded = |text: Option<String>, most| text.map(|text| rebound(&text, most));
        Self {
            protocol: rebound(&self.protocol, METHOD_BYTES),
            method: bounded(self.method, METHOD_BYTES),
            path: bounded(self.path, PATH_BYTES),
            user_agent: bounded(self.user_agent, AGENT_BYTES),
            address: bounded(self.address, NAME_BYTES),
            // Who has an address is found out by the operator itself.
            pod: None,
            namespace: None,
        }
    }

    /// In one clause: `GET /cart from 10.1.2.3 (pod web-1 in shop), curl/8.5`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut text = match (&self.method, &self.path) {
            (Some(method), Some(path)) => format!("{method} {path}"),
            _ => format!("a {} connection", self.protocol.to_uppercase()),
        };
        if let Some(address) = &self.address {
            text.push_str(&format!(" from {address}"));
        }
        if let (Some(pod), Some(namespace)) = (&self.pod, &self.namespace) {
            text.push_str(&format!(" (pod {pod} in {namespace})"));
        }
        if let Some(agent) = &self.user_agent {
            text.push_str(&format!(", {agent}"));
        }
        text
    }
}

fn rebound(text: &str, most: usize) -> String {
    let safe = text.len() <= most && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    match safe {
        true => text.to_owned(),
        false => client_text(text.as_bytes(), most),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_of_a_client_is_bounded_and_escaped() {
        let long = "a".repeat(5000);
        let agent = b"\x1b]0;title\x07";
        let client = WakeClient::http(&long, "/a\u{202e}b", Some(agent), "10.1.2.3");
        assert_eq!(client.method.as_ref().map(String::len), Some(METHOD_BYTES));
        assert_eq!(client.path.as_deref(), Some("/a\\xe2\\x80\\xaeb"));
        assert_eq!(client.user_agent.as_deref(), Some("\\x1b]0;title\\x07"));
        assert_eq!(client.clone().bounded(), client, "it is escaped once");
        let text = || Some(format!("\n{long}"));
        let sent = WakeClient {
            protocol: long.clone(),
            method: text(),
            path: text(),
            user_agent: text(),
            address: text(),
            pod: text(),
            namespace: text(),
        };
        let safe = sent.bounded();
        assert!(serde_json::to_string(&safe).unwrap().len() < 1000);
        assert!(!safe.sentence().contains('\n'));
        assert_eq!((safe.pod, safe.namespace), (None, None));
    }

    #[test]
    fn a_client_is_told_in_one_clause() {
        let mut client = WakeClient::http("GET", "/cart", Some(b"curl/8.5"), "10.1.2.3");
        assert_eq!(client.sentence(), "GET /cart from 10.1.2.3, curl/8.5");
        client.pod = Some("web-1".into());
        client.namespace = Some("shop".into());
        let told = "GET /cart from 10.1.2.3 (pod web-1 in shop), curl/8.5";
        assert_eq!(client.sentence(), told);
        let tls = WakeClient::at("tls", "10.1.2.3");
        assert_eq!(tls.sentence(), "a TLS connection from 10.1.2.3");
    }
}
