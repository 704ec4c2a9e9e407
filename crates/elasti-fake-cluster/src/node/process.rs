//! A container as a child process: a real command instead of a sample app.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::api_server::object::Object as _;
use crate::api_server::store::Key;

/// Runs the container's command until it ends by itself or is asked to stop; gives its exit code.
pub(crate) async fn run(
    container: &Value,
    key: &Key,
    address: Ipv4Addr,
    mut stop: watch::Receiver<Option<Duration>>,
) -> i64 {
    let Some(mut child) = start(container, key, address) else {
        return 127;
    };
    let grace = tokio::select! {
        ended = child.wait() => return ended.ok().and_then(|status| status.code()).map_or(137, i64::from),
        grace = stop.wait_for(Option::is_some) => grace.map_or(None, |grace| *grace).unwrap_or_default(),
    };
    terminate(&child).await;
    match tokio::time::timeout(grace, child.wait()).await {
        Ok(ended) => ended
            .ok()
            .and_then(|status| status.code())
            .map_or(143, i64::from),
        // Dropping the child kills it.
        Err(_) => 137,
    }
}

fn start(container: &Value, key: &Key, address: Ipv4Addr) -> Option<Child> {
    let words: Vec<&str> = ["/command", "/args"]
        .iter()
        .flat_map(|list| container.list(list))
        .filter_map(Value::as_str)
        .collect();
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).kill_on_drop(true);
    for variable in container.list("/env") {
        command.env(variable.text("/name"), variable.text("/value"));
    }
    command
        .env("POD_IP", address.to_string())
        .env("POD_NAME", &key.name)
        .env("POD_NAMESPACE", &key.namespace);
    command.spawn().ok()
}

/// SIGTERM, through the system's own `kill`: sending signals from here would need unsafe code.
async fn terminate(child: &Child) {
    if let Some(id) = child.id() {
        let _ = Command::new("kill")
            .arg("-TERM")
            .arg(id.to_string())
            .status()
            .await;
    }
}
