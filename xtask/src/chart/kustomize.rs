//! The Kustomize base and overlays: written from the chart (`cargo xtask kustomize`), and compared with it by `chart`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::process::Command;

use serde_json::{Map, Value, json};

use super::render::{NAMESPACE, Rendering, documents, text};
use crate::kubernetes::go_programs;
use crate::paths::root;

pub(crate) const USAGE: &str = "  kustomize       write deploy/kustomize from the chart
";

const FOLDER: &str = "deploy/kustomize";
const FIRST_LINE: &str =
    "# Generated from deploy/helm/elasti by `cargo xtask kustomize`; do not edit.";

/// Overlays and the chart's values that each is.
const OVERLAYS: [(&str, Option<&str>); 3] = [
    ("default", None),
    ("namespaced", Some("kustomize-namespaced.yaml")),
    ("ha", Some("kustomize-ha.yaml")),
];

/// Labels that say that Helm is there.
const HELM_LABELS: [&str; 2] = ["helm.sh/chart", "app.kubernetes.io/managed-by"];

/// Kind, namespace and name.
type Key = (String, String, String);
type Objects = BTreeMap<Key, Value>;
/// Path from the root of the repository, and content.
type Files = BTreeMap<String, String>;

/// Writes every file, and removes those that are no longer made.
pub(crate) fn write() -> Result<(), Box<dyn Error>> {
    let folder = root().join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    for (path, content) in files()? {
        let path = root().join(path);
        fs::create_dir_all(path.parent().unwrap_or(&folder))?;
        fs::write(&path, content)?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

/// What differs: files from what the chart makes of them, and kubectl's rendering of each overlay from Helm's.
pub(crate) fn differences() -> Result<Vec<String>, Box<dyn Error>> {
    let mut found = Vec::new();
    for (path, content) in files()? {
        if fs::read_to_string(root().join(&path)).unwrap_or_default() != content {
            found.push(format!("{path} is stale; run `cargo xtask kustomize`"));
        }
    }
    for (name, values) in OVERLAYS {
        let (theirs, ours) = (built(name)?, of_chart(values)?);
        for (key, object) in &ours {
            match theirs.get(key) {
                None => found.push(format!("overlay {name} has no {key:?}")),
                Some(other) if other != object => {
                    let steps = steps(object, other)?;
                    found.push(format!("overlay {name}: {key:?} differs: {steps}"));
                }
                Some(_) => {}
            }
        }
        let more = theirs.keys().filter(|key| !ours.contains_key(*key));
        found.extend(more.map(|key| format!("overlay {name} has {key:?}, the chart has not")));
    }
    Ok(found)
}

/// What the chart makes, without Helm's own, without the hook, and with the namespace that Helm is told of.
fn of_chart(values: Option<&str>) -> Result<Objects, Box<dyn Error>> {
    let rendering = Rendering::from_chart("kustomize", values)?;
    let objects = rendering.objects.into_iter().map(without_helm);
    let mut objects: Objects = objects
        .filter(|object| !["Job", "CustomResourceDefinition"].contains(&text(object, "/kind")))
        .map(|object| (key(&object), object))
        .collect();
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    });
    objects.insert(key(&namespace), namespace);
    Ok(objects)
}

/// What kubectl makes of an overlay.
fn built(overlay: &str) -> Result<Objects, Box<dyn Error>> {
    let output = Command::new(go_programs::kube("kubectl")?)
        .arg("kustomize")
        .arg(root().join(FOLDER).join("overlays").join(overlay))
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("kubectl kustomize of {overlay}: {said}").into());
    }
    let objects = documents(&String::from_utf8(output.stdout)?)?;
    Ok(objects
        .into_iter()
        .map(|object| (key(&object), object))
        .collect())
}

