//! Writes one file: the state when a write returns, the cost of durability, and data that is never
//! written because the file is removed first.

use super::plan::{End, Write};
use crate::stage::{Acts, Stage, cannot, page_state, put, resident_bytes, sync_file_system};
use ioloom_failure::{quoted, reason};
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

/// Polling interval for remaining dirty pages.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Duration in ns above which a call was throttled or waited for the device.
const THROTTLED_NS: u64 = 10_000_000;

pub(super) fn probe(scenario: Write, dir: &Path) -> Result<(), String> {
    if scenario.how == WriteMode::Direct {
        // Directories report no alignment, so query a file.
        let probed = scratch(dir, WriteMode::Direct).and_then(|file| direct_alignment_of(&file));
        let Ok(Some(needed)) = probed else {
            return Err(
                "this file system does not report direct I/O alignment (no STATX_DIOALIGN); use \
                        ext4 or XFS"
                    .to_owned(),
            );
        };
        if !(scenario.block as u64).is_multiple_of(u64::from(needed.offset)) {
            return Err(format!("block must be a multiple of {}", needed.offset));
        }
    }
    scratch(dir, scenario.how).map(drop).map_err(|e| {
        format!(
            "cannot create an unnamed file in {}: {}; use another file system",
            quoted(dir),
            reason(&e)
        )
    })
}

pub(super) fn run(order: &RunOrder, scenario: Write) -> Result<Measured, String> {
    let mut buffer = Buffer::new(scenario.block);
    fill(buffer.whole_mut(), order.seed);
    let file = scratch(&order.dir, scenario.how).map_err(|e| cannot("create the file", &e))?;
    // Other dirty pages would be written during the run.
    sync_file_system(&file)?;
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
            transfer::sync_data(&file).map_err(|e| cannot("sync the file", &e))?;
            durable_ns = Some(monotonic_ns() - start);
        }
        End::Removed => drop(file),
        End::Left(seconds) => leave_to_writeback(&mut stage, &file, start, seconds)?,
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

/// Writes the whole file. Returns the duration of each call in ns.
pub(super) fn all(
    file: &OwnedFd,
    scenario: Write,
    buffer: &mut Buffer,
    seed: u64,
) -> Result<Vec<u64>, String> {
    assert!(
        scenario.bytes.is_multiple_of(scenario.block as u64),
        "the last call would write past the end of the file"
    );
    let mut latencies = Vec::with_capacity((scenario.bytes / scenario.block as u64) as usize);
    let mut before = monotonic_ns();
    for at in (0..scenario.bytes).step_by(scenario.block) {
        buffer.whole_mut()[..8].copy_from_slice(&(at ^ seed).to_le_bytes());
        write_full_at(file, buffer.bytes(scenario.block), at)
            .map_err(|e| cannot("write to the file", &e))?;
        let now = monotonic_ns();
        latencies.push(now - before);
        before = now;
    }
    Ok(latencies)
}

/// Leaves the file to writeback until no dirty pages remain or the time is up. Records the
/// remaining dirty pages and when there were none.
fn leave_to_writeback(
    stage: &mut Stage,
    file: &OwnedFd,
    start: u64,
    seconds: u32,
) -> Result<(), String> {
    let end = start + u64::from(seconds) * 1_000_000_000;
    loop {
        let state = page_state(file, 0, 0)?;
        let (left, now) = (state.dirty + state.writeback, monotonic_ns());
        if left == 0 {
            stage.put("settled_ns", (now - start) as f64);
        }
        if left == 0 || now >= end {
            stage.put("unwritten_end_bytes", (left * proc::page_bytes()) as f64);
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn calls(stage: &mut Stage, latencies: &mut [u64]) {
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64;
    let throttled = latencies.iter().filter(|ns| **ns >= THROTTLED_NS).count();
    for (name, value) in [
        ("write_call_ns_p50", at(0.5)),
        ("write_call_ns_p99", at(0.99)),
        ("write_call_ns_max", at(1.0)),
        ("writes_held_back", throttled as f64),
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
        // Little's law: the number of requests in flight is rate times latency.
        ("device_rate_times_await", rates.tps * rates.await_ms / 1000.0),
    ] {
        measured.extra.insert(name.to_owned(), value);
    }
}

/// Fills a buffer with incompressible bytes that depend only on the seed.
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
