//! What the kernel puts out first when memory is short: pages that are clean, or pages that must be
//! written before.
//!
//! The process puts itself into a group with little memory, so nothing else on the machine is touched
//! and no setting is changed. There blocks of a file are read and blocks of another one written, in
//! turn, so that both kinds have the same age and each page was touched once. Then memory is taken a
//! mebibyte at a time; after each the kernel is asked what of either file is still there. At the end
//! the clean file is read again: what its user pays, though it asked for nothing.
//!
//! Which kind goes first shows in the first eighth of what goes. Later it does not: the kernel has the
//! changed pages written as soon as it meets them, and once they are, age alone decides. On a device
//! that writes them within a few steps as much is left of both when half is gone, on a slower one less
//! is left of the clean ones; so half is told and decides nothing.
//!
//! Refaults are those of the group: pages that were wanted again while the kernel still knew that they
//! had gone. Those of the machine stand beside them, with what others wanted.
//!
//! The group holds its own pages alone, but the flusher of the machine serves all: a changed page that
//! it wrote by itself meanwhile counts as clean. The numbers say how many there were.

use super::plan::Reclaim;
use crate::stage::{Stage, make_cold, only_file, put};
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use ioloom_observe::counters::Field;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::cache::{self, CacheState};
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file::{WriteMode, read_full_at, scratch, write_full_at};
use ioloom_sys::proc::{self, page_bytes};
use ioloom_sys_lab::cgroup::MemoryLimit;
use std::os::fd::OwnedFd;

/// One call, and one step of taking memory.
const STEP_BYTES: usize = 1 << 20;

/// Pages of files that were wanted again soon after they had gone, in the statistics of the group.
const REFAULTED: &str = "workingset_refault_file";

/// What of the two kinds is there, bytes.
#[derive(Clone, Copy)]
struct Held {
    clean: u64,
    changed: u64,
    /// Of the changed ones, not yet on the device.
    unwritten: u64,
}

impl Held {
    fn look(clean: &OwnedFd, changed: &OwnedFd, bytes: u64) -> Result<Self, String> {
        let of = |file: &OwnedFd| -> Result<CacheState, String> {
            let state = cache::state(file, 0, bytes).map_err(|e| format!("cachestat: {e}"))?;
            state.ok_or_else(|| "cachestat does not answer here, so nothing is known".to_owned())
        };
        let (clean, changed, page) = (of(clean)?, of(changed)?, page_bytes());
        Ok(Self {
            clean: clean.resident * page,
            changed: changed.resident * page,
            unwritten: (changed.dirty + changed.writeback) * page,
        })
    }

    fn all(self) -> u64 {
        self.clean + self.changed
    }
}

pub(super) fn run(order: &RunOrder, scenario: Reclaim) -> Result<Measured, String> {
    let (_, clean, file_bytes) = only_file(&order.dir)?;
    let bytes = scenario.kind_bytes();
    if file_bytes < bytes {
        return Err(format!("the scenario needs a file of {bytes} bytes, not of {file_bytes}"));
    }
    make_cold(&clean, file_bytes)?;
    // Else blocks would come in that were not read.
    cache::advise_random(&clean).map_err(|e| format!("turn reading ahead off: {e}"))?;
    let changed =
        scratch(&order.dir, WriteMode::Buffered).map_err(|e| format!("make a file: {e}"))?;
    cache::flush_file_system(&changed).map_err(|e| format!("flush the file system: {e}"))?;
    let mut buffer = Buffer::new(STEP_BYTES);
    let little = MemoryLimit::enter(scenario.limit_bytes)?;
    bring_in(&clean, &changed, &mut buffer, bytes)?;
    let mut stage = Stage::open(&order.dir)?;
    let before = Held::look(&clean, &changed, bytes)?;
    stage.sampler.mark("take");
    let taken = take(&clean, &changed, scenario, before)?;
    stage.sampler.mark("taken");
    let refaulted = || little.stat(REFAULTED).map_err(|e| format!("read memory.stat: {e}"));
    let refaulted_before = refaulted()?;
    let (again_ns, again_device) = read_again(&clean, &mut buffer, bytes)?;
    let refaulted_after = refaulted()?;
    stage.sampler.mark("again");
    drop(taken.memory);
    check(&changed, &mut buffer, bytes)?;
    drop(little);
    for (name, value) in [
        ("limit_bytes", scenario.limit_bytes),
        ("taken_bytes", scenario.taken_bytes()),
        ("clean_before_bytes", before.clean),
        ("changed_before_bytes", before.changed),
        ("unwritten_before_bytes", before.unwritten),
        ("clean_after_bytes", taken.after.clean),
        ("changed_after_bytes", taken.after.changed),
        ("unwritten_after_bytes", taken.after.unwritten),
        ("clean_gone_at_eighth_bytes", before.clean - taken.eighth.clean.min(before.clean)),
        ("changed_gone_at_eighth_bytes", before.changed - taken.eighth.changed.min(before.changed)),
        ("clean_gone_at_half_bytes", before.clean - taken.half.clean.min(before.clean)),
        ("changed_gone_at_half_bytes", before.changed - taken.half.changed.min(before.changed)),
        ("step_ns_p50", taken.step_ns_p50),
        ("step_ns_max", taken.step_ns_max),
        ("again_ns", again_ns),
        ("again_device_bytes", again_device),
    ] {
        stage.put(name, value as f64);
    }
    let (mut measured, acts) = stage.close(taken.elapsed_ns, 2 * bytes);
    let written = acts.grown(Field::PageOut, "take", "taken", 1024.0);
    put(&mut measured, "pageout_bytes", written);
    let page = page_bytes() as f64;
    let grown = refaulted_before.zip(refaulted_after).map(|(a, b)| b.saturating_sub(a) as f64);
    put(&mut measured, "refaulted_bytes", grown.map(|pages| pages * page));
    let of_machine = acts.grown(Field::RefaultedFile, "taken", "again", page);
    put(&mut measured, "refaulted_of_machine_bytes", of_machine);
    measured.curves.extend(taken.curves);
    Ok(measured)
}

