//! S3 and S1: the first request wakes a sleeping service, waits for the pod, and is answered; then traffic goes direct.

use crate::scenarios::script::sleeping;

#[test]
fn the_first_request_is_held_until_the_pod_is_ready_and_then_answered() {
    let scenario = sleeping(|_| {}).at("08:20:05").request().until("08:21");
    insta::assert_snapshot!(scenario.transcript());
}
