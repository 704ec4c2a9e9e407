//! A wake without any ready resolver. Other failing wakes run on both clusters, in both_clusters/failing_wakes.rs.

use elasti_e2e::until;
use serde_json::json;

use super::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn no_resolver_is_ready() {
    let fixture = Fixture::with(|config| config.resolvers = 0).await;
    fixture.resolver(false).await;
    fixture.workload("web", 1, json!({})).await;
    fixture.declare("web", json!({"cooldownPeriod": 1})).await;
    until("the operator tells the cause", async || {
        fixture.object("web").await["status"]["reason"] == "NoResolver"
    })
    .await;
    let printed = fixture.types(&["why", "web"]).await;
    let wrong = printed.split("Problems\n").nth(1).unwrap_or(&printed);
    // On a busy machine a reading may be too old for a moment, which is reported too: this cause comes first.
    let cause: Vec<&str> = wrong.lines().take(3).collect();
    let code = printed.lines().last().unwrap_or_default();
    insta::assert_snapshot!(format!("{}\n{code}", cause.join("\n")));
}
