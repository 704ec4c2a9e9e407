//! The wake that no real cluster should be asked for, since it takes the resolvers of everyone: none is ready.
//! Never writes a status: the operator does. All other causes are told on any sandbox, in commands_any_ground.

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
    let told = fixture.types(&["why", "web"]).await;
    let wrong = told.split("What goes wrong\n").nth(1).unwrap_or(&told);
    // On a busy machine a reading may be too old for a moment, which is told too: this cause comes first.
    let cause: Vec<&str> = wrong.lines().take(3).collect();
    let code = told.lines().last().unwrap_or_default();
    insta::assert_snapshot!(format!("{}\n{code}", cause.join("\n")));
}
