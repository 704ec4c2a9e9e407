//! Before an install: does the cluster have what Elasti needs, and may you install it?

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};

use super::installation::{Installation, place};
use super::line::Line;

/// kube-proxy sends to terminating endpoints since then, on which the safety net stands (docs/net.md).
const OLDEST_MINOR: u32 = 27;

/// What `helm install` creates: group, resource, and whether it belongs to a namespace.
const CREATED: [(&str, &str, bool); 8] = [
    ("apiextensions.k8s.io", "customresourcedefinitions", false),
    ("rbac.authorization.k8s.io", "clusterroles", false),
    ("rbac.authorization.k8s.io", "clusterrolebindings", false),
    ("", "namespaces", false),
    ("", "serviceaccounts", true),
    ("", "services", true),
    ("apps", "deployments", true),
    ("policy", "poddisruptionbudgets", true),
];

pub(super) async fn check(
    client: &Client,
    version: &k8s_openapi::apimachinery::pkg::version::Info,
    namespace: &str,
    lines: &mut Vec<Line>,
) {
    lines.push(age(&version.major, &version.minor));
    let slices: Api<EndpointSlice> = Api::all(client.clone());
    if let Err(kube::Error::Api(status)) = slices.list(&ListParams::default().limit(1)).await
        && status.code == 404
    {
        lines.push(Line::fail(
            "cluster",
            "the cluster has no EndpointSlices of discovery.k8s.io/v1",
            "use Kubernetes 1.27 or later",
        ));
    }
    lines.push(permissions(client, namespace).await);
    let found = Installation::find(client, None, &mut Vec::new()).await;
    if let Some(operator) = &found.operator {
        lines.push(Line::warn(
            "operator",
            format!("Elasti is installed already, as {}", place(operator)),
            "use helm upgrade, and elasti check without --pre",
        ));
    }
    if let Some(old) = found.predecessor.first() {
        lines.push(Line::warn(
            "leftovers",
            format!("KubeElasti runs as {}", place(old)),
            "elasti check --migration says how to move",
        ));
    }
}

/// Whether the version is young enough; some write the minor version as `31+`.
fn age(major: &str, minor: &str) -> Line {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    let shown = format!("Kubernetes {major}.{digits}");
    match (major, digits.parse::<u32>()) {
        ("1", Ok(minor)) if minor < OLDEST_MINOR => Line::fail(
            "cluster",
            format!("{shown} is too old"),
            format!("use Kubernetes 1.{OLDEST_MINOR} or later"),
        ),
        _ => Line::ok("cluster", format!("{shown} is new enough")),
    }
}

async fn permissions(client: &Client, namespace: &str) -> Line {
    const CHECK: &str = "permissions";
    let reviews = CREATED.map(|(group, resource, namespaced)| async move {
        let namespace = namespaced.then(|| namespace.to_owned());
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some(group.to_owned()),
                    resource: Some(resource.to_owned()),
                    verb: Some("create".to_owned()),
                    namespace,
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        kube::Result::Ok((!allowed).then_some(resource))
    });
    let answers: kube::Result<Vec<Option<&str>>> = join_all(reviews).await.into_iter().collect();
    match answers {
        Err(error) => Line::unseen(CHECK, "your permissions", &error),
        Ok(answers) => {
            let missing: Vec<&str> = answers.into_iter().flatten().collect();
            match missing.is_empty() {
                true => Line::ok(CHECK, "you may create everything that the chart creates"),
                false => Line::fail(
                    CHECK,
                    format!("you may not create {}", missing.join(", ")),
                    "install as someone with these permissions; global.allowedNamespaces needs fewer",
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::age;
    use crate::check::line::Verdict;

    #[test]
    fn a_cluster_without_terminating_endpoints_is_too_old() {
        assert_eq!(age("1", "26").verdict, Verdict::Fail);
        assert_eq!(age("1", "27").verdict, Verdict::Ok);
        assert_eq!(age("1", "31+").verdict, Verdict::Ok);
    }
}
