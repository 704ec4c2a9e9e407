//! The resolver as a DaemonSet, for a Service whose clients reach only endpoints of their own node.

use std::collections::BTreeSet;
use std::net::{IpAddr, TcpListener};
use std::sync::atomic::Ordering;

use elasti_api::{Reason, names};
use elasti_e2e::{App, TestEnv, blueprint, until};
use serde_json::{Value, json};

async fn nodes(env: &TestEnv) -> Vec<Value> {
    env.api().items("/api/v1/nodes").await
}

fn name(node: &Value) -> String {
    node["metadata"]["name"].as_str().unwrap().to_owned()
}

/// The node that this test's clients are on: it has an address of this machine.
fn node_of_clients(nodes: &[Value]) -> &Value {
    let is_here = |node: &&Value| {
        let addresses = node["status"]["addresses"].as_array();
        let mut addresses = addresses.into_iter().flatten();
        addresses.any(|one| {
            let address = one["address"].as_str().unwrap_or_default();
            let address: Result<IpAddr, _> = address.parse();
            address.is_ok_and(|address| TcpListener::bind((address, 0)).is_ok())
        })
    };
    let here = nodes.iter().find(is_here);
    here.unwrap_or_else(|| panic!("the clients of this test are on no node of the cluster"))
}

/// What the status says of this reason, once it is the reason.
async fn sentence_of(app: &App, reason: Reason) -> String {
    let mut sentence = String::new();
    until(&format!("it says {reason:?}"), async || {
        let conditions = app.status().await.conditions;
        let mut ready = conditions.into_iter();
        let ready = ready.find(|c| c.type_ == names::condition::READY);
        let ready = ready.filter(|ready| ready.reason == reason.as_str());
        sentence = ready.map(|ready| ready.message).unwrap_or_default();
        !sentence.is_empty()
    })
    .await;
    sentence
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn a_service_with_a_local_policy_sleeps_only_with_a_resolver_on_every_node() {
    let env = TestEnv::start().await;
    let elasti = env.installation();
    elasti.install(&[]).await;
    let nodes = nodes(&env).await;
    let all: BTreeSet<String> = nodes.iter().map(name).collect();
    let mut web = blueprint("web");
    web.service = json!({"internalTrafficPolicy": "Local"});
    let label = &node_of_clients(&nodes)["metadata"]["labels"]["kubernetes.io/hostname"];
    web.pod = json!({"nodeSelector": {"kubernetes.io/hostname": label}});
    let web = env.build(web).await;
    web.until_serving().await;

    web.idle();
    let sentence = sentence_of(&web, Reason::NodesWithoutResolver).await;
    let covered = elasti.resolver_nodes().await;
    let missing: BTreeSet<String> = all.difference(&covered).cloned().collect();
    assert!(!missing.is_empty(), "every node has one: {covered:?}");
    // One node's name may be the beginning of another's.
    let words = sentence.split(|c: char| c.is_whitespace() || ",;".contains(c));
    let named: BTreeSet<String> = words.map(str::to_owned).collect();
    let named: BTreeSet<String> = named.intersection(&all).cloned().collect();
    assert_eq!(named, missing, "{sentence}");
    assert!(web.replicas().await > 0, "it stays awake");
    web.visit().await;

    elasti.install(&["elastiResolver.kind=DaemonSet"]).await;
    until("every node has a resolver", async || {
        elasti.resolver_nodes().await == all
    })
    .await;
    web.until_asleep().await;
    until("all of them answer for it", async || {
        web.slice_addresses().await == elasti.resolver_addresses().await
    })
    .await;
    web.until_nodes_follow().await;
    assert_eq!(web.replicas().await, 0);
    web.visit().await;
    assert!(web.replicas().await > 0, "a request has woken it");
    let (stop, coming) = web.visitors();
    web.busy();
    web.until_serving().await;
    stop.store(true, Ordering::Relaxed);
    coming.await.unwrap();
    env.requests().assert_nothing_lost();
    println!("{} requests, none lost", env.requests().all().len());
    elasti.install(&[]).await;
}
