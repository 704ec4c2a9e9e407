//! The rights of the operator's and the resolver's accounts, against the rules that the chart grants.
//! Never asks with the user's own identity: the API server is asked what the accounts may do.

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use serde::Deserialize;

use super::installation::{Installation, account};
use super::line::Line;

/// The chart's own rules, so that there is one list.
const RULES: &str = include_str!("../../../../deploy/helm/elasti/templates/_rules.tpl");
const CHECK: &str = "rights";
/// Questions at a time.
const AT_ONCE: usize = 8;
/// More would fill the screen; the role shows the rest.
const SHOWN: usize = 6;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
}

/// One right.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Right {
    group: String,
    resource: String,
    verb: String,
    /// `None` for the whole cluster.
    namespace: Option<String>,
}

impl Right {
    /// What it is about, without the verb.
    fn object(&self) -> String {
        let Self {
            group,
            resource,
            namespace,
            ..
        } = self;
        let group = match group.as_str() {
            "" => String::new(),
            group => format!(".{group}"),
        };
        let place = namespace.as_ref().map(|name| format!(" in {name}"));
        format!("{resource}{group}{}", place.unwrap_or_default())
    }
}

/// `get, list pods; patch services`.
fn summary(permissions: &[Right]) -> Vec<String> {
    let mut by_object: Vec<(String, Vec<&str>)> = Vec::new();
    for right in permissions {
        let object = right.object();
        match by_object.iter_mut().find(|(known, _)| *known == object) {
            Some((_, verbs)) => verbs.push(&right.verb),
            None => by_object.push((object, vec![&right.verb])),
        }
    }
    let text = |(object, verbs): (String, Vec<&str>)| format!("{} {object}", verbs.join(", "));
    by_object.into_iter().map(text).collect()
}

pub(super) async fn check(client: &Client, installation: &Installation, lines: &mut Vec<Line>) {
    let parts = [
        ("operator", "elasti.operatorRules", &installation.operator),
        ("resolver", "elasti.resolverRules", &installation.resolver),
    ];
    for (word, rules, deployment) in parts {
        let Some(deployment) = deployment else {
            continue;
        };
        let Some(permissions) = needed(rules, &installation.watched()) else {
            lines.push(Line::warn(
                CHECK,
                "not checked: the list of rights cannot be read",
                "report this as a defect",
            ));
            continue;
        };
        let line = ask(client, word, deployment, permissions).await;
        // Whoever may not ask once may not ask twice.
        let repeated = lines.last().is_some_and(|last| *last == line);
        if !repeated {
            lines.push(line);
        }
    }
}

/// Every right of a part, where it is needed.
fn needed(define: &str, namespaces: &[String]) -> Option<Vec<Right>> {
    let places: Vec<Option<String>> = match namespaces {
        [] => vec![None],
        names => names.iter().cloned().map(Some).collect(),
    };
    let mut permissions = Vec::new();
    for place in &places {
        permissions.extend(expand(&rules(define)?, place.as_ref()));
    }
    // With rights in namespaces only, tokens are checked by the API server's published keys instead.
    if namespaces.is_empty() {
        permissions.extend(expand(&rules("elasti.reviewRules")?, None));
    }
    Some(permissions)
}

fn expand(rules: &[Rule], namespace: Option<&String>) -> Vec<Right> {
    let mut permissions = Vec::new();
    for rule in rules {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                for verb in &rule.verbs {
                    permissions.push(Right {
                        group: group.clone(),
                        resource: resource.clone(),
                        verb: verb.clone(),
                        namespace: namespace.cloned(),
                    });
                }
            }
        }
    }
    permissions
}

/// The rules of one block of the chart's template: what stands before its first condition.
fn rules(define: &str) -> Option<Vec<Rule>> {
    let (_, after) = RULES.split_once(&format!("define \"{define}\" -}}}}"))?;
    let (block, _) = after.split_once("\n{{-")?;
    serde_saphyr::from_str(block).ok()
}

async fn ask(
    client: &Client,
    word: &str,
    deployment: &Deployment,
    permissions: Vec<Right>,
) -> Line {
    let namespace = deployment.namespace().unwrap_or_default();
    let account = account(deployment);
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let groups = vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    let asked = futures::stream::iter(permissions)
        .map(|right| allowed(client, user.clone(), groups.clone(), right))
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let mut missing = Vec::new();
    for one in asked {
        match one {
            Ok((_, true)) => {}
            Ok((right, false)) => missing.push(right),
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                return Line::warn(
                    CHECK,
                    "not checked: you may not create subjectaccessreviews",
                    "let someone with that right run elasti check",
                );
            }
            Err(error) => return Line::unseen(CHECK, "access reviews", &error),
        }
    }
    if missing.is_empty() {
        return Line::ok(CHECK, format!("the {word} has every right that it needs"));
    }
    let missing = summary(&missing);
    let more = missing.len().saturating_sub(SHOWN);
    let mut shown = missing
        .into_iter()
        .take(SHOWN)
        .collect::<Vec<_>>()
        .join("; ");
    if more > 0 {
        shown += &format!("; and {more} more");
    }
    Line::fail(
        CHECK,
        format!("the {word} ({namespace}/{account}) may not: {shown}"),
        "run helm upgrade, which grants them again; if a policy took them away, ask whoever owns it",
    )
}

async fn allowed(
    client: &Client,
    user: String,
    groups: Vec<String>,
    right: Right,
) -> kube::Result<(Right, bool)> {
    let (resource, subresource) = match right.resource.split_once('/') {
        Some((resource, sub)) => (resource.to_owned(), Some(sub.to_owned())),
        None => (right.resource.clone(), None),
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user),
            groups: Some(groups),
            resource_attributes: Some(ResourceAttributes {
                group: Some(right.group.clone()),
                resource: Some(resource),
                subresource,
                verb: Some(right.verb.clone()),
                namespace: right.namespace.clone(),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok((right, answer.status.is_some_and(|status| status.allowed)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{needed, summary};

    #[test]
    fn the_rules_of_the_chart_are_read() {
        let operator = summary(&needed("elasti.operatorRules", &[]).unwrap());
        let has = |text: &str| operator.iter().any(|one| one == text);
        assert!(has("patch pods/status"), "{operator:?}");
        assert!(has("get, update deployments/scale.apps"), "{operator:?}");
        assert!(
            has("create tokenreviews.authentication.k8s.io"),
            "{operator:?}"
        );
        let resolver = summary(&needed("elasti.resolverRules", &["a".to_owned()]).unwrap());
        assert!(
            resolver.contains(&"list, watch endpointslices.discovery.k8s.io in a".to_owned()),
            "{resolver:?}"
        );
        assert!(
            !resolver
                .iter()
                .any(|one| one.contains("patch") || one.contains("update")),
            "{resolver:?}"
        );
    }
}
