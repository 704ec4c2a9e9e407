//! THE SPINE: observe, look, plan, apply, report, one line each; and the wake, which waits for none of it.
//! Never decides: every `if` about phases is in the brain.

use std::time::Instant;

use elasti_api::{ElastiService, names};
use elasti_core::observed::Report;
use elasti_core::{Plan, WakeDecision};
use futures::future::{join, join3};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Resource as _;
use kube::api::GetParams;
use kube::core::Request;

use crate::activity::ResolverAddress;
use crate::apply;
use crate::error::Error;
use crate::name::Name;
use crate::observe::{self, Look, Snapshot};
use crate::operator::Operator;
use crate::report;
use crate::slim::{Declared, PodView, ServiceView, SliceView};
use crate::store::{Change, Kept, Read, first_slices, target_of};
use crate::targets;
use crate::wake::WakeOutcome;
use crate::watch::read_all;

/// One look at one service; gives when to look again at the latest.
pub(crate) async fn reconcile(
    operator: &Operator,
    name: &Name,
) -> Result<Option<Timestamp>, Error> {
    let started = Instant::now();
    let Some((snapshot, plan)) = decide(operator, name).await? else {
        return Ok(None);
    };
    operator.remember(
        name,
        snapshot.observed.stable_since.clone().after(&plan.steps),
    ); // pure
    let applied = apply::apply(operator, &snapshot, &plan).await; // talks to the cluster
    let reported = report::report(operator, &snapshot, &plan, &applied).await; // talks to the cluster
    let error = applied.failed.map(|(_, error)| error).or(reported.err());
    let word = error.as_ref().map(Error::as_str);
    operator.metrics.looked(name, started.elapsed(), word);
    match error {
        Some(error) => Err(error),
        None => Ok([plan.requeue_at, snapshot.requeue_at]
            .into_iter()
            .flatten()
            .min()),
    }
}

/// Observe and plan; where the plan asks for it, ask the resolvers or read everything anew, and plan again.
async fn decide(operator: &Operator, name: &Name) -> Result<Option<(Snapshot, Plan)>, Error> {
    let Some(mut snapshot) = observe(operator, name).await? else {
        return Ok(None);
    };
    let mut plan = snapshot.plan();
    if plan.ask_resolvers {
        ask(operator, &snapshot).await;
        let Some(next) = observe(operator, name).await? else {
            return Ok(None);
        };
        snapshot = next;
        plan = snapshot.plan();
    }
    if plan.needs_fresh_facts() {
        let fresh = join3(
            refresh(operator, &snapshot.me),
            read_user_requests(operator, &snapshot.me),
            ask_everything(operator, &snapshot),
        );
        let (facts, user_requests, ()) = fresh.await;
        facts.and(user_requests)?;
        let Some(next) = observe(operator, name).await? else {
            return Ok(None);
        };
        snapshot = next;
        plan = snapshot.plan();
    }
    Ok(Some((snapshot, plan)))
}

/// The facts as they are known; what was never read is read first.
async fn observe(operator: &Operator, name: &Name) -> Result<Option<Snapshot>, Error> {
    // A watch may bring something unread at any moment; more than twice in a row is not chance.
    for _ in 0..3 {
        match observe::look(operator, name, &operator.memory(name)) {
            Look::Seen(snapshot) => {
                operator.attend(&snapshot.me).await;
                return Ok(Some(*snapshot));
            }
            Look::Unread(me) => first_read(operator, &me).await?,
            Look::Gone => {
                operator.forget(name);
                return Ok(None);
            }
            // The list that is still missing brings it back.
            Look::TooEarly => return Ok(None),
        }
    }
    Err(Error::Conflict(
        "it changes faster than it can be read".into(),
    ))
}

