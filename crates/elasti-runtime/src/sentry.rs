//! Reports errors and panics to Sentry, where a DSN is given.
//! Never sends what came from a request, a header, a variable or an error: only the program's own sentences and their
//! source lines.

mod delivery;
mod dsn;
mod report;

use std::panic;
use std::sync::{Arc, OnceLock};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::environment::{Reading, Variable, variable};
pub use delivery::Delivery;
use delivery::Outbox;
pub use dsn::Dsn;
use report::Report;

/// The variables of Sentry, which both processes have.
pub const VARIABLES: [Variable; 2] = [
    variable(
        "SENTRY_DSN",
        "none",
        "where errors and panics are reported; without it they are only logged",
    ),
    variable(
        "SENTRY_ENVIRONMENT",
        "production",
        "the environment that they are filed under",
    ),
];

/// Where errors are reported, and as what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where.
    pub dsn: Dsn,
    /// As which environment's.
    pub environment: String,
}

/// The settings, if a DSN is given.
pub fn settings(read: &mut Reading<'_>) -> Option<Settings> {
    let environment = read.text("SENTRY_ENVIRONMENT");
    let text = read.text("SENTRY_DSN")?;
    let dsn = text.parse().ok();
    if dsn.is_none() {
        // It holds a key.
        read.wrong_secret("SENTRY_DSN", "a DSN such as https://key@sentry.example/1");
    }
    Some(Settings {
        dsn: dsn?,
        environment: environment.unwrap_or_else(|| "production".into()),
    })
}

/// The tracing layer that collects errors and panics; they are sent once it is started.
#[derive(Clone, Debug, Default)]
pub struct Reports(Arc<OnceLock<Outbox>>);

impl Reports {
    /// Reports from now on. Must be called inside a runtime; without settings nothing is ever sent.
    pub fn start(&self, settings: Option<Settings>, process: &'static str) -> Delivery {
        let Some(settings) = settings else {
            return Delivery::none();
        };
        let host = settings.dsn.host().to_owned();
        let environment = settings.environment.clone();
        match Delivery::start(settings, process) {
            Ok((delivery, outbox)) => {
                tracing::info!(host, environment, "Sentry reporting enabled");
                if self.0.set(outbox).is_ok() {
                    self.report_panics();
                }
                delivery
            }
            Err(error) => {
                tracing::warn!(%error, "Sentry reporting disabled: the HTTP client cannot be made");
                Delivery::none()
            }
        }
    }

    fn report_panics(&self) {
        let (reports, before) = (self.clone(), panic::take_hook());
        panic::set_hook(Box::new(move |panic| {
            reports.report(|| Report::from_panic(panic));
            before(panic);
        }));
    }

    fn report(&self, report: impl FnOnce() -> Report) {
        if let Some(outbox) = self.0.get() {
            outbox.put(report);
        }
    }
}

impl<S: Subscriber> Layer<S> for Reports {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // Messages of other crates may hold anything.
        let ours = event.metadata().target().starts_with("elasti");
        if ours && *event.metadata().level() == Level::ERROR {
            self.report(|| Report::from_event(event));
        }
    }
}
