//! Copies many small files: the effect of threads, and the cost of making files durable.
//!
//! A source that is `given` remains in the state established by the laboratory. Opening a file to
//! query it would load its name and inode, which may have to be cold, so nothing is queried here.

use super::engine::{scratch_dir, timed};
use super::plan::{Source, Tree};
use crate::sets::walk_list;
use crate::stage::{Stage, make_cold, sync_file_system};
use ioloom_copy::{CopyOptions, Target};
use ioloom_failure::{Operation, PathError};
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::dir::Dir;
use ioloom_sys::file::{OpenHow, open, size};

pub(super) fn run(order: &RunOrder, scenario: Tree) -> Result<Measured, String> {
    let place = scratch_dir(&order.dir)?;
    let root = Dir::open(&place.path)
        .map_err(|e| PathError::new(Operation::OpenDir, &place.path, e).to_string())?;
    sync_file_system(&root)?;
    if scenario.source != Source::Given {
        make(order, scenario.source)?;
    }
    let Tree { threads, durable, .. } = scenario;
    let options = CopyOptions { recursive: true, threads, durable, ..CopyOptions::default() };
    let mut stage = Stage::open(&order.dir)?;
    stage.sampler.mark("copy");
    let start = monotonic_ns();
    let to = Target::As(place.path.join("tree"));
    let (returned_ns, report) = timed(&order.dir, to, &options)?;
    stage.sampler.mark("returned");
    sync_file_system(&root)?;
    let durable_ns = monotonic_ns() - start;
    stage.sampler.mark("durable");
    stage.put("returned_ns", returned_ns as f64);
    stage.put("durable_ns", durable_ns as f64);
    stage.put("copy_threads", report.threads as f64);
    stage.put("returned_ns_per_file", returned_ns as f64 / report.counts.files.max(1) as f64);
    let (mut measured, _) = stage.close(durable_ns, report.bytes);
    measured.files = report.counts.files;
    Ok(measured)
}

/// Evicts or loads every file. Names and inodes remain in memory.
fn make(order: &RunOrder, state: Source) -> Result<(), String> {
    let list = walk_list(&order.dir)?;
    for index in 0..list.len() {
        let path = list.path(index);
        let fail = |e: std::io::Error| PathError::new(Operation::Open, path, e).to_string();
        let file = open(path, OpenHow::default()).map_err(fail)?;
        let bytes = size(&file).map_err(fail)?;
        match state {
            Source::Warm => super::one::warm(&file, bytes)?,
            Source::Cold if bytes > 0 => make_cold(&file, bytes)?,
            Source::Cold | Source::Given => {}
        }
    }
    Ok(())
}
