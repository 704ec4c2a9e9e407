//! `elasti savings`: sums by service, namespace and label, as a table and as data.

use elasti_e2e::MERGE;
use serde_json::{Value, json};

use super::fixture::{ELASTI, Fixture, days_ago, merge, saved};

/// Two services of one team, of which one has GPUs and sleeps, and one of no team that slept before savings were
/// recorded.
async fn fixture() -> Fixture {
    let fixture = Fixture::unattended().await;
    let status = |replicas: u32, more: Value| {
        let mut status = json!({"phase": "Serving", "reason": "Idle", "replicas": replicas});
        merge(&mut status, &more);
        status
    };
    // Some minutes in addition, so that those of a slow machine change no figure that is shown.
    let gpus = json!({
        "saved": {"resourceSeconds": {"nvidia.com/gpu": 7200}, "podSeconds": 720,
            "cpuMillicoreSeconds": 180_000, "memoryMebibyteSeconds": 368_640},
        "asleepSeconds": 3600, "lastSleepTime": days_ago(5),
    });
    let mut model = saved(2, 3600, Some(days_ago(5)));
    merge(&mut model, &gpus);
    let mut web = saved(1, 36_000, None);
    web["asleepSeconds"] = json!(36_000);
    let month = |month: &str, hours: i64| {
        let seconds = hours * 3600;
        json!({"month": month, "asleepSeconds": seconds, "saved": {"podSeconds": seconds,
            "cpuMillicoreSeconds": seconds * 250, "memoryMebibyteSeconds": seconds * 512}})
    };
    web["savingsCalendar"] = json!({"months": [month("2025-12", 4), month("2026-01", 6)]});
    for (name, team, status) in [
        ("model", Some("ml"), status(0, model)),
        ("old", None, status(1, json!({"asleepSeconds": 433_000}))),
        ("web", Some("ml"), status(1, web)),
    ] {
        fixture.declare(name, json!({})).await;
        let labels = json!({"metadata": {"labels": {"team": team}}});
        let path = format!("{ELASTI}/{name}");
        fixture.env.api().patch(&path, MERGE, labels).await;
        fixture.status(name, status).await;
    }
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sleep_saved_by_service_namespace_and_label() {
    let fixture = fixture().await;
    let price = "0.03,0.004,EUR";
    let mut transcript = String::new();
    for arguments in [
        &["savings"] as &[&str],
        &["savings", "web", "--price", price],
        &["savings", "--price", "0.03,0.004,EUR,nvidia.com/gpu=2.1"],
        &["savings", "--price", "0.03,0.004,EUR,gpu=2.1"],
        &["savings", "-A", "--by", "namespace"],
        &["savings", "--by", "label=team", "--price", price],
        &["savings", "web", "--by", "label=team", "-o", "json"],
        &["savings", "web", "old", "-o", "csv", "--price", price],
        &[
            "savings",
            "--by",
            "label=team",
            "-l",
            "team=none",
            "-o",
            "csv",
        ],
        &["savings", "-n", "elsewhere"],
        &["savings", "web", "old", "--by", "month"],
        &[
            "savings", "web", "old", "--by", "month", "-o", "csv", "--price", price,
        ],
        &["savings", "nothing"],
        &["savings", "--by", "team"],
    ] {
        transcript.push_str(&fixture.types(arguments).await);
        transcript.push('\n');
    }
    insta::assert_snapshot!(transcript);
}
