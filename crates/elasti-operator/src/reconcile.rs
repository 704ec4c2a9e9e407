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
use crate::fault::Fault;
use crate::name::Name;
use crate::observe::{self, Look, Scene};
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
) -> Result<Option<Timestamp>, Fault> {
    let started = Instant::now();
    let Some((scene, plan)) = decide(operator, name).await? else {
        return Ok(None);
    };
    operator.remember(name, scene.observed.sightings.clone().after(&plan.steps)); // pure
    let applied = apply::apply(operator, &scene, &plan).await; // talks to the cluster
    let reported = report::report(operator, &scene, &plan, &applied).await; // talks to the cluster
    let fault = applied.failed.map(|(_, fault)| fault).or(reported.err());
    let word = fault.as_ref().map(Fault::as_str);
    operator.metrics.looked(name, started.elapsed(), word);
    match fault {
        Some(fault) => Err(fault),
        None => Ok([plan.look_again, scene.look_again]
            .into_iter()
            .flatten()
            .min()),
    }
}

/// Observe and plan; where the plan asks for it, ask the resolvers or read everything anew, and plan again.
async fn decide(operator: &Operator, name: &Name) -> Result<Option<(Scene, Plan)>, Fault> {
    let Some(mut scene) = observe(operator, name).await? else {
        return Ok(None);
    };
    let mut plan = scene.plan();
    if plan.ask_resolvers {
        ask(operator, &scene).await;
        let Some(next) = observe(operator, name).await? else {
            return Ok(None);
        };
        scene = next;
        plan = scene.plan();
    }
    if plan.needs_fresh_facts() {
        let fresh = join3(
            refresh(operator, &scene.me),
            read_wishes(operator, &scene.me),
            ask_everything(operator, &scene),
        );
        let (facts, wishes, ()) = fresh.await;
        facts.and(wishes)?;
        let Some(next) = observe(operator, name).await? else {
            return Ok(None);
        };
        scene = next;
        plan = scene.plan();
    }
    Ok(Some((scene, plan)))
}

