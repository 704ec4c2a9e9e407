//! Asks a server whether the metrics of a query have series, where the query has a value even if they have none. Such a
//! query reads as quiet for ever if a metric's name is wrong.

use std::sync::Arc;
use std::time::Duration;

use elasti_api::PrometheusTrigger;
use elasti_promql::{count_of, metrics_behind_a_fallback};
use tokio::time::{Instant, timeout};

use super::QueryError;
use super::server::{Headers, Query, Server};
use crate::triggers::{ReadRequest, Slot};

/// A query that names more is not checked further.
const MAX_METRICS: usize = 8;
/// What a service's own pods report ends while they sleep, for a weekend or a holiday.
const LOOK_BACK: &str = "7d";
/// The check of one trigger. It queues behind the readings of its namespace.
const TIMEOUT: Duration = Duration::from_secs(60);
/// An answer so young is not asked for again: triggers of one namespace often name the same metric.
const SHARED_FOR: Duration = Duration::from_secs(50);

/// A check that is due.
pub(super) struct Check {
    slot: Arc<Slot>,
    metrics: Vec<String>,
    headers: Arc<Headers>,
    namespace: Arc<str>,
}

impl Check {
    /// Begins the check of a request's trigger, if one is due. Whether a metric exists is as little for everyone as the
    /// value that a trigger reads.
    pub(super) fn begin(
        server: &Server,
        request: &ReadRequest,
        trigger: &PrometheusTrigger,
    ) -> Option<Self> {
        if request.is_urgent()
            || server.hides_values(&trigger.headers)
            || !request.slot.series.begin()
        {
            return None;
        }
        let mut metrics = metrics_behind_a_fallback(&trigger.query);
        metrics.truncate(MAX_METRICS);
        if metrics.is_empty() {
            request.slot.series.set_without_series(metrics);
            return None;
        }
        Some(Self {
            slot: request.slot.clone(),
            metrics,
            headers: Arc::new(trigger.headers.clone()),
            namespace: request.namespace.clone(),
        })
    }

    /// Finds out, and keeps the result. Without an answer about each metric nothing is known.
    pub(super) async fn run(self, server: &Server) {
        let found = timeout(TIMEOUT, self.without_series(server)).await;
        if let Ok(Ok(metrics)) = found {
            self.slot.set_without_series(metrics);
        }
    }

    async fn without_series(&self, server: &Server) -> Result<Vec<String>, QueryError> {
        let mut found = Vec::new();
        for metric in &self.metrics {
            // Those of now first: to look back over all series of a metric costs the server more.
            let past = count_of(&format!("last_over_time({metric}[{LOOK_BACK}])"));
            if !self.has_result(server, count_of(metric)).await?
                && !self.has_result(server, past).await?
            {
                found.push(metric.clone());
            }
        }
        Ok(found)
    }

    async fn has_result(&self, server: &Server, query: String) -> Result<bool, QueryError> {
        let query = Query {
            headers: self.headers.clone(),
            text: query.into(),
            namespace: self.namespace.clone(),
            urgent: false,
            completes: false,
        };
        let now = Instant::now();
        let not_before = now.checked_sub(SHARED_FOR).unwrap_or(now);
        match server.sample(query, not_before).await {
            Ok(_) => Ok(true),
            Err(QueryError::Empty) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
