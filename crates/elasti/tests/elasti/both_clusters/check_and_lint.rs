//! `elasti lint` and `elasti check` against a cluster, healthy and broken.

use elasti_e2e::{RESOLVER, until};
use serde_json::json;

use super::user::User;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lint_holds_a_file_against_the_cluster() {
    let user = User::start().await;
    let web = user.env.deploy("web").await;
    let namespace = web.blueprint.namespace;
    let mut object = json!({
        "apiVersion": "elasti.truefoundry.com/v1alpha1", "kind": "ElastiService",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": web.object().await["spec"],
    });
    // The simulated cluster's Prometheus is at an address that lint rightly doubts.
    object["spec"]["triggers"] = json!([{"type": "prometheus", "metadata": {
        "query": "sum(requests) or vector(0)", "threshold": "1", "serverAddress": "http://prometheus.monitoring:9090",
    }}]);
    let good = user.writes("good.json", &object.to_string());
    let printed = user.types(&["lint", good.to_str().unwrap()]).await;
    assert!(printed.ends_with("[exit 0]\n"), "{printed}");
    assert_eq!(printed, "1 ElastiService, 0 errors, 0 warnings\n[exit 0]\n");

    object["spec"]["service"] = json!("missing");
    let bad = user.writes("bad.json", &object.to_string());
    let printed = user.types(&["lint", bad.to_str().unwrap()]).await;
    assert!(printed.ends_with("[exit 1]\n"), "{printed}");
    assert!(printed.contains("missing"), "{printed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn check_passes_with_the_chart_and_names_what_is_broken() {
    let user = User::start().await;
    let elasti = user.env.installation();
    let web = user.env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    let printed = user.types(&["check"]).await;
    println!("{printed}");
    assert!(printed.ends_with("[exit 0]\n"), "{printed}");
    assert!(!printed.contains("FAIL"), "{printed}");

    let before = elasti.resolver_addresses().await.len();
    elasti.scale(RESOLVER, 0).await;
    let printed = user.types(&["check"]).await;
    elasti.scale(RESOLVER, u32::try_from(before).unwrap()).await;
    println!("{printed}");
    assert!(printed.ends_with("[exit 1]\n"), "{printed}");
    assert!(printed.contains("FAIL  resolver"), "{printed}");

    until("all is well again", async || {
        user.types(&["check"]).await.ends_with("[exit 0]\n")
    })
    .await;
}
