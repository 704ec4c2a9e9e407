//! `elasti pause` and `elasti resume`.

use serde_json::json;

use super::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn pausing_and_resuming() {
    let fixture = Fixture::unattended().await;
    for name in ["cart", "web"] {
        fixture.workload(name, 0, json!({})).await;
        fixture.declare(name, json!({})).await;
    }
    let mut transcript = String::new();
    for arguments in [
        &["pause", "web", "--dry-run=server"] as &[&str],
        &["pause", "web"],
        &["pause", "elastiservice.elasti.truefoundry.com/web"],
        &["pause", "--all", "-o", "name"],
        &["resume", "web", "missing"],
        &["resume", "--all", "-A", "-o", "json"],
        &["resume", "--all", "-n", "elasti"],
        &["pause"],
        &["pause", "deployment/web"],
        &["pause", "web", "-A"],
        &["pause", "web", "--all"],
    ] {
        transcript.push_str(&fixture.types(arguments).await);
        if arguments == ["pause", "web", "--dry-run=server"] {
            assert_eq!(fixture.object("web").await["spec"]["paused"], json!(null));
        }
        if arguments == ["pause", "web"] {
            let web = fixture.object("web").await;
            assert_eq!(web["spec"]["paused"], json!(true));
            let managers = web["metadata"]["managedFields"].to_string();
            assert!(managers.contains("elasti-cli"), "{managers}");
        }
        transcript.push('\n');
    }
    assert_eq!(fixture.object("cart").await["spec"]["paused"], json!(null));
    insta::assert_snapshot!(transcript);
}
