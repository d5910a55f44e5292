//! Copies one file once and records when the engine returned, when the copy was durable, when all
//! of it had been written, and what another process reads.

use super::engine::{options, scratch_dir, timed};
use super::location::Location;
use super::plan::{One, Settle, Source};
use super::settle;
use crate::stage::{Acts, Stage, make_cold, only_file, put, resident_bytes, sync_file_system};
use ioloom_cache::Incomplete;
use ioloom_copy::{Report, Target, Verify};
use ioloom_failure::{Operation, PathError, reason};
use ioloom_model::record::RunOrder;
use ioloom_model::units::{format_ns, format_size};
use ioloom_model::{Doubt, Measured};
use ioloom_observe::counters::Field;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::dir::Dir;
use ioloom_sys::file::{OpenHow, open};
use ioloom_sys::proc::{self, UsageOf};
use ioloom_sys::{cache, transfer};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Polling interval for remaining dirty pages.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Maximum number of attempts to load a file completely.
const WARM_TRIES: u32 = 4;
/// Maximum share of a file that may contradict its condition.
const STRAY_SHARE: f64 = 0.05;

pub(super) fn run(order: &RunOrder, scenario: &One) -> Result<Measured, String> {
    let place = scratch_dir(&order.dir)?;
    let (from, source, bytes) = only_file(&order.dir)?;
    // Other dirty pages would be written during the copy.
    sync_file_system(&source)?;
    make(scenario.source, &source, bytes)?;
    let to = place.path.join("copy");
    let options = ioloom_copy::CopyOptions { verify: scenario.verify, ..options(&scenario.how) };
    let mut stage = Stage::open(&order.dir)?;
    stage.sampler.mark("copy");
    let start = monotonic_ns();
    let (returned_ns, report) = timed(&from, Target::As(to.clone()), &options)?;
    stage.sampler.mark("returned");
    let copied = open(&to, OpenHow::default())
        .map_err(|e| PathError::new(Operation::Open, &to, e).to_string())?;
    stage.put("file_bytes", bytes as f64);
    stage.put("returned_ns", returned_ns as f64);
    record_pages(&mut stage, &copied, bytes, &source);
    let longest_ns = (settle::longest_s(scenario.settle, bytes) * 1e9) as u64;
    let place = place.path.as_path();
    let end = Ending { stage: &mut stage, copied: &copied, place, start, longest_ns };
    let last_ns = match scenario.settle {
        Settle::Sync => end.synced()?,
        Settle::Alone => end.alone()?,
    };
    stage.sampler.mark("end");
    verified(&mut stage, scenario.verify, &report);
    let (mut measured, acts) = stage.close(last_ns, report.bytes);
    counted(&mut measured, &acts);
    put(&mut measured, "resident_at_end_bytes", resident_bytes(&copied, bytes));
    let location = Location::of(&copied);
    put(&mut measured, "place_bytes", location.as_ref().map(|at| at.middle() as f64));
    put(&mut measured, "pieces", location.map(|at| at.pieces() as f64));
    if let Some(seen) = another_process(&to) {
        measured.digest = seen.hash.chars().take(16).collect();
        put(&mut measured, "reader_ns", Some(seen.ns));
        put(&mut measured, "reader_device_bytes", Some(seen.device_bytes));
    }
    Ok(measured)
}

/// Makes the source cold or warm and proves it.
pub(super) fn make(state: Source, source: &OwnedFd, bytes: u64) -> Result<(), String> {
    match state {
        Source::Cold => make_cold(source, bytes),
        Source::Warm => warm(source, bytes),
        Source::Given => Ok(()),
    }
}

/// Loads an open file into the page cache and proves that all of it is resident.
pub(super) fn warm(file: &OwnedFd, bytes: u64) -> Result<(), String> {
    let mut buffer = Vec::new();
    let mut tries = 1;
    loop {
        let (_, after, stays) = ioloom_cache::load_file(file, bytes, &mut buffer)
            .map_err(|e| format!("cannot load the file: {}", reason(&e)))?;
        match (after.is_warm() || bytes == 0, stays) {
            (true, _) => return Ok(()),
            // The eviction of recently evicted pages may still be in progress.
            (false, _) if tries < WARM_TRIES => tries += 1,
            (false, None | Some(Incomplete::Unknown)) => {
                let why = "the file cannot be proved warm: cachestat is not available";
                return Err(why.to_owned());
            }
            (false, Some(why)) => {
                let why = why.sentence();
                return Err(format!("the file cannot be made warm: {why}"));
            }
        }
    }
}

/// Records the resident pages of both files and the remaining dirty pages after the copy has
/// returned.
fn record_pages(stage: &mut Stage, copied: &OwnedFd, bytes: u64, source: &OwnedFd) {
    let page = proc::page_bytes() as f64;
    if let Ok(Some(left)) = cache::state(copied, 0, 0) {
        stage.put("unwritten_bytes", (left.dirty + left.writeback) as f64 * page);
        stage.put("target_resident_bytes", left.resident as f64 * page);
    }
    if let Some(resident) = resident_bytes(source, bytes) {
        stage.put("source_resident_bytes", resident);
    }
}

