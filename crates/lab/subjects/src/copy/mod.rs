//! Runs the engine `copy` as a subject.
//!
//! A plan is `copy:METHOD/SETTINGS` for one file, or a scenario such as `series`. Each run is a
//! scenario in a separate process: it establishes its condition and proves it, copies into a
//! temporary directory next to the set, and records additional metrics (`extra`): when the copy
//! returned, when it was durable, and when all of it had been written. Afterwards, outside the
//! measured time, another process hashes the copy. The hash is the digest of the run, which lets
//! the laboratory compare all methods.

mod bystander;
mod engine;
mod location;
mod one;
mod plan;
mod requests;
mod series;
mod settle;
mod tree;

use crate::sets::FileSets;
use ioloom_copy::Mode;
use ioloom_failure::reason;
use ioloom_lab::ChildAnswer;
use ioloom_lab::subject::{Room, Sets, Subject, Touches};
use ioloom_model::record::RunOrder;
use ioloom_model::{AnyPlan, Compute, Doubt, FileSetRealised, FileSetSpec, Measured};
use ioloom_sys::cache;
use ioloom_sys::file::{WriteMode, direct_alignment_of, scratch};
use plan::{How, Scenario, Settle, Source};
use std::path::Path;

/// The subject `copy`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Copy;

impl Subject for Copy {
    fn name(&self) -> &str {
        "copy"
    }

    fn sets(&self) -> &dyn Sets {
        &FileSets
    }

    fn metric_names(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("odd_refused", "requests refused"),
            ("copy_median", "median of the copies"),
            ("copy_slowest", "slowest of the copies"),
            ("bystander_read_after", "reading a file in use"),
        ]
    }

    /// Most scenarios establish their own condition.
    fn touches(&self) -> Touches {
        Touches::Nothing
    }

    /// A tree with the source `given` uses the condition of its experiment.
    fn touches_of(&self, plan: &AnyPlan) -> Touches {
        match Scenario::of(plan) {
            Ok(Scenario::Tree(tree)) if tree.source == Source::Given => Touches::Data,
            _ => Touches::Nothing,
        }
    }

    fn explain(&self, plan: &AnyPlan) -> Result<String, String> {
        Ok(Scenario::of(plan)?.sentence())
    }

    fn probe(&self, plan: &AnyPlan, _: &Compute, dir: &Path) -> Result<(), String> {
        let scenario = Scenario::of(plan)?;
        // Remove leftovers of a killed run.
        engine::scratch_dir(dir).map(drop)?;
        if cache::is_memory_backed(dir).unwrap_or(false) && !matches!(scenario, Scenario::Requests)
        {
            return Err(
                "this is an in-memory file system, so nothing can be cold or durable; use \
                a directory on a disk"
                    .to_owned(),
            );
        }
        match scenario {
            Scenario::Requests | Scenario::Tree(_) => Ok(()),
            Scenario::One(one) => {
                if one.settle == Settle::Alone {
                    settle::within_s()?;
                }
                probe_method(&one.how, dir)
            }
            Scenario::Series(series) => probe_method(&series.how, dir),
            Scenario::Bystander(scenario) => {
                probe_method(&scenario.how, dir).and_then(|()| bystander::probe())
            }
        }
    }

    fn takes_s(&self, plan: &AnyPlan, files: u64, bytes: u64) -> f64 {
        Scenario::of(plan).map_or(0.0, |scenario| settle::takes_s(&scenario, files, bytes))
    }

    fn writes(&self, plan: &AnyPlan, spec: &FileSetSpec) -> Room {
        Scenario::of(plan).map_or(Room::default(), |scenario| scenario.writes(FileSets.cost(spec)))
    }

    fn run(&self, order: &RunOrder) -> ChildAnswer {
        let result = Scenario::of(&order.plan).and_then(|scenario| match scenario {
            Scenario::One(scenario) => one::run(order, &scenario),
            Scenario::Series(scenario) => series::run(order, &scenario),
            Scenario::Requests => requests::run(order),
            Scenario::Tree(scenario) => tree::run(order, scenario),
            Scenario::Bystander(scenario) => bystander::run(order, &scenario),
        });
        result.into()
    }

    fn verify(&self, order: &RunOrder, set: &FileSetRealised, measured: &Measured) -> Vec<Doubt> {
        let Ok(scenario) = Scenario::of(&order.plan) else { return Vec::new() };
        let right = match scenario {
            Scenario::Requests => true,
            Scenario::Tree(_) => measured.files == set.files && measured.bytes == set.bytes_total,
            Scenario::One(_) | Scenario::Bystander(_) => measured.bytes == set.bytes_total,
            Scenario::Series(series) => measured.bytes == set.bytes_total * series.runs as u64,
        };
        let mut doubts = if right { Vec::new() } else { vec![Doubt::WrongBytes] };
        if let Scenario::One(one) = scenario {
            doubts.extend(one::condition(&one, measured));
        }
        doubts
    }
}

/// Checks whether a method works in `dir` by trying it on a temporary file.
fn probe_method(how: &How, dir: &Path) -> Result<(), String> {
    match how.mode {
        Some(Mode::Direct) => {
            // Directories report no alignment, so query a file.
            let probed =
                scratch(dir, WriteMode::Direct).and_then(|file| direct_alignment_of(&file));
            let Ok(Some(needed)) = probed else {
                return Err("this file system does not report direct I/O alignment (no \
                            STATX_DIOALIGN); use ext4 or XFS"
                    .to_owned());
            };
            let block = how.tuning.block_bytes.unwrap_or(1 << 20);
            if block.is_multiple_of(needed.offset) {
                return Ok(());
            }
            Err(format!("block must be a multiple of {}", needed.offset))
        }
        Some(Mode::Uncached) => {
            let tried = scratch(dir, WriteMode::Buffered)
                .and_then(|file| ioloom_sys::transfer::write_uncached_at(&file, &[0], 0));
            tried.map(drop).map_err(|e| {
                format!(
                    "this file system does not support RWF_DONTCACHE: {}; use Linux 6.14 with \
                    ext4 or XFS",
                    reason(&e)
                )
            })
        }
        Some(Mode::Reflink) => {
            let pair = scratch(dir, WriteMode::Buffered)
                .and_then(|from| Ok((from, scratch(dir, WriteMode::Buffered)?)));
            let tried = pair.and_then(|(from, to)| {
                ioloom_sys::file::write_full_at(&from, &[0; 4096], 0)?;
                ioloom_sys::transfer::clone_file(&from, &to)
            });
            tried.map_err(|e| {
                format!("this file system cannot share blocks: {}; use XFS or btrfs", reason(&e))
            })
        }
        None | Some(Mode::Range | Mode::Buffered | Mode::Mmap) => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "tests that cannot run here report it")]
mod tests;