/// Asks every resolver that may get traffic what it has seen of this service.
async fn ask(operator: &Operator, snapshot: &Snapshot) {
    let ready = snapshot.observed.ready_resolvers();
    let resolvers: Vec<ResolverAddress> = ready
        .filter_map(|resolver| {
            let ip = *resolver.addresses.first()?;
            let name = resolver.name.clone();
            Some(ResolverAddress { name, ip })
        })
        .collect();
    let service = snapshot.service();
    let said = operator
        .reports
        .ask(&resolvers, &service.namespace, &service.name)
        .await;
    let said: std::collections::BTreeMap<String, Report> = said;
    operator.heard(&snapshot.me.name, said);
}

/// Before a step that cannot be taken back: the resolvers and the triggers, too.
async fn ask_everything(operator: &Operator, snapshot: &Snapshot) {
    let triggers = operator.readings.read_now(&snapshot.me.name);
    join(ask(operator, snapshot), triggers).await;
}

/// Reads what came before this service was managed, also what stands in our way under our own names.
async fn first_read(operator: &Operator, me: &Declared) -> Result<(), Error> {
    let service = me.service();
    let path = EndpointSlice::url_path(&(), Some(&*service.namespace));
    let [v4, v6] = first_slices(&service);
    let ours = join(
        read_one::<SliceView>(operator, path.clone(), &v4),
        read_one::<SliceView>(operator, path, &v6),
    );
    let (read, (v4, v6)) = join(refresh(operator, me), ours).await;
    read.and(v4).and(v6)
}

/// Reads the target, the pods and the slices of a service past all caches.
async fn refresh(operator: &Operator, me: &Declared) -> Result<(), Error> {
    let service = me.service();
    let before = operator.store.begin_reading(&service);
    let read = join(read_target(operator, me), read_parts(operator, &service)).await;
    let (target, parts) = read;
    let (parts, error) = match parts {
        Ok(parts) => (Some(parts), None),
        Err(error) => (None, Some(error)),
    };
    let read = operator.store.end_reading(&service, &before, parts);
    target?;
    match error {
        Some(error) => Err(error),
        None if read => Ok(()),
        None => Err(Error::Conflict(
            "a list is behind what the watch has told".into(),
        )),
    }
}

async fn read_target(operator: &Operator, me: &Declared) -> Result<(), Error> {
    let name = target_of(me);
    let read = targets::read(operator, &name).await?;
    let mut touched = Default::default();
    let mut known = operator.store.known();
    match read {
        Some(view) => {
            known.put_target(&name, view, &mut touched);
            Ok(())
        }
        None => unseen(
            known.target(&name).is_some(),
            "the target is known, but a read does not show it".into(),
        ),
    }
}

/// The ElastiService and the public Service: someone may have changed his mind just now.
async fn read_user_requests(operator: &Operator, me: &Declared) -> Result<(), Error> {
    let namespace = Some(&*me.name.namespace);
    let path = ElastiService::url_path(&(), namespace);
    let declared = read_one::<Declared>(operator, path, &me.name);
    let path = Service::url_path(&(), namespace);
    let public = me.service();
    let service = read_one::<ServiceView>(operator, path, &public);
    let (declared, service) = join(declared, service).await;
    declared.and(service)
}

/// A read found nothing. Of what is known, only the watch may say that it is gone: a read may come from a server
/// that is behind, and nothing would ever bring back what it hides.
fn unseen(known: bool, said: String) -> Result<(), Error> {
    match known {
        true => Err(Error::Conflict(said)),
        false => Ok(()),
    }
}

/// Reads one object past all caches, into the store.
async fn read_one<K: Kept>(operator: &Operator, path: String, name: &Name) -> Result<(), Error> {
    let request = Request::new(path)
        .get(&name.name, &GetParams::default())
        .map_err(kube::Error::BuildRequest)?;
    let change = match targets::ask(&operator.client, request).await {
        Ok(object) => Change::Set(K::read(object).map_err(kube::Error::SerdeError)?),
        Err(Error::Missing(said)) => {
            let known = K::names(&operator.store.known()).contains(name);
            return unseen(known, said);
        }
        Err(error) => return Err(error),
    };
    operator.look_at(&operator.store.take_in(None, change));
    Ok(())
}

