//! The steps: asleep, a request, held, scaled, ready, answered, direct, idle, drained, asleep again.
//! Each line is printed once its facts were observed; a step that times out ends the round.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::anyhow;
use elasti_api::{Phase, Reason};
use futures::future::try_join_all;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::backend::{Backend, First, Service};
use super::printer::Printer;
use super::request_log::{Entry, Summary};
use super::timeline::{Moment, View};

/// Time to read the first line before the request comes.
const READING_TIME: Duration = Duration::from_secs(1);
/// Between two requests, without and with `--load`.
const REQUEST_INTERVAL: Duration = Duration::from_millis(200);
const LOAD_REQUEST_INTERVAL: Duration = Duration::from_millis(50);
/// This many direct responses in a row show that the resolver is out of the path.
const DIRECT_RESPONSES: usize = 5;
/// Between two looks for objects that a user deleted.
const RESTORE_INTERVAL: Duration = Duration::from_secs(5);
/// Between two rounds.
pub(crate) const ROUND_PAUSE: Duration = Duration::from_secs(20);
/// After a round that was stopped.
const STOPPED_PAUSE: Duration = Duration::from_secs(5);

/// One run on a backend.
pub(crate) struct Story<'a, S> {
    pub(crate) printer: &'a Printer,
    pub(crate) backend: &'a S,
    pub(crate) load: bool,
    pub(crate) timeout: Duration,
}

