//! The page cache as a subject.
//!
//! The scenarios are reading a file twice, writing it in every mode, reclaim under memory pressure,
//! dropping the caches, a file and its block device, redirection in shells, and the dirty page
//! limits.
//!
//! A plan is `pagecache:SCENARIO/SETTINGS`. Each run is a scenario in a separate process. It
//! establishes its condition, proves it with cachestat, and records additional metrics (`extra`)
//! and curves. It writes only unnamed files, which disappear if it is killed; only the shell
//! scenario needs a named file. Counters are read at marks between steps, so the numbers of a step
//! are exact differences rather than interpolated. The counters cover the whole machine, including
//! other work.

mod again;
mod device;
mod dropped;
mod limits;
mod plan;
mod read;
mod reclaim;
mod shell;
mod write;

use crate::sets::{FileSets, set_of};
use ioloom_lab::ChildAnswer;
use ioloom_lab::subject::{Room, Sets, Subject, Touches};
use ioloom_model::record::RunOrder;
use ioloom_model::{AnyPlan, Compute, Doubt, FileSetRealised, FileSetSpec, Measured};
use ioloom_sys::cache;
use ioloom_sys_lab::cgroup::MemoryLimit;
use plan::Scenario;
use std::path::Path;

/// The subject `pagecache`.
#[derive(Debug, Clone, Copy, Default)]
pub struct PageCache;

impl Subject for PageCache {
    fn name(&self) -> &str {
        "pagecache"
    }

    fn sets(&self) -> &dyn Sets {
        &FileSets
    }

    /// Every scenario establishes its own condition.
    fn touches(&self) -> Touches {
        Touches::Nothing
    }

    fn explain(&self, plan: &AnyPlan) -> Result<String, String> {
        Ok(Scenario::of(plan)?.sentence())
    }

    fn probe(&self, plan: &AnyPlan, _: &Compute, dir: &Path) -> Result<(), String> {
        let scenario = Scenario::of(plan)?;
        if matches!(scenario, Scenario::Shell | Scenario::Limits) {
            return Ok(());
        }
        if scenario.writes_bytes() > 0 {
            set_of(dir)?;
        }
        if cache::is_memory_backed(dir).unwrap_or(false) {
            return Err(
                "this is an in-memory file system, so nothing can be cold; use a directory on a \
                disk"
                    .to_owned(),
            );
        }
        match scenario {
            Scenario::Write(write) => write::probe(write, dir),
            Scenario::Again(again) => write::probe(again.one(), dir),
            Scenario::Reclaim(_) => MemoryLimit::probe(),
            Scenario::Device(_) => device::probe(dir),
            Scenario::Dropped(_) => dropped::probe(),
            Scenario::ReadTwice(_) | Scenario::Shell | Scenario::Limits => Ok(()),
        }
    }

    fn drops_caches(&self, plan: &AnyPlan) -> bool {
        matches!(Scenario::of(plan), Ok(Scenario::Dropped(_)))
    }

    fn takes_s(&self, plan: &AnyPlan, _: u64, bytes: u64) -> f64 {
        Scenario::of(plan).map_or(0.0, |scenario| scenario.takes_s(bytes))
    }

    fn writes(&self, plan: &AnyPlan, _: &FileSetSpec) -> Room {
        let bytes = Scenario::of(plan).map_or(0, Scenario::writes_bytes);
        Room { bytes, files: u64::from(bytes > 0) }
    }

    fn run(&self, order: &RunOrder) -> ChildAnswer {
        let result = Scenario::of(&order.plan).and_then(|scenario| match scenario {
            Scenario::ReadTwice(scenario) => read::run(order, scenario),
            Scenario::Write(scenario) => write::run(order, scenario),
            Scenario::Again(scenario) => again::run(order, scenario),
            Scenario::Reclaim(scenario) => reclaim::run(order, scenario),
            Scenario::Dropped(scenario) => dropped::run(order, scenario),
            Scenario::Device(scenario) => device::run(order, scenario),
            Scenario::Shell => shell::run(),
            Scenario::Limits => limits::run(),
        });
        result.into()
    }

    fn verify(&self, order: &RunOrder, set: &FileSetRealised, measured: &Measured) -> Vec<Doubt> {
        let right = match Scenario::of(&order.plan) {
            Ok(Scenario::ReadTwice(_)) => measured.bytes == 2 * set.bytes_total,
            Ok(Scenario::Write(write)) => measured.bytes == write.bytes,
            Ok(Scenario::Again(scenario)) => {
                measured.bytes == scenario.runs as u64 * scenario.bytes
            }
            Ok(Scenario::Reclaim(scenario)) => measured.bytes == 2 * scenario.kind_bytes(),
            Ok(Scenario::Dropped(scenario)) => measured.bytes == 3 * scenario.bytes,
            Ok(Scenario::Device(scenario)) => measured.bytes == 2 * scenario.bytes,
            Ok(Scenario::Shell | Scenario::Limits) | Err(_) => true,
        };
        if right { Vec::new() } else { vec![Doubt::WrongBytes] }
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "tests that cannot run here report it")]
mod tests;
