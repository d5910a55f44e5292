//! The raw data of a cell: one line per run, written before the next one starts.

use super::arms::Plan;
use super::cell::Cell;
use anyhow::{Context, ensure};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Attempts at a run that fails.
const ATTEMPTS: usize = 3;
/// Fields of the first line that must be the same when a measurement continues.
const SAME: [&str; 5] = ["version", "cell", "seed", "drop_caches", "kernel"];

/// The raw data of a cell, locked against other processes that measure it.
pub(crate) struct Raw {
    path: PathBuf,
    file: File,
    pub(crate) runs: Vec<Value>,
}

/// Returns the raw data file of a cell.
pub(super) fn file_of(out: &Path, cell: &Cell) -> PathBuf {
    out.join(format!("{}.jsonl", cell.name.replace(['/', ' ', ','], "-")))
}

/// Reads what was measured, without a torn last line. The file is not changed: another process may be
/// writing it.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        read => {
            let bytes = read.with_context(|| format!("read {}", path.display()))?;
            parsed(whole(&bytes), path)
        }
    }
}

/// Returns the lines that were written completely.
fn whole(bytes: &[u8]) -> &[u8] {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(&bytes[..0], |end| &bytes[..=end])
}

fn parsed(lines: &[u8], path: &Path) -> anyhow::Result<Vec<Value>> {
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let runs: Result<Vec<Value>, _> = lines.map(serde_json::from_slice).collect();
    runs.with_context(|| format!("{} is damaged", path.display()))
}

impl Raw {
    /// Opens the file to continue it. A torn last line is removed.
    ///
    /// # Errors
    /// Fails if another process measures into the file.
    pub(crate) fn open(path: PathBuf) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("open {}", path.display()))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).with_context(|| {
            format!("cannot lock {}; another process may be measuring", path.display())
        })?;
        let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let whole = whole(&bytes);
        let runs = parsed(whole, &path)?;
        if whole.len() < bytes.len() {
            file.set_len(whole.len() as u64)
                .with_context(|| format!("repair {}", path.display()))?;
        }
        Ok(Self { path, file, runs })
    }

    /// Writes the first line, or checks that the file was begun under the same conditions.
    pub(super) fn begin(&mut self, setup: Value) -> anyhow::Result<()> {
        let Some(first) = self.runs.first() else { return self.push(setup) };
        for field in SAME {
            ensure!(
                first[field] == setup[field],
                "{} was begun with {field} {}, now it is {}; name another directory with --out",
                self.path.display(),
                first[field],
                setup[field]
            );
        }
        Ok(())
    }

    /// Returns true if a run was measured, or failed so often that it is not tried again.
    pub(super) fn has(&self, phase: &str, block: u32, plan: &str) -> bool {
        let same =
            |run: &&Value| run["phase"] == phase && run["block"] == block && run["plan"] == plan;
        let runs = || self.runs.iter().filter(same);
        runs().any(|run| run["failure"].is_null()) || runs().count() >= ATTEMPTS
    }

    /// Returns the reason if a run read other files or bytes than the first one that was measured.
    pub(super) fn difference(&self, run: &Value) -> Option<String> {
        let first =
            self.runs.iter().find(|run| run["files"].is_u64() && run["failure"].is_null())?;
        let differs = ["files", "bytes"].into_iter().find(|field| first[*field] != run[*field])?;
        Some(format!("read {} {differs}, the first run {}", run[differs], first[differs]))
    }

    pub(crate) fn push(&mut self, run: Value) -> anyhow::Result<()> {
        // One call, so that a reader sees at most one torn line.
        let line = format!("{run}\n");
        self.file
            .write_all(line.as_bytes())
            .with_context(|| format!("write {}", self.path.display()))?;
        self.file.sync_data()?;
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

impl Drop for Raw {
    /// Unlocks the file, although a process that another thread is starting may still hold it open.
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn directory(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("ioloom-regret-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn raw_data_continue_after_a_torn_line() {
        let dir = directory("torn");
        let path = dir.join("cell.jsonl");
        let mut raw = Raw::open(path.clone()).unwrap();
        for (plan, ns) in [("read/threads:n=2", 300), ("auto", 200), ("auto", 240)] {
            raw.push(
                json!({"phase": "final", "block": 0, "plan": plan, "wall_ns": ns, "failure": null}),
            )
            .unwrap();
        }
        drop(raw);
        let whole = std::fs::read(&path).unwrap();
        // Torn within a character.
        let torn = [&whole[..], b"{\"failure\": \"\xe2\x80"].concat();
        std::fs::write(&path, &torn).unwrap();
        assert_eq!(read(&path).unwrap().len(), 3);
        assert_eq!(std::fs::read(&path).unwrap(), torn, "a reader changes nothing");
        let raw = Raw::open(path.clone()).unwrap();
        assert_eq!(raw.runs.len(), 3);
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        assert!(raw.has("final", 0, "auto") && !raw.has("final", 1, "auto"));
        let ranking = raw.ranking(&["final"]);
        assert_eq!((ranking[0].0.to_string().as_str(), ranking[0].1), ("auto", 220.0));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn only_one_process_measures_a_cell() {
        let dir = directory("lock");
        let path = dir.join("cell.jsonl");
        assert_eq!(read(&path).unwrap(), Vec::<Value>::new());
        let raw = Raw::open(path.clone()).unwrap();
        let error = Raw::open(path.clone()).err().unwrap();
        assert!(error.to_string().contains("cannot lock"), "{error:#}");
        read(&path).unwrap();
        drop(raw);
        Raw::open(path).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_measurement_continues_under_the_same_conditions_only() {
        let dir = directory("begin");
        let setup = |version: &str, drop_caches: bool| json!({"phase": "setup", "version": version, "drop_caches": drop_caches});
        let mut raw = Raw::open(dir.join("cell.jsonl")).unwrap();
        raw.begin(setup("a", true)).unwrap();
        raw.begin(setup("a", true)).unwrap();
        assert_eq!(raw.runs.len(), 1);
        let error = raw.begin(setup("b", true)).unwrap_err().to_string();
        assert!(error.contains("begun with version \"a\", now it is \"b\""), "{error}");
        let error = raw.begin(setup("a", false)).unwrap_err().to_string();
        assert!(error.contains("begun with drop_caches true, now it is false"), "{error}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn failed_runs_are_tried_again_and_other_bytes_are_failures() {
        let dir = directory("failed");
        let run = |failure: Value, bytes: u64| {
            json!({"phase": "final", "block": 0, "plan": "auto", "failure": failure,
                   "files": 2, "bytes": bytes})
        };
        let mut raw = Raw::open(dir.join("cell.jsonl")).unwrap();
        for _ in 0..ATTEMPTS {
            assert!(!raw.has("final", 0, "auto"));
            raw.push(run("not cold".into(), 1)).unwrap();
        }
        assert!(raw.has("final", 0, "auto"));
        assert_eq!(raw.difference(&run(Value::Null, 7)), None, "the first one");
        raw.push(run(Value::Null, 7)).unwrap();
        assert_eq!(raw.difference(&run(Value::Null, 7)), None);
        let difference = raw.difference(&run(Value::Null, 8)).unwrap();
        assert_eq!(difference, "read 8 bytes, the first run 7");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
