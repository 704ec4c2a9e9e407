//! Why one service is as it is: its view, its pods, and for each problem the cause with commands.
//! It runs the operator's own readers, rules and plan on live objects, so that it cannot contradict the operator.

mod causes;
mod events;
mod facts;
mod pods;

use elasti_api::{ElastiService, ElastiServiceStatus, Reason};
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core_v1;
use serde::Serialize;
use serde_json::Value;

use crate::view::{self, Blocker, Facts, Lookup, View, Workload};
use elasti_core::plan::plan;
use elasti_core::why::Why;

pub use facts::observed;
pub use pods::PodView;

/// The live objects around one service.
#[derive(Clone, Debug)]
pub struct LiveObjects {
    /// The ElastiService.
    pub me: ElastiService,
    /// The other ElastiServices of its namespace.
    pub others: Vec<ElastiService>,
    /// Its target.
    pub target: Lookup<Value>,
    /// Its Service.
    pub service: Lookup<core_v1::Service>,
    /// The pods that the Service selects.
    pub pods: Vec<core_v1::Pod>,
    /// Events of the target and of its pods.
    pub events: Vec<core_v1::Event>,
    /// The resolvers' pods.
    pub resolvers: Lookup<Vec<core_v1::Pod>>,
    /// The nodes' names, if the Service sends within a node only.
    pub nodes: Lookup<Vec<String>>,
    /// The autoscaler that the spec names.
    pub autoscaler: Lookup<Value>,
    /// When they were read.
    pub now: Timestamp,
}

/// Why one service is as it is. Fields are added, never renamed or removed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What is shown of every service.
    #[serde(flatten)]
    pub view: View,
    /// The pods that the Service selects.
    pub pods: Vec<PodView>,
    /// Resolvers that may get traffic; absent without permission to list them.
    pub resolvers_ready: Option<usize>,
    /// The problems, worst first; empty if there is none.
    pub causes: Vec<Cause>,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// In one word.
    pub reason: String,
    /// In one sentence.
    pub sentence: String,
    /// What Kubernetes itself says about it.
    #[serde(rename = "said")]
    pub message: Option<String>,
    /// Commands that show more.
    #[serde(rename = "look")]
    pub inspect: Vec<String>,
    /// What fixes it: a command, or a sentence.
    pub fix: Vec<String>,
}

/// Why it is so.
#[must_use]
pub fn explain(live: &LiveObjects) -> Explanation {
    let target = match &live.target {
        Lookup::Unknown => Lookup::Unknown,
        Lookup::Missing => Lookup::Missing,
        Lookup::Found(object) => Lookup::Found(Workload::from_object(object)),
    };
    let facts = Facts {
        me: &live.me,
        target: &target,
        held: None,
        now: live.now,
    };
    let nothing = ElastiServiceStatus::default();
    let status = live.me.status.as_ref().unwrap_or(&nothing);
    let observed = observed(live);
    let mut view = view::view(facts);
    if view.replicas != Some(0) {
        view.blockers = view::blockers(&facts, status, &observed);
        view.sleeps_at = match view.phase {
            Some(_) => view::sleeps_at(&view.blockers, live.now),
            None => None,
        };
    }
    let resolvers_ready = match live.resolvers {
        Lookup::Found(_) => Some(observed.ready_resolvers().count()),
        Lookup::Unknown | Lookup::Missing => None,
    };
    let why = plan(&live.me.spec, &observed).why;
    let causes = causes::causes(live, &view, &observed, &why);
    if view.replicas != Some(0) {
        add_preconditions(&mut view, &causes);
    }
    let mut planned = causes
        .iter()
        .filter(|one| one.reason == why.reason.as_str());
    if let Some(cause) = planned.next().filter(|_| is_newer(&why, &view)) {
        view.reason.clone_from(&cause.reason);
        view.sentence.clone_from(&cause.sentence);
    }
    view.trouble |= !causes.is_empty();
    let pods = live.pods.iter();
    let fail_fast = elasti_core::facts::fail_fast(&live.me.spec);
    Explanation {
        pods: pods
            .map(|pod| PodView::from_object(pod, fail_fast, live.now))
            .collect(),
        view,
        resolvers_ready,
        causes,
    }
}

/// Live objects tell more than the status that was written before them. A problem that is not in the operator's plan
/// stands beside its reason, not in place of it; and of requests at the resolvers only the operator knows.
fn is_newer(why: &Why, view: &View) -> bool {
    let known_to_operator = matches!(
        Reason::from_word(&view.reason),
        Some(Reason::Traffic | Reason::WakeRequested | Reason::WokenByRequest)
    );
    let comes_first =
        why.reason.is_obstacle() || why.reason.is_delay() || is_precondition(why.reason);
    // Of several preconditions the plan reports the one that the operator will report.
    let replaced =
        is_precondition(why.reason) && Reason::from_word(&view.reason).is_some_and(is_precondition);
    replaced || (!view.trouble && (comes_first || !known_to_operator))
}

/// What keeps the operator from touching the target also keeps it from sleeping, whether the status says so yet or not.
fn add_preconditions(view: &mut View, causes: &[Cause]) {
    let holds = |one: &&Cause| Reason::from_word(&one.reason).is_some_and(is_precondition);
    for cause in causes.iter().filter(holds) {
        if !view.blockers.iter().any(|one| one.reason == cause.reason) {
            let blocker = Blocker {
                reason: cause.reason.clone(),
                sentence: cause.sentence.clone(),
                until: None,
            };
            view.blockers.insert(0, blocker);
            view.sleeps_at = None;
        }
    }
}

fn is_precondition(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Conflict | Reason::Unsupported | Reason::TargetNotFound | Reason::ServiceNotFound
    )
}
