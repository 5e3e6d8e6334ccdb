//! Checks the rules of deny.toml with cargo alone: licences, duplicate versions, and which package may depend on which.

use crate::util::need;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use toml::Table;

/// The packages that the binary and its tests are built from on this machine.
struct Packages {
    /// The versions and the licence of each package.
    known: BTreeMap<String, (BTreeSet<String>, String)>,
    /// The packages that depend on each package.
    users: BTreeMap<String, BTreeSet<String>>,
    /// The packages that come neither from crates.io nor from this tree.
    strangers: Vec<String>,
}

impl Packages {
    fn read() -> Option<Self> {
        let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        // The packages of this build, which have been fetched. With musl there is one more.
        let library = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let platform = format!("{}-unknown-linux-{library}", std::env::consts::ARCH);
        let arguments = ["metadata", "--format-version", "1", "--offline", "--filter-platform", &platform];
        let output =
            Command::new("cargo").args(arguments).args(["--manifest-path", machine]).output().ok()?;
        let metadata: Value = serde_json::from_slice(&output.stdout).ok()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut packages = Self { known: BTreeMap::new(), users: BTreeMap::new(), strangers: Vec::new() };
        let mut names = BTreeMap::new();
        for package in metadata["packages"].as_array()? {
            let name = text(&package["name"]);
            names.insert(text(&package["id"]), name.clone());
            let source = text(&package["source"]);
            if !source.is_empty()
                && !source.starts_with("registry+https://github.com/rust-lang/crates.io-index")
            {
                packages.strangers.push(format!("{name}: {source}"));
            }
            let known = packages.known.entry(name).or_default();
            known.0.insert(text(&package["version"]));
            known.1 = text(&package["license"]);
        }
        for node in metadata["resolve"]["nodes"].as_array()? {
            for dependency in node["deps"].as_array()? {
                let users = packages.users.entry(names.get(&text(&dependency["pkg"]))?.clone()).or_default();
                users.insert(names.get(&text(&node["id"]))?.clone());
            }
        }
        Some(packages)
    }
}

fn rules() -> Table {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deny.toml");
    std::fs::read_to_string(file).unwrap().parse().unwrap()
}

fn strings(value: &toml::Value) -> BTreeSet<String> {
    value.as_array().unwrap().iter().map(|value| value.as_str().unwrap().to_owned()).collect()
}

/// Whether the allowed licences satisfy an SPDX expression.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ").replace("  ", " ");
    let all = expression.split(" AND ");
    all.map(|part| part.trim().trim_start_matches('(').trim_end_matches(')'))
        .all(|part| part.split(" OR ").any(|licence| allowed.contains(licence.trim())))
}

#[test]
fn packages_depend_only_on_what_deny_toml_permits() {
    let packages = Packages::read();
    need!(packages.is_some(), "needs cargo and its registry");
    let (packages, rules) = (packages.unwrap(), rules());
    for rule in rules["bans"]["deny"].as_array().unwrap() {
        let name = rule["name"].as_str().unwrap();
        let users = packages.users.get(name).unwrap_or_else(|| panic!("nothing depends on {name}"));
        assert_eq!(users, &strings(&rule["wrappers"]), "{name}");
    }
    let ours = packages.known.keys().filter(|name| name.starts_with("husk-"));
    for name in ours.filter(|name| packages.users.contains_key(*name)) {
        let bans = rules["bans"]["deny"].as_array().unwrap();
        let is_named = bans.iter().any(|rule| rule["name"].as_str() == Some(name));
        assert!(is_named || matches!(name.as_str(), "husk-seccomp" | "husk-deadline"), "{name} has no rule");
    }
}

// An optional dependency of husk-spawn, for others.
#[test]
fn binaries_contain_no_async_runtime() {
    let tree = |package: &str, features: &[&str]| {
        let arguments = ["tree", "--offline", "--edges", "normal", "--prefix", "none", "--package", package];
        let output = Command::new("cargo").args(arguments).args(features).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let has_tokio = |tree: String| tree.lines().any(|line| line.starts_with("tokio "));
    let library = tree("husk-spawn", &["--features", "tokio"]);
    need!(library.is_some(), "needs cargo and its registry");
    assert!(has_tokio(library.unwrap()), "the feature has it");
    for package in ["husk", "husk-shim", "husk-spawn"] {
        assert!(!has_tokio(tree(package, &[]).unwrap()), "{package}");
    }
}

#[test]
fn packages_have_one_version_a_permitted_licence_and_a_known_source() {
    let packages = Packages::read();
    need!(packages.is_some(), "needs cargo and its registry");
    let (packages, rules) = (packages.unwrap(), rules());
    let allowed = strings(&rules["licenses"]["allow"]);
    let skipped = rules["bans"]["skip"].as_array().unwrap();
    for (name, (versions, licence)) in &packages.known {
        assert!(is_met(licence, &allowed), "{name}: {licence}");
        let is_skipped = skipped.iter().any(|skip| skip["name"].as_str() == Some(name));
        assert_eq!(versions.len() > 1, is_skipped, "{name}: {versions:?}");
    }
    assert_eq!(packages.strangers, [""; 0]);
}
