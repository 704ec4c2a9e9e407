//! Which of several ElastiServices for the same Service or target takes precedence.

use elasti_api::ElastiService;
use jiff::Timestamp;

use super::elasti_service::created;
use crate::observed::{Claim, Rival};

/// One that claims a Service or a target: by age, then by name, the first takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimant<'a> {
    /// When it was created.
    pub created: Timestamp,
    /// Its name.
    pub name: &'a str,
}

impl<'a> Claimant<'a> {
    fn from_object(object: &'a ElastiService) -> Self {
        Self {
            created: created(&object.metadata),
            name: object.metadata.name.as_deref().unwrap_or_default(),
        }
    }
}

/// The rival of `me`, given the oldest that claims its Service and the oldest that claims its target.
#[must_use]
pub fn rival(
    me: Claimant<'_>,
    of_service: Option<Claimant<'_>>,
    of_target: Option<Claimant<'_>>,
) -> Option<Rival> {
    let service = of_service.map(|one| (one, Claim::Service));
    let target = of_target.map(|one| (one, Claim::Target));
    let claims = [service, target].into_iter().flatten();
    { claims }
        .find(|(one, _)| *one < me)
        .map(|(one, claim)| Rival {
            name: one.name.to_owned(),
            claim,
        })
}

/// The rival of `me` among the other ElastiServices of its namespace.
#[must_use]
pub fn rival_among(me: &ElastiService, others: &[ElastiService]) -> Option<Rival> {
    let oldest = |claims: &dyn Fn(&ElastiService) -> bool| {
        let all = others.iter().filter(|one| claims(one));
        all.map(Claimant::from_object).min()
    };
    let target = &me.spec.scale_target_ref;
    rival(
        Claimant::from_object(me),
        oldest(&|one| one.spec.service == me.spec.service),
        oldest(&|one| one.spec.scale_target_ref.is_same_workload(target)),
    )
}
