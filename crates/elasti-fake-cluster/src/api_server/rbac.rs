//! RBAC: roles and bindings as stored.

use std::sync::Arc;

use serde_json::Value;

use super::auth::User;
use super::object::Object as _;
use super::store::{Key, Store, Stored};

/// The question.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) path: Option<&'a str>,
}

const GROUP: &str = "rbac.authorization.k8s.io";

/// Why access is given; `None` refuses it.
pub(crate) fn allows(store: &Store, user: &User, access: &Access<'_>) -> Option<String> {
    if user.is_master() {
        return Some(String::new());
    }
    if access.path.is_some_and(|path| {
        PUBLIC_PATHS
            .iter()
            .any(|open| path == *open || path.starts_with(&format!("{open}/")))
    }) {
        return Some("RBAC: allowed by ClusterRoleBinding \"system:discovery\" of ClusterRole \"system:discovery\" to Group \"system:authenticated\"".to_owned());
    }
    let group_resource = |plural: &str| (GROUP.to_owned(), plural.to_owned());
    for binding in store.list(&group_resource("clusterrolebindings"), None) {
        if let Some(why) = granted(store, &binding, "", user, access) {
            return Some(why);
        }
    }
    if access.namespace.is_empty() {
        return None;
    }
    let local = store.list(&group_resource("rolebindings"), Some(access.namespace));
    local
        .iter()
        .find_map(|binding| granted(store, binding, access.namespace, user, access))
}

const PUBLIC_PATHS: &[&str] = &[
    "/api", "/apis", "/healthz", "/livez", "/readyz", "/openapi", "/version",
];

fn granted(
    store: &Store,
    binding: &Arc<Stored>,
    namespace: &str,
    user: &User,
    access: &Access<'_>,
) -> Option<String> {
    let subject = binding
        .value
        .list("/subjects")
        .iter()
        .find(|subject| is_subject(subject, user))?;
    let (kind, name) = (
        binding.value.text("/roleRef/kind"),
        binding.value.text("/roleRef/name"),
    );
    let (plural, place) = if kind == "Role" {
        ("roles", namespace)
    } else {
        ("clusterroles", "")
    };
    let role = store.get(
        &(GROUP.to_owned(), plural.to_owned()),
        &Key::new(place, name),
    )?;
    role.value
        .list("/rules")
        .iter()
        .find(|rule| covers(rule, access))?;
    let bound = if namespace.is_empty() {
        "ClusterRoleBinding"
    } else {
        "RoleBinding"
    };
    let mut own = binding.value.text("/metadata/name").to_owned();
    if !namespace.is_empty() {
        own = format!("{own}/{namespace}");
    }
    let whom = subject.text("/name");
    let whom = if subject.text("/kind") == "ServiceAccount" {
        format!("{whom}/{}", subject.text("/namespace"))
    } else {
        whom.to_owned()
    };
    Some(format!(
        "RBAC: allowed by {bound} \"{own}\" of {kind} \"{name}\" to {} \"{whom}\"",
        subject.text("/kind")
    ))
}

fn is_subject(subject: &Value, user: &User) -> bool {
    let name = subject.text("/name");
    match subject.text("/kind") {
        "User" => user.name == name,
        "Group" => user.groups.iter().any(|group| group == name),
        "ServiceAccount" => {
            user.name
                == format!(
                    "system:serviceaccount:{}:{name}",
                    subject.text("/namespace")
                )
        }
        _ => false,
    }
}

fn covers(rule: &Value, access: &Access<'_>) -> bool {
    let has = |list: &str, wanted: &str| {
        rule.list(list)
            .iter()
            .any(|one| one == "*" || one == wanted)
    };
    if !has("/verbs", access.verb) {
        return false;
    }
    if let Some(path) = access.path {
        let fits = |url: &Value| {
            let url = url.as_str().unwrap_or_default();
            url == path
                || url
                    .strip_suffix('*')
                    .is_some_and(|prefix| path.starts_with(prefix))
        };
        return rule.list("/nonResourceURLs").iter().any(fits);
    }
    let resource = if access.subresource.is_empty() {
        access.resource.to_owned()
    } else {
        format!("{}/{}", access.resource, access.subresource)
    };
    let any_subresource = !access.subresource.is_empty()
        && rule
            .list("/resources")
            .iter()
            .any(|one| one == &format!("*/{}", access.subresource));
    let names = rule.list("/resourceNames");
    has("/apiGroups", access.group)
        && (has("/resources", &resource) || any_subresource)
        && (names.is_empty() || names.iter().any(|name| name == access.name))
}