fn files() -> Result<Files, Box<dyn Error>> {
    let mut all = Vec::new();
    for (name, values) in OVERLAYS {
        all.push((name, of_chart(values)?));
    }
    let plain = of_chart(None)?;
    let in_all = |key: &Key| all.iter().all(|(_, objects)| objects.contains_key(key));
    let base: Objects = plain.into_iter().filter(|(key, _)| in_all(key)).collect();
    let mut files = Files::new();
    write_folder(&mut files, "base", &[], &base, &Objects::new())?;
    for (name, objects) in &all {
        let own = objects.iter().filter(|(key, _)| !base.contains_key(*key));
        let own = own.map(|(key, object)| (key.clone(), object.clone()));
        let own = own.collect();
        let mut changed = Objects::new();
        for (key, object) in objects {
            let plain = base.get(key).filter(|plain| *plain != object);
            if let Some(plain) = plain {
                changed.insert(key.clone(), steps(plain, object)?);
            }
        }
        let folder = format!("overlays/{name}");
        write_folder(&mut files, &folder, &["../../base"], &own, &changed)?;
    }
    let uninstall: Objects = Rendering::from_chart("kustomize", None)?
        .objects
        .into_iter()
        .filter(|object| text(object, "/kind") == "Job")
        .map(|object| (key(&object), without_helm(object)))
        .collect();
    write_folder(&mut files, "uninstall", &[], &uninstall, &Objects::new())?;
    Ok(files)
}

/// The operations that make one object of another; a merge would add to lists and never take away.
fn steps(from: &Value, to: &Value) -> Result<Value, Box<dyn Error>> {
    Ok(serde_json::to_value(json_patch::diff(from, to))?)
}

/// One folder: a file a kind for its own objects, one an object for what it changes in others, and the kustomization.
fn write_folder(
    files: &mut Files,
    folder: &str,
    others: &[&str],
    own: &Objects,
    changed: &Objects,
) -> Result<(), Box<dyn Error>> {
    let mut by_file: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for ((kind, _, _), object) in own {
        let file = format!("{}.yaml", kind.to_lowercase());
        by_file.entry(file).or_default().push(object);
    }
    let mut resources: Vec<&str> = others.to_vec();
    resources.extend(by_file.keys().map(String::as_str));
    let mut kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
    });
    let mut write = |file: &str, objects: &[&Value]| -> Result<(), Box<dyn Error>> {
        let mut content = FIRST_LINE.to_owned();
        for object in objects {
            content.push_str("\n---\n");
            content.push_str(serde_saphyr::to_string(object)?.trim_end());
        }
        content.push('\n');
        files.insert(format!("{FOLDER}/{folder}/{file}"), content);
        Ok(())
    };
    let mut patches = Vec::new();
    for ((kind, _, name), operations) in changed {
        let file = format!("changes-{name}.yaml");
        write(&file, &[operations])?;
        patches.push(json!({"path": file, "target": {"kind": kind, "name": name}}));
    }
    if let (false, Some(map)) = (patches.is_empty(), kustomization.as_object_mut()) {
        map.insert("patches".into(), json!(patches));
    }
    for (file, objects) in &by_file {
        write(file, objects)?;
    }
    write("kustomization.yaml", &[&kustomization])
}

fn key(object: &Value) -> Key {
    let part = |path| text(object, path).to_owned();
    (
        part("/kind"),
        part("/metadata/namespace"),
        part("/metadata/name"),
    )
}

/// The object without the labels and annotations that only Helm gives and reads.
fn without_helm(mut object: Value) -> Value {
    for labels in [
        "/metadata/labels",
        "/metadata/annotations",
        "/spec/template/metadata/labels",
    ] {
        let Some(map) = object.pointer_mut(labels).and_then(Value::as_object_mut) else {
            continue;
        };
        map.retain(|name, _| {
            !HELM_LABELS.contains(&name.as_str()) && !name.starts_with("helm.sh/")
        });
        let empty = map.is_empty();
        let parent = labels.trim_end_matches(|c| c != '/').trim_end_matches('/');
        let last = labels.rsplit('/').next().unwrap_or_default();
        let parent: Option<&mut Map<String, Value>> =
            object.pointer_mut(parent).and_then(Value::as_object_mut);
        if let (true, Some(parent)) = (empty, parent) {
            parent.remove(last);
        }
    }
    object
}
