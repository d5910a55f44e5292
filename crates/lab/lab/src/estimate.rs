//! Estimates the duration of a study.
//!
//! Rates that were not measured on this machine can be wrong by a large factor, so an estimate is a
//! range from a fast disk to a slow disk. If the store has runs of the same arm on the same files,
//! condition, compute, medium and machine, their median time from start to start of the next run is
//! used instead, which includes establishing the condition and storing the record. If most runs are
//! known, both ends are close and the estimate is printed as one number.
//!
//! Cost: reads up to `SESSIONS_MAX` of the newest sessions of the study, skipping any larger than
//! `BYTES_MAX`.

use crate::expand::{Comparison, ReadyArm};
use crate::store::{Session, Store};
use ioloom_model::Compute;
use std::collections::BTreeMap;

/// Maximum number of sessions to read.
const SESSIONS_MAX: usize = 3;
/// Maximum size in bytes of a session file to read.
const BYTES_MAX: u64 = 64 << 20;
/// A gap between two runs is a pause if it exceeds this many seconds and ten times the run.
const PAUSE_S: f64 = 10.0;

/// A range of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Range {
    /// On a fast disk.
    pub low: f64,
    /// On a slow disk.
    pub high: f64,
}

impl Range {
    /// Returns a range with equal ends.
    pub const fn exactly(seconds: f64) -> Self {
        Self { low: seconds, high: seconds }
    }

    /// Adds a multiple of another range.
    pub(crate) fn add(&mut self, other: Self, times: f64) {
        self.low += other.low * times;
        self.high += other.high * times;
    }
}

/// The work of one run.
pub(crate) struct Task {
    pub(crate) files: u64,
    pub(crate) bytes: f64,
    /// Whether the files have data to read. If not, only their inodes are read.
    pub(crate) data: bool,
    /// Total compute time in nanoseconds on one core.
    pub(crate) work_ns: f64,
    /// Number of threads that can compute at once.
    pub(crate) width: u32,
}

impl Task {
    /// Estimates the time on a disk with 25 µs per file and 2 GB/s, and on one with 200 µs and 150
    /// MB/s. Inodes are read in batches, at 4 and 100 µs each. Time spent sleeping is known; for
    /// other compute, the specified time is the maximum.
    pub(crate) fn range(&self, compute: &Compute) -> Range {
        let work = self.work_ns / 1e9 / f64::from(self.width.max(1));
        let least = if matches!(compute, Compute::Sleep(_) | Compute::Spin(_)) { 1.0 } else { 0.3 };
        let files = self.files as f64;
        let (fast_s, slow_s) = if self.data { (25e-6, 200e-6) } else { (4e-6, 100e-6) };
        Range {
            low: 0.03 + files * fast_s + self.bytes / 2e9 + work * least,
            high: 0.1 + files * slow_s + self.bytes / 150e6 + work,
        }
    }
}

/// Durations of earlier runs on this machine.
#[derive(Debug, Default)]
pub struct History {
    seconds: BTreeMap<String, Vec<f64>>,
    /// Number of sessions read.
    pub sessions: usize,
}

/// Key of equivalent runs: everything except the block.
fn key(comparison: &Comparison, arm: &ReadyArm) -> String {
    let place = (&comparison.experiment, &comparison.medium, comparison.condition);
    serde_json::to_string(&(place, &comparison.compute, arm)).unwrap_or_default()
}

impl History {
    /// Reads the newest sessions of a study on a machine. Skips sessions that cannot be read.
    pub fn of(store: &Store, study: &str, machine: &str) -> Self {
        let mut history = Self::default();
        for file in store.list().unwrap_or_default().files.into_iter().rev() {
            let header = &file.header;
            let alike = header.study == study && header.machine.fingerprint == machine;
            if !alike || file.bytes > BYTES_MAX || history.sessions == SESSIONS_MAX {
                continue;
            }
            if let Ok(session) = store.read(&header.session) {
                history.learn(&session);
            }
        }
        history
    }

    /// Adds the runs of a session.
    pub fn learn(&mut self, session: &Session) {
        let header = &session.header;
        let before = self.seconds.len();
        for pair in session.runs.windows(2) {
            let (run, next) = (&pair[0], &pair[1]);
            let slot = header.order.get(run.key.position as usize);
            let of = slot.and_then(|s| {
                let comparison = header.comparisons.get(s.0 as usize)?;
                Some((comparison, comparison.arms.get(s.1 as usize)?))
            });
            let Some((comparison, arm)) = of else { continue };
            if next.key.position != run.key.position + 1 {
                continue;
            }
            let took = next.started_unix_ms.saturating_sub(run.started_unix_ms) as f64 / 1e3;
            let measured = run.measured().map_or(0.0, |m| m.elapsed_ns as f64 / 1e9);
            if took < PAUSE_S.max(10.0 * measured) {
                self.seconds.entry(key(comparison, arm)).or_default().push(took);
            }
        }
        self.sessions += usize::from(self.seconds.len() > before || !session.runs.is_empty());
    }

    /// Returns the median duration of a run of an arm in seconds; `None` if it never ran.
    pub fn run_seconds(&self, comparison: &Comparison, arm: &ReadyArm) -> Option<f64> {
        let mut known = self.seconds.get(&key(comparison, arm))?.clone();
        known.sort_by(f64::total_cmp);
        known.get(known.len() / 2).copied()
    }
}