/// The facts as they are known; what was never read is read first.
async fn observe(operator: &Operator, name: &Name) -> Result<Option<Scene>, Fault> {
    // A watch may bring something unread at any moment; more than twice in a row is not chance.
    for _ in 0..3 {
        match observe::look(operator, name, &operator.memory(name)) {
            Look::Seen(scene) => {
                operator.attend(&scene.me).await;
                return Ok(Some(*scene));
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
    Err(Fault::Conflict(
        "it changes faster than it can be read".into(),
    ))
}

/// Asks every resolver that may get traffic what it has seen of this service.
async fn ask(operator: &Operator, scene: &Scene) {
    let ready = scene.observed.ready_resolvers();
    let resolvers: Vec<ResolverAddress> = ready
        .filter_map(|resolver| {
            let ip = *resolver.addresses.first()?;
            let name = resolver.name.clone();
            Some(ResolverAddress { name, ip })
        })
        .collect();
    let service = scene.service();
    let said = operator
        .reports
        .ask(&resolvers, &service.namespace, &service.name)
        .await;
    let said: std::collections::BTreeMap<String, Report> = said;
    operator.heard(&scene.me.name, said);
}

/// Before a step that cannot be taken back: the resolvers and the triggers, too.
async fn ask_everything(operator: &Operator, scene: &Scene) {
    let triggers = operator.readings.read_now(&scene.me.name);
    join(ask(operator, scene), triggers).await;
}

/// Reads what came before this service was managed, also what stands in our way under our own names.
async fn first_read(operator: &Operator, me: &Declared) -> Result<(), Fault> {
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
async fn refresh(operator: &Operator, me: &Declared) -> Result<(), Fault> {
    let service = me.service();
    let before = operator.store.begin_reading(&service);
    let read = join(read_target(operator, me), read_parts(operator, &service)).await;
    let (target, parts) = read;
    let (parts, fault) = match parts {
        Ok(parts) => (Some(parts), None),
        Err(fault) => (None, Some(fault)),
    };
    let read = operator.store.end_reading(&service, &before, parts);
    target?;
    match fault {
        Some(fault) => Err(fault),
        None if read => Ok(()),
        None => Err(Fault::Conflict(
            "a list is behind what the watch has told".into(),
        )),
    }
}

async fn read_target(operator: &Operator, me: &Declared) -> Result<(), Fault> {
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
async fn read_wishes(operator: &Operator, me: &Declared) -> Result<(), Fault> {
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
fn unseen(known: bool, said: String) -> Result<(), Fault> {
    match known {
        true => Err(Fault::Conflict(said)),
        false => Ok(()),
    }
}

/// Reads one object past all caches, into the store.
async fn read_one<K: Kept>(operator: &Operator, path: String, name: &Name) -> Result<(), Fault> {
    let request = Request::new(path)
        .get(&name.name, &GetParams::default())
        .map_err(kube::Error::BuildRequest)?;
    let change = match targets::ask(&operator.client, request).await {
        Ok(object) => Change::Set(K::read(object).map_err(kube::Error::SerdeError)?),
        Err(Fault::Missing(said)) => {
            let known = K::names(&operator.store.known()).contains(name);
            return unseen(known, said);
        }
        Err(fault) => return Err(fault),
    };
    operator.look_at(&operator.store.take_in(None, change));
    Ok(())
}

/// All pods that the Service selects, and all its slices, ours among them.
async fn read_parts(operator: &Operator, service: &Name) -> Result<Read, Fault> {
    let view = operator.store.known().service(service).cloned();
    let selector = view
        .map(|view| view.service.selector.clone())
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
    let Some(name) = operator.store.known().steward(service) else {
        return match operator.is_ready() {
            true => WakeOutcome::NotManaged,
            false => WakeOutcome::Failed { retry: true },
        };
    };
    let mut fault = Fault::Conflict("someone else writes the target all the time".into());
    for attempt in 0..WAKE_ATTEMPTS {
        let scene = match observe::look(operator, &name, &operator.memory(&name)) {
            Look::Seen(scene) => scene,
            Look::Unread(me) => match first_read(operator, &me).await {
                Ok(()) => continue,
                Err(_) => return WakeOutcome::Failed { retry: true },
            },
            Look::Gone | Look::TooEarly => return WakeOutcome::Failed { retry: true },
        };
        operator.wake_asked(&name);
        let decision = elasti_core::wake(scene.spec(), &scene.observed);
        let target = report::Target {
            name: &scene.target_name,
            view: scene.target.as_ref(),
        };
        match decision {
            WakeDecision::Refused(why) => return WakeOutcome::Refused(why),
            // A cache may be behind a sleep that has just begun: awake is only what was read now.
            WakeDecision::AlreadyAwake if attempt == 0 => {
                if read_target(operator, &scene.me).await.is_err() {
                    return WakeOutcome::Failed { retry: true };
                }
            }
            WakeDecision::AlreadyAwake => return WakeOutcome::AlreadyAwake,
            WakeDecision::Scale(replicas) => {
                let Some(view) = &scene.target else {
                    return WakeOutcome::Failed { retry: true };
                };
                match apply::wake(operator, &scene.target_name, view, replicas).await {
                    Ok(()) => {
                        report::woken(operator, &scene.me, &target, replicas);
                        return WakeOutcome::Scaled;
                    }
                    Err(Fault::Conflict(said)) => {
                        fault = Fault::Conflict(said);
                        if read_target(operator, &scene.me).await.is_err() {
                            return WakeOutcome::Failed { retry: true };
                        }
                    }
                    Err(other) => {
                        report::not_woken(operator, &scene.me, &target, &other);
                        tracing::warn!(elastiservice = %name, fault = %other, "a wake failed");
                        return WakeOutcome::Failed { retry: true };
                    }
                }
            }
        }
    }
    tracing::warn!(elastiservice = %name, %fault, "a wake was overtaken again and again");
    WakeOutcome::Failed { retry: true }
}
