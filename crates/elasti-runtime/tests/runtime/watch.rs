//! The watch engine under the simulated cluster's faults. Time is tokio's, paused.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use elasti_fake_cluster::api_server::{ApiServer, ApiServerConfig};
use elasti_fake_cluster::faults::{Calls, Fault, Verb, WatchFault};
use elasti_runtime::watch::{Collection, Event, Lifetime, Watch};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const URGENT: Lifetime = Lifetime {
    seconds: 1,
    silence: Duration::from_secs(2),
};

/// What a caller of the engine keeps.
#[derive(Debug, Default)]
struct State {
    names: BTreeSet<String>,
    lists: usize,
    failures: Vec<Duration>,
}

struct Fixture {
    server: ApiServer,
    maps: Api<ConfigMap>,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn version_of(map: &ConfigMap) -> Option<&str> {
    map.metadata.resource_version.as_deref()
}

fn watches() -> Calls {
    Calls::all().verb(Verb::Watch).kind("configmaps")
}

fn lists() -> Calls {
    Calls::all().verb(Verb::List).kind("configmaps")
}

impl Fixture {
    fn start(prepare: impl FnOnce(&ApiServer)) -> Self {
        Self::start_with(prepare, |watch| watch)
    }

    fn start_with(
        prepare: impl FnOnce(&ApiServer),
        with: impl FnOnce(Watch<ConfigMap>) -> Watch<ConfigMap>,
    ) -> Self {
        let server = ApiServer::new(ApiServerConfig {
            check_service_accounts: false,
            ..ApiServerConfig::default()
        });
        prepare(&server);
        let maps = Api::default_namespaced(server.client());
        let collection = Collection {
            path: "/api/v1/namespaces/default/configmaps".into(),
            ..Collection::default()
        };
        let watch = with(Watch::new(server.client(), collection, version_of));
        let state: Arc<Mutex<State>> = Arc::default();
        let kept = state.clone();
        let task = tokio::spawn(watch.run(move |event, _| kept.lock().apply(event)));
        Self {
            server,
            maps,
            state,
            task,
        }
    }

    async fn create(&self, name: &str) {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.into());
        self.maps
            .create(&PostParams::default(), &map)
            .await
            .unwrap();
    }

