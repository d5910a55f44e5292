//! Copying as a subject: the engine `copy` on one file, in a row, on trees, beside others.
//!
//! A plan is `copy:WAY/SETTINGS` for one file, or one of the plays `series`, `requests`, `tree` and
//! `beside`. Each run is a play of its own in a process of its own: it makes its condition and proves
//! it, copies into a directory beside the set that goes away with it, and tells numbers of its own
//! (`extra`): when the copy returned, when it was durable, when nothing of it was left to write.
//! Afterwards, outside of what is timed, another process hashes the copy; its hash is the digest of
//! the run, so that the laboratory holds every way against every other.

mod beside;
mod one;
mod place;
mod plan;
mod requests;
mod series;
mod settle;
mod tree;

use crate::sets::{FileSets, SCRATCH, Scratch as Place};
use ioloom_copy::{CopyCounters, CopyError, CopyOptions, Mode, Report, Silent, Target, When};
use ioloom_lab::ChildAnswer;
use ioloom_lab::files::SET_MANIFEST;
use ioloom_lab::subject::{Sets, Subject, Touches};
use ioloom_model::record::RunOrder;
use ioloom_model::{AnyPlan, Compute, Doubt, FileSetRealised, Measured};
use ioloom_sys::cache;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file::{WriteMode, direct_alignment_of, scratch};
use plan::{How, Play, Settle, Source};
use std::path::Path;

/// Copying.
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
            ("bystander_read_after", "reading what others use"),
        ]
    }

    /// Most plays make their own condition, so the laboratory makes none.
    fn touches(&self) -> Touches {
        Touches::Nothing
    }

    /// A tree that is copied as it is given has the condition of its experiment.
    fn touches_of(&self, plan: &AnyPlan) -> Touches {
        match Play::of(plan) {
            Ok(Play::Tree(tree)) if tree.source == Source::Given => Touches::Data,
            _ => Touches::Nothing,
        }
    }

    fn explain(&self, plan: &AnyPlan) -> Result<String, String> {
        Ok(Play::of(plan)?.sentence())
    }

    fn probe(&self, plan: &AnyPlan, _: &Compute, dir: &Path) -> Result<(), String> {
        let play = Play::of(plan)?;
        // What a killed run left would be in the way of this one.
        Place::beside(dir).map(drop)?;
        if cache::is_memory_backed(dir).unwrap_or(false) && !matches!(play, Play::Requests) {
            return Err(
                "this file system keeps its data in memory alone, so nothing of it can be \
                        cold or durable; remedy: a directory on a disk"
                    .to_owned(),
            );
        }
        match play {
            Play::Requests | Play::Tree(_) => Ok(()),
            Play::One(one) => {
                if one.settle == Settle::Alone {
                    settle::within_s()?;
                }
                can(&one.how, dir)
            }
            Play::Series(series) => can(&series.how, dir),
            Play::Beside(play) => can(&play.how, dir).and_then(|()| beside::probe()),
        }
    }

    fn takes_s(&self, plan: &AnyPlan, files: u64, bytes: u64) -> f64 {
        Play::of(plan).map_or(0.0, |play| settle::takes_s(&play, files, bytes))
    }

    fn run(&self, order: &RunOrder) -> ChildAnswer {
        let played = Play::of(&order.plan).and_then(|play| match play {
            Play::One(play) => one::play(order, &play),
            Play::Series(play) => series::play(order, &play),
            Play::Requests => requests::play(order),
            Play::Tree(play) => tree::play(order, play),
            Play::Beside(play) => beside::play(order, &play),
        });
        played.into()
    }

    fn verify(&self, order: &RunOrder, set: &FileSetRealised, measured: &Measured) -> Vec<Doubt> {
        let Ok(play) = Play::of(&order.plan) else { return Vec::new() };
        let right = match play {
            Play::Requests => true,
            Play::Tree(_) => measured.files == set.files && measured.bytes == set.bytes_total,
            Play::One(_) | Play::Beside(_) => measured.bytes == set.bytes_total,
            Play::Series(series) => measured.bytes == set.bytes_total * series.runs as u64,
        };
        let mut doubts = if right { Vec::new() } else { vec![Doubt::WrongBytes] };
        if let Play::One(one) = play {
            doubts.extend(one::condition(&one, measured));
        }
        doubts
    }
}

/// Whether a way can be gone in `dir`, found by trying what can be tried with one file.
fn can(how: &How, dir: &Path) -> Result<(), String> {
    match how.mode {
        Some(Mode::Direct) => {
            // Asked of a file: directories have no alignment.
            let probed =
                scratch(dir, WriteMode::Direct).and_then(|file| direct_alignment_of(&file));
            let Ok(Some(needed)) = probed else {
                return Err("this file system does not say that it can read and write past the \
                            page cache (no STATX_DIOALIGN); remedy: ext4 or XFS"
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
                format!("this file system does not take RWF_DONTCACHE: {e}; remedy: Linux 6.14, ext4 or XFS")
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
                format!("this file system does not share blocks: {e}; remedy: XFS or btrfs")
            })
        }
        None | Some(Mode::Range | Mode::Buffered | Mode::Mmap) => Ok(()),
    }
}

impl Place {
    /// The directory that copies are made in: beside the items of a set.
    fn beside(items: &Path) -> Result<Self, String> {
        let home = items.parent().filter(|home| home.join(SET_MANIFEST).exists());
        let Some(home) = home else {
            return Err("copies are made beside a set of our own, and a directory of yours gets \
                        none; remedy: leave --files out"
                .to_owned());
        };
        Self::fresh(home.join(SCRATCH))
    }
}

/// The engine's options for a way. Sharing of blocks is a way of its own here: where the copier is
/// asked for another one, it must not share.
fn options(how: &How) -> CopyOptions {
    let reflink = if how.mode.is_none() { When::Auto } else { When::Never };
    CopyOptions { mode: how.mode, tuning: how.tuning, reflink, ..CopyOptions::default() }
}

/// Copies and tells how long it took until the copier returned, ns, with its report.
fn timed(from: &Path, to: Target, options: &CopyOptions) -> Result<(u64, Report), String> {
    let sources = [from.to_owned()];
    let progress = CopyCounters::default();
    let start = monotonic_ns();
    let copied = ioloom_copy::copy(&sources, &to, options, &Silent, &progress);
    let ns = monotonic_ns() - start;
    let report = copied.map_err(|e| e.to_string())?;
    if report.errors_count > 0 || report.cancelled {
        let told: Vec<_> = report.errors.iter().map(CopyError::to_string).collect();
        return Err(format!("the copy failed: {}", told.join("; ")));
    }
    Ok((ns, report))
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a test that cannot run here says so")]
mod tests;
