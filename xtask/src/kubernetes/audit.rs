//! Compares what Elasti's accounts asked of the API server with what they may ask: `cargo xtask kubernetes audit`.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::fs;

use serde_json::Value;

use super::{layout, ready};

/// Permissions that no call shows, and why they are needed.
const WITHOUT_CALL: [(&str, &str, &str); 1] = [(
    "elastiservices/finalizers",
    "update",
    "the admission plugin OwnerReferencesPermissionEnforcement asks for it at every write of an owned object; \
     the node of these tests has it on",
)];

/// One kind of call by one account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    account: String,
    group: String,
    resource: String,
    verb: String,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            account,
            group,
            resource,
            verb,
        } = self;
        write!(f, "{account} {verb} {resource} in group {group:?}")
    }
}

/// Prints which calls were denied and which permissions were not used; either is an error.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let granted = granted()?;
    let accounts: BTreeSet<&str> = granted.iter().map(|call| call.account.as_str()).collect();
    if accounts.is_empty() {
        return Err("no Role of Elasti's is in the cluster".into());
    }
    let log = fs::read_to_string(layout::logs().join("audit.log"))?;
    let (made, denied) = calls(&log, &accounts)?;
    // A pod that is being replaced loses its Role first, where an upgrade removes cluster roles.
    let (for_a_while, denied): (Vec<Call>, Vec<Call>) =
        denied.into_iter().partition(|call| made.contains(call));
    for call in for_a_while {
        println!("denied for a while: {call}");
    }
    for call in &denied {
        println!("DENIED: {call}");
    }
    let without_call = |call: &&Call| {
        WITHOUT_CALL
            .iter()
            .any(|(resource, verb, _)| call.resource == *resource && call.verb == *verb)
    };
    let (checked, unused): (Vec<&Call>, Vec<&Call>) =
        granted.difference(&made).partition(without_call);
    for call in checked {
        let reason = WITHOUT_CALL
            .iter()
            .find(|(resource, ..)| call.resource == *resource);
        let reason = reason.map_or("", |(_, _, reason)| reason);
        println!("without a call: {call}: {reason}");
    }
    for call in &unused {
        println!("unused: {call}");
    }
    println!(
        "{} permissions granted, {} kinds of calls made, {} denied, {} permissions unused",
        granted.len(),
        made.len(),
        denied.len(),
        unused.len()
    );
    match (denied.len(), unused.len()) {
        (0, 0) => Ok(()),
        _ => Err("permissions and calls differ".into()),
    }
}

/// Every permission that a binding of ours gives, one verb of one resource each.
fn granted() -> Result<BTreeSet<Call>, Box<dyn Error>> {
    let roles = objects("clusterroles,roles")?;
    let mut granted = BTreeSet::new();
    for binding in objects("clusterrolebindings,rolebindings")? {
        let is_its_role = |role: &&Value| {
            let same = |one: &str, other: &str| role.pointer(one) == binding.pointer(other);
            same("/kind", "/roleRef/kind")
                && same("/metadata/name", "/roleRef/name")
                && same("/metadata/namespace", "/metadata/namespace")
        };
        let rules = roles
            .iter()
            .filter(is_its_role)
            .flat_map(|role| list(role, "/rules"));
        for rule in rules {
            for subject in list(&binding, "/subjects") {
                let account = format!(
                    "system:serviceaccount:{}:{}",
                    text(subject, "/namespace"),
                    text(subject, "/name")
                );
                granted.extend(permissions(&account, rule));
            }
        }
    }
    Ok(granted)
}

fn permissions(account: &str, rule: &Value) -> Vec<Call> {
    let words = |path| list(rule, path).iter().filter_map(Value::as_str);
    let mut all = Vec::new();
    for group in words("/apiGroups") {
        for resource in words("/resources") {
            for verb in words("/verbs") {
                all.push(Call {
                    account: account.to_owned(),
                    group: group.to_owned(),
                    resource: resource.to_owned(),
                    verb: verb.to_owned(),
                });
            }
        }
    }
    all
}

