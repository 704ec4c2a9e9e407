//! What users feel of two operators: one puts services to sleep, never both, and another takes over when it dies.
//! Never waits on wall-clock: the clock is paused and every wait is for a condition.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod stand_in;

use std::time::Duration;

use elasti_api::names;
use elasti_core::observed::Leadership;
use elasti_fake_cluster::api_server::{ApiServer, ApiServerConfig};
use elasti_fake_cluster::faults::{Calls, Fault, Verb};
use elasti_operator::clock::Clock;
use elasti_operator::leader::LeaderElection;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use stand_in::until;
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "default";
const LEASE_ENDS_AFTER: SignedDuration = SignedDuration::from_secs(15);

struct Snapshot {
    server: ApiServer,
    clock: Clock,
}

impl Snapshot {
    fn start() -> Self {
        Self {
            server: ApiServer::new(ApiServerConfig::default()),
            clock: Clock::start(),
        }
    }

    fn candidate(&self) -> LeaderElection {
        LeaderElection::stand(self.server.client(), NAMESPACE, self.clock)
    }

    fn leads(&self, election: &LeaderElection) -> bool {
        self.until_when(election)
            .is_some_and(|until| until > self.clock.now())
    }

    fn until_when(&self, election: &LeaderElection) -> Option<Timestamp> {
        match *election.subscribe().borrow() {
            Leadership::Leader { until } => Some(until),
            Leadership::Follower => None,
        }
    }

