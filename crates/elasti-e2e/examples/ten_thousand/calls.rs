//! What the processes asked the API server: from the simulated cluster's journal or from a real API server's audit log.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use elasti_e2e::{OPERATOR_USER, TestEnv};
use serde_json::Value;

/// One call.
pub(crate) struct Call {
    pub(crate) user: String,
    pub(crate) verb: String,
    /// The resource's plural.
    pub(crate) kind: String,
    pub(crate) subresource: String,
}

impl Call {
    /// The leader renews its lease for as long as it lives, which shows by its kind; nothing else may be written at rest.
    pub(crate) fn changes(&self) -> bool {
        let renewal = self.kind == "leases" || self.kind.ends_with("reviews");
        let reads = ["get", "list", "watch"].contains(&self.verb.as_str());
        self.user == OPERATOR_USER && !reads && !renewal
    }

    /// A call that has ended, from a line of the audit log. A watch shows when it ends.
    fn from_line(line: &str) -> Option<Self> {
        let event: Value = serde_json::from_str(line).ok()?;
        let text = |path| event.pointer(path).and_then(Value::as_str);
        let path = text("/requestURI").unwrap_or_default();
        (text("/stage")? == "ResponseComplete").then(|| Self {
            user: text("/user/username").unwrap_or_default().to_owned(),
            verb: text("/verb").unwrap_or_default().to_owned(),
            kind: text("/objectRef/resource").unwrap_or(path).to_owned(),
            subresource: text("/objectRef/subresource")
                .unwrap_or_default()
                .to_owned(),
        })
    }
}

/// Where they are written down.
pub(crate) enum Calls {
    Journal(TestEnv),
    AuditLog(PathBuf),
}

impl Calls {
    /// All calls up to now are before it.
    pub(crate) fn position(&self) -> u64 {
        match self {
            Self::Journal(env) => env.fake_cluster().server.faults().calls(),
            Self::AuditLog(path) => std::fs::metadata(path).unwrap().len(),
        }
    }

    pub(crate) fn since(&self, position: u64) -> Vec<Call> {
        match self {
            Self::Journal(env) => {
                let mut calls = env.fake_cluster().server.faults().journal();
                calls.retain(|call| call.number > position);
                let calls = calls.into_iter().map(|call| Call {
                    verb: call.verb.as_str().to_owned(),
                    user: call.user,
                    kind: call.kind,
                    subresource: call.subresource,
                });
                calls.collect()
            }
            Self::AuditLog(path) => {
                let mut file = File::open(path).unwrap();
                file.seek(SeekFrom::Start(position)).unwrap();
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                text.lines().filter_map(Call::from_line).collect()
            }
        }
    }
}
