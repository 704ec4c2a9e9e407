//! Clients in a pod of the cluster, which call the Service and report through the pod's log.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use elasti_core::facts;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, LogParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::backend::First;
use super::real_cluster::restricted_pod;
use super::request_log::{Entry, RequestLog};
use super::timeline::APP_LABEL;
use elasti_cli::refusal::Call;
use elasti_visitor::{Event, Line};

/// Label and first part of the name of their pods.
pub(crate) const VISITOR: &str = "visitor";
/// Between two reads of the log.
const LOG_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A log becomes readable a while after its pod has started; only then is it known when a request was sent.
const LOG_DELAY: Duration = Duration::from_secs(2);

/// What to send.
#[derive(Clone, Debug)]
pub(crate) struct VisitorConfig {
    pub(crate) name: String,
    /// Elasti's own image: the cluster has it.
    pub(crate) image: String,
    pub(crate) pull_policy: Option<String>,
    /// As `elasti visit` takes them.
    pub(crate) places: Vec<String>,
    pub(crate) path: &'static str,
    /// `None`: until they are stopped.
    pub(crate) rounds: Option<u64>,
    pub(crate) every: Duration,
    pub(crate) timeout: Duration,
}

impl VisitorConfig {
    fn pod(&self) -> anyhow::Result<Pod> {
        let mut arguments = vec!["visit".to_owned()];
        arguments.extend(self.places.iter().cloned());
        arguments.push(format!("--path={}", self.path));
        arguments.push(format!("--every={}", self.every.as_millis()));
        // For one request the time of sending matters; for many only the outcomes.
        let after = self.rounds.map_or(0, |_| LOG_DELAY.as_millis());
        arguments.push(format!("--after={after}"));
        arguments.push(format!("--patience={}", self.timeout.as_secs()));
        arguments.extend(self.rounds.map(|rounds| format!("--rounds={rounds}")));
        let mut spec = restricted_pod(json!({
            "name": VISITOR, "image": self.image, "imagePullPolicy": self.pull_policy, "args": arguments,
        }));
        if let Some(fields) = spec.as_object_mut() {
            fields.insert("restartPolicy".into(), json!("Never"));
            let grace_seconds = self.timeout.as_secs();
            fields.insert("terminationGracePeriodSeconds".into(), json!(grace_seconds));
        }
        let metadata = json!({"name": self.name, "labels": {APP_LABEL: VISITOR}});
        let pod = json!({"metadata": metadata, "spec": spec});
        serde_json::from_value(pod).context("the visitor's pod")
    }
}

/// A running pod of clients.
pub(crate) struct Visitors {
    name: String,
    timeout: Duration,
    /// When each request was sent.
    sent: watch::Receiver<Vec<Instant>>,
    reading: JoinSet<anyhow::Result<Vec<Entry>>>,
}

impl Visitors {
    /// Starts their pod.
    pub(crate) async fn send(
        client: &Client,
        namespace: &str,
        config: VisitorConfig,
        requests: RequestLog,
    ) -> anyhow::Result<Self> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let made = pods.create(&PostParams::default(), &config.pod()?).await;
        made.map_err(|error| call(namespace, "create", "pods").refused(&error))?;
        let (sent_sender, sent) = watch::channel(Vec::new());
        let mut reading = JoinSet::new();
        let reader = Reader {
            pods,
            namespace: namespace.to_owned(),
            name: config.name.clone(),
            lines: 0,
            began: None,
            open: BTreeMap::new(),
            entries: Vec::new(),
            sent: sent_sender,
            requests,
        };
        reading.spawn(reader.until_done());
        Ok(Self {
            name: config.name,
            timeout: config.timeout,
            sent,
            reading,
        })
    }

    /// Waits until this many requests were sent.
    pub(crate) async fn until_sent(mut self, count: usize) -> anyhow::Result<First> {
        tokio::select! {
            biased;
            sent = self.sent.wait_for(|sent| sent.len() >= count) => {
                let sent_at = sent.ok().and_then(|sent| sent.first().copied());
                if let Some(sent_at) = sent_at {
                    return Ok(First { sent_at, answers: self.reading });
                }
            }
            Some(ended) = self.reading.join_next() => { ended??; }
        }
        Err(anyhow!("the visitor sent nothing"))
    }

    /// Sends no more, and waits for the last response.
    pub(crate) async fn stop(mut self, client: &Client, namespace: &str) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let grace_seconds = u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX);
        let graceful = DeleteParams::default().grace_period(grace_seconds);
        let stopped = pods.delete(&self.name, &graceful).await;
        stopped.map_err(|error| call(namespace, "delete", "pods").refused(&error))?;
        while let Some(ended) = self.reading.join_next().await {
            ended??;
        }
        Ok(())
    }
}

fn call<'a>(namespace: &'a str, verb: &'static str, resource: &'static str) -> Call<'a> {
    Call {
        verb,
        group: "",
        resource,
        namespace: Some(namespace),
        name: None,
    }
}

/// Reads a visitor's log while it grows.
struct Reader {
    pods: Api<Pod>,
    namespace: String,
    name: String,
    /// How many lines were read.
    lines: usize,
    /// When the visitor started, as exactly as its log shows.
    began: Option<Instant>,
    /// Requests without an end: whose, and when they were sent.
    open: BTreeMap<u64, (String, Duration)>,
    entries: Vec<Entry>,
    sent: watch::Sender<Vec<Instant>>,
    requests: RequestLog,
}

