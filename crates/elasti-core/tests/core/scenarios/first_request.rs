//! Shows S3 and S1: the first request wakes a sleeping service, waits for the pod, and is answered; then traffic goes direct.
//! It never shows a wait that the transcript does not time.

use crate::scenarios::script::sleeping_day;

#[test]
fn the_first_request_is_held_until_the_pod_is_ready_and_then_answered() {
    let day = sleeping_day(|_| {}).at("08:20:05").request().until("08:21");
    insta::assert_snapshot!(day.tell());
}