/// All pods that the Service selects, and all its slices, ours among them.
async fn read_parts(operator: &Operator, service: &Name) -> Result<Read, Error> {
    let view = operator.store.known().service(service).cloned();
    let selector = view
        .map(|view| view.facts.service.selector.clone())
        .unwrap_or_default();
    let labels: Vec<String> = selector.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let labels = labels.join(",");
    let (namespace, client) = (Some(&*service.namespace), &operator.client);
    let path = Pod::url_path(&(), namespace);
    let pods = async {
        match labels.is_empty() {
            // Without a selector there are no pods to speak of, and every pod would match.
            true => Ok((None, Vec::new())),
            false => {
                let read = read_all::<PodView>(client, &path, &labels).await;
                read.map(|(version, pods)| (Some(version), pods))
            }
        }
    };
    let path = EndpointSlice::url_path(&(), namespace);
    let of_service = format!("{}={}", names::SERVICE_NAME_LABEL, service.name);
    let slices = read_all::<SliceView>(client, &path, &of_service);
    let (pods, slices) = join(pods, slices).await;
    let ((pods_version, pods), (slices_version, slices)) = (pods?, slices?);
    Ok(Read {
        selector,
        pods_version,
        slices_version,
        pods,
        slices,
    })
}

/// How often a wake decides anew when someone writes the target at the same moment.
const WAKE_ATTEMPTS: usize = 8;

/// Wakes a service, on any replica: one conditional write, and everything else after it.
pub(crate) async fn wake(operator: &Operator, service: &Name) -> WakeOutcome {
    let Some(name) = operator.store.known().claimant(service) else {
        return match operator.is_ready() {
            true => WakeOutcome::NotManaged,
            false => WakeOutcome::Failed { retry: true },
        };
    };
    let mut error = Error::Conflict("someone else writes the target all the time".into());
    for attempt in 0..WAKE_ATTEMPTS {
        let snapshot = match observe::look(operator, &name, &operator.memory(&name)) {
            Look::Seen(snapshot) => snapshot,
            Look::Unread(me) => match first_read(operator, &me).await {
                Ok(()) => continue,
                Err(_) => return WakeOutcome::Failed { retry: true },
            },
            Look::Gone | Look::TooEarly => return WakeOutcome::Failed { retry: true },
        };
        operator.wake_asked(&name);
        let decision = elasti_core::wake(snapshot.spec(), &snapshot.observed);
        let target = report::Target {
            name: &snapshot.target_name,
            view: snapshot.target.as_ref(),
        };
        match decision {
            WakeDecision::Refused(why) => return WakeOutcome::Refused(why),
            // A cache may be behind a sleep that has just begun: awake is only what was read now.
            WakeDecision::AlreadyAwake if attempt == 0 => {
                if read_target(operator, &snapshot.me).await.is_err() {
                    return WakeOutcome::Failed { retry: true };
                }
            }
            WakeDecision::AlreadyAwake => return WakeOutcome::AlreadyAwake,
            WakeDecision::Scale(replicas) => {
                let Some(view) = &snapshot.target else {
                    return WakeOutcome::Failed { retry: true };
                };
                match apply::wake(operator, &snapshot.target_name, view, replicas).await {
                    Ok(()) => {
                        report::woken(operator, &snapshot.me, &target, replicas);
                        return WakeOutcome::Scaled;
                    }
                    Err(Error::Conflict(said)) => {
                        error = Error::Conflict(said);
                        if read_target(operator, &snapshot.me).await.is_err() {
                            return WakeOutcome::Failed { retry: true };
                        }
                    }
                    Err(other) => {
                        report::not_woken(operator, &snapshot.me, &target, &other);
                        tracing::warn!(elastiservice = %name, error = %other, "a wake failed");
                        return WakeOutcome::Failed { retry: true };
                    }
                }
            }
        }
    }
    tracing::warn!(elastiservice = %name, %error, "a wake was overtaken again and again");
    WakeOutcome::Failed { retry: true }
}