/// The calls that these accounts made, and those that were denied.
fn calls(
    log: &str,
    accounts: &BTreeSet<&str>,
) -> Result<(BTreeSet<Call>, BTreeSet<Call>), Box<dyn Error>> {
    let (mut made, mut denied) = (BTreeSet::new(), BTreeSet::new());
    for line in log.lines() {
        let event: Value = serde_json::from_str(line)?;
        let account = text(&event, "/user/username");
        if !accounts.contains(account) || event.pointer("/objectRef/resource").is_none() {
            continue;
        }
        let subresource = text(&event, "/objectRef/subresource");
        let slash = if subresource.is_empty() { "" } else { "/" };
        let call = Call {
            account: account.to_owned(),
            group: text(&event, "/objectRef/apiGroup").to_owned(),
            resource: format!(
                "{}{slash}{subresource}",
                text(&event, "/objectRef/resource")
            ),
            verb: text(&event, "/verb").to_owned(),
        };
        let code = event
            .pointer("/responseStatus/code")
            .and_then(Value::as_u64);
        // An apply that makes an object is a patch that needs the permission to create.
        if code == Some(201) && call.verb == "patch" {
            made.insert(Call {
                verb: "create".into(),
                ..call.clone()
            });
        }
        // A namespace that ends refuses new objects with the same code; that is no missing permission.
        let decision = event
            .pointer("/annotations")
            .and_then(|all| all.get("authorization.k8s.io/decision"));
        match decision.and_then(Value::as_str) {
            Some("forbid") => denied.insert(call),
            _ => made.insert(call),
        };
    }
    Ok((made, denied))
}

fn objects(kinds: &str) -> Result<Vec<Value>, Box<dyn Error>> {
    let label = "--selector=app.kubernetes.io/part-of=elasti";
    let output =
        ready::kubectl(&["get", kinds, "--all-namespaces", label, "--output=json"])?.output()?;
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    Ok(list(&answer, "/items").to_vec())
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or("")
}

fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    let list = value.pointer(path).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::{calls, permissions};

    const ACCOUNT: &str = "system:serviceaccount:elasti:elasti-resolver";

    fn line(account: &str, verb: &str, subresource: Option<&str>, code: u16) -> String {
        let mut event = json!({
            "user": {"username": account}, "verb": verb, "responseStatus": {"code": code},
            "objectRef": {"resource": "pods"},
            "annotations": {"authorization.k8s.io/decision": "allow"},
        });
        if let Some(name) = subresource {
            event["objectRef"]["subresource"] = json!(name);
        }
        format!("{event}\n")
    }

    #[test]
    fn a_permission_is_used_by_its_own_account_and_verb_only() {
        let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]});
        let granted: BTreeSet<_> = permissions(ACCOUNT, &rule).into_iter().collect();
        let log = line(ACCOUNT, "list", None, 200) + &line("someone", "watch", None, 200);
        let (made, denied) = calls(&log, &[ACCOUNT].into()).unwrap();
        let unused: Vec<&str> = granted.difference(&made).map(|call| &*call.verb).collect();
        assert_eq!(unused, ["watch"]);
        assert!(denied.is_empty());
    }

    #[test]
    fn a_denied_call_uses_no_permission() {
        let log = line(ACCOUNT, "patch", Some("status"), 403).replace("allow", "forbid");
        let (made, denied) = calls(&log, &[ACCOUNT].into()).unwrap();
        assert!(made.is_empty());
        let resources: Vec<&str> = denied.iter().map(|call| &*call.resource).collect();
        assert_eq!(resources, ["pods/status"]);
    }

    #[test]
    fn a_namespace_that_ends_denies_no_permission() {
        let log = line(ACCOUNT, "create", None, 403);
        let (made, denied) = calls(&log, &[ACCOUNT].into()).unwrap();
        assert_eq!((made.len(), denied.len()), (1, 0));
    }

    #[test]
    fn an_apply_that_makes_an_object_uses_the_permission_to_create() {
        let log = line(ACCOUNT, "patch", None, 201);
        let (made, _) = calls(&log, &[ACCOUNT].into()).unwrap();
        let verbs: Vec<&str> = made.iter().map(|call| &*call.verb).collect();
        assert_eq!(verbs, ["create", "patch"]);
    }
}
