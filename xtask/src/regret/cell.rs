//! The cells of the experiment.

use anyhow::{Context, bail};
use serde_json::Value;
use std::path::Path;

/// One cell.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) name: String,
    /// `test` or `design`.
    pub(super) set: String,
    /// `disk`, `tmpfs`, `overlay`, `ext4`, `xfs` or `btrfs` images, or `delay ARGUMENTS`.
    pub(super) medium: String,
    /// `cold`, `warm`, `half`, or one of the traps of the cache: `second-half-warm`, `first-tenth-warm`.
    pub(super) condition: String,
    /// Description of the set for `ioloom fileset create`.
    pub(super) files: String,
    pub(super) compute: String,
    /// Reads and bytes per second, and processors.
    pub(super) iops: Option<u64>,
    pub(super) bytes_per_s: Option<u64>,
    pub(super) cpus: Option<f64>,
    /// `cap-falls`, `neighbour-io`, `neighbour-cpu`, `two`, `crosses`.
    pub(super) trap: Option<String>,
    /// When the trap begins.
    pub(super) after_s: f64,
    /// As it was read, for the raw data.
    pub(super) json: Value,
}

const MEDIA: [&str; 6] = ["disk", "tmpfs", "overlay", "ext4", "xfs", "btrfs"];
const CONDITIONS: [&str; 5] = ["cold", "warm", "half", "second-half-warm", "first-tenth-warm"];
const TRAPS: [&str; 5] = ["cap-falls", "neighbour-io", "neighbour-cpu", "two", "crosses"];

/// Reads and checks the list of cells.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<Cell>> {
    let text = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let list: Vec<Value> = serde_json::from_slice(&text).context("the list of cells")?;
    list.into_iter().map(Cell::of).collect()
}

impl Cell {
    fn of(json: Value) -> anyhow::Result<Self> {
        let text = |field: &str| json[field].as_str().map(str::to_owned);
        let name = text("name").context("a cell without a name")?;
        let need = |field: &str| text(field).with_context(|| format!("{name}: no {field}"));
        let cell = Self {
            set: need("set")?,
            medium: need("medium")?,
            condition: need("condition")?,
            files: need("files")?,
            compute: need("compute")?,
            iops: json["iops"].as_u64(),
            bytes_per_s: json["bytes_per_s"].as_u64(),
            cpus: json["cpus"].as_f64(),
            trap: text("trap"),
            after_s: json["after_s"].as_f64().unwrap_or(0.0),
            name: name.clone(),
            json,
        };
        if !MEDIA.contains(&cell.medium.as_str()) && !cell.medium.starts_with("delay ") {
            bail!("{name}: unknown medium '{}'", cell.medium);
        }
        if !CONDITIONS.contains(&cell.condition.as_str()) {
            bail!("{name}: unknown condition '{}'", cell.condition);
        }
        if cell.trap.as_ref().is_some_and(|trap| !TRAPS.contains(&trap.as_str())) {
            bail!("{name}: unknown trap");
        }
        Ok(cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repo::Repo;
    use std::collections::BTreeSet;

    #[test]
    fn the_committed_cells_are_valid_distinct_and_forty_for_the_test() {
        let repo = Repo::find().unwrap();
        let cells = read(&repo.root.join("comparisons/regret/cells.json")).unwrap();
        let names: BTreeSet<_> = cells.iter().map(|cell| &cell.name).collect();
        assert_eq!(names.len(), cells.len());
        assert_eq!(cells.iter().filter(|cell| cell.set == "test").count(), 40);
        assert!(cells.iter().filter(|cell| cell.set == "design").count() >= 16);
        for trap in TRAPS {
            let has = |set: &str| {
                cells.iter().any(|cell| cell.set == set && cell.trap.as_deref() == Some(trap))
            };
            assert!(has("test"), "{trap}");
        }
    }
}
