//! Dependencies between crates: compares the table in ARCHITECTURE.md with `cargo metadata`.
//!
//! The table is the one under the heading "Arrows". Its columns are a crate, the crates it may use,
//! and the crates that only its tests may use.

use super::finding::Finding;
use crate::repo::Repo;
use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const FILE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Arrows";

/// Crates that a crate uses: in its code, and in its tests only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Uses {
    code: BTreeSet<String>,
    tests: BTreeSet<String>,
}

type Graph = BTreeMap<String, Uses>;

/// Compares the arrows in the code with the table; the second value is the number of arrows.
pub(super) fn check(repo: &Repo) -> anyhow::Result<(Vec<Finding>, usize)> {
    let text = repo.read(Path::new(FILE))?;
    let allowed = parse_table(&text)?;
    let real = parse_metadata(&repo.metadata_of_members()?)?;
    let mut findings = compare(&allowed, &real);
    findings.extend(without_line(&text, &real));
    let folders: BTreeSet<String> = repo
        .crates()?
        .iter()
        .filter_map(|dir| Some(dir.file_name()?.to_string_lossy().into_owned()))
        .collect();
    for name in real.keys().filter(|name| !folders.contains(*name)) {
        let text = "the folder of a crate must be its name without the prefix 'ioloom-'";
        findings.push(Finding::refuse(name.clone(), text));
    }
    Ok((findings, real.values().map(|uses| uses.code.len()).sum()))
}

fn parse_table(text: &str) -> anyhow::Result<Graph> {
    let section = text
        .split_once(HEADING)
        .map(|(_, rest)| rest.split("\n## ").next().unwrap_or_default())
        .with_context(|| format!("{FILE}: no heading '{HEADING}'"))?;
    let mut graph = Graph::new();
    // The first two rows of a table are its head and the line under it.
    for row in section.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, code, tests] = cells.as_slice() else {
            bail!("{FILE}: a row of the arrows needs three cells: {row}");
        };
        let uses = Uses { code: names(code), tests: names(tests) };
        if graph.insert(name.trim_matches('`').to_owned(), uses).is_some() {
            bail!("{FILE}: {name} has two rows");
        }
    }
    if graph.is_empty() {
        bail!("{FILE}: no table under '{HEADING}'");
    }
    Ok(graph)
}

/// Reports crates that are missing from the table of layers, which precedes the arrows.
fn without_line(text: &str, real: &Graph) -> Vec<Finding> {
    let layers = text.split(HEADING).next().unwrap_or_default();
    let rows: String = layers.lines().filter(|line| line.starts_with('|')).collect();
    let unknown = real.keys().filter(|name| !rows.contains(&format!("`{name}`")));
    unknown
        .map(|name| Finding::refuse(name.clone(), format!("has no row in the layers of {FILE}")))
        .collect()
}

fn names(cell: &str) -> BTreeSet<String> {
    let names = cell.split([',', ' ']).map(|n| n.trim_matches('`'));
    names.filter(|n| !n.is_empty() && *n != "-" && *n != "–").map(str::to_owned).collect()
}

/// Returns the folder name of a package: its name without the prefix.
fn short(name: &str) -> String {
    name.strip_prefix("ioloom-").unwrap_or(name).to_owned()
}

fn parse_metadata(metadata: &Value) -> anyhow::Result<Graph> {
    let packages = metadata["packages"].as_array().context("metadata without packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut graph = Graph::new();
    for package in packages {
        let mut uses = Uses::default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Only workspace members have a path. The tests of a crate may select its features.
            if dependency["path"].is_null() || dependency["name"] == package["name"] {
                continue;
            }
            let name = short(&text(&dependency["name"]));
            if dependency["kind"] == "dev" {
                uses.tests.insert(name);
            } else {
                uses.code.insert(name);
            }
        }
        graph.insert(short(&text(&package["name"])), uses);
    }
    Ok(graph)
}

fn compare(allowed: &Graph, real: &Graph) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (from, uses) in real {
        let Some(may) = allowed.get(from) else {
            findings.push(Finding::refuse(from.clone(), format!("has no row in {FILE}")));
            continue;
        };
        for to in uses.code.difference(&may.code) {
            let text = format!("uses {to}, an arrow that {FILE} does not list");
            findings.push(Finding::refuse(from.clone(), text));
        }
        for to in &uses.tests {
            if !may.code.contains(to) && !may.tests.contains(to) {
                let text = format!("its tests use {to}, an arrow that {FILE} does not list");
                findings.push(Finding::refuse(from.clone(), text));
            }
        }
        for to in may.code.difference(&uses.code) {
            let text = format!("{FILE} lists the arrow to {to}, which is unused");
            findings.push(Finding::warn(from.clone(), text));
        }
    }
    for from in allowed.keys().filter(|from| !real.contains_key(*from)) {
        let text = format!("has a row in {FILE} but does not exist");
        findings.push(Finding::refuse(from.clone(), text));
    }
    for graph in [allowed, real] {
        if let Some(cycle) = cycle(graph) {
            let text = format!("a cycle of arrows: {}", cycle.join(" → "));
            findings.push(Finding::refuse(cycle[0].clone(), text));
        }
    }
    findings
}

