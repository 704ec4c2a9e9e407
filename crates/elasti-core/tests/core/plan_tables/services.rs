//! A second Service of the same pods: it goes to the resolvers and comes back with the first, each by its own slices.

use elasti_api::{ListenPort, Reason, RouteGeneration, ServicePorts, UnmanagedServices};
use elasti_core::observed::{
    OtherService, Owned, PortsGiven, Report, SliceRole, SliceShape, Standing,
};
use elasti_core::status::status;
use elasti_core::{Observed, Plan, Step};

use crate::plan_tables::facts::{
    LONG, ago, asleep, drained, draining, endpoint, finalize, idle, net, planned, planned_for,
    private, redirected, serving, slice, spec,
};

const ADMIN: &str = "admin";

fn ports() -> Vec<ListenPort> {
    vec![ListenPort {
        name: "http".into(),
        port: 80,
        listen_port: 20_001,
    }]
}

fn shape(of: SliceShape) -> Owned<Vec<SliceShape>> {
    Owned::Ours(vec![SliceShape {
        ports: ports(),
        ..of
    }])
}

/// The facts with a second Service that has stood as the first does for long.
fn with_second(mut o: Observed) -> Observed {
    let redirected = o.is_redirected();
    o.me.remembered.services = vec![ServicePorts {
        name: ADMIN.into(),
        ports: ports(),
    }];
    for resolver in &mut o.resolvers {
        if let Report::Seen { other_routes, .. } = &mut resolver.report {
            other_routes.insert(ADMIN.into(), RouteGeneration::from_ports(&ports()));
        }
    }
    o.others = vec![OtherService {
        name: ADMIN.into(),
        service: o.service.clone(),
        standing: Standing::Own,
        endpoints: o.endpoints.clone(),
        endpoints_version: o.endpoints_version.clone(),
        slice: shape(if redirected { slice() } else { net() }),
        private_service: Owned::Ours(private()),
        ports: PortsGiven::Given(ports()),
    }];
    let mut spans = o.stable_since.clone();
    spans.slice = o.others[0]
        .slice
        .ours()
        .map(|shape| (shape.clone(), ago(LONG)));
    o.stable_since.others.insert(ADMIN.into(), spans);
    o
}

/// The steps about the second Service.
fn about_second(plan: &Plan) -> Vec<&Step> {
    let steps = plan.steps.iter();
    steps
        .filter_map(|step| match step {
            Step::Other(name, step) if name == ADMIN => Some(&**step),
            _ => None,
        })
        .collect()
}

fn marks(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| matches!(s, Step::Mark { .. }))
}

fn zeroes(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| matches!(s, Step::ScaleToZero(_)))
}

#[test]
fn at_rest_it_has_a_net_and_a_private_service_of_its_own() {
    let mut o = with_second(serving());
    assert_eq!(planned(&o).steps, []);
    o.others[0].slice = Owned::Missing;
    o.others[0].private_service = Owned::Missing;
    let plan = planned(&o);
    assert!(
        matches!(
            about_second(&plan)[..],
            [Step::EnsureNet(net), Step::EnsurePrivateService(_)]
                if net.slices()[0].ports == ports() && net.slices()[0].role == SliceRole::Net
        ),
        "{:?}",
        plan.steps
    );
}

#[test]
fn no_pod_is_marked_before_it_is_redirected_settled_and_confirmed() {
    assert!(marks(&planned(&with_second(redirected()))));
    let mut o = with_second(redirected());
    o.others[0].slice = shape(net());
    let plan = planned(&o);
    assert!(matches!(about_second(&plan)[..], [Step::Redirect(_)]));
    assert!(!marks(&plan), "{:?}", plan.steps);
    assert_eq!(
        plan.why.sentence,
        "Service admin: The Service is being redirected to the resolvers."
    );
    let mut o = with_second(redirected());
    let spans = o.stable_since.others.get_mut(ADMIN).unwrap();
    spans.slice.as_mut().unwrap().1 = ago(1);
    assert!(!marks(&planned(&o)), "not settled");
    let mut o = with_second(redirected());
    let Report::Seen { other_routes, .. } = &mut o.resolvers[1].report else {
        panic!("it has reported");
    };
    other_routes.clear();
    let plan = planned(&o);
    assert!(!marks(&plan), "not confirmed");
    assert_eq!(plan.why.reason, Reason::RouteNotReady);
}

