//! `elasti list`, `elasti why` and `kubectl get els` give one reason, that of the operator's status.

use elasti_e2e::until;
use http::Request;
use serde_json::{Value, json};

use super::fixture::{ELASTI, Fixture};

/// Waits until the operator gives one of these reasons.
async fn reason(fixture: &Fixture, name: &str, wanted: &str) {
    until(&format!("{name} has the reason {wanted}"), async || {
        fixture.object(name).await["status"]["reason"] == wanted
    })
    .await;
}

/// What `kubectl get els` prints: for each object the cells by the names of their columns.
async fn columns(fixture: &Fixture) -> Vec<Value> {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = Request::get(ELASTI).header("accept", accept);
    let client = fixture.env.fake_cluster().server.client();
    let table: Value = client
        .request(request.body(Vec::new()).unwrap())
        .await
        .unwrap();
    let names = table["columnDefinitions"].as_array().unwrap();
    let rows = table["rows"].as_array().unwrap().iter();
    let cells = |row: &Value| {
        let cells = row["cells"].as_array().unwrap().iter();
        let named = names.iter().zip(cells);
        named
            .map(|(column, cell)| (column["name"].as_str().unwrap().to_owned(), cell.clone()))
            .collect()
    };
    rows.map(cells).map(Value::Object).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_service_and_a_duplicate_have_the_same_reason_everywhere() {
    let fixture = Fixture::with(|_| {}).await;
    fixture.workload("older", 1, json!({})).await;
    fixture.declare("older", json!({})).await;
    // It has neither a Service nor a target.
    fixture.declare("lonely", json!({})).await;
    // The name decides between two of the same second: this one is younger either way.
    fixture.target("younger", 1, json!({})).await;
    fixture
        .declare("younger", json!({"service": "older"}))
        .await;
    let wanted = [("lonely", "ServiceNotFound"), ("younger", "Conflict")];
    for (name, wanted) in wanted {
        reason(&fixture, name, wanted).await;
    }
    let listed = fixture.types(&["list"]).await;
    let table = columns(&fixture).await;
    for (name, wanted) in wanted {
        let line = listed.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.ends_with(&format!("!{wanted}")), "{listed}");
        let row = table.iter().find(|row| row["Name"] == name).unwrap();
        assert_eq!(row["Reason"], wanted, "{row}");
        assert_eq!(row["Ready"], "False", "{row}");
        let why = fixture.types(&["why", name]).await;
        assert!(why.contains(&format!("Problems\n  !{wanted}: ")), "{why}");
        assert!(why.ends_with("[exit 1]\n"), "{why}");
    }
    // The target is missing too, and that is found once the Service is there.
    fixture.service("lonely", json!({})).await;
    reason(&fixture, "lonely", "TargetNotFound").await;
    let listed = fixture.types(&["list"]).await;
    let line = listed.lines().find(|line| line.starts_with("lonely"));
    assert!(line.unwrap().ends_with("!TargetNotFound"), "{listed}");
    let why = fixture.types(&["why", "lonely"]).await;
    assert!(why.contains("Problems\n  !TargetNotFound: "), "{why}");
    let table = columns(&fixture).await;
    let row = table.iter().find(|row| row["Name"] == "lonely").unwrap();
    assert_eq!(row["Reason"], "TargetNotFound", "{row}");
}