/// Finds a cycle by repeatedly removing crates that use no remaining crate.
fn cycle(graph: &Graph) -> Option<Vec<String>> {
    let mut left: BTreeMap<&str, BTreeSet<&str>> = graph
        .iter()
        .map(|(name, uses)| (name.as_str(), uses.code.iter().map(String::as_str).collect()))
        .collect();
    loop {
        let names: BTreeSet<&str> = left.keys().copied().collect();
        let before = left.len();
        left.retain(|_, uses| uses.iter().any(|to| names.contains(to)));
        if left.is_empty() {
            return None;
        }
        if left.len() == before {
            break;
        }
    }
    // Every remaining crate uses a remaining crate: walk until a name repeats.
    let mut path: Vec<&str> = vec![left.keys().next()?];
    loop {
        let uses = &left[path[path.len() - 1]];
        let next = *uses.iter().find(|to| left.contains_key(**to))?;
        if let Some(start) = path.iter().position(|name| *name == next) {
            let mut cycle: Vec<String> = path[start..].iter().map(|&n| n.to_owned()).collect();
            cycle.push(next.to_owned());
            return Some(cycle);
        }
        path.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# A\n## Arrows\ntext\n\n| crate | may use | tests also |\n|---|---|---|\n\
        | `model` | – | – |\n| `lab` | `model`, `stats` | `sys` |\n| `stats` | – | – |\n\
        | `sys` | – | – |\n## Next\n| x | y |\n";

    fn real(edges: &[(&str, &str, &str)]) -> Graph {
        let mut graph: Graph =
            ["model", "lab", "stats", "sys"].map(|n| (n.to_owned(), Uses::default())).into();
        for (from, kind, to) in edges {
            let uses = graph.entry((*from).to_owned()).or_default();
            let set = if *kind == "dev" { &mut uses.tests } else { &mut uses.code };
            set.insert((*to).to_owned());
        }
        graph
    }

    fn refused(edges: &[(&str, &str, &str)]) -> Vec<String> {
        compare(&parse_table(TABLE).unwrap(), &real(edges))
            .into_iter()
            .filter(|f| !f.warning)
            .map(|f| format!("{}: {}", f.place, f.text))
            .collect()
    }

    #[test]
    fn the_table_is_read() {
        let table = parse_table(TABLE).unwrap();
        assert_eq!(table.len(), 4);
        assert_eq!(table["lab"].code.iter().collect::<Vec<_>>(), ["model", "stats"]);
        assert_eq!(table["lab"].tests.iter().collect::<Vec<_>>(), ["sys"]);
        assert!(parse_table("# no table").is_err());
        assert!(parse_table("## Arrows\n| a | b |\n|--|--|\n| a | b |\n").is_err());
    }

    #[test]
    fn an_arrow_that_is_not_in_the_table_is_refused() {
        assert!(refused(&[("lab", "", "model"), ("lab", "dev", "sys")]).is_empty());
        assert_eq!(refused(&[("model", "", "lab")]).len(), 1);
        assert_eq!(refused(&[("lab", "", "sys")]).len(), 1, "allowed for tests only");
        assert_eq!(refused(&[("stats", "dev", "model")]).len(), 1);
        assert_eq!(refused(&[("new", "", "model")]).len(), 1, "the table has no row for it");
    }

    #[test]
    fn unused_arrows_are_warnings() {
        let found = compare(&parse_table(TABLE).unwrap(), &real(&[("lab", "", "model")]));
        assert!(found.len() == 1 && found[0].warning && found[0].text.contains("stats"));
    }

    #[test]
    fn cycles_are_found() {
        let graph = real(&[("lab", "", "stats"), ("stats", "", "sys"), ("sys", "", "stats")]);
        assert_eq!(cycle(&graph).unwrap(), ["stats", "sys", "stats"]);
        assert!(cycle(&real(&[("lab", "", "stats"), ("stats", "", "model")])).is_none());
    }

    #[test]
    fn every_crate_is_introduced() {
        let text = "| 0 | `model` | nouns |\n| 1 | `sys` | calls |\n## Arrows\n| `lab` | - | - |";
        let missing: Vec<_> =
            without_line(text, &real(&[])).into_iter().map(|finding| finding.place).collect();
        assert_eq!(missing, ["lab", "stats"]);
    }

    #[test]
    fn metadata_is_read_by_folder_name() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "ioloom-lab", "dependencies": [
                { "name": "ioloom-model", "path": "/x", "kind": null },
                { "name": "ioloom", "path": "/y", "kind": "dev" },
                { "name": "serde", "kind": null },
            ]},
        ]});
        let graph = parse_metadata(&metadata).unwrap();
        assert_eq!(graph["lab"].code.iter().collect::<Vec<_>>(), ["model"]);
        assert_eq!(graph["lab"].tests.iter().collect::<Vec<_>>(), ["ioloom"]);
    }
}
