//! Who waits, asked of the resolvers about once a second for as long as somebody looks.
//! Never decides when to ask or what silence means: that is elasti-core's.

#[cfg(any(feature = "cli", feature = "demo"))]
mod proxy;

use std::time::Duration;

use elasti_view::held::{Ask, Counts, HeldState};
use jiff::Timestamp;
use tokio::time::sleep;

#[cfg(any(feature = "cli", feature = "demo"))]
pub(crate) use proxy::Proxy;

/// From one answer to the next question.
const EVERY: Duration = Duration::from_secs(1);
/// A right that is missing may be given, but not within the second.
#[cfg(any(feature = "cli", feature = "demo"))]
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// Why the resolvers were not heard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeldUnavailable {
    /// Whoever looks may not ask them; an operator always may.
    #[cfg(any(feature = "cli", feature = "demo"))]
    #[error("{0}")]
    Refused(String),
    /// There is nobody to ask, or no answer.
    #[error("{0}")]
    Silent(String),
}

impl HeldUnavailable {
    fn pause(&self) -> Duration {
        match self {
            #[cfg(any(feature = "cli", feature = "demo"))]
            Self::Refused(_) => REFUSED_PAUSE,
            Self::Silent(_) => EVERY,
        }
    }
}

/// The way to the resolvers.
pub(crate) enum HeldSource {
    /// Through the API server, with the rights of whoever looks.
    #[cfg(any(feature = "cli", feature = "demo"))]
    Proxy(Proxy),
    /// The operator beside us knows them and asks them itself.
    Operator(elasti_operator::HeldCounts),
}

impl HeldSource {
    pub(crate) async fn ask(&mut self) -> Result<Counts, HeldUnavailable> {
        match self {
            #[cfg(any(feature = "cli", feature = "demo"))]
            Self::Proxy(proxy) => proxy.ask().await,
            Self::Operator(waiting) => {
                let said = waiting.ask().await;
                said.map_err(|unheard| HeldUnavailable::Silent(unheard.to_string()))
            }
        }
    }
}

/// Listens for ever: asks while `whom` says so, tells `hear` what is new, and sleeps until `somebody` looks.
pub(crate) async fn listen<Lookup: Future<Output = ()>>(
    mut held_source: HeldSource,
    whom: impl Fn() -> Ask,
    somebody: impl Fn() -> Lookup,
    hear: impl Fn(&HeldState),
) {
    let mut hearing = HeldState::Unasked;
    loop {
        let (answer, pause) = match whom() {
            Ask::Nobody => {
                hearing = HeldState::Unasked;
                hear(&hearing);
                somebody().await;
                continue;
            }
            Ask::Needless => (Ok(Counts::new()), EVERY),
            Ask::Resolvers => match held_source.ask().await {
                Ok(counts) => (Ok(counts), EVERY),
                Err(unheard) => (Err(unheard.to_string()), unheard.pause()),
            },
        };
        let next = hearing.clone().after(answer, Timestamp::now());
        if next != hearing {
            hearing = next;
            hear(&hearing);
        }
        sleep(pause).await;
    }
}
