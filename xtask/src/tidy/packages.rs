//! The crates to publish: exactly the library, the program and what they need, each with complete
//! metadata, a README and both licences.

use super::finding::Finding;
use crate::repo::Repo;
use anyhow::Context;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// The crates that users ask for by name.
const WANTED: [&str; 2] = ["ioloom", "ioloom-cli"];

/// Fields that must have a value.
const FIELDS: [&str; 7] =
    ["description", "license", "readme", "keywords", "categories", "rust_version", "edition"];

/// Files that each package contains.
const FILES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Checks the workspace.
pub(super) fn check(repo: &Repo) -> anyhow::Result<Vec<Finding>> {
    let metadata = repo.metadata_of_members()?;
    let members = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let mut findings = check_list(members);
    for package in repo.published()? {
        findings.extend(check_fields(&package));
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let dir = manifest.parent().unwrap_or(manifest);
        for file in FILES {
            // Links count only if their target exists.
            if !dir.join(file).is_file() {
                findings.push(Finding::refuse(name(&package), format!("{file} is missing")));
            }
        }
        let readme = std::fs::read_to_string(dir.join("README.md")).unwrap_or_default();
        if readme.lines().next() != Some(&format!("# {}", name(&package))) {
            findings.push(Finding::refuse(name(&package), "README.md lacks the crate's title"));
        }
    }
    Ok(findings)
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap_or_default()
}

/// Compares the crates to publish with the needs of [`WANTED`].
fn check_list(members: &[Value]) -> Vec<Finding> {
    let mut needed: BTreeSet<&str> = BTreeSet::new();
    let mut open: Vec<&str> = WANTED.to_vec();
    while let Some(next) = open.pop() {
        let Some(package) = members.iter().find(|package| name(package) == next) else { continue };
        if needed.insert(next) {
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            open.extend(dependencies.filter(|d| d["kind"] != "dev").map(name));
        }
    }
    let mut findings = Vec::new();
    let mut versions = BTreeSet::new();
    for package in members {
        let wrong = match (package["publish"].is_null(), needed.contains(name(package))) {
            (true, false) => "is not needed by a published crate; set publish = false",
            (false, true) => "is needed by a published crate; remove publish = false",
            _ => "",
        };
        if !wrong.is_empty() {
            findings.push(Finding::refuse(name(package), wrong));
        }
        versions.insert(package["version"].as_str().unwrap_or_default());
    }
    if versions.len() > 1 {
        findings.push(Finding::refuse("Cargo.toml", format!("several versions: {versions:?}")));
    }
    findings
}

fn check_fields(package: &Value) -> Vec<Finding> {
    let is_set = |field: &&str| match &package[*field] {
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    };
    let missing = FIELDS.into_iter().filter(|field| !is_set(field));
    let mut findings: Vec<Finding> = missing
        .map(|field| Finding::refuse(name(package), format!("'{field}' is missing")))
        .collect();
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        if dependency["kind"] != "dev" && dependency["req"] == "*" {
            let text = format!("the dependency on '{}' has no version", name(dependency));
            findings.push(Finding::refuse(name(package), text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn member(name: &str, publish: bool, needs: &[(&str, &str)]) -> Value {
        let needs: Vec<Value> = needs
            .iter()
            .map(|(name, kind)| {
                json!({"name": name, "req": "^0.2.0", "kind": (!kind.is_empty()).then_some(kind)})
            })
            .collect();
        json!({
            "name": name, "version": "0.2.0", "description": "d", "license": "MIT",
            "readme": "README.md", "keywords": ["k"], "categories": ["c"],
            "rust_version": "1.90", "edition": "2024", "dependencies": needs,
            "publish": if publish { Value::Null } else { json!([]) },
        })
    }

    #[test]
    fn exactly_the_needed_crates_are_published() {
        let of = |part: bool, test: bool| {
            let found = check_list(&[
                member("ioloom-cli", true, &[("ioloom", ""), ("part", ""), ("test", "dev")]),
                member("ioloom", true, &[]),
                member("part", part, &[]),
                member("test", test, &[]),
            ]);
            found.into_iter().map(|f| f.place).collect::<Vec<_>>()
        };
        assert!(of(true, false).is_empty());
        assert_eq!(of(false, false), ["part"]);
        assert_eq!(of(true, true), ["test"]);
    }

    #[test]
    fn missing_metadata_is_refused() {
        let mut package = member("ioloom", true, &[("part", ""), ("test", "dev")]);
        assert!(check_fields(&package).is_empty());
        package["keywords"] = json!([]);
        package["readme"] = Value::Null;
        package["dependencies"][0]["req"] = json!("*");
        package["dependencies"][1]["req"] = json!("*");
        assert_eq!(check_fields(&package).len(), 3);
    }

    #[test]
    fn all_members_have_one_version() {
        let mut old = member("ioloom", true, &[]);
        old["version"] = json!("0.1.0");
        assert_eq!(check_list(&[old, member("ioloom-cli", true, &[])]).len(), 1);
    }
}
