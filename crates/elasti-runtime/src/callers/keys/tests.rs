//! How often the keys are read, and what is done without them.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use kube::client::Body;
use serde_json::Value;
use tokio::time::{advance, sleep};

use super::*;
use crate::callers::mint::{Mint, configuration, key_set};

/// An API server that publishes keys.
#[derive(Clone)]
struct Publisher {
    keys: Arc<Mutex<Value>>,
    code: Arc<Mutex<u16>>,
    readings: Arc<AtomicUsize>,
}

impl Publisher {
    fn new(mints: &[&Mint]) -> Self {
        Self {
            keys: Arc::new(Mutex::new(key_set(mints))),
            code: Arc::new(Mutex::new(200)),
            readings: Arc::default(),
        }
    }

    fn keys(&self) -> Keys {
        let publisher = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let publisher = publisher.clone();
            async move {
                sleep(Duration::from_millis(50)).await;
                let body = match request.uri().path() {
                    CONFIGURATION => configuration(),
                    KEY_SET => {
                        publisher.readings.fetch_add(1, Ordering::Relaxed);
                        publisher.keys.lock().clone()
                    }
                    _ => Value::Null,
                };
                let mut response = http::Response::new(Body::from(body.to_string().into_bytes()));
                *response.status_mut() =
                    http::StatusCode::from_u16(*publisher.code.lock()).unwrap();
                Ok::<_, kube::Error>(response)
            }
        });
        Keys::new(Client::new(service, "default"))
    }

    fn readings(&self) -> usize {
        self.readings.load(Ordering::Relaxed)
    }
}

async fn has(keys: &Keys, key: &str) -> Result<bool, NotVouched> {
    let issuer = keys.issuer_with(key).await?;
    Ok(issuer.key(key).is_some())
}

#[tokio::test(start_paused = true)]
async fn many_callers_share_one_reading_and_it_is_kept() {
    let publisher = Publisher::new(&[&Mint::curve("one")]);
    let keys = Arc::new(publisher.keys());
    let mut together = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let keys = keys.clone();
        together.spawn(async move { has(&keys, "one").await });
    }
    assert!(together.join_all().await.iter().all(|had| *had == Ok(true)));
    advance(KEYS_TTL - Duration::from_secs(1)).await;
    assert_eq!(has(&keys, "one").await, Ok(true));
    assert_eq!(publisher.readings(), 1);
    advance(Duration::from_secs(2)).await;
    assert_eq!(has(&keys, "one").await, Ok(true));
    assert_eq!(publisher.readings(), 2, "old keys are read again");
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_make_it_read_again_but_not_at_a_strangers_pace() {
    let publisher = Publisher::new(&[&Mint::curve("one")]);
    let keys = publisher.keys();
    for _ in 0..1000 {
        assert_eq!(has(&keys, "guess").await, Ok(false));
    }
    assert_eq!(publisher.readings(), 1);
    advance(MIN_REFRESH_INTERVAL).await;
    for _ in 0..1000 {
        assert_eq!(has(&keys, "guess").await, Ok(false));
        assert_eq!(has(&keys, "one").await, Ok(true));
    }
    assert_eq!(publisher.readings(), 2);
}

#[tokio::test(start_paused = true)]
async fn rotated_keys_are_found_and_withdrawn_ones_forgotten() {
    let (old, new) = (Mint::curve("old"), Mint::rsa("new"));
    let publisher = Publisher::new(&[&old]);
    let keys = publisher.keys();
    assert_eq!(has(&keys, "old").await, Ok(true));
    advance(MIN_REFRESH_INTERVAL).await;
    *publisher.keys.lock() = key_set(&[&new, &old]);
    assert_eq!(has(&keys, "new").await, Ok(true));
    *publisher.keys.lock() = key_set(&[&new]);
    advance(KEYS_TTL).await;
    assert_eq!(has(&keys, "old").await, Ok(false));
    assert_eq!(has(&keys, "new").await, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn without_keys_nobody_is_believed_and_the_server_is_not_hammered() {
    let publisher = Publisher::new(&[&Mint::curve("one")]);
    let keys = publisher.keys();
    let failed = Err(NotVouched::NotChecked);
    for code in [403, 404, 500] {
        *publisher.code.lock() = code;
        assert_eq!(has(&keys, "one").await, failed, "{code}");
        advance(RETRY_INTERVAL).await;
    }
    *publisher.code.lock() = 200;
    *publisher.keys.lock() = Value::String("x".repeat(MAX_BYTES));
    assert_eq!(has(&keys, "one").await, failed, "too long");
    let before = publisher.readings();
    for _ in 0..1000 {
        assert_eq!(has(&keys, "one").await, failed);
    }
    assert_eq!(publisher.readings(), before);
    *publisher.keys.lock() = key_set(&[&Mint::curve("one")]);
    advance(RETRY_INTERVAL).await;
    assert_eq!(has(&keys, "one").await, Ok(true));
}