#[test]
fn nothing_is_stopped_while_its_own_slices_show_a_pod() {
    assert!(zeroes(&planned(&with_second(drained()))));
    let mut o = with_second(drained());
    o.others[0].endpoints = vec![endpoint(true)];
    let plan = planned(&o);
    assert!(!zeroes(&plan), "{:?}", plan.steps);
    let mut o = with_second(drained());
    let spans = o.stable_since.others.get_mut(ADMIN).unwrap();
    spans.no_rotation_since = Some(ago(1));
    assert!(!zeroes(&planned(&o)), "not settled");
    let mut o = with_second(draining());
    o.stable_since.others.clear();
    assert!(!zeroes(&planned(&o)), "only just found");
}

#[test]
fn it_is_restored_by_its_own_slices() {
    let mut o = with_second(asleep());
    o.target.as_mut().unwrap().replicas = 1;
    o.readings = serving().readings;
    o.pods = serving().pods;
    o.endpoints = vec![endpoint(true)];
    o.stable_since.no_terminating_since = Some(ago(LONG));
    let plan = planned(&o);
    let own = |step: &Step| matches!(step, Step::EnsureNet(_));
    assert!(plan.steps.iter().any(own), "{:?}", plan.steps);
    assert!(about_second(&plan).is_empty(), "{:?}", plan.steps);
    o.others[0].endpoints = vec![endpoint(true)];
    let spans = o.stable_since.others.get_mut(ADMIN).unwrap();
    spans.no_terminating_since = Some(ago(LONG));
    assert!(matches!(
        about_second(&planned(&o))[..],
        [Step::EnsureNet(_)]
    ));
}

#[test]
fn while_pods_of_other_owners_serve_it_it_keeps_the_net_only() {
    let mut o = with_second(redirected());
    o.others[0].slice = shape(net());
    o.others[0].standing = Standing::Shared;
    let plan = planned(&o);
    assert!(about_second(&plan).is_empty(), "{:?}", plan.steps);
    assert!(marks(&plan), "{:?}", plan.steps);
    let mut o = with_second(asleep());
    o.others[0].standing = Standing::Shared;
    let spans = o.stable_since.others.get_mut(ADMIN).unwrap();
    spans.no_terminating_since = Some(ago(LONG));
    let plan = planned(&o);
    assert!(matches!(about_second(&plan)[..], [Step::EnsureNet(_)]));
    let mut o = with_second(asleep());
    o.others[0].slice = shape(net());
    let plan = planned(&o);
    assert!(matches!(about_second(&plan)[..], [Step::Redirect(_)]));
}

#[test]
fn one_that_is_no_longer_ours_loses_its_slice_and_then_its_private_service() {
    let mut o = with_second(asleep());
    o.others[0].standing = Standing::Left;
    let plan = planned(&o);
    assert!(matches!(about_second(&plan)[..], [Step::RemoveSlice(_)]));
    let recorded =
        |o: &Observed, plan: &Plan| status(&spec(), o, plan, &Default::default()).services;
    assert_eq!(recorded(&o, &plan).len(), 1);
    o.others[0].slice = Owned::Missing;
    assert!(
        about_second(&planned(&o)).is_empty(),
        "nodes may still use it"
    );
    let spans = o.stable_since.others.get_mut(ADMIN).unwrap();
    spans.slice_gone_since = Some(ago(LONG));
    let plan = planned(&o);
    assert!(matches!(
        about_second(&plan)[..],
        [Step::DeletePrivateService(_)]
    ));
    o.others[0].private_service = Owned::Missing;
    let plan = planned(&o);
    assert!(about_second(&plan).is_empty());
    assert!(recorded(&o, &plan).is_empty());
}

