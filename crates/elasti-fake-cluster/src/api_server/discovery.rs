//! Discovery: what is served, plain (`APIResourceList`) and aggregated (`APIGroupDiscoveryList`).

use serde_json::{Value, json};

use super::object::Object as _;
use super::resources::{Registry, Resource};

/// `/api`, `/apis`, `/apis/g`, `/apis/g/v`, `/api/v1`; `None` for other paths.
pub(crate) fn answer(
    path: &str,
    accept: &str,
    registry: &Registry,
) -> Option<(Value, &'static str)> {
    const PLAIN: &str = "application/json";
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let aggregated = accept.split(',').next().is_some_and(|first| {
        first.contains("as=APIGroupDiscoveryList")
            && first.contains("v=v2")
            && !first.contains("v2beta1")
    });
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    Some(match parts.as_slice() {
        ["api"] if aggregated => (aggregate(registry, true), AGGREGATED),
        ["apis"] if aggregated => (aggregate(registry, false), AGGREGATED),
        ["api"] => (
            json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
            }),
            PLAIN,
        ),
        ["apis"] => {
            let groups: Vec<Value> = registry
                .groups()
                .iter()
                .filter(|(name, _)| !name.is_empty())
                .map(|(name, versions)| group(name, versions))
                .collect();
            (
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
                PLAIN,
            )
        }
        ["apis", name] => {
            let groups = registry.groups();
            let mut body = group(name, groups.get(name)?);
            body.put("/kind", "APIGroup");
            body.put("/apiVersion", "v1");
            (body, PLAIN)
        }
        ["api", version] => (resource_list(registry, "", version)?, PLAIN),
        ["apis", name, version] => (resource_list(registry, name, version)?, PLAIN),
        _ => return None,
    })
}

fn group(name: &str, versions: &[&str]) -> Value {
    let entry =
        |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let all: Vec<Value> = versions.iter().map(entry).collect();
    json!({"name": name, "versions": all, "preferredVersion": all.first()})
}

fn in_version<'a>(
    registry: &'a Registry,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a Resource> {
    registry
        .all()
        .map(AsRef::as_ref)
        .filter(move |one| one.group == group && one.version == version)
}

/// Every subresource with its kind (group, version, kind) and verbs.
fn subresources(resource: &Resource) -> Vec<(&'static str, [String; 3], Vec<&'static str>)> {
    let own = |kind: &str| [String::new(), String::new(), kind.to_owned()];
    let mut all = Vec::new();
    for (name, kind, verbs) in resource.subresources {
        let kind = match *kind {
            "Eviction" => ["policy".to_owned(), "v1".to_owned(), "Eviction".to_owned()],
            "TokenRequest" => [
                "authentication.k8s.io".to_owned(),
                "v1".to_owned(),
                "TokenRequest".to_owned(),
            ],
            other => own(other),
        };
        all.push((*name, kind, verbs.to_vec()));
    }
    if resource.scale.is_some() {
        all.push((
            "scale",
            [
                "autoscaling".to_owned(),
                "v1".to_owned(),
                "Scale".to_owned(),
            ],
            vec!["get", "patch", "update"],
        ));
    }
    if resource.status {
        all.push((
            "status",
            own(&resource.kind),
            vec!["get", "patch", "update"],
        ));
    }
    all
}

fn resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut entries = Vec::new();
    for resource in in_version(registry, group, version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs,
        });
        put_names(&mut entry, resource);
        entries.push(entry);
        for (name, [group, version, kind], verbs) in subresources(resource) {
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": kind, "verbs": verbs,
            });
            if !group.is_empty() {
                entry.put("/group", group);
                entry.put("/version", version);
            }
            entries.push(entry);
        }
    }
    let name = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    (!entries.is_empty()).then(|| json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": entries}))
}

fn put_names(entry: &mut Value, resource: &Resource) {
    if !resource.short_names.is_empty() {
        entry.put("/shortNames", json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.put("/categories", json!(resource.categories));
    }
}

fn aggregate(registry: &Registry, core: bool) -> Value {
    let mut items = Vec::new();
    for (name, versions) in registry
        .groups()
        .iter()
        .filter(|(name, _)| name.is_empty() == core)
    {
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| {
                let resources: Vec<Value> = in_version(registry, name, version)
                    .map(aggregated_resource)
                    .collect();
                json!({"version": version, "resources": resources, "freshness": "Current"})
            })
            .collect();
        let metadata = if core {
            json!({})
        } else {
            json!({"name": name})
        };
        items.push(json!({"metadata": metadata, "versions": versions}));
    }
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    put_names(&mut entry, resource);
    let subresources: Vec<Value> = subresources(resource)
        .into_iter()
        .map(|(name, [group, version, kind], verbs)| {
            json!({"subresource": name, "responseKind": {"group": group, "version": version, "kind": kind}, "verbs": verbs})
        })
        .collect();
    if !subresources.is_empty() {
        entry.put("/subresources", subresources);
    }
    entry
}
