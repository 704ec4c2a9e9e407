//! What a program of the release is made of, as CycloneDX 1.6.
//! Made from `cargo tree`, which knows what cargo links for these features and this target; tools that read the whole
//! workspace would list the simulated cluster and what only tests use. Without times, so that it can be made again.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;

use serde_json::{Value, json};

use super::VERSION;
use crate::checks::cargo_command;
use crate::image;
use crate::paths::root;

/// Which program.
#[derive(Clone, Copy)]
pub(super) enum Product {
    CommandLine,
    Image,
}

impl Product {
    fn features(self) -> &'static [&'static str] {
        match self {
            Self::CommandLine => image::COMMAND_LINE_FEATURES,
            Self::Image => image::ELASTI_FEATURES,
        }
    }
}

/// The whole document.
pub(super) fn generate(product: Product) -> Result<String, Box<dyn Error>> {
    let tree = cargo_tree(product)?;
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    let document = document(&Tree::parse(&tree)?, &checksums(&lock))?;
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Between the fields of a line: no name, licence or address has it.
const SEPARATOR: char = '|';

/// Every dependency that is linked in, with its depth before it.
fn cargo_tree(product: Product) -> Result<String, Box<dyn Error>> {
    let output = cargo_command()
        .args(["tree", "--locked", "--package", "elasti"])
        .args(["--target", &image::host()?])
        .args(["--edges", "normal,no-proc-macro", "--prefix", "depth"])
        .args(["--format", "{p}|{l}|{r}|"])
        .args(product.features())
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo tree: {said}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// A package by name and version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
}

impl Package {
    fn url(&self) -> String {
        // A `+` stands for a space in addresses.
        format!(
            "pkg:cargo/{}@{}",
            self.name,
            self.version.replace('+', "%2B")
        )
    }
}

/// What is told of a package.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    licence: String,
    repository: String,
}

/// The packages, and which needs which.
#[derive(Debug)]
struct Tree {
    root: Package,
    packages: BTreeMap<Package, Facts>,
    needs: BTreeMap<Package, BTreeSet<Package>>,
}

impl Tree {
    /// A package's own dependencies follow it the first time only.
    fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        let mut packages = BTreeMap::new();
        let mut needs: BTreeMap<Package, BTreeSet<Package>> = BTreeMap::new();
        let mut above: Vec<Package> = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (depth, package, facts) = parse_line(line).ok_or_else(|| wrong(line))?;
            if depth > above.len() {
                return Err(wrong(line).into());
            }
            above.truncate(depth);
            if let Some(parent) = above.last() {
                let needed = needs.entry(parent.clone()).or_default();
                needed.insert(package.clone());
            }
            packages.insert(package.clone(), facts);
            above.push(package);
        }
        let root = above.first().cloned().ok_or("cargo tree printed nothing")?;
        Ok(Self {
            root,
            packages,
            needs,
        })
    }
}

fn wrong(line: &str) -> String {
    format!("cargo tree printed a line that is not understood: {line}")
}

/// `2name v1.2.3 (path)|licence|repository|`, and perhaps ` (*)` at the end.
fn parse_line(line: &str) -> Option<(usize, Package, Facts)> {
    let start = line.find(|letter: char| !letter.is_ascii_digit())?;
    let (depth, rest) = line.split_at(start);
    let mut fields = rest.split(SEPARATOR);
    let mut words = fields.next()?.split(' ');
    let package = Package {
        name: words.next()?.to_owned(),
        version: words.next()?.strip_prefix('v')?.to_owned(),
    };
    let facts = Facts {
        licence: licence(fields.next()?),
        repository: fields.next()?.to_owned(),
    };
    Some((depth.parse().ok()?, package, facts))
}

/// A slash is how packages wrote a choice before there was a syntax for it.
fn licence(text: &str) -> String {
    let choices: Vec<&str> = text.split('/').map(str::trim).collect();
    choices.join(" OR ")
}

/// What crates.io gave, by Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<Package, String> {
    let blocks = lock.split("[[package]]").skip(1);
    let found = blocks.filter_map(|block| {
        let value = |key: &str| {
            let mut lines = block.lines();
            let line = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
            line.and_then(|line| line.strip_suffix('"'))
                .map(str::to_owned)
        };
        let package = Package {
            name: value("name")?,
            version: value("version")?,
        };
        Some((package, value("checksum")?))
    });
    found.collect()
}

