//! Whether the metrics of a query exist: one that does not reads as idle where the query ends in `or vector(0)`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use elasti_api::ElastiServiceSpec;
use reqwest::{Client, Url};
use serde_json::Value;

use super::document::Document;
use super::finding::{Finding, Rule, Severity};

const TIMEOUT: Duration = Duration::from_secs(10);
/// The count of one metric is one series.
const MAX_BODY_BYTES: u64 = 1 << 20;

/// A Prometheus server that is asked for each metric once.
pub(super) struct Series {
    client: Client,
    url: Url,
    known: BTreeMap<String, bool>,
}

impl Series {
    pub(super) fn new(written: &str) -> anyhow::Result<Self> {
        let mut url = Url::parse(written)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .with_context(|| {
                format!("--prometheus {written}: write a URL such as http://prometheus:9090")
            })?;
        let path = format!("{}/api/v1/query", url.path().trim_end_matches('/'));
        url.set_path(&path);
        elasti_runtime::tls::install_provider();
        let client = Client::builder().timeout(TIMEOUT).build();
        Ok(Self {
            client: client.context("cannot create an HTTP client")?,
            url,
            known: BTreeMap::new(),
        })
    }

    /// A finding for each metric of the triggers that has no series.
    pub(super) async fn check(
        &mut self,
        document: &Document,
        spec: &ElastiServiceSpec,
    ) -> anyhow::Result<Vec<Finding>> {
        let mut found = Vec::new();
        for (index, trigger) in spec.triggers.iter().enumerate() {
            let query = trigger.metadata.get("query").and_then(Value::as_str);
            let Some(Ok(query)) = query.map(elasti_promql::parse) else {
                continue;
            };
            for name in &query.metrics {
                if self.exists(name).await? {
                    continue;
                }
                let effect = match query.always {
                    true => {
                        "so the query always reads as idle, and the service sleeps while it is in use"
                    }
                    false => "so there is no reading, and the service never sleeps",
                };
                found.push(Finding::new(
                    document,
                    (Severity::Warning, Rule::Promql),
                    &format!("spec.triggers[{index}].metadata.query"),
                    format!("metric {name} has no series in Prometheus, {effect}"),
                    "check the metric's name, and that its app is scraped",
                ));
            }
        }
        Ok(found)
    }

    async fn exists(&mut self, metric: &str) -> anyhow::Result<bool> {
        if let Some(known) = self.known.get(metric) {
            return Ok(*known);
        }
        let mut url = self.url.clone();
        { url.query_pairs_mut() }.append_pair("query", &elasti_promql::count_of(metric));
        let sent = self.client.get(url).send().await;
        let answer = sent.map_err(|error| {
            let why = crate::refusal::root(&error);
            anyhow!("Prometheus does not answer: {why}; check the address of --prometheus")
        })?;
        let (code, length) = (answer.status().as_u16(), answer.content_length());
        if code != 200 || length.is_some_and(|length| length > MAX_BODY_BYTES) {
            return Err(anyhow!(
                "Prometheus answered with code {code}; check the address of --prometheus"
            ));
        }
        let body = answer
            .bytes()
            .await
            .context("the answer of Prometheus ended early")?;
        let exists = has_series(&body).context("this is not a Prometheus server")?;
        self.known.insert(metric.to_owned(), exists);
        Ok(exists)
    }
}

/// Whether an answer has a result; `None` if it is none of Prometheus.
fn has_series(body: &[u8]) -> Option<bool> {
    let answer: Value = serde_json::from_slice(body).ok()?;
    let result = answer.pointer("/data/result")?.as_array()?;
    Some(!result.is_empty())
}

#[cfg(test)]
mod tests {
    use super::has_series;

    #[test]
    fn an_empty_result_is_no_series_and_anything_else_no_prometheus() {
        let body = |result: &str| {
            format!(
                r#"{{"status": "success", "data": {{"resultType": "vector", "result": {result}}}}}"#
            )
        };
        assert_eq!(has_series(body("[]").as_bytes()), Some(false));
        let one = body(r#"[{"metric": {}, "value": [1, "3"]}]"#);
        assert_eq!(has_series(one.as_bytes()), Some(true));
        assert_eq!(has_series(b"<html>"), None);
    }
}
