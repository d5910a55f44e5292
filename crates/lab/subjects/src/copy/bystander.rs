//! Copies under memory pressure next to a file in use: how much of that file the copy evicts, and
//! what this costs its readers.
//!
//! The process limits its own memory with a cgroup; nothing else is affected. The other file, the
//! bystander, is read twice before the copy, which makes the kernel treat it as active, and once
//! after.

use super::engine::{options, scratch_dir, timed};
use super::one;
use super::plan::{Bystander, Source};
use crate::stage::{Stage, only_file, put, resident_bytes, sync_file_system};
use ioloom_copy::Target;
use ioloom_failure::reason;
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file::{WriteMode, read_at, scratch, write_full_at};
use ioloom_sys::{proc, transfer};
use ioloom_sys_lab::cgroup::MemoryLimit;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Bytes per read of the bystander.
const BLOCK_BYTES: usize = 1 << 20;

pub(super) fn probe() -> Result<(), String> {
    MemoryLimit::probe()
}

pub(super) fn run(order: &RunOrder, scenario: &Bystander) -> Result<Measured, String> {
    let place = scratch_dir(&order.dir)?;
    let (from, source, bytes) = only_file(&order.dir)?;
    sync_file_system(&source)?;
    one::make(Source::Cold, &source, bytes)?;
    let little = MemoryLimit::enter(scenario.limit_bytes)?;
    let bystander = written(&place.path, scenario.bystander_bytes, order.seed)?;
    let mut buffer = Buffer::new(BLOCK_BYTES);
    read(&bystander, &mut buffer)?;
    let before = read(&bystander, &mut buffer)?;
    let held_before = resident_bytes(&bystander, scenario.bystander_bytes);
    let mut stage = Stage::open(&order.dir)?;
    let (returned_ns, report) =
        timed(&from, Target::As(place.path.join("copy")), &options(&scenario.how))?;
    let held = resident_bytes(&bystander, scenario.bystander_bytes);
    let device = || proc::process_io().map_or(0, |io| io.read_bytes);
    let device_before = device();
    let after = read(&bystander, &mut buffer)?;
    stage.put("bystander_bytes", scenario.bystander_bytes as f64);
    stage.put("bystander_read_before_ns", before as f64);
    stage.put("bystander_read_after_ns", after as f64);
    stage.put("bystander_device_bytes", (device() - device_before) as f64);
    stage.put("returned_ns", returned_ns as f64);
    stage.put("file_bytes", bytes as f64);
    let (mut measured, _) = stage.close(returned_ns, report.bytes);
    put(&mut measured, "bystander_held_before_bytes", held_before);
    put(&mut measured, "bystander_held_bytes", held);
    drop(little);
    Ok(measured)
}

/// Creates an unnamed file that is written and synced, with clean and resident pages.
fn written(dir: &Path, bytes: u64, seed: u64) -> Result<OwnedFd, String> {
    let fail = |e: std::io::Error| format!("cannot create the bystander: {}", reason(&e));
    let file = scratch(dir, WriteMode::Buffered).map_err(fail)?;
    let mut buffer = Buffer::new(BLOCK_BYTES);
    let mut state = seed | 1;
    for at in (0..bytes).step_by(BLOCK_BYTES) {
        for byte in buffer.whole_mut().iter_mut().step_by(512) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        let len = BLOCK_BYTES.min((bytes - at) as usize);
        write_full_at(&file, buffer.bytes(len), at).map_err(fail)?;
    }
    transfer::sync_data(&file).map_err(fail)?;
    Ok(file)
}

/// Reads the whole file. Returns the time in ns.
fn read(file: &OwnedFd, buffer: &mut Buffer) -> Result<u64, String> {
    let start = monotonic_ns();
    let mut at = 0;
    loop {
        let got = read_at(file, buffer.whole_mut(), at)
            .map_err(|e| format!("cannot read the bystander: {}", reason(&e)))?;
        if got == 0 {
            return Ok(monotonic_ns() - start);
        }
        at += got as u64;
    }
}
