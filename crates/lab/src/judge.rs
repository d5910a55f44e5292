//! Doubts about a single run that the laboratory can see by itself.
//!
//! Doubts about series (drift, two regimes, few samples, noise floor) need many runs and belong to
//! statistics. Here: did the run see the bytes that the set holds, and the same ones as every
//! other run on it; was it disturbed, too short, too wide for the machine.

use crate::files::FileList;
use ioloom_model::record::RunOrder;
use ioloom_model::{Compute, Doubt, Measured, Method, Plan, RunRecord, Schedule};
use std::collections::BTreeMap;

/// Share of the processors that others may use during a run.
pub const OTHERS_CPU_MAX: f64 = 0.15;
/// A run shorter than this is mostly start-up, nanoseconds.
pub const SHORT_RUN_NS: u64 = 10_000_000;

/// What a digest must be compared within: set, number of files and kind of work.
type Same = (String, u64, String);

/// Judges runs, with a memory of the digests seen.
#[derive(Debug)]
pub struct Judge {
    cores: u32,
    digests: BTreeMap<Same, String>,
}

impl Judge {
    /// For a machine with this many usable cores.
    pub fn new(cores: u32) -> Self {
        Self { cores: cores.max(1), digests: BTreeMap::new() }
    }

    /// Keeps the digest of a run that is without doubt about its bytes, the first for each set.
    pub fn remember(&mut self, record: &RunRecord) {
        if let Some(measured) = record.measured()
            && comparable(&record.plan, measured)
            && !record.doubts.contains(&Doubt::WrongBytes)
        {
            self.digests.entry(same(record, measured)).or_insert(measured.digest.clone());
        }
    }

    /// Adds the doubts that the numbers of the run show. `scaled`: the set is smaller than the
    /// published one.
    pub fn judge(&self, record: &mut RunRecord, order: &RunOrder, files: &FileList, scaled: bool) {
        let mut doubts = Vec::new();
        if let Some(measured) = record.measured() {
            if self.wrong_bytes(record, measured, order, files) {
                doubts.push(Doubt::WrongBytes);
            }
            for (doubt, holds) in [
                (Doubt::Errors, measured.errors > 0),
                (Doubt::NoisyNeighbour, measured.others_cpu.is_some_and(|o| o > OTHERS_CPU_MAX)),
                (Doubt::ShortRun, measured.elapsed_ns < SHORT_RUN_NS),
                (Doubt::SpansLost, order.spans_max > 0 && measured.spans_lost > 0),
                (Doubt::Oversubscribed, self.oversubscribed(&order.plan, &order.compute)),
                (Doubt::Scaled, scaled),
            ] {
                if holds {
                    doubts.push(doubt);
                }
            }
        }
        record.doubts.extend(doubts);
    }

    fn wrong_bytes(
        &self,
        record: &RunRecord,
        measured: &Measured,
        order: &RunOrder,
        files: &FileList,
    ) -> bool {
        if measured.errors > 0 {
            return false;
        }
        if measured.files != files.count(order.files_max) as u64 {
            return true;
        }
        if record.plan.method == Method::Null {
            return false;
        }
        measured.bytes != files.bytes(order.files_max)
            || self
                .digests
                .get(&same(record, measured))
                .is_some_and(|digest| *digest != measured.digest)
    }

    /// Work that takes a core for long, on more threads than cores.
    fn oversubscribed(&self, plan: &Plan, compute: &Compute) -> bool {
        let heavy = matches!(
            compute,
            Compute::Spin(_) | Compute::Checksum { .. } | Compute::Blake3 | Compute::Md5
        );
        let threads = match plan.schedule {
            Schedule::Threads { n } => n,
            Schedule::Roles { hybrids, computers, .. } => hybrids + computers,
            Schedule::Window { permits, .. } => permits.unwrap_or(1),
        };
        heavy && threads > self.cores
    }
}

fn comparable(plan: &Plan, measured: &Measured) -> bool {
    plan.method != Method::Null && measured.errors == 0 && !measured.digest.is_empty()
}

/// The number of files stands for the limit, which a record does not keep.
fn same(record: &RunRecord, measured: &Measured) -> Same {
    let set = format!("{} on {}", record.set.hash, record.key.medium);
    (set, measured.files, record.key.compute.to_string())
}

/// Sorted, each once.
pub(crate) fn tidy(doubts: &mut Vec<Doubt>) {
    doubts.sort_unstable();
    doubts.dedup();
}
