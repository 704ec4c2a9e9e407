//! What keeps a pod from starting is the reason that users read, and the wake continues when it is gone.

use crate::scenarios::script::sleeping;

#[test]
fn an_image_that_cannot_be_pulled_is_the_reason_of_a_failed_wake() {
    let scenario = sleeping(|world| world.pull_fails = true)
        .at("08:05")
        .request()
        .at("08:10")
        .happens("the image is pushed", |world| {
            world.pull_fails = false;
            world
                .pods
                .iter_mut()
                .for_each(|p| p.starts_at = Some(world.now));
        })
        .until("08:11");
    insta::assert_snapshot!(scenario.transcript());
}

#[test]
fn a_wake_whose_client_leaves_and_whose_pod_never_starts_sleeps_again() {
    let scenario = sleeping(|world| world.pull_fails = true)
        .at("08:05")
        .request()
        .at("08:06")
        .client_leaves()
        .until("08:40");
    insta::assert_snapshot!(scenario.transcript());
}