impl Reader {
    async fn until_done(mut self) -> anyhow::Result<Vec<Entry>> {
        loop {
            match self.pods.logs(&self.name, &LogParams::default()).await {
                Ok(log) => {
                    if self.parse_log(&log)? {
                        return Ok(self.entries);
                    }
                }
                Err(error) => self.check_error(&error).await?,
            }
            sleep(LOG_POLL_INTERVAL).await;
        }
    }

    /// Parses new lines; returns whether that was all.
    fn parse_log(&mut self, log: &str) -> anyhow::Result<bool> {
        let now = Instant::now();
        let whole = log.rfind('\n').and_then(|end| log.get(..end));
        for text in whole.unwrap_or_default().lines().skip(self.lines) {
            self.lines += 1;
            let Ok(line) = serde_json::from_str::<Line>(text) else {
                bail!("unexpected log line of the visitor: {text}");
            };
            if self.take(now, line) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn take(&mut self, now: Instant, Line { at, event }: Line) -> bool {
        let at = Duration::from_millis(at);
        // A line is never read before it was written, so the earliest guess is the best.
        let guess = now.checked_sub(at).unwrap_or(now);
        let began = self.began.map_or(guess, |began| began.min(guess));
        self.began = Some(began);
        let (number, outcome) = match event {
            Event::Here => return false,
            Event::Done => return self.open.is_empty(),
            Event::Sent { service, number } => {
                self.open.insert(number, (service, at));
                self.sent.send_modify(|sent| sent.push(began + at));
                return false;
            }
            Event::Answered { number, answer } => (number, Ok(answer)),
            Event::Lost { number, lost } => (number, Err(lost)),
        };
        if let Some((service, sent)) = self.open.remove(&number) {
            let entry = Entry {
                service,
                sent_at: began + sent,
                took: at.saturating_sub(sent),
                outcome,
            };
            self.requests.write(entry.clone());
            self.entries.push(entry);
        }
        false
    }

    /// A log that cannot be read: the pod has not started yet, or never will.
    async fn check_error(&self, error: &kube::Error) -> anyhow::Result<()> {
        let pod = match (error, self.lines) {
            (kube::Error::Api(status), _) if status.is_forbidden() => {
                let refusal = call(&self.namespace, "get", "pods/log").refused(error);
                return Err(refusal.into());
            }
            (kube::Error::Api(status), 1..) if status.code == 404 => {
                bail!(
                    "the visitor is gone, and {} requests have no outcome",
                    self.open.len()
                )
            }
            _ => self.pods.get_opt(&self.name).await,
        };
        let stall = pod.ok().flatten().as_ref().and_then(facts::stall);
        match stall.filter(|stall| !facts::patience(stall.kind).ordinary) {
            Some(stall) => bail!("the visitor's pod cannot start: {}", stall.message),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use elasti_visitor::{Answer, Lost};

    fn reader() -> (Reader, RequestLog) {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("unused"))
        });
        let requests = RequestLog::default();
        let reader = Reader {
            pods: Api::namespaced(Client::new(service, "default"), "default"),
            namespace: "default".into(),
            name: "visitor-1".into(),
            lines: 0,
            began: None,
            open: BTreeMap::new(),
            entries: Vec::new(),
            sent: watch::Sender::default(),
            requests: requests.clone(),
        };
        (reader, requests)
    }

    fn log(words: Vec<(u64, Event)>) -> String {
        let lines = words.into_iter().map(|(at, event)| Line { at, event });
        let lines = lines.map(|line| serde_json::to_string(&line).unwrap() + "\n");
        lines.collect()
    }

    fn sent(number: u64) -> Event {
        let service = "web".to_owned();
        Event::Sent { service, number }
    }

    #[tokio::test]
    async fn every_request_of_the_log_ends_up_in_the_ledger_once() {
        let (mut reader, requests) = reader();
        let answer = Answer {
            pod: None,
            through_resolver: true,
        };
        let answered = Event::Answered { number: 1, answer };
        let lost = Event::Lost {
            number: 2,
            lost: Lost::Broken("reset".into()),
        };
        let half = log(vec![
            (0, Event::Here),
            (5, sent(1)),
            (6, sent(2)),
            (2005, answered.clone()),
        ]);
        assert!(!reader.parse_log(&half).unwrap());
        assert!(!reader.parse_log(&half).unwrap(), "no line is read twice");
        let all = vec![
            (0, Event::Here),
            (5, sent(1)),
            (6, sent(2)),
            (2005, answered),
            (2006, lost),
            (2007, Event::Done),
        ];
        let all = log(all);
        // A line that is not whole yet is read when it is.
        let cut = all.len() - 2;
        assert!(!reader.parse_log(&all[..cut]).unwrap());
        assert!(reader.parse_log(&all).unwrap());
        let summary = requests.summarize(&BTreeMap::new()).to_string();
        assert_eq!(summary, "sent 2, answered 1, of them held 0, lost 1");
        assert_eq!(reader.entries[0].took, Duration::from_millis(2000));
        assert_eq!(reader.sent.borrow().len(), 2);
    }

    #[tokio::test]
    async fn words_that_are_no_visitors_are_told_as_they_are() {
        let (mut reader, _) = reader();
        let error = reader.parse_log("error: unrecognized subcommand 'visit'\n");
        let error = error.unwrap_err().to_string();
        assert_eq!(
            error,
            "unexpected log line of the visitor: error: unrecognized subcommand 'visit'"
        );
    }
}
