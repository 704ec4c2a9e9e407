//! `elasti lint` and `elasti check` against a cluster: content where all is well, and plain where something is not.
//! Never leaves the installation other than it was.

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
    let told = user.types(&["lint", good.to_str().unwrap()]).await;
    assert!(told.ends_with("[exit 0]\n"), "{told}");
    assert_eq!(told, "1 ElastiService, 0 errors, 0 warnings\n[exit 0]\n");

    object["spec"]["service"] = json!("nobody");
    let bad = user.writes("bad.json", &object.to_string());
    let told = user.types(&["lint", bad.to_str().unwrap()]).await;
    assert!(told.ends_with("[exit 1]\n"), "{told}");
    assert!(told.contains("nobody"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn check_is_content_with_the_chart_and_names_what_is_ill() {
    let user = User::start().await;
    let elasti = user.env.installation();
    let web = user.env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    let told = user.types(&["check"]).await;
    println!("{told}");
    assert!(told.ends_with("[exit 0]\n"), "{told}");
    assert!(!told.contains("FAIL"), "{told}");

    let before = elasti.resolver_addresses().await.len();
    elasti.scale(RESOLVER, 0).await;
    let told = user.types(&["check"]).await;
    elasti.scale(RESOLVER, u32::try_from(before).unwrap()).await;
    println!("{told}");
    assert!(told.ends_with("[exit 1]\n"), "{told}");
    assert!(told.contains("FAIL  resolver"), "{told}");

    until("all is well again", async || {
        user.types(&["check"]).await.ends_with("[exit 0]\n")
    })
    .await;
}