    async fn leader(&self) -> LeaderElection {
        let election = self.candidate();
        until("it leads", async || self.leads(&election)).await;
        election
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.server.client(), NAMESPACE)
    }

    async fn renewed(&self) -> Timestamp {
        let lease = self.leases().get(names::LEASE).await.unwrap();
        lease.spec.unwrap().renew_time.unwrap().0
    }

    fn lease_writes(&self) -> usize {
        let calls = self.server.faults().journal();
        let writes = calls
            .iter()
            .filter(|call| call.kind == "leases" && call.verb.writes());
        writes.count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_counts_on_less_than_the_lease_and_moves_on_with_each_renewal() {
    let snapshot = Snapshot::start();
    let election = snapshot.leader().await;
    assert_eq!(election.watched_before_until(), None);
    let mut heard = election.subscribe();
    let mut last = snapshot.until_when(&election).unwrap();
    for _ in 0..20 {
        heard.changed().await.unwrap();
        let until = snapshot.until_when(&election).unwrap();
        assert!(until > last);
        last = until;
        let ends = snapshot.renewed().await + LEASE_ENDS_AFTER;
        assert!(
            until + SignedDuration::from_secs(4) < ends,
            "{until} and {ends}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_operator_does_not_lead_while_the_first_lives_r17() {
    let snapshot = Snapshot::start();
    let first = snapshot.leader().await;
    let second = snapshot.candidate();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(600) {
        assert!(snapshot.leads(&first));
        assert_eq!(snapshot.until_when(&second), None);
        sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_leader_dies_another_leads_but_not_before_the_first_would_have_stopped_l7() {
    let snapshot = Snapshot::start();
    let first = snapshot.leader().await;
    let second = snapshot.candidate();
    sleep(Duration::from_secs(60)).await;
    let promised = snapshot.until_when(&first).unwrap();
    let sign_of_life = snapshot.renewed().await;
    drop(first);
    until("the second leads", async || snapshot.leads(&second)).await;
    assert!(snapshot.clock.now() > promised);
    assert!(snapshot.clock.now() >= sign_of_life + LEASE_ENDS_AFTER);
    // The simulated cluster keeps microseconds.
    let told = second.watched_before_until().unwrap();
    assert_eq!(told.as_microsecond(), sign_of_life.as_microsecond());
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_ends_cleanly_is_followed_at_once() {
    let snapshot = Snapshot::start();
    let first = snapshot.leader().await;
    let second = snapshot.candidate();
    sleep(Duration::from_secs(7)).await;
    let heard = first.subscribe();
    let ended = Instant::now();
    first.release().await;
    assert_eq!(*heard.borrow(), Leadership::Follower);
    until("the second leads", async || snapshot.leads(&second)).await;
    assert!(
        ended.elapsed() < Duration::from_secs(1),
        "{:?}",
        ended.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_its_lease_ends_and_comes_back() {
    for fault in [
        Fault::InternalError,
        Fault::Delay(Duration::from_secs(3600)),
        Fault::TooManyRequests {
            retry_after_seconds: 1,
        },
    ] {
        let snapshot = Snapshot::start();
        let election = snapshot.leader().await;
        let sign_of_life = snapshot.renewed().await;
        snapshot
            .server
            .faults()
            .strike_randomly(1000, Calls::all().kind("leases"), fault);
        let mut heard = election.subscribe();
        let stopped = heard.wait_for(|told| *told == Leadership::Follower);
        stopped.await.unwrap();
        assert!(
            snapshot.clock.now() < sign_of_life + LEASE_ENDS_AFTER,
            "{fault:?}"
        );
        sleep(Duration::from_secs(60)).await;
        assert!(!snapshot.leads(&election));
        snapshot.server.faults().heal();
        until("it leads again", async || snapshot.leads(&election)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_or_a_label_on_the_lease_costs_nothing() {
    let snapshot = Snapshot::start();
    let election = snapshot.leader().await;
    let renewals = || Calls::writes().kind("leases");
    let mut heard = election.subscribe();
    for fault in [Fault::LoseAnswer, Fault::Conflict, Fault::InternalError] {
        snapshot.server.faults().strike(1, renewals(), fault);
        let label = json!({"metadata": {"labels": {"seen": format!("{fault:?}")}}});
        heard.changed().await.unwrap();
        snapshot
            .leases()
            .patch(names::LEASE, &PatchParams::default(), &Patch::Merge(label))
            .await
            .unwrap();
        for _ in 0..3 {
            heard.changed().await.unwrap();
            assert!(snapshot.leads(&election), "{fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_someone_else_took_is_not_fought_for() {
    let snapshot = Snapshot::start();
    let election = snapshot.leader().await;
    let taken = json!({"spec": {"holderIdentity": "someone"}});
    let params = PatchParams::default();
    snapshot
        .leases()
        .patch(names::LEASE, &params, &Patch::Merge(taken))
        .await
        .unwrap();
    let mut heard = election.subscribe();
    heard
        .wait_for(|told| *told == Leadership::Follower)
        .await
        .unwrap();
    let holder = snapshot
        .leases()
        .get(names::LEASE)
        .await
        .unwrap()
        .spec
        .unwrap()
        .holder_identity;
    assert_eq!(holder.as_deref(), Some("someone"));
    until("it ends by itself", async || snapshot.leads(&election)).await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_followed_even_if_no_watch_ever_works() {
    let snapshot = Snapshot::start();
    let watches = Calls::all().kind("leases").verb(Verb::Watch);
    snapshot
        .server
        .faults()
        .strike_randomly(1000, watches, Fault::InternalError);
    let first = snapshot.leader().await;
    let second = snapshot.candidate();
    sleep(Duration::from_secs(60)).await;
    assert!(snapshot.leads(&first) && !snapshot.leads(&second));
    drop(first);
    let died = Instant::now();
    until("the second leads", async || snapshot.leads(&second)).await;
    assert!(
        died.elapsed() < Duration::from_secs(20),
        "{:?}",
        died.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_made_anew() {
    let snapshot = Snapshot::start();
    let election = snapshot.leader().await;
    snapshot
        .leases()
        .delete(names::LEASE, &Default::default())
        .await
        .unwrap();
    until("there is one again, and a leader", async || {
        snapshot.leads(&election)
            && snapshot
                .leases()
                .get_opt(names::LEASE)
                .await
                .unwrap()
                .is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn at_rest_the_leader_writes_twelve_times_a_minute_and_the_others_nothing() {
    let snapshot = Snapshot::start();
    let _first = snapshot.leader().await;
    let _second = snapshot.candidate();
    let _third = snapshot.candidate();
    sleep(Duration::from_secs(30)).await;
    let (writes, calls) = (snapshot.lease_writes(), snapshot.server.faults().calls());
    sleep(Duration::from_secs(600)).await;
    let writes = snapshot.lease_writes() - writes;
    assert!((118..=122).contains(&writes), "{writes}");
    let reads = snapshot.server.faults().calls() - calls - u64::try_from(writes).unwrap();
    assert!(reads <= 10, "watches instead of questions: {reads}");
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_never_do_two_lead_at_once_s11() {
    for seed in 1..=5 {
        let snapshot = Snapshot {
            server: ApiServer::new(ApiServerConfig {
                seed,
                ..ApiServerConfig::default()
            }),
            clock: Clock::start(),
        };
        let faults = snapshot.server.faults();
        let leases = || Calls::all().kind("leases");
        faults.strike_randomly(100, leases(), Fault::InternalError);
        faults.strike_randomly(100, leases(), Fault::LoseAnswer);
        faults.strike_randomly(50, leases(), Fault::Conflict);
        faults.strike_randomly(50, leases(), Fault::StaleRead { versions_back: 2 });
        faults.strike_randomly(50, leases(), Fault::Delay(Duration::from_secs(4)));
        let mut seats: Vec<Option<LeaderElection>> =
            (0..3).map(|_| Some(snapshot.candidate())).collect();
        let (mut terms, mut led_by) = (0, None);
        for step in 0..6000_usize {
            sleep(Duration::from_millis(100)).await;
            let leaders: Vec<usize> = (0..3)
                .filter(|at| {
                    seats[*at]
                        .as_ref()
                        .is_some_and(|election| snapshot.leads(election))
                })
                .collect();
            assert!(leaders.len() <= 1, "seed {seed}, step {step}: {leaders:?}");
            if let Some(leader) = leaders.first().filter(|leader| led_by != Some(**leader)) {
                (terms, led_by) = (terms + 1, Some(*leader));
            }
            if step % 400 == 399
                && let Some(leader) = leaders.first()
            {
                let election = seats[*leader].take().unwrap();
                if step % 800 == 399 {
                    drop(election);
                } else {
                    election.release().await;
                }
                seats[*leader] = Some(snapshot.candidate());
            }
        }
        assert!(terms >= 5, "seed {seed}: only {terms} terms");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_runs_alone_leads_without_a_lease() {
    let election = LeaderElection::alone();
    sleep(Duration::from_secs(100_000)).await;
    let until = Timestamp::MAX;
    assert_eq!(*election.subscribe().borrow(), Leadership::Leader { until });
    assert_eq!(election.watched_before_until(), None);
    let heard = election.subscribe();
    election.release().await;
    assert_eq!(*heard.borrow(), Leadership::Follower);
}
