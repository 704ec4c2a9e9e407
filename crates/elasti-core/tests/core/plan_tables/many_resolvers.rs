//! More resolvers than a Service uses: its slice names some, and every ready one is asked.

use std::collections::BTreeSet;
use std::net::IpAddr;

use elasti_core::observed::{Family, Owned, Report};
use elasti_core::{Observed, Step};

use crate::plan_tables::facts::{address, drained, idle, now, planned, redirected, resolver};

const RESOLVERS: u8 = 6;

fn with_six(mut o: Observed) -> Observed {
    o.resolvers = (1..=RESOLVERS).map(resolver).collect();
    o
}

/// The slice that the plan wants, as if it had been there all along.
fn in_place(mut o: Observed) -> Observed {
    let wanted = planned(&o).steps.into_iter().find_map(|step| match step {
        Step::Redirect(routed) => Some(routed.slices().to_vec()),
        _ => None,
    });
    if let Some(slices) = wanted {
        let since = o
            .stable_since
            .slice
            .as_ref()
            .map_or(now(), |(_, since)| *since);
        o.stable_since.slice = Some((slices.clone(), since));
        o.slice = Owned::Ours(slices);
    }
    o
}

fn addresses(o: &Observed) -> BTreeSet<IpAddr> {
    let slices = o.slice.ours().into_iter().flatten();
    slices
        .flat_map(|slice| slice.endpoints.keys().copied())
        .collect()
}

/// The first resolver that is not in the slice.
fn outsider(o: &mut Observed) -> &mut elasti_core::observed::Resolver {
    let inside = addresses(o);
    let mut all = o.resolvers.iter_mut();
    all.find(|r| !inside.contains(&r.addresses[0])).unwrap()
}

fn takes_pods_out(o: &Observed) -> bool {
    let steps = planned(o).steps;
    steps.iter().any(|step| matches!(step, Step::Mark { .. }))
}

fn scales_to_zero(o: &Observed) -> bool {
    let steps = planned(o).steps;
    steps
        .iter()
        .any(|step| matches!(step, Step::ScaleToZero(_)))
}

#[test]
fn the_slice_names_three_of_six_and_stays_when_another_one_ends() {
    let mut o = in_place(with_six(idle()));
    let chosen = addresses(&o);
    assert_eq!(chosen.len(), 3, "{chosen:?}");
    let gone = outsider(&mut o).name.clone();
    o.resolvers.retain(|r| r.name != gone);
    assert_eq!(addresses(&in_place(o.clone())), chosen);
    let first = *chosen.iter().next().unwrap();
    o.resolvers.retain(|r| r.addresses[0] != first);
    let replaced = addresses(&in_place(o));
    assert_eq!(replaced.len(), 3);
    assert_eq!(
        replaced.intersection(&chosen).count(),
        2,
        "one takes its place"
    );
}

#[test]
fn a_service_of_both_families_has_resolvers_in_both() {
    let mut o = with_six(idle());
    o.service.as_mut().unwrap().families = [Family::V4, Family::V6].into();
    let v6: IpAddr = "fd00::9".parse().unwrap();
    let mut only_v6 = resolver(9);
    only_v6.addresses = vec![v6];
    o.resolvers.push(only_v6);
    let chosen = addresses(&in_place(o));
    assert_eq!(
        chosen.len(),
        4,
        "three of one family, and the only one of the other"
    );
    assert!(chosen.contains(&v6));
}

#[test]
fn a_local_policy_keeps_all_of_them() {
    let mut o = with_six(idle());
    o.service.as_mut().unwrap().external_local = true;
    let all: BTreeSet<IpAddr> = (1..=RESOLVERS).map(address).collect();
    assert_eq!(addresses(&in_place(o)), all);
}

#[test]
fn pods_leave_rotation_only_when_the_resolvers_outside_the_slice_listen_too() {
    let whole = in_place(with_six(redirected()));
    assert!(takes_pods_out(&whole));
    let mut o = whole.clone();
    outsider(&mut o).report = Report::Unreachable;
    assert!(!takes_pods_out(&o));
    let mut o = whole;
    if let Report::Seen { route, .. } = &mut outsider(&mut o).report {
        *route = None;
    }
    assert!(!takes_pods_out(&o));
}

#[test]
fn zero_waits_for_what_a_resolver_outside_the_slice_still_carries() {
    let whole = in_place(with_six(drained()));
    assert!(scales_to_zero(&whole));
    let mut o = whole;
    if let Report::Seen { open, .. } = &mut outsider(&mut o).report {
        *open = 1;
    }
    assert!(!scales_to_zero(&o));
}