/// Both kinds come in, block by block in turn.
fn bring_in(
    clean: &OwnedFd,
    changed: &OwnedFd,
    buffer: &mut Buffer,
    bytes: u64,
) -> Result<(), String> {
    for at in (0..bytes).step_by(STEP_BYTES) {
        read_full_at(clean, buffer.whole_mut(), at).map_err(|e| format!("read the file: {e}"))?;
        buffer.whole_mut().fill(stamp(at));
        write_full_at(changed, buffer.bytes(STEP_BYTES), at).map_err(|e| format!("write: {e}"))?;
    }
    Ok(())
}

/// What the block at this place of the changed file holds.
fn stamp(at: u64) -> u8 {
    (at / STEP_BYTES as u64 % 251) as u8 + 1
}

/// How the taking went.
struct Taken {
    memory: Vec<Buffer>,
    elapsed_ns: u64,
    step_ns_p50: u64,
    step_ns_max: u64,
    /// When an eighth of what is gone at the end was gone, and when half was.
    eighth: Held,
    half: Held,
    after: Held,
    curves: Vec<(String, Vec<(f64, f64)>)>,
}

fn take(
    clean: &OwnedFd,
    changed: &OwnedFd,
    scenario: Reclaim,
    before: Held,
) -> Result<Taken, String> {
    let steps = (scenario.taken_bytes() / STEP_BYTES as u64) as usize;
    let (mut memory, mut times) = (Vec::with_capacity(steps), Vec::with_capacity(steps));
    let mut seen = vec![before];
    let start = monotonic_ns();
    for step in 0..steps {
        let began = monotonic_ns();
        let mut block = Buffer::new(STEP_BYTES);
        // Memory is given when it is written to.
        block.whole_mut().fill(step as u8 | 1);
        times.push(monotonic_ns() - began);
        memory.push(block);
        seen.push(Held::look(clean, changed, scenario.kind_bytes())?);
    }
    let elapsed_ns = monotonic_ns() - start;
    times.sort_unstable();
    let after = seen[seen.len() - 1];
    let gone = before.all().saturating_sub(after.all());
    let when = |share: u64| {
        let found = seen.iter().find(|held| before.all().saturating_sub(held.all()) >= share);
        *found.unwrap_or(&after)
    };
    let line = |name: &str, of: fn(&Held) -> u64| {
        let at = |(step, held)| ((step * STEP_BYTES) as f64, of(held) as f64);
        (name.to_owned(), seen.iter().enumerate().map(at).collect())
    };
    let curves = vec![
        line("clean by memory taken", |held| held.clean),
        line("changed by memory taken", |held| held.changed),
        line("unwritten by memory taken", |held| held.unwritten),
    ];
    Ok(Taken {
        eighth: when(gone / 8),
        half: when(gone / 2),
        step_ns_p50: times[times.len() / 2],
        step_ns_max: times[times.len() - 1],
        memory,
        elapsed_ns,
        after,
        curves,
    })
}

/// Reads the clean file once more: ns, and the bytes that the device had to give for it.
fn read_again(file: &OwnedFd, buffer: &mut Buffer, bytes: u64) -> Result<(u64, u64), String> {
    let device = || proc::process_io().map_or(0, |io| io.read_bytes);
    let (start, before) = (monotonic_ns(), device());
    for at in (0..bytes).step_by(STEP_BYTES) {
        read_full_at(file, buffer.whole_mut(), at).map_err(|e| format!("read again: {e}"))?;
    }
    Ok((monotonic_ns() - start, device() - before))
}

/// What was changed must be there, wherever it comes from.
fn check(file: &OwnedFd, buffer: &mut Buffer, bytes: u64) -> Result<(), String> {
    for at in (0..bytes).step_by(STEP_BYTES) {
        let got = read_full_at(file, buffer.whole_mut(), at).map_err(|e| format!("check: {e}"))?;
        if got != STEP_BYTES || buffer.bytes(got).iter().any(|byte| *byte != stamp(at)) {
            return Err(format!("the changed file does not hold what was written to it at {at}"));
        }
    }
    Ok(())
}
