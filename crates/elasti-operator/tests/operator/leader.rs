//! Leader election: one operator leads, never two, and another takes over when it dies.

use std::net::SocketAddr;
use std::time::Duration;

use crate::scripted_server::until;
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
use tokio::time::{Instant, sleep};

const NAMESPACE: &str = "default";
const LEASE_DURATION: SignedDuration = SignedDuration::from_secs(15);

struct Env {
    server: ApiServer,
    clock: Clock,
}

impl Env {
    fn start() -> Self {
        Self {
            server: ApiServer::new(ApiServerConfig::default()),
            clock: Clock::start(),
        }
    }

    fn candidate(&self) -> LeaderElection {
        LeaderElection::start(self.server.client(), NAMESPACE, None, self.clock)
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
    let env = Env::start();
    let election = env.leader().await;
    assert_eq!(election.previous_leader_until(), None);
    let mut leadership = election.subscribe();
    let mut last = env.until_when(&election).unwrap();
    for _ in 0..20 {
        leadership.changed().await.unwrap();
        let until = env.until_when(&election).unwrap();
        assert!(until > last);
        last = until;
        let ends = env.renewed().await + LEASE_DURATION;
        assert!(
            until + SignedDuration::from_secs(4) < ends,
            "{until} and {ends}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_operator_does_not_lead_while_the_first_lives_r17() {
    let env = Env::start();
    let first = env.leader().await;
    let second = env.candidate();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(600) {
        assert!(env.leads(&first));
        assert_eq!(env.until_when(&second), None);
        sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_leader_dies_another_leads_but_not_before_the_first_would_have_stopped_l7() {
    let env = Env::start();
    let first = env.leader().await;
    let second = env.candidate();
    sleep(Duration::from_secs(60)).await;
    let promised = env.until_when(&first).unwrap();
    let renewed_at = env.renewed().await;
    drop(first);
    until("the second leads", async || env.leads(&second)).await;
    assert!(env.clock.now() > promised);
    assert!(env.clock.now() >= renewed_at + LEASE_DURATION);
    // The simulated cluster keeps microseconds.
    let previous = second.previous_leader_until().unwrap();
    assert_eq!(previous.as_microsecond(), renewed_at.as_microsecond());
}

#[tokio::test(start_paused = true)]
async fn followers_know_where_the_leader_takes_wakes() {
    let env = Env::start();
    let at = |port: u16| Some(SocketAddr::from(([10, 0, 0, 7], port)));
    let start = |port| LeaderElection::start(env.server.client(), NAMESPACE, at(port), env.clock);
    let first = start(1);
    until("the first leads", async || env.leads(&first)).await;
    let second = start(2);
    until("the second knows it", async || {
        *second.leader_address().borrow() == at(1)
    })
    .await;
    assert_eq!(*first.leader_address().borrow(), None, "it leads itself");
    first.release().await;
    until("the second leads", async || env.leads(&second)).await;
    assert_eq!(*second.leader_address().borrow(), None);

    // A leader of a version that writes no address leaves the one of the leader before it.
    let third = start(3);
    until("the third knows it", async || {
        *third.leader_address().borrow() == at(2)
    })
    .await;
    let taken = json!({"spec": {"holderIdentity": "someone"}});
    let params = PatchParams::default();
    env.leases()
        .patch(names::LEASE, &params, &Patch::Merge(taken))
        .await
        .unwrap();
    until("the third trusts it no longer", async || {
        third.leader_address().borrow().is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_shuts_down_is_replaced_at_once() {
    let env = Env::start();
    let first = env.leader().await;
    let second = env.candidate();
    sleep(Duration::from_secs(7)).await;
    let leadership = first.subscribe();
    let ended = Instant::now();
    first.release().await;
    assert_eq!(*leadership.borrow(), Leadership::Follower);
    until("the second leads", async || env.leads(&second)).await;
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
        let env = Env::start();
        let election = env.leader().await;
        let renewed_at = env.renewed().await;
        env.server
            .faults()
            .strike_randomly(1000, Calls::all().kind("leases"), fault);
        let mut leadership = election.subscribe();
        let stopped = leadership.wait_for(|state| *state == Leadership::Follower);
        stopped.await.unwrap();
        assert!(env.clock.now() < renewed_at + LEASE_DURATION, "{fault:?}");
        sleep(Duration::from_secs(60)).await;
        assert!(!env.leads(&election));
        env.server.faults().heal();
        until("it leads again", async || env.leads(&election)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_or_a_label_on_the_lease_does_not_end_the_term() {
    let env = Env::start();
    let election = env.leader().await;
    let renewals = || Calls::writes().kind("leases");
    let mut leadership = election.subscribe();
    for fault in [Fault::LoseAnswer, Fault::Conflict, Fault::InternalError] {
        env.server.faults().strike(1, renewals(), fault);
        let label = json!({"metadata": {"labels": {"seen": format!("{fault:?}")}}});
        leadership.changed().await.unwrap();
        env.leases()
            .patch(names::LEASE, &PatchParams::default(), &Patch::Merge(label))
            .await
            .unwrap();
        for _ in 0..3 {
            leadership.changed().await.unwrap();
            assert!(env.leads(&election), "{fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_holder_took_is_left_alone() {
    let env = Env::start();
    let election = env.leader().await;
    let taken = json!({"spec": {"holderIdentity": "someone"}});
    let params = PatchParams::default();
    env.leases()
        .patch(names::LEASE, &params, &Patch::Merge(taken))
        .await
        .unwrap();
    let mut leadership = election.subscribe();
    leadership
        .wait_for(|state| *state == Leadership::Follower)
        .await
        .unwrap();
    let holder = env
        .leases()
        .get(names::LEASE)
        .await
        .unwrap()
        .spec
        .unwrap()
        .holder_identity;
    assert_eq!(holder.as_deref(), Some("someone"));
    until("it expires", async || env.leads(&election)).await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_even_if_every_watch_fails() {
    let env = Env::start();
    let watches = Calls::all().kind("leases").verb(Verb::Watch);
    env.server
        .faults()
        .strike_randomly(1000, watches, Fault::InternalError);
    let first = env.leader().await;
    let second = env.candidate();
    sleep(Duration::from_secs(60)).await;
    assert!(env.leads(&first) && !env.leads(&second));
    drop(first);
    let died = Instant::now();
    until("the second leads", async || env.leads(&second)).await;
    assert!(
        died.elapsed() < Duration::from_secs(20),
        "{:?}",
        died.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_created_again() {
    let env = Env::start();
    let election = env.leader().await;
    env.leases()
        .delete(names::LEASE, &Default::default())
        .await
        .unwrap();
    until("there is one again, and a leader", async || {
        env.leads(&election) && env.leases().get_opt(names::LEASE).await.unwrap().is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn when_idle_the_leader_writes_twelve_times_a_minute_and_the_others_nothing() {
    let env = Env::start();
    let _first = env.leader().await;
    let _second = env.candidate();
    let _third = env.candidate();
    sleep(Duration::from_secs(30)).await;
    let (writes, calls) = (env.lease_writes(), env.server.faults().calls());
    sleep(Duration::from_secs(600)).await;
    let writes = env.lease_writes() - writes;
    assert!((118..=122).contains(&writes), "{writes}");
    let reads = env.server.faults().calls() - calls - u64::try_from(writes).unwrap();
    assert!(reads <= 10, "watches instead of reads: {reads}");
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_never_do_two_lead_at_once_s11() {
    for seed in 1..=5 {
        let env = Env {
            server: ApiServer::new(ApiServerConfig {
                seed,
                ..ApiServerConfig::default()
            }),
            clock: Clock::start(),
        };
        let faults = env.server.faults();
        let leases = || Calls::all().kind("leases");
        faults.strike_randomly(100, leases(), Fault::InternalError);
        faults.strike_randomly(100, leases(), Fault::LoseAnswer);
        faults.strike_randomly(50, leases(), Fault::Conflict);
        faults.strike_randomly(50, leases(), Fault::StaleRead { versions_back: 2 });
        faults.strike_randomly(50, leases(), Fault::Delay(Duration::from_secs(4)));
        let mut elections: Vec<Option<LeaderElection>> =
            (0..3).map(|_| Some(env.candidate())).collect();
        let (mut terms, mut led_by) = (0, None);
        for step in 0..6000_usize {
            sleep(Duration::from_millis(100)).await;
            let leaders: Vec<usize> = (0..3)
                .filter(|at| {
                    elections[*at]
                        .as_ref()
                        .is_some_and(|election| env.leads(election))
                })
                .collect();
            assert!(leaders.len() <= 1, "seed {seed}, step {step}: {leaders:?}");
            if let Some(leader) = leaders.first().filter(|leader| led_by != Some(**leader)) {
                (terms, led_by) = (terms + 1, Some(*leader));
            }
            if step % 400 == 399
                && let Some(leader) = leaders.first()
            {
                let election = elections[*leader].take().unwrap();
                if step % 800 == 399 {
                    drop(election);
                } else {
                    election.release().await;
                }
                elections[*leader] = Some(env.candidate());
            }
        }
        assert!(terms >= 5, "seed {seed}: only {terms} terms");
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_runs_alone_leads_without_a_lease() {
    let election = LeaderElection::without_lease();
    sleep(Duration::from_secs(100_000)).await;
    let until = Timestamp::MAX;
    assert_eq!(*election.subscribe().borrow(), Leadership::Leader { until });
    assert_eq!(election.previous_leader_until(), None);
    let leadership = election.subscribe();
    election.release().await;
    assert_eq!(*leadership.borrow(), Leadership::Follower);
}
