//! The page cache as a subject: reading twice, writing in every way, what goes when memory is short or
//! the caches are dropped, a file and its device, who opens a file for a command, the limits of dirty
//! pages.
//!
//! A plan is `pagecache:WHAT/SETTINGS`. Each run is a small play of its own in a process of its own:
//! it makes its own condition (and proves it by cachestat), writes only files without a name, which
//! a kill removes (that of the shells excepted, to which names belong), and tells numbers of its own (`extra`) and curves. Counters are taken at marks
//! between the acts, so what belongs to an act is an exact difference and no interpolation; they are
//! those of the whole machine, so other work on it is in them.

mod again;
mod device;
mod dropped;
mod limits;
mod plan;
mod read;
mod reclaim;
mod shell;
mod write;

use crate::sets::FileSets;
use ioloom_lab::ChildAnswer;
use ioloom_lab::subject::{Sets, Subject, Touches};
use ioloom_model::record::RunOrder;
use ioloom_model::{AnyPlan, Compute, Doubt, FileSetRealised, Measured};
use ioloom_sys::cache;
use ioloom_sys_lab::cgroup::MemoryLimit;
use plan::Play;
use std::path::Path;

/// The page cache.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageCache;

impl Subject for PageCache {
    fn name(&self) -> &str {
        "pagecache"
    }

    fn sets(&self) -> &dyn Sets {
        &FileSets
    }

    /// Every play makes its own condition, so the laboratory makes none.
    fn touches(&self) -> Touches {
        Touches::Nothing
    }

    fn explain(&self, plan: &AnyPlan) -> Result<String, String> {
        Ok(Play::of(plan)?.sentence())
    }

    fn probe(&self, plan: &AnyPlan, _: &Compute, dir: &Path) -> Result<(), String> {
        let play = Play::of(plan)?;
        if matches!(play, Play::Shell | Play::Limits) {
            return Ok(());
        }
        if cache::is_memory_backed(dir).unwrap_or(false) {
            return Err(
                "this file system keeps its data in memory alone, so nothing of it can be \
                        cold; remedy: a directory on a disk"
                    .to_owned(),
            );
        }
        match play {
            Play::Write(write) => write::probe(write, dir),
            Play::Again(again) => write::probe(again.one(), dir),
            Play::Reclaim(_) => MemoryLimit::probe(),
            Play::Device(_) => device::probe(dir),
            Play::Dropped(_) => dropped::probe(),
            Play::ReadTwice(_) | Play::Shell | Play::Limits => Ok(()),
        }
    }

    fn drops_caches(&self, plan: &AnyPlan) -> bool {
        matches!(Play::of(plan), Ok(Play::Dropped(_)))
    }

    fn takes_s(&self, plan: &AnyPlan, _: u64, bytes: u64) -> f64 {
        Play::of(plan).map_or(0.0, |play| play.takes_s(bytes))
    }

    fn run(&self, order: &RunOrder) -> ChildAnswer {
        let played = Play::of(&order.plan).and_then(|play| match play {
            Play::ReadTwice(play) => read::play(order, play),
            Play::Write(play) => write::play(order, play),
            Play::Again(play) => again::play(order, play),
            Play::Reclaim(play) => reclaim::play(order, play),
            Play::Dropped(play) => dropped::play(order, play),
            Play::Device(play) => device::play(order, play),
            Play::Shell => shell::play(),
            Play::Limits => limits::play(),
        });
        played.into()
    }

    fn verify(&self, order: &RunOrder, set: &FileSetRealised, measured: &Measured) -> Vec<Doubt> {
        let right = match Play::of(&order.plan) {
            Ok(Play::ReadTwice(_)) => measured.bytes == 2 * set.bytes_total,
            Ok(Play::Write(write)) => measured.bytes == write.bytes,
            Ok(Play::Again(play)) => measured.bytes == play.runs as u64 * play.bytes,
            Ok(Play::Reclaim(play)) => measured.bytes == 2 * play.kind_bytes(),
            Ok(Play::Dropped(play)) => measured.bytes == 3 * play.bytes,
            Ok(Play::Device(play)) => measured.bytes == 2 * play.bytes,
            Ok(Play::Shell | Play::Limits) | Err(_) => true,
        };
        if right { Vec::new() } else { vec![Doubt::WrongBytes] }
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a test that cannot run here says so")]
mod tests;