    async fn until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let waited = timeout(Duration::from_secs(600), async {
            while !holds(&self.state.lock()) {
                sleep(Duration::from_millis(20)).await;
            }
        });
        let never = |_| panic!("never: {what}; {:?}", self.state.lock());
        waited.await.unwrap_or_else(never);
    }

    async fn listed(&self) {
        self.until("a first list", |state| state.lists > 0).await;
        self.watching(1).await;
    }

    async fn watching(&self, count: usize) {
        let journal = || self.server.faults().journal();
        let open = || {
            journal()
                .iter()
                .filter(|call| call.verb == Verb::Watch)
                .count()
        };
        while open() < count {
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl State {
    fn apply(&mut self, event: Event<ConfigMap>) {
        match event {
            Event::Listed(maps) => {
                self.lists += 1;
                self.names = maps.iter().map(ResourceExt::name_any).collect();
            }
            Event::Applied(map) => drop(self.names.insert(map.name_any())),
            Event::Deleted(map) => drop(self.names.remove(&map.name_any())),
            Event::Failed { retry_after, .. } => self.failures.push(retry_after),
            Event::Calling | Event::Listing | Event::Watching | Event::Alive => {}
        }
    }

    fn has(&self, names: &[&str]) -> bool {
        self.names
            .iter()
            .map(String::as_str)
            .eq(names.iter().copied())
    }
}

#[tokio::test(start_paused = true)]
async fn changes_arrive_and_a_renewed_watch_goes_on_without_a_list() {
    let fixture = Fixture::start(|_| {});
    fixture.listed().await;
    fixture.create("a").await;
    fixture.until("a", |state| state.has(&["a"])).await;
    sleep(Duration::from_secs(60)).await;
    fixture.create("b").await;
    fixture.until("both", |state| state.has(&["a", "b"])).await;
    let params = DeleteParams::default();
    fixture.maps.delete("a", &params).await.unwrap();
    fixture.until("only b", |state| state.has(&["b"])).await;
    assert_eq!(fixture.state.lock().lists, 1);
    assert!(fixture.state.lock().failures.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_is_followed_by_a_new_list() {
    let fixture = Fixture::start(|server| {
        let expire = WatchFault::Expire;
        server.faults().strike_event(1, watches(), expire);
    });
    fixture.listed().await;
    fixture.create("a").await;
    fixture.until("a", |state| state.has(&["a"])).await;
    assert_eq!(fixture.state.lock().lists, 2);
    assert!(
        fixture.state.lock().failures.is_empty(),
        "410 is no failure"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_event_is_made_good_by_the_next_list() {
    let lose = |server: &ApiServer| {
        let drop_event = WatchFault::DropEvent;
        server.faults().strike_event(1, watches(), drop_event);
    };
    let fixture = Fixture::start_with(lose, |watch| watch.relist_every(1));
    fixture.listed().await;
    fixture.create("a").await;
    fixture.until("a", |state| state.has(&["a"])).await;
    assert!(fixture.state.lock().lists > 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_goes_silent_is_replaced_and_nothing_is_missed() {
    let fixture = Fixture::start(|server| {
        let silence = WatchFault::GoSilent;
        server.faults().strike_event(1, watches(), silence);
    });
    fixture.listed().await;
    fixture.create("a").await;
    fixture.until("a", |state| state.has(&["a"])).await;
    assert_eq!(fixture.state.lock().lists, 1);
}

#[tokio::test(start_paused = true)]
async fn of_metadata_only_nothing_else_is_sent_neither_in_a_list_nor_in_a_watch() {
    fn version_of(map: &Value) -> Option<&str> {
        map["metadata"]["resourceVersion"].as_str()
    }
    let fixture = Fixture::start(|_| {});
    let create = async |name: &str| {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.into());
        map.data = Some([("large".to_owned(), "x".repeat(1 << 16))].into());
        let params = PostParams::default();
        fixture.maps.create(&params, &map).await.unwrap();
    };
    create("listed").await;
    let collection = Collection {
        path: "/api/v1/namespaces/default/configmaps".into(),
        metadata_only: true,
        ..Collection::default()
    };
    let seen = Arc::new(Mutex::new(Vec::<Value>::new()));
    let sees = seen.clone();
    let watch = Watch::new(fixture.server.client(), collection, version_of);
    let task = tokio::spawn(watch.run(move |event, _| match event {
        Event::Listed(maps) => sees.lock().extend(maps),
        Event::Applied(map) => sees.lock().push(map),
        _ => {}
    }));
    fixture.until("the list", |_| !seen.lock().is_empty()).await;
    create("watched").await;
    fixture.until("the event", |_| seen.lock().len() == 2).await;
    task.abort();
    let seen = seen.lock();
    let names = seen.iter().map(|map| &map["metadata"]["name"]);
    assert!(names.eq(["listed", "watched"]), "{seen:?}");
    assert!(seen.iter().all(|map| map.get("data").is_none()), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_event_comes_with_the_next_watch_although_a_bookmark_has_passed_it() {
    let fixture = Fixture::start(|server| {
        let drop_event = WatchFault::DropEvent;
        server.faults().strike_event(1, watches(), drop_event);
    });
    fixture.listed().await;
    fixture.create("a").await;
    sleep(Duration::from_secs(70)).await;
    assert!(!fixture.state.lock().has(&["a"]), "it was lost");
    fixture.until("a", |state| state.has(&["a"])).await;
    assert_eq!(fixture.state.lock().lists, 1);
}

#[tokio::test(start_paused = true)]
async fn where_the_last_event_is_too_old_a_watch_goes_on_from_the_last_bookmark() {
    let fixture = Fixture::start(|_| {});
    fixture.listed().await;
    let mut other = Secret::default();
    other.metadata.name = Some("other".into());
    let others: Api<Secret> = Api::namespaced(fixture.server.client(), "default");
    let params = PostParams::default();
    others.create(&params, &other).await.unwrap();
    sleep(Duration::from_secs(70)).await;
    fixture.server.compact();
    fixture.create("a").await;
    fixture.until("a", |state| state.has(&["a"])).await;
    assert_eq!(fixture.state.lock().lists, 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_brings_bookmarks_is_renewed_every_95_seconds() {
    let fixture = Fixture::start(|_| {});
    fixture.listed().await;
    sleep(Duration::from_secs(600)).await;
    let journal = fixture.server.faults().journal();
    let opened = journal.iter().filter(|call| call.verb == Verb::Watch);
    assert_eq!(opened.count(), 7, "at 0, 95, ... and 570 s");
    fixture.create("a").await;
    fixture.until("a", |state| state.has(&["a"])).await;
    assert_eq!(fixture.state.lock().lists, 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_goes_silent_is_replaced_within_75_seconds() {
    let fixture = Fixture::start(|server| {
        let silence = WatchFault::GoSilent;
        server.faults().strike_event(1, watches(), silence);
    });
    fixture.listed().await;
    // It has lived for a while, and its life is not over.
    sleep(Duration::from_secs(100)).await;
    let silent_since = Instant::now();
    fixture.create("a").await;
    fixture.until("a", |state| state.has(&["a"])).await;
    let took = silent_since.elapsed();
    assert!(took < Duration::from_secs(76), "virtual time: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_becomes_urgent_replaces_a_silent_watch_at_once() {
    let (urgent, is_urgent) = watch::channel(false);
    let silence = |server: &ApiServer| {
        server
            .faults()
            .strike_event(1, watches(), WatchFault::GoSilent);
    };
    let fixture = Fixture::start_with(silence, |watch| watch.while_urgent(is_urgent, || URGENT));
    fixture.listed().await;
    fixture.create("a").await;
    let faults = fixture.server.faults();
    fixture.until("silence", |_| !faults.is_armed()).await;
    let started = Instant::now();
    urgent.send_replace(true);
    fixture.until("a", |state| state.has(&["a"])).await;
    assert!(started.elapsed() < Duration::from_secs(2), "virtual time");
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_server_is_left_alone_for_as_long_as_it_asks() {
    let fixture = Fixture::start(|server| {
        let busy = |retry_after_seconds| Fault::TooManyRequests {
            retry_after_seconds,
        };
        server.faults().strike(1, lists(), busy(7));
        server.faults().strike(1, watches(), busy(3_600));
    });
    let started = Instant::now();
    fixture.until("a list", |state| state.lists == 1).await;
    assert!(started.elapsed() >= Duration::from_secs(7));
    fixture
        .until("a watch that is refused", |state| state.failures.len() == 2)
        .await;
    fixture.create("a").await;
    fixture.until("a", |state| state.has(&["a"])).await;
    assert_eq!(
        fixture.state.lock().lists,
        1,
        "what is overloaded need not list again"
    );
    let failures = fixture.state.lock().failures.clone();
    assert_eq!(
        failures,
        [7, 30].map(Duration::from_secs),
        "30 s is the most"
    );
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_within_two_seconds_each() {
    let fixture = Fixture::start(|server| {
        let broken = Fault::InternalError;
        server.faults().strike_randomly(1_000, lists(), broken);
    });
    fixture
        .until("ten failures", |state| state.failures.len() == 10)
        .await;
    let longest = fixture.state.lock().failures.iter().max().copied();
    assert!(longest.unwrap() < Duration::from_secs(2));
    fixture.server.faults().heal();
    fixture.until("a list", |state| state.lists == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_goes_on_from_where_it_was() {
    let fixture = Fixture::start(|_| {});
    fixture.listed().await;
    fixture.create("a").await;
    fixture.until("a", |state| state.has(&["a"])).await;
    let faults = fixture.server.faults();
    faults.strike(1, watches(), Fault::InternalError);
    faults.strike(2, watches(), Fault::LoseAnswer);
    fixture
        .until("two failures", |state| state.failures.len() == 2)
        .await;
    fixture.create("b").await;
    fixture.until("both", |state| state.has(&["a", "b"])).await;
    assert_eq!(fixture.state.lock().lists, 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_lower_versions_than_before_is_listed_again() {
    let fixture = Fixture::start(|_| {});
    fixture.listed().await;
    for name in ["a", "b", "c"] {
        fixture.create(name).await;
    }
    fixture
        .until("all", |state| state.has(&["a", "b", "c"]))
        .await;
    let faults = fixture.server.faults();
    faults.strike(1, watches(), Fault::InternalError);
    faults.strike(1, lists(), Fault::StaleRead { versions_back: 2 });
    fixture
        .until("a second list", |state| state.lists == 2)
        .await;
    assert!(fixture.state.lock().has(&["a", "b", "c"]));
}

#[tokio::test(start_paused = true)]
async fn of_each_page_only_what_matters_is_kept() {
    let fill = |server: &ApiServer| {
        let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
        tokio::spawn(async move {
            for number in 0..600 {
                let mut map = ConfigMap::default();
                map.metadata.name = Some(format!("map-{number:03}"));
                maps.create(&PostParams::default(), &map).await.unwrap();
            }
        });
    };
    let matters = |map: &ConfigMap| map.name_any().ends_with("99");
    let keep = |watch: Watch<ConfigMap>| watch.keep_only(matters).relist_every(1);
    let fixture = Fixture::start_with(fill, keep);
    let all = ["099", "199", "299", "399", "499", "599"].map(|end| format!("map-{end}"));
    let whole = |state: &State| state.lists > 1 && state.names == BTreeSet::from(all.clone());
    fixture.until("a list in three pages", whole).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_of_large_objects_comes_in_pages_of_a_few_megabytes() {
    const BYTES_OF_EACH: usize = 900_000;
    const COUNT: usize = 24;
    let fixture = Fixture::start(|_| {});
    fixture.listed().await;
    for number in 0..COUNT {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("map-{number:02}"));
        let data = [("text".to_owned(), "x".repeat(BYTES_OF_EACH))];
        map.data = Some(data.into());
        let params = PostParams::default();
        fixture.maps.create(&params, &map).await.unwrap();
    }
    let collection = Collection {
        path: "/api/v1/namespaces/default/configmaps".into(),
        ..Collection::default()
    };
    let pages = Arc::new(Mutex::new(Vec::new()));
    let (begins, counts) = (pages.clone(), pages.clone());
    let watch = Watch::new(fixture.server.client(), collection, version_of).keep_only(move |_| {
        *counts.lock().last_mut().unwrap() += 1;
        true
    });
    let listed = Arc::new(Mutex::new(0));
    let kept = listed.clone();
    let run = watch.run(move |event, _| match event {
        Event::Calling => begins.lock().push(0_usize),
        Event::Listed(maps) => *kept.lock() = maps.len(),
        _ => {}
    });
    let task = tokio::spawn(run);
    while *listed.lock() == 0 {
        sleep(Duration::from_millis(20)).await;
    }
    task.abort();
    assert_eq!(*listed.lock(), COUNT);
    let largest = pages.lock().iter().max().copied().unwrap();
    assert!(largest * BYTES_OF_EACH <= 8 << 20, "{largest} in one page");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_asked_for_less_and_less_often_where_that_may_last() {
    const LONGEST: Duration = Duration::from_secs(120);
    let refuse = |server: &ApiServer| {
        let faults = server.faults();
        faults.strike_randomly(1_000, lists(), Fault::Refuse);
    };
    let fixture = Fixture::start_with(refuse, |watch| watch.refused_backoff_max(LONGEST));
    fixture
        .until("twelve refusals", |state| state.failures.len() == 12)
        .await;
    let last = fixture.state.lock().failures.last().copied().unwrap();
    assert!(last >= LONGEST / 2 && last <= LONGEST, "{last:?}");
    fixture.server.faults().heal();
    fixture.until("a list", |state| state.lists == 1).await;
}
