//! Two hundred sleeps and wakes with requests at the worst moments: none is lost, none is served twice.
//! `ELASTI_CHURN_CYCLES` and `ELASTI_CHURN_SEED` choose how many and which moments; both are printed.
//! `ELASTI_CHURN_HANDOVER=redirect` skips the drain, and the test fails with the requests that were lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use elasti_api::Phase;
use elasti_core::observed;
use elasti_e2e::{App, Edge, KeepAliveClient, PodWatcher, TestEnv, blueprint, times, until};
use elasti_fake_cluster::random::Randomness;
use futures::future::join_all;
use jiff::SignedDuration;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// A node is late by at most this.
const LAG_MILLIS: u64 = 1500;
/// Above the lag, by what a loaded machine adds to it.
const SETTLE_MILLIS: u64 = 2200;
/// A kubelet's ticks, faster than real ones but with the same room for a settle time between them.
const TICK: Duration = Duration::from_secs(8);

/// A request that took longer at a resolver was held, not only forwarded.
const HELD: Duration = Duration::from_millis(250);

/// Apps whose visitors come in bursts; names are theirs, since blueprints live as long as the test.
const BURSTY: [&str; 24] = [
    "ash", "bay", "elm", "fig", "fir", "hop", "ivy", "oak", "pea", "rue", "rye", "yew", "box",
    "may", "nut", "sloe", "teak", "vine", "beech", "birch", "cedar", "hazel", "larch", "maple",
];
/// Apps whose visitors never stop, while the trigger reads idle.
const CONSTANT: [&str; 2] = ["moss", "reed"];

fn churn_times() -> observed::Settings {
    observed::Settings {
        settle: SignedDuration::from_millis(SETTLE_MILLIS as i64),
        tick_period: SignedDuration::try_from(TICK).unwrap(),
        tick_timeout: SignedDuration::from_millis(8500),
        // From the scale write to the end of the last pod, on a machine that does other things too.
        margin: SignedDuration::from_secs(1),
        resolver_grace: SignedDuration::from_secs(30),
        report_fresh: SignedDuration::from_secs(3),
        ..times()
    }
}

fn from_env(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |value| value.parse().expect("a number"))
}

/// What happened, over all apps.
#[derive(Debug, Default)]
struct Tally {
    sleeps: AtomicU64,
    cancelled: AtomicU64,
    wakes: AtomicU64,
    bursts: AtomicU64,
    sleeps_under_load: AtomicU64,
}

/// The adversary of one app.
struct Adversary {
    app: App,
    random: Randomness,
    tally: Arc<Tally>,
    keep_alive: Arc<Mutex<KeepAliveClient>>,
    bursts: JoinSet<()>,
    /// The edge of the way down at which to strike; none lets it fall asleep.
    aim: Option<Edge>,
    /// Struck since the last zero.
    struck: bool,
    /// The way down ended at zero.
    slept: bool,
}

const WAY_DOWN: [Edge; 6] = [
    Edge::SliceIn,
    Edge::Phase(Phase::Redirecting),
    Edge::Phase(Phase::Draining),
    Edge::PodOut,
    Edge::PodIn,
    Edge::RotationEmpty,
];

