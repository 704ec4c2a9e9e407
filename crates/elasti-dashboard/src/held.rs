//! Held requests: asks the resolvers about once a second while someone is watching.

mod proxy;

use std::time::Duration;

use elasti_view::held::{Ask, Counts, HeldState};
use jiff::Timestamp;
use tokio::time::sleep;

pub use proxy::Proxy;

/// From one answer to the next question.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A missing permission may be granted, but not within the second.
const REFUSED_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Why there are no counts from the resolvers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeldUnavailable {
    /// The user lacks a permission.
    #[error("{0}")]
    Refused(String),
    /// There is no resolver, or no answer.
    #[error("{0}")]
    NoAnswer(String),
}

impl HeldUnavailable {
    fn poll_interval(&self) -> Duration {
        match self {
            Self::Refused(_) => REFUSED_POLL_INTERVAL,
            Self::NoAnswer(_) => POLL_INTERVAL,
        }
    }
}

/// A way to ask the resolvers: through the API server ([`Proxy`]), or through an operator in this process.
pub trait HeldSource: Send + 'static {
    /// How many requests are held for each service, over all resolvers.
    fn ask(&mut self) -> impl Future<Output = Result<Counts, HeldUnavailable>> + Send;
}

/// Runs for ever: asks while `ask` says so, passes changes to `on_change`, and sleeps until `watched` is ready when no
/// one is watching.
pub async fn poll<Watched: Future<Output = ()>>(
    mut source: impl HeldSource,
    ask: impl Fn() -> Ask,
    watched: impl Fn() -> Watched,
    on_change: impl Fn(&HeldState),
) {
    let mut state = HeldState::Unasked;
    loop {
        let (answer, interval) = match ask() {
            Ask::NoService => {
                state = HeldState::Unasked;
                on_change(&state);
                watched().await;
                continue;
            }
            Ask::Needless => (Ok(Counts::new()), POLL_INTERVAL),
            Ask::Resolvers => match source.ask().await {
                Ok(counts) => (Ok(counts), POLL_INTERVAL),
                Err(error) => (Err(error.to_string()), error.poll_interval()),
            },
        };
        let next = state.clone().after(answer, Timestamp::now());
        if next != state {
            state = next;
            on_change(&state);
        }
        sleep(interval).await;
    }
}
