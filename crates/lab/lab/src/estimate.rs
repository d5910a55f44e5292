//! How long a study will take: from runs of the same kind on this machine where there are some,
//! else a range between a fast and a slow disk.
//!
//! A single number from rates that nobody measured here would be wrong by a factor on most
//! machines, so there are two: what a fast disk and what a slow one would need. A run that the
//! store knows (the same arm on the same files, condition, work, medium and machine) counts with
//! the median time from its start to the start of the next one, which includes making the
//! condition and keeping the record. Where most runs are known both ends come close to each other,
//! and the estimate is told as one number.
//!
//! Cost: the newest sessions of the study are read, at most [`SESSIONS_MAX`] of them and none above
//! [`BYTES_MAX`].

use crate::expand::{Comparison, ReadyArm};
use crate::store::{Session, Store};
use ioloom_model::Compute;
use std::collections::BTreeMap;

/// Sessions that are read.
const SESSIONS_MAX: usize = 3;
/// Longest file of a session that is read, bytes.
const BYTES_MAX: u64 = 64 << 20;
/// A gap between two runs that is longer than this and ten times the run was a pause, seconds.
const PAUSE_S: f64 = 10.0;

/// Seconds at best and at worst.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Range {
    /// On a fast disk.
    pub low: f64,
    /// On a slow one.
    pub high: f64,
}

impl Range {
    /// Both ends the same.
    pub const fn exactly(seconds: f64) -> Self {
        Self { low: seconds, high: seconds }
    }

    /// Adds another range, so many times.
    pub(crate) fn add(&mut self, other: Self, times: f64) {
        self.low += other.low * times;
        self.high += other.high * times;
    }
}

/// What one run of an arm has to do.
pub(crate) struct Task {
    pub(crate) files: u64,
    pub(crate) bytes: f64,
    /// Whether the files have data to read; else they are only asked for.
    pub(crate) data: bool,
    /// Compute demand in all, nanoseconds on one core.
    pub(crate) work_ns: f64,
    /// Threads that may work on it at once.
    pub(crate) width: u32,
}

impl Task {
    /// Between a disk that gives a file in 25 µs and 2 GB/s, and one that needs 200 µs and gives
    /// 150 MB/s; of a file that is only asked for, many inodes come at once, in 4 and 100 µs each.
    /// Demand that is slept is known; of other work the given time is the most.
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

/// How long runs took here before.
#[derive(Debug, Default)]
pub struct History {
    seconds: BTreeMap<String, Vec<f64>>,
    /// Sessions that were read.
    pub sessions: usize,
}

/// What makes two runs alike: everything but their block.
fn key(comparison: &Comparison, arm: &ReadyArm) -> String {
    let place = (&comparison.experiment, &comparison.medium, comparison.condition);
    serde_json::to_string(&(place, &comparison.compute, arm)).unwrap_or_default()
}

impl History {
    /// The newest sessions of a study on a machine. What cannot be read teaches nothing.
    pub fn of(store: &Store, study: &str, machine: &str) -> Self {
        let mut history = Self::default();
        for file in store.files().unwrap_or_default().into_iter().rev() {
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

    /// Takes note of the runs of a session.
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

    /// How long a run of an arm took in the middle, seconds; `None` if it never ran.
    pub fn run_seconds(&self, comparison: &Comparison, arm: &ReadyArm) -> Option<f64> {
        let mut known = self.seconds.get(&key(comparison, arm))?.clone();
        known.sort_by(f64::total_cmp);
        known.get(known.len() / 2).copied()
    }
}
