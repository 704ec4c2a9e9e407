//! Times are absolute: what an operator has read or is about to write ages like the store itself.

use crate::model::actions::{Action, after};
use crate::model::config::{COOLDOWN, Config, NO_BUDGET};
use crate::model::life;
use crate::model::passing::time_passes;
use crate::model::settle::{Settling, fair_step, step_of};
use crate::model::world::{Age, Budget, Effect, Status, Svc, TriggerState, World};

/// Every time that the planner reads of a service.
fn times(svc: &Svc) -> (Status, [Option<Age>; 6]) {
    let ages = [
        Some(svc.created),
        Some(svc.written),
        svc.served,
        svc.wake_request,
        svc.sleep_request,
        svc.deleting,
    ];
    (svc.status.clone(), ages)
}

#[test]
fn a_cache_that_stopped_following_ages_like_the_store() {
    let config = Config::new("times");
    let mut passed = 0;
    for mut world in life::starts(&config) {
        let svc = &mut world.svcs[0];
        (svc.wake_request, svc.sleep_request, svc.deleting) = (Some(0), Some(1), Some(0));
        world.ops[0].frozen = Some(world.svcs.clone());
        for _ in 0..=COOLDOWN {
            passed += usize::from(time_passes(&config, &mut world));
            let cached = world.ops[0].frozen.as_ref().unwrap();
            assert_eq!(times(&cached[0]), times(&world.svcs[0]));
        }
    }
    assert!(passed > 0, "in no state could time pass");
}

#[test]
fn a_status_that_is_about_to_be_written_ages_like_one_that_was() {
    let config = Config::new("times");
    let mut passed = 0;
    for world in life::starts(&config) {
        let Some(pending) = &world.ops[0].pending else {
            continue;
        };
        let Some((Effect::Status(stated), _)) = pending.effects.first() else {
            continue;
        };
        let mut written = world.clone();
        written.svcs[0].status = stated.clone();
        if !time_passes(&config, &mut written) {
            continue;
        }
        passed += 1;
        let late = after(&config, &world, Action::TimePasses).unwrap();
        let late = after(&config, &late, Action::Apply(0)).unwrap();
        assert_eq!(late.svcs[0].status, written.svcs[0].status);
    }
    assert!(passed > 0, "in no state could time pass");
}

/// The world after these actions, each of which must be possible.
fn after_all(config: &Config, world: World, actions: &[Action]) -> World {
    actions.iter().fold(world, |world, action| {
        after(config, &world, *action).unwrap_or_else(|| panic!("{action:?} is not possible"))
    })
}

#[test]
fn a_zero_answers_the_request_before_it_also_by_a_cache_that_stopped_following() {
    let config = Config {
        reading: TriggerState::Unknown,
        budget: Budget {
            faults: 1,
            outside: 1,
            user_requests: 1,
            ..NO_BUDGET
        },
        ..Config::new("times")
    };
    let mut world = config.start();
    while let Some((_, next)) = fair_step(&config, &world) {
        world = next;
    }
    let requested = [
        Action::RequestWake(0),
        Action::Reconcile(0, 0),
        Action::OutsideScale(0, 0),
        Action::Freeze(0),
    ];
    let mut world = after_all(&config, world, &requested);
    for _ in 0..COOLDOWN - 1 {
        let outside_elasti =
            |action: &Action| !matches!(action, Action::Thaw(_) | Action::Reconcile(..));
        while let Some((action, next)) = step_of(&config, &world, outside_elasti) {
            world = next;
            if action == Action::TimePasses {
                break;
            }
        }
    }
    let world = after_all(&config, world, &[Action::Reconcile(0, 0)]);
    assert_eq!(
        Settling::default().steps_to_rest(&config, &world).err(),
        None
    );
}
