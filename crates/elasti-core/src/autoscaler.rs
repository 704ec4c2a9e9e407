//! What KEDA and an HPA need before and after a scale to zero: an HPA disables itself at zero, KEDA must be paused.

use crate::facts::predecessor;
use crate::observed::{Autoscaler, KedaBefore, KedaPause};

/// The autoscaler will not interfere while the target goes to zero.
#[must_use]
pub fn is_held(autoscaler: &Autoscaler) -> bool {
    match autoscaler {
        Autoscaler::None | Autoscaler::Hpa { .. } => true,
        Autoscaler::Missing => false,
        Autoscaler::Keda(pause) => pause.paused.as_deref() == Some("true"),
    }
}

/// The annotations that pause KEDA at its current replicas, if they are missing.
///
/// `paused-replicas` must not be written yet: KEDA would scale to it at once, before the pods are drained. A pause that is
/// `left` from a sleep of before is not kept as its owner's: it would be restored after every wake.
#[must_use]
pub fn hold(autoscaler: &Autoscaler, left: bool) -> Option<KedaPause> {
    let Autoscaler::Keda(pause) = autoscaler else {
        return None;
    };
    if is_held(autoscaler) && pause.before.is_some() {
        return None;
    }
    let before = pause.before.clone().unwrap_or_else(|| match left {
        true => KedaBefore::default(),
        false => KedaBefore {
            paused: pause.paused.clone(),
            paused_replicas: pause.paused_replicas.clone(),
        },
    });
    Some(KedaPause {
        paused: Some("true".into()),
        paused_replicas: None,
        before: Some(before),
    })
}

/// The annotations that pause KEDA at zero, once the target is scaled to zero, if they are missing.
#[must_use]
pub fn pin(autoscaler: &Autoscaler) -> Option<KedaPause> {
    let Autoscaler::Keda(pause) = autoscaler else {
        return None;
    };
    let pinned = pause.paused_replicas.as_deref() == Some("0");
    (pause.before.is_some() && !pinned).then(|| KedaPause {
        paused: Some("true".into()),
        paused_replicas: Some("0".into()),
        before: pause.before.clone(),
    })
}

/// The annotations that restore the owner's pause settings, if KEDA is paused by us.
#[must_use]
pub fn release(autoscaler: &Autoscaler) -> Option<KedaPause> {
    let Autoscaler::Keda(pause) = autoscaler else {
        return None;
    };
    let before = match &pause.before {
        Some(before) => before.clone(),
        None if predecessor::left_pause(pause) => KedaBefore::default(),
        None => return None,
    };
    Some(KedaPause {
        paused: Some(before.paused.unwrap_or_else(|| "false".into())),
        paused_replicas: before.paused_replicas,
        before: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keda(pause: KedaPause) -> Autoscaler {
        Autoscaler::Keda(pause)
    }

    #[test]
    fn keda_is_held_then_pinned_then_released() {
        let untouched = keda(KedaPause::default());
        assert!(!is_held(&untouched));
        let held = hold(&untouched, false).unwrap();
        assert_eq!(
            (held.paused.as_deref(), held.paused_replicas.as_deref()),
            (Some("true"), None)
        );
        let held = keda(held);
        assert!(is_held(&held) && hold(&held, false).is_none());
        let pinned = pin(&held).unwrap();
        assert_eq!(pinned.paused_replicas.as_deref(), Some("0"));
        let pinned = keda(pinned);
        assert!(pin(&pinned).is_none());
        let released = release(&pinned).unwrap();
        assert_eq!(
            (released.paused.as_deref(), released.paused_replicas),
            (Some("false"), None)
        );
        assert!(
            release(&keda(KedaPause {
                before: None,
                ..released_pause()
            }))
            .is_none()
        );
    }

    fn released_pause() -> KedaPause {
        KedaPause {
            paused: Some("false".into()),
            paused_replicas: None,
            before: None,
        }
    }

    #[test]
    fn a_pause_that_the_user_set_comes_back_after_the_wake() {
        let users = KedaPause {
            paused: Some("true".into()),
            paused_replicas: Some("3".into()),
            before: None,
        };
        let held = hold(&keda(users.clone()), false).unwrap();
        assert_eq!(
            held.paused_replicas, None,
            "KEDA would act on paused-replicas while we drain"
        );
        let released = release(&keda(pin(&keda(held)).unwrap())).unwrap();
        assert_eq!(released, users);
    }

    #[test]
    fn a_pause_that_kube_elasti_left_is_released() {
        let left = KedaPause {
            paused: Some("true".into()),
            paused_replicas: Some("0".into()),
            before: None,
        };
        assert_eq!(release(&keda(left)), Some(released_pause()));
    }

    #[test]
    fn an_hpa_needs_nothing() {
        let hpa = Autoscaler::Hpa { min_replicas: 2 };
        assert!(is_held(&hpa));
        assert_eq!(
            (hold(&hpa, false), pin(&hpa), release(&hpa)),
            (None, None, None)
        );
    }
}
