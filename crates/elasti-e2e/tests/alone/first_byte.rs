//! From the first byte of a request to the scale write: one write, however many come, and what it costs.

use std::time::Duration;

use elasti_e2e::{App, OPERATOR_USER, RESOLVER_USER, TestEnv};
use elasti_fake_cluster::faults::{Call, Verb};

/// CPU time that the threads of this process have used. Simulated cluster, operator, resolvers and clients share it, so
/// it is what all of them together have used.
fn cpu() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let used = threads.filter_map(|thread| {
        let path = thread.ok()?.path().join("schedstat");
        let text = std::fs::read_to_string(path).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}

fn is_scale_write(call: &Call) -> bool {
    call.subresource == "scale" && call.verb.writes()
}

/// Calls of operators and resolvers after `before`, in order.
fn calls_since(env: &TestEnv, before: u64) -> Vec<Call> {
    let mut calls = env.fake_cluster().server.faults().journal();
    calls
        .retain(|c| c.number > before && [OPERATOR_USER, RESOLVER_USER].contains(&c.user.as_str()));
    calls
}

/// Sends `visitors` at once; gives the CPU used until the scale write was answered, and the calls up to it.
async fn come(env: &TestEnv, web: &App, visitors: usize) -> (Duration, Vec<Call>) {
    let before = env.fake_cluster().server.faults().calls();
    let (cpu_before, mut cpu_after) = (cpu(), None);
    let coming: Vec<_> = (0..visitors)
        .map(|_| {
            let web = web.clone();
            tokio::spawn(async move { drop(web.visit().await) })
        })
        .collect();
    while cpu_after.is_none() {
        let calls = calls_since(env, before);
        let written = calls.iter().any(|c| is_scale_write(c) && c.code > 0);
        cpu_after = written.then(cpu);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for visitor in coming {
        visitor.await.unwrap();
    }
    let calls = calls_since(env, before);
    let scales: Vec<_> = calls.iter().filter(|c| is_scale_write(c)).collect();
    assert_eq!(scales.len(), 1, "one write: {scales:?}");
    let write = scales[0].number;
    let mut way = calls.clone();
    way.retain(|c| c.number <= write && c.verb != Verb::Watch);
    (cpu_after.unwrap() - cpu_before, way)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_visitor_or_a_hundred_at_three_resolvers_cause_one_scale_write_and_little_before_it() {
    let _alone = crate::alone().await;
    let env = TestEnv::with(|config| config.resolvers = 3).await;
    let web = env.deploy("web").await;
    web.until_serving().await;
    web.fall_asleep().await;
    for visitors in [1, 100, 1, 100] {
        web.until_asleep().await;
        // A status that a controller writes in the same moment would rightly cost a second write.
        web.until_nodes_follow().await;
        let (cpu, way) = come(&env, &web, visitors).await;
        println!(
            "{visitors} visitors: {cpu:?} of CPU in the whole process and {} calls up to the scale write",
            way.len()
        );
        for call in &way {
            println!("  {call}");
        }
        // The scale is read and written; a caller is checked at most once by each side.
        let scaling = way.iter().filter(|c| c.subresource == "scale").count();
        assert!(scaling <= 2, "{way:?}");
    }
    env.requests().assert_nothing_lost();
}
