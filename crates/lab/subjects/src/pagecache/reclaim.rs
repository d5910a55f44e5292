//! Determines which pages the kernel reclaims first under memory pressure: clean pages, or dirty
//! pages, which must be written first.
//!
//! The process enters a cgroup with a low memory limit, so nothing else on the machine is affected
//! and no setting is changed. It alternately reads blocks of one file and writes blocks of another,
//! so pages of both kinds have the same age and were touched once. Then it allocates memory in 1
//! MiB steps. After each step, cachestat reports the resident pages of both files. Finally, the
//! clean file is read again, which is the cost of the pressure to its user.
//!
//! Only the first eighth of the reclaimed pages shows which kind is reclaimed first. The kernel
//! starts writing dirty pages as soon as it encounters them; once written, only their age matters.
//! On a device that writes them within a few steps, equal amounts of both remain when half are
//! gone; on a slower device, fewer clean pages remain. So the numbers at the halfway point are
//! recorded but not used for a verdict.
//!
//! Refaults are counted for the group: pages needed again while the kernel still had a record of
//! evicting them. The machine's refaults, which include other programs, are recorded too.
//!
//! The group contains only its own pages, but the flusher threads serve the whole machine. Dirty
//! pages that they write during the run count as clean; their number is recorded.

use super::plan::Reclaim;
use crate::stage::{Stage, cannot, make_cold, only_file, page_state, put, sync_file_system};
use ioloom_model::Measured;
use ioloom_model::record::{RECLAIM_CURVES, RunOrder};
use ioloom_observe::counters::Field;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::cache;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file::{WriteMode, read_full_at, scratch, write_full_at};
use ioloom_sys::proc::{self, page_bytes};
use ioloom_sys_lab::cgroup::MemoryLimit;
use std::os::fd::OwnedFd;

/// Size of a call and of an allocation step.
const STEP_BYTES: usize = 1 << 20;

/// Name of file page refaults in the group statistics.
const REFAULTED: &str = "workingset_refault_file";

/// Resident bytes of both kinds.
#[derive(Clone, Copy)]
struct Resident {
    clean: u64,
    changed: u64,
    /// Dirty bytes that have not been written yet.
    unwritten: u64,
}

impl Resident {
    fn query(clean: &OwnedFd, changed: &OwnedFd, bytes: u64) -> Result<Self, String> {
        let (clean, changed, page) =
            (page_state(clean, 0, bytes)?, page_state(changed, 0, bytes)?, page_bytes());
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
    // Readahead would load blocks that the scenario does not read.
    cache::advise_random(&clean).map_err(|e| cannot("disable readahead", &e))?;
    let changed =
        scratch(&order.dir, WriteMode::Buffered).map_err(|e| cannot("create a file", &e))?;
    sync_file_system(&changed)?;
    let mut buffer = Buffer::new(STEP_BYTES);
    let group = MemoryLimit::enter(scenario.limit_bytes)?;
    load(&clean, &changed, &mut buffer, bytes)?;
    let mut stage = Stage::open(&order.dir)?;
    let before = Resident::query(&clean, &changed, bytes)?;
    stage.sampler.mark("take");
    let taken = take(&clean, &changed, scenario, before)?;
    stage.sampler.mark("taken");
    let refaulted = || group.stat(REFAULTED).map_err(|e| cannot("read memory.stat", &e));
    let refaulted_before = refaulted()?;
    let (again_ns, again_device) = read_again(&clean, &mut buffer, bytes)?;
    let refaulted_after = refaulted()?;
    stage.sampler.mark("again");
    drop(taken.memory);
    check(&changed, &mut buffer, bytes)?;
    drop(group);
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

/// Loads both kinds in alternating blocks.
fn load(clean: &OwnedFd, changed: &OwnedFd, buffer: &mut Buffer, bytes: u64) -> Result<(), String> {
    for at in (0..bytes).step_by(STEP_BYTES) {
        read_full_at(clean, buffer.whole_mut(), at).map_err(|e| cannot("read the file", &e))?;
        buffer.whole_mut().fill(stamp(at));
        write_full_at(changed, buffer.bytes(STEP_BYTES), at)
            .map_err(|e| cannot("write to the file", &e))?;
    }
    Ok(())
}

/// Returns the contents of the block at this offset of the dirty file.
fn stamp(at: u64) -> u8 {
    (at / STEP_BYTES as u64 % 251) as u8 + 1
}

/// Result of allocating memory.
struct Taken {
    memory: Vec<Buffer>,
    elapsed_ns: u64,
    step_ns_p50: u64,
    step_ns_max: u64,
    /// State after an eighth and after half of all reclaimed pages were gone.
    eighth: Resident,
    half: Resident,
    after: Resident,
    curves: Vec<(String, Vec<(f64, f64)>)>,
}

fn take(
    clean: &OwnedFd,
    changed: &OwnedFd,
    scenario: Reclaim,
    before: Resident,
) -> Result<Taken, String> {
    let steps = (scenario.taken_bytes() / STEP_BYTES as u64) as usize;
    assert!(steps > 0, "no allocation steps");
    let (mut memory, mut times) = (Vec::with_capacity(steps), Vec::with_capacity(steps));
    let mut seen = vec![before];
    let start = monotonic_ns();
    for step in 0..steps {
        let began = monotonic_ns();
        let mut block = Buffer::new(STEP_BYTES);
        // Writing to memory allocates it.
        block.whole_mut().fill(step as u8 | 1);
        times.push(monotonic_ns() - began);
        memory.push(block);
        seen.push(Resident::query(clean, changed, scenario.kind_bytes())?);
    }
    let elapsed_ns = monotonic_ns() - start;
    times.sort_unstable();
    let after = seen[seen.len() - 1];
    let gone = before.all().saturating_sub(after.all());
    let when = |share: u64| {
        let found =
            seen.iter().find(|resident| before.all().saturating_sub(resident.all()) >= share);
        *found.unwrap_or(&after)
    };
    let line = |name: &str, of: fn(&Resident) -> u64| {
        let at = |(step, resident)| ((step * STEP_BYTES) as f64, of(resident) as f64);
        (name.to_owned(), seen.iter().enumerate().map(at).collect())
    };
    let [clean_left, changed_left, unwritten_left] = RECLAIM_CURVES;
    let curves = vec![
        line(clean_left, |resident| resident.clean),
        line(changed_left, |resident| resident.changed),
        line(unwritten_left, |resident| resident.unwritten),
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

/// Reads the clean file again. Returns the time in ns and the bytes read from the device.
fn read_again(file: &OwnedFd, buffer: &mut Buffer, bytes: u64) -> Result<(u64, u64), String> {
    let device = || proc::process_io().map_or(0, |io| io.read_bytes);
    let (start, before) = (monotonic_ns(), device());
    for at in (0..bytes).step_by(STEP_BYTES) {
        read_full_at(file, buffer.whole_mut(), at)
            .map_err(|e| cannot("read the file again", &e))?;
    }
    Ok((monotonic_ns() - start, device() - before))
}

/// Checks that no written data was lost.
fn check(file: &OwnedFd, buffer: &mut Buffer, bytes: u64) -> Result<(), String> {
    for at in (0..bytes).step_by(STEP_BYTES) {
        let got =
            read_full_at(file, buffer.whole_mut(), at).map_err(|e| cannot("check the file", &e))?;
        if got != STEP_BYTES || buffer.bytes(got).iter().any(|byte| *byte != stamp(at)) {
            return Err(format!("the written file has wrong contents at {at}"));
        }
    }
    Ok(())
}