/// Observes the copy after the engine has returned.
struct Ending<'a> {
    stage: &'a mut Stage,
    copied: &'a OwnedFd,
    place: &'a Path,
    start: u64,
    /// Time after the start by which all of it must have been written.
    longest_ns: u64,
}

impl Ending<'_> {
    fn now(&self) -> u64 {
        monotonic_ns() - self.start
    }

    /// Syncs the file and its directory. Returns the time in ns after the start.
    fn synced(self) -> Result<u64, String> {
        transfer::sync_data(self.copied)
            .map_err(|e| format!("cannot sync the copy: {}", reason(&e)))?;
        Dir::open(self.place)
            .and_then(|dir| dir.sync())
            .map_err(|e| PathError::new(Operation::Sync, self.place, e).to_string())?;
        let durable_ns = self.now();
        self.stage.sampler.mark("durable");
        self.stage.put("durable_ns", durable_ns as f64);
        self.alone()
    }

    /// Waits until the copy has no dirty pages. Returns the time in ns after the start. Exceeding
    /// the time limit is an error.
    fn alone(self) -> Result<u64, String> {
        loop {
            let left = match cache::state(self.copied, 0, 0) {
                Ok(Some(state)) => state.dirty + state.writeback,
                // Without cachestat, the time is unknown and not recorded.
                Ok(None) | Err(_) => return Ok(self.now()),
            };
            let ns = self.now();
            if left == 0 {
                self.stage.put("settled_ns", ns as f64);
                return Ok(ns);
            }
            if ns > self.longest_ns {
                let left = format_size(left * proc::page_bytes());
                return Err(format!(
                    "{left} of the copy are still dirty {} after its start; stop other programs \
                    that \
                     write to this disk",
                    format_ns(ns as f64)
                ));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Records how the copy was verified: 2 for the device, 1 for the page cache, 0 if it was not read.
fn verified(stage: &mut Stage, verify: Verify, report: &Report) {
    if verify == Verify::None {
        return;
    }
    let word = match report.verified_word() {
        "verified-device" => 2.0,
        "verified-cache" => 1.0,
        _ => 0.0,
    };
    stage.put("verified", word);
    stage.put("verify_device_bytes", report.evidence.device_bytes as f64);
}

fn counted(measured: &mut Measured, acts: &Acts) {
    let read = acts.grown(Field::TaskRead, "copy", "returned", 1.0);
    put(measured, "copy_device_bytes", read);
    put(measured, "pageout_returned_bytes", acts.grown(Field::PageOut, "copy", "returned", 1024.0));
    let flushes = |from, to| {
        let (rates, seconds) = acts.device(from, to).zip(acts.seconds(from, to))?;
        Some((rates.flushes_per_s * seconds).round())
    };
    put(measured, "flushes_copy", flushes("copy", "returned"));
    put(measured, "flushes_sync", flushes("returned", "durable"));
    put(measured, "dirty_limit_bytes", acts.most_bytes(&[Field::DirtyLimit], "copy"));
    let busy = acts.device("copy", "end").zip(acts.seconds("copy", "end"));
    let busy_ns = busy.map(|(rates, seconds)| rates.util_percent / 100.0 * seconds * 1e9);
    put(measured, "device_busy_ns", busy_ns);
    put(measured, "device_queue", acts.device("copy", "returned").map(|rates| rates.aqu_sz));
}

/// Returns a doubt if the source of the bytes contradicts the condition.
pub(super) fn condition(scenario: &One, measured: &Measured) -> Option<Doubt> {
    let (read, bytes) =
        (measured.extra.get("copy_device_bytes")?, measured.extra.get("file_bytes")?);
    let verify = measured.extra.get("verify_device_bytes").copied().unwrap_or(0.0);
    let share = (read - verify) / bytes;
    match scenario.source {
        // Shared blocks are not read.
        Source::Given => None,
        _ if scenario.how.mode.is_none() => None,
        Source::Cold if scenario.how.mode == Some(ioloom_copy::Mode::Reflink) => None,
        Source::Cold => (share < 1.0 - STRAY_SHARE).then_some(Doubt::NotCold),
        Source::Warm if scenario.how.reads_device() => None,
        Source::Warm => (share > STRAY_SHARE).then_some(Doubt::NotWarm),
    }
}

/// The part of the copy read by another process.
struct Seen {
    ns: f64,
    device_bytes: f64,
    hash: String,
}

/// Hashes the copy with another program, as in the published test; `None` if `md5sum` is missing.
fn another_process(path: &Path) -> Option<Seen> {
    let before = proc::usage(UsageOf::Children).ok()?;
    let start = monotonic_ns();
    let ended = Command::new("md5sum").arg(path).stdin(Stdio::null()).output().ok()?;
    let ns = (monotonic_ns() - start) as f64;
    let after = proc::usage(UsageOf::Children).ok()?;
    // md5sum prefixes a line with a backslash if the name is escaped.
    let text = String::from_utf8_lossy(&ended.stdout);
    let hash = text.trim_start_matches('\\').split(' ').next()?.to_owned();
    let device_bytes = after.read_bytes.saturating_sub(before.read_bytes) as f64;
    (ended.status.success() && hash.len() == 32).then_some(Seen { ns, device_bytes, hash })
}
