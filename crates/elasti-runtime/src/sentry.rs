//! Errors and panics of this process, told to Sentry where a DSN is given.
//! Never tells what a request, a header, a variable or an error said: only the program's own sentences and where they stand.

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
        "where errors and panics are told; without it they stand only in the log",
    ),
    variable(
        "SENTRY_ENVIRONMENT",
        "production",
        "the environment that they are filed under",
    ),
];

/// Where and as what errors are told.
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

/// Takes note of errors and panics from when the log is set up; they go out once it was said where to.
#[derive(Clone, Debug, Default)]
pub struct Reports(Arc<OnceLock<Outbox>>);

impl Reports {
    /// Tells Sentry from now on. Must be called inside a runtime; without settings nothing ever goes out.
    pub fn start(&self, settings: Option<Settings>, process: &'static str) -> Delivery {
        let Some(settings) = settings else {
            return Delivery::none();
        };
        let host = settings.dsn.host().to_owned();
        let environment = settings.environment.clone();
        match Delivery::start(settings, process) {
            Ok((delivery, outbox)) => {
                tracing::info!(host, environment, "errors and panics are told to Sentry");
                if self.0.set(outbox).is_ok() {
                    self.tell_panics();
                }
                delivery
            }
            Err(error) => {
                tracing::warn!(%error, "Sentry is not told anything: there is no client for it");
                Delivery::none()
            }
        }
    }

    fn tell_panics(&self) {
        let (reports, before) = (self.clone(), panic::take_hook());
        panic::set_hook(Box::new(move |panic| {
            reports.tell(|| Report::of_panic(panic));
            before(panic);
        }));
    }

    fn tell(&self, report: impl FnOnce() -> Report) {
        if let Some(outbox) = self.0.get() {
            outbox.put(report);
        }
    }
}

impl<S: Subscriber> Layer<S> for Reports {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // Sentences of other crates may hold anything.
        let ours = event.metadata().target().starts_with("elasti");
        if ours && *event.metadata().level() == Level::ERROR {
            self.tell(|| Report::of_event(event));
        }
    }
}