impl<S: Backend> Story<'_, S> {
    /// One round.
    pub(crate) async fn run(&self) -> anyhow::Result<Summary> {
        self.backend.requests().clear();
        self.backend.timeline().start_round();
        tokio::select! {
            ended = self.round() => ended,
            disturbed = self.disturbed() => Err(anyhow!(disturbed)),
        }
    }

    /// Round after round, for ever. What a user does in between or to a round ends that round, and nothing else.
    pub(crate) async fn repeat(&self) -> anyhow::Result<()> {
        loop {
            let ended = self.run().await.and_then(|summary| summary.verdict());
            let pause = match ended {
                Ok(()) => ROUND_PAUSE,
                Err(error) => {
                    let text = format!("{error:#}");
                    self.printer.step(Instant::now(), "stopped", &text);
                    STOPPED_PAUSE
                }
            };
            self.pause(pause).await;
            self.until_all_sleep().await;
        }
    }

    /// Waits until every service sleeps; creates what was deleted, prints what changes, and says once what it waits for.
    async fn until_all_sleep(&self) {
        let mut explained = false;
        loop {
            for sentence in self.backend.restore().await {
                self.printer.step(Instant::now(), "restored", &sentence);
            }
            if self.all_sleep() {
                return;
            }
            let waited = timeout(RESTORE_INTERVAL, self.print_changes_until_all_sleep()).await;
            if waited.is_err() && !explained {
                explained = true;
                self.explain_wait();
            }
        }
    }

    fn explain_wait(&self) {
        for service in self.services() {
            let view = self.backend.timeline().now(&service.name);
            if view.is_asleep() {
                continue;
            }
            let phase = phase_of(&view);
            let text = format!(
                "{} is {phase}: {} The next round begins when it sleeps; `elasti sleep {}` shortens its cooldown of {} s",
                service.name, view.sentence, service.name, view.cooldown_seconds,
            );
            self.printer.step(Instant::now(), "waiting", &text);
        }
    }

    fn longest_cooldown(&self) -> Duration {
        let views = { self.services().iter() }.map(|one| self.backend.timeline().now(&one.name));
        let longest = views.map(|view| view.cooldown_seconds).max();
        Duration::from_secs(longest.unwrap_or_default().into())
    }

    fn all_sleep(&self) -> bool {
        let mut services = self.services().iter();
        services.all(|one| self.backend.timeline().now(&one.name).is_asleep())
    }

    async fn print_changes_until_all_sleep(&self) {
        tokio::select! {
            () = self.print_changes() => {}
            () = async {
                while !self.all_sleep() {
                    self.backend.timeline().changed().await;
                }
            } => {}
        }
    }

    /// Waits until a user has changed, deleted or broken what the round relies on; says what.
    async fn disturbed(&self) -> String {
        let mut generations: BTreeMap<&str, Option<i64>> = BTreeMap::new();
        loop {
            for service in self.services() {
                let name = service.name.as_str();
                let view = self.backend.timeline().now(name);
                let known = *generations.entry(name).or_insert(view.generation);
                let cooldown = view.cooldown_seconds;
                let obstacle = Reason::from_word(&view.reason).is_some_and(Reason::is_obstacle);
                match (known, view.generation) {
                    _ if view.target_gone => return format!("Deployment {name} was deleted"),
                    _ if obstacle => return format!("{} See: elasti why {name}", view.sentence),
                    (Some(_), None) => return format!("ElastiService {name} was deleted"),
                    (Some(before), Some(now)) if before != now => {
                        return format!(
                            "ElastiService {name} was changed; its cooldown is {cooldown} s"
                        );
                    }
                    (None, Some(_)) => drop(generations.insert(name, view.generation)),
                    _ => {}
                }
            }
            self.backend.timeline().changed().await;
        }
    }

    async fn round(&self) -> anyhow::Result<Summary> {
        self.wait_asleep().await?;
        let (ready, traffic) = self.wake().await?;
        self.hand_over(&ready, traffic).await?;
        self.fall_asleep().await?;
        Ok(self.sum_up(&ready))
    }

    /// Asleep.
    async fn wait_asleep(&self) -> anyhow::Result<()> {
        let who = self.who();
        let asleep = self.all("asleep", Instant::now(), View::is_asleep).await?;
        let text = format!("{who} at 0 replicas, no pods; the Service is routed to the resolver");
        self.printer.step(last(&asleep), "asleep", &text);
        sleep(READING_TIME).await;
        Ok(())
    }

    /// A request is held, and answered by a pod that did not exist; returns when each service was ready, and the
    /// traffic that continues.
    async fn wake(&self) -> anyhow::Result<(Vec<Moment>, S::Traffic)> {
        let sent = self.backend.send_first(self.request_timeout());
        let First { sent_at, answers } = self.step("request", sent).await?;
        self.printer.step(
            sent_at,
            "request",
            &match self.services() {
                [one] => format!("GET {}", one.url()),
                all => format!("one GET to each of {} services", all.len()),
            },
        );
        let held = self.step("held", self.held()).await?;
        self.printer.step(
            Instant::now(),
            "held",
            &match held {
                1 => "the resolver holds it; the client waits".to_owned(),
                n => format!("the resolver holds {n}; the clients wait"),
            },
        );
        let traffic = match self.load {
            true => Some(
                self.step("request", self.traffic(LOAD_REQUEST_INTERVAL))
                    .await?,
            ),
            false => None,
        };
        let scaled = self
            .all("scaled", sent_at, |view| view.replicas > 0)
            .await?;
        let to: Vec<u64> = scaled
            .iter()
            .map(|m| u64::from(m.view.replicas.unsigned_abs()))
            .collect();
        let text = format!(
            "the operator scaled {} from 0 to {}, {} after the request",
            self.who(),
            span(&to),
            since(&scaled, sent_at)
        );
        self.printer.step(last(&scaled), "scaled", &text);
        let ready = self
            .all("ready", sent_at, |view| view.ready_pod().is_some())
            .await?;
        let text = match ready.as_slice() {
            [one] => format!("pod {} is ready", one.view.ready_pod().unwrap_or_default()),
            all => format!("a pod of each of {} services is ready", all.len()),
        };
        self.printer.step(last(&ready), "ready", &text);
        let answers = self
            .step("answered", async { ended(answers).await })
            .await?;
        self.print_answers(&answers)?;
        let traffic = match traffic {
            Some(traffic) => traffic,
            None => self.step("request", self.traffic(REQUEST_INTERVAL)).await?,
        };
        Ok((ready, traffic))
    }

    fn print_answers(&self, answers: &[Entry]) -> anyhow::Result<()> {
        let mut pods = Vec::new();
        for entry in answers {
            let answer = entry.outcome.as_ref();
            let answer = answer.map_err(|lost| {
                anyhow!("the first request to {} was lost: {lost}", entry.service)
            })?;
            if !answer.through_resolver {
                return Err(anyhow!(
                    "the first request to {} did not go through the resolver",
                    entry.service
                ));
            }
            pods.push(answer.pod.as_deref());
        }
        let took: Vec<u64> = answers.iter().map(|entry| millis(entry.took)).collect();
        let who = match pods.as_slice() {
            [Some(pod)] => format!("200 from pod {pod}"),
            [None] => "200 from the app".to_owned(),
            all => format!("200 from {} pods", all.len()),
        };
        let at = answers
            .iter()
            .map(Entry::ended_at)
            .max()
            .unwrap_or_else(Instant::now);
        let text = format!(
            "{who} after {} ms: a slow response, not an error",
            span(&took)
        );
        self.printer.step(at, "answered", &text);
        Ok(())
    }

    /// The resolver leaves the path; then the requests end.
    async fn hand_over(&self, ready: &[Moment], traffic: S::Traffic) -> anyhow::Result<()> {
        let serving = |view: &View| view.phase == Some(Phase::Serving) && !view.redirected();
        let serving = self.all("serving", last(ready), serving).await?;
        let text = "traffic goes straight to the pods; the resolver is out of the path";
        self.printer.step(last(&serving), "serving", text);
        let direct = self.step("direct", self.direct(last(&serving))).await?;
        let text = format!(
            "{} requests in a row without the resolver, {} ms each",
            direct.len(),
            span(&direct)
        );
        self.printer.step(Instant::now(), "direct", &text);
        self.step("answered", self.backend.stop(traffic)).await
    }

    /// No more requests.
    async fn fall_asleep(&self) -> anyhow::Result<()> {
        let redirecting = |view: &View| view.phase == Some(Phase::Redirecting) && view.redirected();
        let quiet_at = |service: &Service| self.backend.requests().last_ended_at(&service.name);
        if self.longest_cooldown() >= self.timeout {
            self.explain_wait();
        }
        let idle = self.each("idle", quiet_at, redirecting).await?;
        let pairs = self.services().iter().zip(&idle);
        let quiet: Vec<u64> = pairs
            .map(|(service, moment)| millis(moment.at.saturating_duration_since(quiet_at(service))))
            .collect();
        let text = format!(
            "{}: new connections go to the resolver again",
            self.backend.why_idle(&span(&quiet)),
        );
        self.printer.step(last(&idle), "idle", &text);
        let drained = |view: &View| {
            view.phase == Some(Phase::Draining)
                && !view.pods.is_empty()
                && view.ready_pod().is_none()
        };
        let drained = self.all("drained", first(&idle), drained).await?;
        let text = "the pods are running but out of rotation, so that none is terminated with a request in flight";
        self.printer.step(last(&drained), "drained", text);
        let asleep = self.all("asleep", first(&drained), View::is_asleep).await?;
        let text = format!("{} at 0 replicas again", self.who());
        self.printer.step(last(&asleep), "asleep", &text);
        Ok(())
    }

    fn sum_up(&self, ready: &[Moment]) -> Summary {
        let names = self.services().iter().map(|service| service.name.clone());
        let ready = names.zip(ready.iter().map(|moment| moment.at)).collect();
        let summary = self.backend.requests().summarize(&ready);
        self.printer
            .step(Instant::now(), "requests", &summary.to_string());
        summary
    }

    /// Between two rounds: invites requests of the user, and prints what happens then.
    pub(crate) async fn pause(&self, pause: Duration) {
        self.printer.line("");
        self.printer.line(&format!(
            "Your turn: {}. Next round in {} s; Ctrl-C quits.",
            self.backend.invitation(),
            pause.as_secs(),
        ));
        let _ = timeout(pause, self.print_changes()).await;
        self.printer.line("");
    }

    /// Prints every change of phase, for ever.
    async fn print_changes(&self) {
        let seen = || -> Vec<View> {
            let names = self.services().iter().map(|service| service.name.as_str());
            names
                .map(|name| self.backend.timeline().now(name))
                .collect()
        };
        let mut before = seen();
        loop {
            self.backend.timeline().changed().await;
            let now = seen();
            for ((service, before), now) in self.services().iter().zip(&before).zip(&now) {
                if let (true, Some(phase)) = (before.phase != now.phase, now.phase) {
                    let text = format!(
                        "{} is {phase:?}, replicas {}, {}",
                        service.name, now.replicas, now.reason
                    );
                    self.printer.step(Instant::now(), "seen", &text);
                }
            }
            before = now;
        }
    }

    fn services(&self) -> &[Service] {
        self.backend.services()
    }

    async fn traffic(&self, every: Duration) -> anyhow::Result<S::Traffic> {
        self.backend.send(every, self.request_timeout()).await
    }

    /// Longer than the steps of a wake, so that the step that failed is reported, and not the request.
    fn request_timeout(&self) -> Duration {
        self.timeout.saturating_mul(4)
    }

    fn who(&self) -> String {
        match self.services() {
            [one] => one.name.clone(),
            all => format!("{} services", all.len()),
        }
    }

    /// Waits until the resolver holds one for each service; gives the most that it was seen to hold. Where a pod is ready
    /// sooner than the last of them comes, they are never held all at once.
    async fn held(&self) -> anyhow::Result<usize> {
        let mut most = 0;
        loop {
            most = most.max(self.backend.held().await);
            let mut views = self
                .services()
                .iter()
                .map(|service| self.backend.timeline().now(&service.name));
            let early = most > 0 && views.any(|view| view.ready_pod().is_some());
            if early || most >= self.services().len() {
                return Ok(most);
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until every service has answered often enough without the resolver; gives the last times in milliseconds.
    async fn direct(&self, since: Instant) -> anyhow::Result<Vec<u64>> {
        loop {
            let rows = self.services().iter().map(|service| {
                self.backend
                    .requests()
                    .direct_in_a_row(&service.name, since)
            });
            let rows: Vec<Vec<Duration>> = rows.collect();
            if rows.iter().all(|row| row.len() >= DIRECT_RESPONSES) {
                return Ok(rows.into_iter().flatten().map(millis).collect());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until something has held for every service since then; gives one moment a service, in their order.
    async fn all(
        &self,
        word: &str,
        since: Instant,
        holds: impl Fn(&View) -> bool,
    ) -> anyhow::Result<Vec<Moment>> {
        self.each(word, |_| since, holds).await
    }

    /// As `all`, with a time of its own for every service.
    async fn each(
        &self,
        word: &str,
        since: impl Fn(&Service) -> Instant,
        holds: impl Fn(&View) -> bool,
    ) -> anyhow::Result<Vec<Moment>> {
        let timeline = self.backend.timeline();
        let waits = self.services().iter().map(|service| {
            let moment = timeline.until(&service.name, since(service), &holds);
            async { anyhow::Ok(moment.await) }
        });
        self.step(word, try_join_all(waits)).await
    }

    /// Waits for one step, up to the timeout.
    async fn step<T>(
        &self,
        word: &str,
        step: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let limit = match word {
            // A user may have made it long.
            "idle" => self.timeout.saturating_add(self.longest_cooldown()),
            _ => self.timeout,
        };
        let step = timeout(limit, step);
        match self.printer.while_waiting(awaited(word), step).await {
            Ok(result) => result,
            Err(_) => Err(anyhow!(
                "step \"{word}\" timed out after {} ms; {}",
                limit.as_millis(),
                self.state().await
            )),
        }
    }

    /// The current state, to find out why.
    async fn state(&self) -> String {
        let states = self.services().iter().map(|service| {
            let view = self.backend.timeline().now(&service.name);
            let phase = phase_of(&view);
            let ready = view.pods.values().filter(|ready| **ready).count();
            format!(
                "{} is {phase} ({}), replicas {}, ready pods {ready}",
                service.name, view.reason, view.replicas
            )
        });
        let mut states: Vec<String> = states.collect();
        states.push(format!("requests held: {}", self.backend.held().await));
        if let Err(lost) = self
            .backend
            .requests()
            .summarize(&BTreeMap::new())
            .verdict()
        {
            states.push(lost.to_string());
        }
        states.join("; ")
    }
}

fn phase_of(view: &View) -> String {
    let phase = view.phase.map(|phase| format!("{phase:?}"));
    phase.unwrap_or_else(|| "without a phase".to_owned())
}

/// All answers, once all are there.
async fn ended(mut answers: JoinSet<anyhow::Result<Vec<Entry>>>) -> anyhow::Result<Vec<Entry>> {
    let mut all = Vec::new();
    while let Some(some) = answers.join_next().await {
        all.extend(some??);
    }
    Ok(all)
}

/// What is going on while a step is awaited.
fn awaited(word: &str) -> &'static str {
    match word {
        "request" => "sending a request",
        "ready" => "the app is starting; the request is still held",
        "serving" => "the pods are returning to rotation",
        "direct" | "answered" => "requests are in flight",
        "idle" => "no requests; waiting for the cooldown",
        "drained" => "the pods are leaving rotation",
        "asleep" => "the operator is putting the service to sleep",
        _ => "waiting for the resolver and the operator",
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The latest of some moments.
fn last(moments: &[Moment]) -> Instant {
    moments
        .iter()
        .map(|moment| moment.at)
        .max()
        .unwrap_or_else(Instant::now)
}

/// The earliest of some moments.
fn first(moments: &[Moment]) -> Instant {
    moments
        .iter()
        .map(|moment| moment.at)
        .min()
        .unwrap_or_else(Instant::now)
}

/// How long after `then` they were.
fn since(moments: &[Moment], then: Instant) -> String {
    let waited: Vec<u64> = moments
        .iter()
        .map(|moment| millis(moment.at.saturating_duration_since(then)))
        .collect();
    format!("{} ms", span(&waited))
}

/// One number, or the smallest and the largest.
fn span(numbers: &[u64]) -> String {
    match (numbers.iter().min(), numbers.iter().max()) {
        (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
        (Some(one), _) => one.to_string(),
        _ => "no".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn a_span_is_one_number_where_all_are_alike() {
        assert_eq!(span(&[7, 7]), "7");
        assert_eq!(span(&[9, 2, 5]), "2 to 9");
        assert_eq!(span(&[]), "no");
    }
}