#[test]
fn a_deletion_removes_all_slices_before_the_finalizer() {
    let mut o = with_second(finalize());
    let finalized = |plan: &Plan| {
        let last = |s: &Step| matches!(s, Step::RemoveFinalizer(_));
        plan.steps.iter().any(last)
    };
    let plan = planned(&o);
    assert!(!finalized(&plan), "{:?}", plan.steps);
    o.others[0].slice = Owned::Missing;
    o.slice = Owned::Missing;
    o.stable_since.slice_gone_since = Some(ago(LONG));
    let spans = o.stable_since.others.get_mut(ADMIN).unwrap();
    spans.slice_gone_since = None;
    assert!(!finalized(&planned(&o)), "its slice has only just gone");
    let spans = o.stable_since.others.get_mut(ADMIN).unwrap();
    spans.slice_gone_since = Some(ago(LONG));
    let plan = planned(&o);
    assert!(finalized(&plan), "{:?}", plan.steps);
    assert!(matches!(
        about_second(&plan)[..],
        [Step::DeletePrivateService(_)]
    ));
}

#[test]
fn a_foreign_object_with_our_name_is_not_touched_and_keeps_the_target_awake() {
    let mut o = with_second(idle());
    o.others[0].slice = Owned::Foreign;
    let plan = planned(&o);
    assert!(about_second(&plan).is_empty(), "{:?}", plan.steps);
    assert_eq!(plan.why.reason, Reason::Conflict);
    assert!(plan.why.sentence.starts_with("Service admin: "));
}

#[test]
fn what_cannot_be_managed_is_named_and_blocks_sleep_where_the_spec_says_so() {
    let mut o = idle();
    o.unmanaged.services = vec!["web-headless".into(), "web-peers".into()];
    let plan = planned(&o);
    assert_eq!(plan.why.reason, Reason::Redirecting, "it sleeps: {plan:?}");
    let written = status(&spec(), &o, &plan, &Default::default());
    let named = |c: &&elasti_api::Condition| c.type_ == "UnmanagedServices";
    let condition = written.conditions.iter().find(named).unwrap();
    assert_eq!(condition.status, "True");
    assert!(condition.message.contains("web-headless, web-peers"));
    let mut block = spec();
    block.unmanaged_services = Some(UnmanagedServices::Block);
    let plan = planned_for(&block, &o);
    assert_eq!(plan.why.reason, Reason::Unsupported);
    assert!(plan.why.sentence.contains("so it does not sleep"));
    o.unmanaged.services.clear();
    assert_eq!(planned_for(&block, &o).why.reason, Reason::Redirecting);
    let written = status(&spec(), &o, &planned(&o), &Default::default());
    assert!(written.conditions.iter().find(named).is_none());
    o.unmanaged.too_many = true;
    assert_eq!(planned(&o).why.reason, Reason::Unsupported);
}

#[test]
fn slices_come_before_what_requests_can_do_without() {
    let mut o = asleep();
    o.private_service = Owned::Missing;
    o.me.finalizer = false;
    o.wake_requested_at = Some(o.now);
    o.slice = Owned::Missing;
    let steps = planned(&o).steps;
    let names: Vec<&str> = steps.iter().map(Step::name).collect();
    let expected = ["Wake", "AddFinalizer", "Redirect", "EnsurePrivateService"];
    assert_eq!(names, expected);
}

#[test]
fn without_the_private_service_by_which_resolvers_find_the_pods_nothing_goes_to_sleep() {
    let missing: [fn(&mut Observed); 2] = [
        |o| o.private_service = Owned::Missing,
        |o| o.others[0].private_service = Owned::Missing,
    ];
    for change in missing {
        for facts in [idle(), draining(), drained()] {
            let mut o = with_second(facts);
            change(&mut o);
            let plan = planned(&o);
            assert_eq!(plan.why.reason, Reason::RouteNotReady, "{plan:?}");
            let names: Vec<&str> = plan.steps.iter().map(Step::name).collect();
            for down in ["HoldAutoscaler", "Mark", "Shrink", "ScaleToZero"] {
                assert!(!names.contains(&down), "{names:?}");
            }
            assert_eq!(names.last(), Some(&"EnsurePrivateService"));
        }
    }
}
