//! Writing one file: what returned means, what durable costs, and what is never written because the
//! file was removed first.

use super::plan::{End, Write};
use crate::stage::{Acts, Stage, put, resident_bytes};
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use ioloom_observe::counters::Field;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file::{WriteMode, direct_alignment_of, scratch, write_full_at};
use ioloom_sys::{cache, proc, transfer};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// How often it is looked what is left to write.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A call that takes this long did not just copy: it was held back or waited for the device.
const HELD_BACK_NS: u64 = 10_000_000;

pub(super) fn probe(scenario: Write, dir: &Path) -> Result<(), String> {
    if scenario.how == WriteMode::Direct {
        // Asked of a file: directories have no alignment.
        let probed = scratch(dir, WriteMode::Direct).and_then(|file| direct_alignment_of(&file));
        let Ok(Some(needed)) = probed else {
            return Err("this file system does not say that it can write past the page cache \
                        (no STATX_DIOALIGN); remedy: ext4 or XFS"
                .to_owned());
        };
        if !(scenario.block as u64).is_multiple_of(u64::from(needed.offset)) {
            return Err(format!("block must be a multiple of {}", needed.offset));
        }
    }
    scratch(dir, scenario.how).map(drop).map_err(|e| {
        format!(
            "{}: cannot make a file without a name: {e}; remedy: another file system",
            dir.display()
        )
    })
}

pub(super) fn run(order: &RunOrder, scenario: Write) -> Result<Measured, String> {
    let fail = |what: &str, e: std::io::Error| format!("{what}: {e}");
    let mut buffer = Buffer::new(scenario.block);
    fill(buffer.whole_mut(), order.seed);
    let file = scratch(&order.dir, scenario.how).map_err(|e| fail("make the file", e))?;
    // What others left dirty would be written meanwhile.
    cache::flush_file_system(&file).map_err(|e| fail("flush the file system", e))?;
    let mut stage = Stage::open(&order.dir)?;
    stage.sampler.mark("write");
    let start = monotonic_ns();
    let mut latencies = all(&file, scenario, &mut buffer, order.seed)?;
    let returned_ns = latencies.iter().sum::<u64>();
    stage.sampler.mark("returned");
    let left = cache::state(&file, 0, 0).ok().flatten();
    let resident = resident_bytes(&file, scenario.bytes);
    let mut durable_ns =
        matches!(scenario.how, WriteMode::Sync | WriteMode::DataSync).then_some(returned_ns);
    match scenario.end {
        End::Returned => {}
        End::DataSync => {
            transfer::sync_data(&file).map_err(|e| fail("fdatasync", e))?;
            durable_ns = Some(monotonic_ns() - start);
        }
        End::Removed => drop(file),
        End::Left(seconds) => left_alone(&mut stage, &file, start, seconds)?,
    }
    let all_ns = monotonic_ns() - start;
    stage.sampler.mark("end");
    let page = proc::page_bytes() as f64;
    stage.put("file_bytes", scenario.bytes as f64);
    stage.put("returned_ns", returned_ns as f64);
    if let Some(left) = left {
        stage.put("unwritten_bytes", (left.dirty + left.writeback) as f64 * page);
    }
    calls(&mut stage, &mut latencies);
    let (mut measured, acts) = stage.close(all_ns, scenario.bytes);
    put(&mut measured, "resident_after_bytes", resident);
    put(&mut measured, "durable_ns", durable_ns.map(|ns| ns as f64));
    counted(&mut measured, &acts);
    Ok(measured)
}

/// Writes all of a file; how long each call took, ns.
pub(super) fn all(
    file: &OwnedFd,
    scenario: Write,
    buffer: &mut Buffer,
    seed: u64,
) -> Result<Vec<u64>, String> {
    let mut latencies = Vec::with_capacity((scenario.bytes / scenario.block as u64) as usize);
    let mut before = monotonic_ns();
    for at in (0..scenario.bytes).step_by(scenario.block) {
        buffer.whole_mut()[..8].copy_from_slice(&(at ^ seed).to_le_bytes());
        write_full_at(file, buffer.bytes(scenario.block), at).map_err(|e| format!("write: {e}"))?;
        let now = monotonic_ns();
        latencies.push(now - before);
        before = now;
    }
    Ok(latencies)
}

/// Leaves the file to the kernel until nothing of it is left to write, or until the time is over: what
/// is left then, and when it was nothing.
fn left_alone(stage: &mut Stage, file: &OwnedFd, start: u64, seconds: u32) -> Result<(), String> {
    let end = start + u64::from(seconds) * 1_000_000_000;
    loop {
        let state = cache::state(file, 0, 0).map_err(|e| format!("cachestat: {e}"))?;
        let state = state.ok_or("cachestat does not answer here, so nothing is known")?;
        let (left, now) = (state.dirty + state.writeback, monotonic_ns());
        if left == 0 {
            stage.put("settled_ns", (now - start) as f64);
        }
        if left == 0 || now >= end {
            stage.put("unwritten_end_bytes", (left * proc::page_bytes()) as f64);
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn calls(stage: &mut Stage, latencies: &mut [u64]) {
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64;
    let held_back = latencies.iter().filter(|ns| **ns >= HELD_BACK_NS).count();
    for (name, value) in [
        ("write_call_ns_p50", at(0.5)),
        ("write_call_ns_p99", at(0.99)),
        ("write_call_ns_max", at(1.0)),
        ("writes_held_back", held_back as f64),
    ] {
        stage.put(name, value);
    }
}

fn counted(measured: &mut Measured, acts: &Acts) {
    let page = proc::page_bytes() as f64;
    let grown = |field, unit| acts.grown(field, "write", "end", unit);
    let pageout = grown(Field::PageOut, 1024.0);
    let freed = acts.grown(Field::Freed, "returned", "end", page);
    let cancelled = grown(Field::TaskCancelled, 1.0);
    put(measured, "pageout_bytes", pageout);
    put(measured, "freed_at_end_bytes", freed);
    put(measured, "cancelled_bytes", cancelled);
    let most = |fields: &[Field]| acts.most_bytes(fields, "write");
    put(measured, "dirty_most_bytes", most(&[Field::Dirty]));
    put(measured, "unwritten_most_bytes", most(&[Field::Dirty, Field::Writeback]));
    put(measured, "background_limit_bytes", most(&[Field::BackgroundLimit]));
    put(measured, "dirty_limit_bytes", most(&[Field::DirtyLimit]));
    let Some((rates, seconds)) = acts.device("write", "end").zip(acts.seconds("write", "end"))
    else {
        return;
    };
    for (name, value) in [
        ("device_written_bytes", rates.wkb_per_s * 1024.0 * seconds),
        ("device_request_kib", rates.areq_sz_kib),
        ("device_queue", rates.aqu_sz),
        ("device_await_ms", rates.await_ms),
        ("device_flushes", rates.flushes_per_s * seconds),
        // Little: requests under way are their rate times their time.
        ("device_rate_times_await", rates.tps * rates.await_ms / 1000.0),
    ] {
        measured.extra.insert(name.to_owned(), value);
    }
}

/// Bytes that no layer can make smaller, the same for the same seed.
pub(super) fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = seed | 1;
    for chunk in bytes.chunks_mut(8) {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let word = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}
