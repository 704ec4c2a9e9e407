//! The permissions of the operator's and the resolver's service accounts, against the rules of the chart.

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
const CHECK: &str = "permissions";
/// Concurrent reviews.
const CONCURRENCY: usize = 8;
/// More would fill the screen; the role shows the rest.
const MAX_SHOWN: usize = 6;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
}

/// One permission.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Permission {
    group: String,
    resource: String,
    verb: String,
    /// `None` for the whole cluster.
    namespace: Option<String>,
}

impl Permission {
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
fn summary(permissions: &[Permission]) -> Vec<String> {
    let mut by_object: Vec<(String, Vec<&str>)> = Vec::new();
    for permission in permissions {
        let object = permission.object();
        match by_object.iter_mut().find(|(known, _)| *known == object) {
            Some((_, verbs)) => verbs.push(&permission.verb),
            None => by_object.push((object, vec![&permission.verb])),
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
                "not checked: cannot parse the list of permissions",
                "report this as a bug",
            ));
            continue;
        };
        let line = ask(client, word, deployment, permissions).await;
        // A user without permission to ask would get the same line twice.
        let repeated = lines.last().is_some_and(|last| *last == line);
        if !repeated {
            lines.push(line);
        }
    }
}

/// Every permission that a part needs.
fn needed(define: &str, namespaces: &[String]) -> Option<Vec<Permission>> {
    let places: Vec<Option<String>> = match namespaces {
        [] => vec![None],
        names => names.iter().cloned().map(Some).collect(),
    };
    let mut permissions = Vec::new();
    for place in &places {
        permissions.extend(expand(&rules(define)?, place.as_ref()));
    }
    // With permissions in namespaces only, tokens are checked by the API server's published keys instead.
    if namespaces.is_empty() {
        permissions.extend(expand(&rules("elasti.reviewRules")?, None));
    }
    Some(permissions)
}

fn expand(rules: &[Rule], namespace: Option<&String>) -> Vec<Permission> {
    let mut permissions = Vec::new();
    for rule in rules {
        for group in &rule.api_groups {
            for resource in &rule.resources {
                for verb in &rule.verbs {
                    permissions.push(Permission {
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

/// The rules of one block of the chart's template: up to its first condition.
fn rules(define: &str) -> Option<Vec<Rule>> {
    let (_, after) = RULES.split_once(&format!("define \"{define}\" -}}}}"))?;
    let (block, _) = after.split_once("\n{{-")?;
    serde_saphyr::from_str(block).ok()
}

async fn ask(
    client: &Client,
    word: &str,
    deployment: &Deployment,
    permissions: Vec<Permission>,
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
        .map(|one| allowed(client, user.clone(), groups.clone(), one))
        .buffered(CONCURRENCY)
        .collect::<Vec<_>>()
        .await;
    let mut missing = Vec::new();
    for one in asked {
        match one {
            Ok((_, true)) => {}
            Ok((permission, false)) => missing.push(permission),
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                return Line::warn(
                    CHECK,
                    "not checked: you may not create subjectaccessreviews",
                    "run elasti check as someone with that permission",
                );
            }
            Err(error) => return Line::unseen(CHECK, "access reviews", &error),
        }
    }
    if missing.is_empty() {
        return Line::ok(
            CHECK,
            format!("the {word} has all permissions that it needs"),
        );
    }
    let missing = summary(&missing);
    let more = missing.len().saturating_sub(MAX_SHOWN);
    let mut shown = missing
        .into_iter()
        .take(MAX_SHOWN)
        .collect::<Vec<_>>()
        .join("; ");
    if more > 0 {
        shown += &format!("; and {more} more");
    }
    Line::fail(
        CHECK,
        format!("the {word} ({namespace}/{account}) may not: {shown}"),
        "run helm upgrade, which grants them again; if a policy removed them, ask its owner",
    )
}

async fn allowed(
    client: &Client,
    user: String,
    groups: Vec<String>,
    permission: Permission,
) -> kube::Result<(Permission, bool)> {
    let (resource, subresource) = match permission.resource.split_once('/') {
        Some((resource, sub)) => (resource.to_owned(), Some(sub.to_owned())),
        None => (permission.resource.clone(), None),
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user),
            groups: Some(groups),
            resource_attributes: Some(ResourceAttributes {
                group: Some(permission.group.clone()),
                resource: Some(resource),
                subresource,
                verb: Some(permission.verb.clone()),
                namespace: permission.namespace.clone(),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok((
        permission,
        answer.status.is_some_and(|status| status.allowed),
    ))
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
