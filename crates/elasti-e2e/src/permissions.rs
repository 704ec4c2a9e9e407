//! The permissions that the chart grants where only some namespaces are served: Roles there and in its own, no ClusterRole.
//! The rules are read from the chart's own templates.

use serde_json::{Value, json};

use crate::ApiClient;

const RULES: &str = include_str!("../../../deploy/helm/elasti/templates/_rules.tpl");
const HOME: &str = "elasti";
const OPERATOR: &str = "elasti-operator-controller-manager";
const RESOLVER: &str = "elasti-resolver";
/// The two service accounts.
pub(crate) const ACCOUNTS: [&str; 2] = [OPERATOR, RESOLVER];

/// The rules of one of the chart's templates, as far as they depend on no value.
fn chart_rules(template: &str) -> Vec<Value> {
    let begin = format!("{{{{- define \"{template}\" -}}}}");
    let (_, rest) = RULES.split_once(&begin).unwrap();
    let (rules, _) = rest.split_once("{{-").unwrap();
    serde_saphyr::from_str(rules).unwrap()
}

/// What the chart's `rbac-namespaces.yaml` makes for these namespaces.
pub(crate) async fn grant(api_client: &ApiClient, namespaces: &[String]) {
    for namespace in namespaces {
        let mut operator = chart_rules("elasti.operatorRules");
        operator.push(
            json!({"apiGroups": [""], "resources": ["namespaces"], "resourceNames": [namespace], "verbs": ["get"]}),
        );
        bind(api_client, namespace, OPERATOR, OPERATOR, operator).await;
        let resolver = chart_rules("elasti.resolverRules");
        bind(api_client, namespace, RESOLVER, RESOLVER, resolver).await;
    }
    let leases = "coordination.k8s.io";
    let home = vec![
        json!({"apiGroups": [leases], "resources": ["leases"], "verbs": ["create"]}),
        json!({"apiGroups": [leases], "resources": ["leases"], "resourceNames": ["elasti-operator"], "verbs": ["get", "watch", "update"]}),
        json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}),
    ];
    bind(
        api_client,
        HOME,
        "elasti-operator-leader-election",
        OPERATOR,
        home,
    )
    .await;
    let peers = vec![
        json!({"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}),
    ];
    bind(api_client, HOME, "elasti-resolver-peers", RESOLVER, peers).await;
}

/// A Role and its RoleBinding.
async fn bind(
    api_client: &ApiClient,
    namespace: &str,
    name: &str,
    account: &str,
    rules: Vec<Value>,
) {
    let group = "rbac.authorization.k8s.io";
    let path = |plural: &str| format!("/apis/{group}/v1/namespaces/{namespace}/{plural}");
    let metadata = json!({"name": name});
    let role = json!({"metadata": metadata, "rules": rules});
    api_client.make(&path("roles"), role).await;
    let binding = json!({
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": HOME}],
    });
    api_client.make(&path("rolebindings"), binding).await;
}