impl Adversary {
    fn new(app: App, random: Randomness, tally: Arc<Tally>) -> Self {
        Self {
            app,
            random,
            tally,
            keep_alive: Arc::default(),
            bursts: JoinSet::new(),
            aim: None,
            struck: false,
            slept: false,
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.below(bound as usize) as u64
    }

    fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// At once, somewhere in the settle time, or where the settle time ends and the next step is taken.
    fn offset(&self) -> Duration {
        Duration::from_millis(match self.below(10) {
            0..4 => 0,
            4..7 => self.below(SETTLE_MILLIS),
            _ => SETTLE_MILLIS - 150 + self.below(400),
        })
    }

    /// A few visitors, close together: new ones, or one who has been here before.
    fn strike(&mut self, offset: Duration) {
        self.tally.bursts.fetch_add(1, Relaxed);
        let visitors = 1 + self.below(6);
        let gap = Duration::from_millis([0, 3, 20, 120][self.random.below(4)]);
        let keep_alive = self.chance(30).then(|| self.keep_alive.clone());
        let app = self.app.clone();
        while self.bursts.try_join_next().is_some() {}
        self.bursts.spawn(async move {
            sleep(offset).await;
            let mut open = JoinSet::new();
            for _ in 0..visitors {
                match &keep_alive {
                    Some(keep_alive) => drop(app.get_as(&mut *keep_alive.lock().await).await),
                    None => {
                        let app = app.clone();
                        open.spawn(async move { drop(app.get().await) });
                    }
                }
                sleep(gap).await;
            }
            while open.join_next().await.is_some() {}
        });
    }

    fn meet(&mut self, edge: Edge) {
        match edge {
            Edge::SliceIn => {
                self.slept = false;
                let pick = WAY_DOWN[self.random.below(WAY_DOWN.len())];
                self.aim = self.chance(30).then_some(pick);
            }
            Edge::Zero => {
                self.tally.sleeps.fetch_add(1, Relaxed);
                (self.slept, self.struck) = (true, false);
            }
            Edge::Up => drop(self.tally.wakes.fetch_add(1, Relaxed)),
            Edge::SliceOut if !self.slept => drop(self.tally.cancelled.fetch_add(1, Relaxed)),
            _ => {}
        }
        if self.aim == Some(edge) {
            self.aim = None;
            return self.strike(self.offset());
        }
        let percent = match edge {
            Edge::Zero | Edge::PodEnding | Edge::PodGone if self.slept && !self.struck => 30,
            Edge::Phase(Phase::Asleep) if !self.struck => 100,
            Edge::Up | Edge::SliceOut | Edge::Phase(Phase::Restoring | Phase::Serving) => 35,
            Edge::PodIn | Edge::RotationFull if self.slept => 35,
            _ => 0,
        };
        if self.chance(percent) {
            self.struck = true;
            self.strike(self.offset());
        }
    }

    /// Until enough cycles are done, over all apps; then everybody waits for an answer.
    async fn run(mut self, mut edges: Receiver<Edge>, cycles: u64) {
        self.app.idle();
        while self.tally.wakes.load(Relaxed) < cycles {
            match timeout(Duration::from_secs(1), edges.recv()).await {
                Ok(edge) => self.meet(edge.unwrap()),
                // Nothing changes while it sleeps: the next request wakes it.
                Err(_) if self.slept && !self.struck => {
                    self.struck = true;
                    self.strike(Duration::ZERO);
                }
                Err(_) => {}
            }
        }
        while self.bursts.join_next().await.is_some() {}
    }
}

/// Clients that never stop: 20 requests a second, and one kept connection.
async fn never_stop(app: App, mut edges: Receiver<Edge>, tally: Arc<Tally>, cycles: u64) {
    app.idle();
    let mut open = JoinSet::new();
    let mut keep_alive = KeepAliveClient::default();
    while tally.wakes.load(Relaxed) < cycles {
        let visitor = app.clone();
        open.spawn(async move { drop(visitor.get().await) });
        // Impatient: leaves before the end of any hold.
        drop(timeout(Duration::from_millis(40), app.get_as(&mut keep_alive)).await);
        sleep(Duration::from_millis(50)).await;
        while open.try_join_next().is_some() {}
        while let Ok(edge) = edges.try_recv() {
            match edge {
                Edge::Zero => drop(tally.sleeps_under_load.fetch_add(1, Relaxed)),
                Edge::SliceOut => drop(tally.cancelled.fetch_add(1, Relaxed)),
                _ => {}
            }
        }
    }
    while open.join_next().await.is_some() {}
}

/// Every node is as late as it likes, and so is the endpoint-slice controller.
async fn weather(env: TestEnv, random: Randomness) {
    loop {
        for node in &env.fake_cluster().nodes {
            let late = random.below(3) > 0;
            let lag = if late {
                random.below(LAG_MILLIS as usize + 1)
            } else {
                0
            };
            node.set_proxy_lag(Duration::from_millis(lag as u64));
        }
        let lag = Duration::from_millis(random.below(300) as u64);
        env.fake_cluster().controllers.lags.set_endpoint_slices(lag);
        sleep(Duration::from_millis(200 + random.below(1500) as u64)).await;
    }
}

/// Prints the progress every ten seconds.
async fn progress(env: TestEnv, tally: Arc<Tally>) {
    let path = "/apis/elasti.truefoundry.com/v1alpha1/namespaces/default/elastiservices";
    loop {
        sleep(Duration::from_secs(10)).await;
        let mut stand: BTreeMap<String, u32> = BTreeMap::new();
        for object in env.api().items(path).await {
            let status = &object["status"];
            let word = |key: &str| status[key].as_str().unwrap_or("-").to_owned();
            let stands = format!("{} {}", word("phase"), word("reason"));
            *stand.entry(stands).or_default() += 1;
        }
        println!("{tally:?} {stand:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_at_the_worst_moments_of_two_hundred_sleeps_are_answered_once() {
    let _alone = crate::alone().await;
    let cycles = from_env("ELASTI_CHURN_CYCLES", 200);
    let seed = from_env("ELASTI_CHURN_SEED", std::process::id().into());
    let handover = std::env::var("ELASTI_CHURN_HANDOVER").unwrap_or_else(|_| "drain".into());
    println!("ELASTI_CHURN_CYCLES={cycles} ELASTI_CHURN_SEED={seed}");
    let env = TestEnv::with(|config| {
        config.nodes = 3;
        config.tick = TICK;
        config.resolvers = 2;
        config.times = churn_times();
        // Three rounds without an answer are doubt; a loaded machine must not cause it.
        config.polling_interval = Duration::from_secs(2);
        config.api.seed = seed;
    })
    .await;
    let pod_watcher = PodWatcher::start(&env);
    let tally = Arc::new(Tally::default());
    let begun = Instant::now();
    let mut running = JoinSet::new();
    let names = BURSTY.into_iter().chain(CONSTANT).enumerate();
    let apps = join_all(names.map(|(index, name)| {
        let mut plan = blueprint(name);
        // Now and then two pods, on nodes that tick at different times.
        plan.replicas = if index % 6 == 5 { 2 } else { 1 };
        plan.spec = json!({"minTargetReplicas": plan.replicas, "handover": handover});
        env.build(plan)
    }));
    for (index, app) in apps.await.into_iter().enumerate() {
        let edges = pod_watcher.edges(&app);
        if CONSTANT.contains(&app.blueprint.name) {
            running.spawn(never_stop(app, edges, tally.clone(), cycles));
            continue;
        }
        let random = Randomness::seeded(seed.wrapping_add(index as u64 + 1));
        let adversary = Adversary::new(app, random, tally.clone());
        running.spawn(adversary.run(edges, cycles));
    }
    let lagging = tokio::spawn(weather(env.clone(), Randomness::seeded(seed)));
    let telling = tokio::spawn(progress(env.clone(), tally.clone()));
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    lagging.abort();
    telling.abort();
    until("no request is held", async || env.held() == 0).await;
    settle_accounts(&env, &tally, begun);
}

fn settle_accounts(env: &TestEnv, tally: &Tally, begun: Instant) {
    let mut served: BTreeMap<String, u32> = BTreeMap::new();
    for visit in env.fake_cluster().visits() {
        *served.entry(visit.path).or_default() += 1;
    }
    let all = env.requests().all();
    let times = |path: &str| served.get(path).copied().unwrap_or(0);
    let doubled: Vec<_> = all.iter().filter(|e| times(&e.path) > 1).collect();
    let swapped = all.iter().filter(|e| {
        let answer = e.outcome.as_ref();
        answer.is_ok_and(|a| a.code() == 200 && !a.body.contains(&format!("\"{}\"", e.path)))
    });
    // Resolvers say for whom they forward, and the app tells what it was sent.
    let through = all.iter().filter(|e| {
        let answer = e.outcome.as_ref();
        answer.is_ok_and(|answer| answer.body.contains("x-forwarded-for"))
    });
    let held = through.clone().filter(|e| e.took > HELD).count();
    let through = through.count();
    println!(
        "{} sleeps, {} cancelled, {} wakes, {} under constant load, {} bursts, {} requests, {through} through resolvers, {held} held, {} lost, {} doubled, {:?}",
        tally.sleeps.load(Relaxed),
        tally.cancelled.load(Relaxed),
        tally.wakes.load(Relaxed),
        tally.sleeps_under_load.load(Relaxed),
        tally.bursts.load(Relaxed),
        all.len(),
        env.requests().lost().len(),
        doubled.len(),
        begun.elapsed(),
    );
    env.requests().assert_nothing_lost();
    assert!(doubled.is_empty(), "{doubled:#?}");
    assert_eq!(swapped.count(), 0, "a client got another's answer");
}
