//! `elasti demo --real` as it is meant: on a real cluster with the chart, through its Services, by visitors in pods.

use elasti_e2e::until;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::user::User;

/// The sample app that `cargo xtask e2e` gives to the node.
const IMAGE: &str = "docker.io/local/sample-app:1";
/// The story, word by word.
const WORDS: [&str; 12] = [
    "asleep", "request", "held", "scaled", "ready", "answered", "serving", "direct", "idle",
    "drained", "asleep", "requests",
];

async fn demos(user: &User) -> usize {
    let label = "labelSelector=app.kubernetes.io%2Fmanaged-by%3Delasti-demo";
    let path = format!("/api/v1/namespaces?{label}");
    user.env.api().items(&path).await.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn the_steps_come_on_a_real_cluster_and_no_request_is_lost() {
    let user = User::start().await;
    let prometheus = user.env.prometheus();
    let words = ["demo", "--real", "--once", "--image", IMAGE];
    let words = [&words[..], &["--prometheus", &prometheus]].concat();
    let printed = user.types(&words).await;
    println!("{printed}");
    assert!(printed.ends_with("[exit 0]\n"), "{printed}");
    let story = printed.lines().filter_map(|line| {
        let (seconds, rest) = line.trim_start().split_once(" s  ")?;
        seconds.parse::<f64>().ok()?;
        rest.split_whitespace().next()
    });
    assert_eq!(story.collect::<Vec<_>>(), WORDS, "{printed}");
    let ledger = printed.lines().find(|line| line.contains("requests  sent"));
    assert!(ledger.unwrap().ends_with("held 1, lost 0"), "{printed}");
    assert_eq!(demos(&user).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real cluster: cargo xtask e2e"]
async fn ctrl_c_while_a_request_is_held_removes_all_of_it() {
    let user = User::start().await;
    let prometheus = user.env.prometheus();
    // It takes so long to start that the request is held when the client gives up.
    let words = ["demo", "--real", "--image", IMAGE, "--cold-start", "10m"];
    let words = [&words[..], &["--prometheus", &prometheus]].concat();
    let mut demo = user.elasti(&words).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        println!("{line}");
        if line.contains(" held ") {
            break;
        }
    }
    assert_eq!(demos(&user).await, 1);
    let id = demo.id().unwrap().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().await;
    assert!(sent.unwrap().success());
    until("it ends", async || demo.try_wait().unwrap().is_some()).await;
    assert_eq!(demo.wait().await.unwrap().code(), Some(0));
    assert_eq!(demos(&user).await, 0);
}
