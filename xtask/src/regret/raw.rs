//! The raw data of a cell: one line per run, written before the next one starts.

use super::arms::Plan;
use super::cell::Cell;
use anyhow::Context;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The raw data of a cell.
pub(crate) struct Raw {
    pub(super) path: PathBuf,
    pub(crate) runs: Vec<Value>,
}

/// Returns the raw data file of a cell.
pub(super) fn file_of(out: &Path, cell: &Cell) -> PathBuf {
    out.join(format!("{}.jsonl", cell.name.replace(['/', ' ', ','], "-")))
}

impl Raw {
    /// Reads what earlier commands measured. A torn last line is dropped.
    pub(crate) fn open(path: PathBuf) -> anyhow::Result<Self> {
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("read {}", path.display()))?,
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let runs: Result<Vec<Value>, _> = whole.lines().map(serde_json::from_str).collect();
        let runs = runs.with_context(|| format!("{} is damaged", path.display()))?;
        if whole.len() < text.len() {
            std::fs::write(&path, whole).with_context(|| format!("repair {}", path.display()))?;
        }
        Ok(Self { path, runs })
    }

    pub(super) fn has(&self, phase: &str, block: u32, plan: &str) -> bool {
        self.runs
            .iter()
            .any(|run| run["phase"] == phase && run["block"] == block && run["plan"] == plan)
    }

    pub(crate) fn push(&mut self, run: Value) -> anyhow::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        writeln!(file, "{run}").with_context(|| format!("write {}", self.path.display()))?;
        file.sync_data()?;
        self.runs.push(run);
        Ok(())
    }

    /// Returns the shortest mean time of each plan in some phases, shortest first.
    pub(super) fn ranking(&self, phases: &[&str]) -> Vec<(Plan, f64)> {
        let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for run in &self.runs {
            let (Some(plan), Some(phase)) = (run["plan"].as_str(), run["phase"].as_str()) else {
                continue;
            };
            if let (Some(ns), true) = (run["wall_ns"].as_f64(), phases.contains(&phase))
                && run["failure"].is_null()
            {
                times.entry(plan).or_default().push(ns);
            }
        }
        let mut ranking: Vec<(Plan, f64)> = times
            .into_iter()
            .filter_map(|(plan, ns)| {
                Some((Plan::parse(plan)?, ns.iter().sum::<f64>() / ns.len() as f64))
            })
            .collect();
        ranking.sort_by(|a, b| a.1.total_cmp(&b.1));
        ranking
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn raw_data_continue_after_a_torn_line() {
        let dir = std::env::temp_dir().join(format!("ioloom-regret-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("cell.jsonl");
        let mut raw = Raw::open(path.clone()).unwrap();
        for (plan, ns) in [("read/threads:n=2", 300), ("auto", 200), ("auto", 240)] {
            raw.push(
                json!({"phase": "final", "block": 0, "plan": plan, "wall_ns": ns, "failure": null}),
            )
            .unwrap();
        }
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"phase\": \"fi");
        std::fs::write(&path, text).unwrap();
        let raw = Raw::open(path).unwrap();
        assert_eq!(raw.runs.len(), 3);
        assert!(raw.has("final", 0, "auto") && !raw.has("final", 1, "auto"));
        let ranking = raw.ranking(&["final"]);
        assert_eq!((ranking[0].0.to_string().as_str(), ranking[0].1), ("auto", 220.0));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