fn document(tree: &Tree, sums: &BTreeMap<Package, String>) -> Result<Value, Box<dyn Error>> {
    if tree.root.version != VERSION {
        return Err(format!("cargo tree began with {:?}", tree.root).into());
    }
    let others = tree.packages.iter().filter(|(one, _)| **one != tree.root);
    let components: Vec<Value> = others
        .map(|(package, facts)| component("library", package, facts, sums.get(package)))
        .collect();
    let dependencies: Vec<Value> = tree
        .packages
        .keys()
        .map(|package| {
            let needs = tree.needs.get(package).into_iter().flatten();
            json!({"ref": package.url(), "dependsOn": needs.map(Package::url).collect::<Vec<_>>()})
        })
        .collect();
    let facts = tree.packages.get(&tree.root).ok_or("the root is missing")?;
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component("application", &tree.root, facts, None)},
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Ours have no checksum: they are not from crates.io.
fn component(kind: &str, package: &Package, facts: &Facts, sum: Option<&String>) -> Value {
    let mut one = json!({
        "type": kind,
        "bom-ref": package.url(),
        "name": package.name,
        "version": package.version,
        "purl": package.url(),
    });
    if let Some(one) = one.as_object_mut() {
        if !facts.licence.is_empty() {
            one.insert("licenses".into(), json!([{"expression": facts.licence}]));
        }
        if let Some(sum) = sum {
            one.insert("hashes".into(), json!([{"alg": "SHA-256", "content": sum}]));
        }
        if facts.repository.starts_with("https://") {
            let link = json!([{"type": "vcs", "url": facts.repository}]);
            one.insert("externalReferences".into(), link);
        }
    }
    one
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{Package, Product, Tree, checksums, document, generate};
    use crate::release::VERSION;

    fn package(name: &str, version: &str) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
        }
    }

    #[test]
    fn a_package_that_is_printed_twice_is_one_with_its_first_dependencies() {
        let text = "0elasti v0.1.0 (/source)|Apache-2.0||\n\
                    1a v1.0.0|MIT / Apache-2.0|https://git.example.com/a|\n\
                    2b v2.0.0|MIT||\n\
                    1b v2.0.0|MIT|| (*)\n";
        let tree = Tree::parse(text).unwrap();
        assert_eq!(tree.root, package("elasti", "0.1.0"));
        assert_eq!(tree.packages.len(), 3);
        let a = package("a", "1.0.0");
        assert_eq!(tree.packages[&a].licence, "MIT OR Apache-2.0");
        let b = package("b", "2.0.0");
        assert_eq!(
            tree.needs[&tree.root],
            BTreeSet::from([a.clone(), b.clone()])
        );
        assert_eq!(tree.needs[&a], BTreeSet::from([b]));
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        assert!(Tree::parse("").is_err());
        assert!(Tree::parse("elasti v0.1.0|MIT||\n").is_err());
        assert!(Tree::parse("0elasti v0.1.0|MIT||\n2b v2.0.0|MIT||\n").is_err());
    }

    #[test]
    fn another_program_than_ours_is_refused() {
        let tree = Tree::parse("0elasti v99.0.0|MIT||\n").unwrap();
        assert!(document(&tree, &BTreeMap::new()).is_err());
    }

    #[test]
    fn checksums_are_those_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"abc\"\n\n\
                    [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";
        let expected = BTreeMap::from([(package("a", "1.0.0"), "abc".to_owned())]);
        assert_eq!(checksums(lock), expected);
    }

    /// The command line has the simulated cluster for its demo; the image must not.
    #[test]
    fn each_program_has_what_is_linked_into_it_with_licence_and_checksum() {
        for (product, has_simulated_cluster) in
            [(Product::CommandLine, true), (Product::Image, false)]
        {
            let document: serde_json::Value =
                serde_json::from_str(&generate(product).unwrap()).unwrap();
            assert_eq!(document["metadata"]["component"]["version"], VERSION);
            let components = document["components"].as_array().unwrap();
            let names: BTreeSet<&str> = components
                .iter()
                .map(|one| one["name"].as_str().unwrap())
                .collect();
            assert!(names.contains("elasti-operator") && names.contains("tokio"));
            assert_eq!(names.contains("elasti-fake-cluster"), has_simulated_cluster);
            for test_only in ["insta", "proptest", "stateright", "xtask", "serde_derive"] {
                assert!(!names.contains(test_only), "{test_only}");
            }
            for one in components {
                assert!(one["licenses"][0]["expression"].is_string(), "{one}");
                let ours = one["name"].as_str().unwrap().starts_with("elasti");
                assert_eq!(one["hashes"].is_null(), ours, "{one}");
            }
            let known: BTreeSet<&str> = components
                .iter()
                .chain([&document["metadata"]["component"]])
                .map(|one| one["bom-ref"].as_str().unwrap())
                .collect();
            assert_eq!(known.len(), components.len() + 1);
            for one in document["dependencies"].as_array().unwrap() {
                assert!(known.contains(one["ref"].as_str().unwrap()));
                for needed in one["dependsOn"].as_array().unwrap() {
                    assert!(known.contains(needed.as_str().unwrap()));
                }
            }
        }
    }
}
