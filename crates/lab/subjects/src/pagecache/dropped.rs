//! What of the page cache goes when the caches of the system are dropped, and what stays.
//!
//! Three kinds of pages come in: of a file that was read (clean), of a file that was written and not
//! synced (changed), and of a file on a file system that lives in memory (shared memory, as the counters
//! call it). Then 3 is written to drop_caches, once as it is and once after a sync, and after each it is
//! looked what of the three is there. A clean page can be had again from the device; a changed one cannot
//! until it is written, and one of a file in memory never.
//!
//! It hits every program of the machine, which finds its files cold; so it runs only with the user's
//! word. Where no file system in memory can be written, the third kind is missing in the numbers.

use super::plan::{PART_STEP, Part};
use super::write;
use crate::stage::{Acts, Stage, only_file, put};
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use ioloom_observe::counters::Field;
use ioloom_sys::cache;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::file::{WriteMode, read_full_at, scratch, write_full_at};
use ioloom_sys::proc::page_bytes;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Where a file lives in memory, usually.
const IN_MEMORY: &str = "/dev/shm";

/// How caches are dropped: as they are, and after a sync.
#[derive(Clone, Copy)]
struct Ways {
    at_once: fn() -> io::Result<()>,
    after_sync: fn() -> io::Result<()>,
}

/// The kinds of pages.
struct Kinds {
    clean: OwnedFd,
    changed: OwnedFd,
    shared: Option<OwnedFd>,
    bytes: u64,
}

pub(super) fn probe() -> Result<(), String> {
    cache::can_drop_caches()
        .map_err(|e| format!("open /proc/sys/vm/drop_caches: {e}; remedy: run as root"))
}

pub(super) fn run(order: &RunOrder, scenario: Part) -> Result<Measured, String> {
    let system = Ways { at_once: cache::drop_caches, after_sync: cache::flush_and_drop_caches };
    acts(order, scenario, system)
}

impl Kinds {
    /// Brings in all three.
    fn bring_in(order: &RunOrder, bytes: u64) -> Result<Self, String> {
        let (_, clean, file_bytes) = only_file(&order.dir)?;
        if file_bytes < bytes {
            return Err(format!("the scenario needs a file of {bytes} bytes, not of {file_bytes}"));
        }
        let changed =
            scratch(&order.dir, WriteMode::Buffered).map_err(|e| format!("make a file: {e}"))?;
        let kinds = Self { clean, changed, shared: in_memory(), bytes };
        cache::flush_file_system(&kinds.changed)
            .map_err(|e| format!("flush the file system: {e}"))?;
        let mut buffer = vec![0; PART_STEP as usize];
        for at in (0..bytes).step_by(buffer.len()) {
            read_full_at(&kinds.clean, &mut buffer, at).map_err(|e| format!("read: {e}"))?;
        }
        write::fill(&mut buffer, order.seed);
        for file in kinds.shared.iter().chain([&kinds.changed]) {
            for at in (0..bytes).step_by(buffer.len()) {
                write_full_at(file, &buffer, at).map_err(|e| format!("write: {e}"))?;
            }
        }
        Ok(kinds)
    }

    /// What of each is in memory, and what of the changed ones is not written.
    fn look(&self, when: &str) -> Result<Vec<(String, f64)>, String> {
        let mut told = Vec::new();
        let kinds = [("clean", Some(&self.clean)), ("changed", Some(&self.changed))];
        for (kind, file) in kinds.into_iter().chain([("shared", self.shared.as_ref())]) {
            let Some(file) = file else { continue };
            let state = cache::state(file, 0, self.bytes).map_err(|e| format!("cachestat: {e}"))?;
            let state = state.ok_or("cachestat does not answer here, so nothing is known")?;
            let bytes = |pages: u64| (pages * page_bytes()) as f64;
            told.push((format!("{kind}_{when}_bytes"), bytes(state.resident)));
            if kind == "changed" {
                let left = bytes(state.dirty + state.writeback);
                told.push((format!("unwritten_{when}_bytes"), left));
            }
        }
        Ok(told)
    }
}

/// A file without a name that lives in memory; `None` where there is no place for one.
fn in_memory() -> Option<OwnedFd> {
    let place = Path::new(IN_MEMORY);
    let there = cache::is_memory_backed(place).unwrap_or(false);
    there.then(|| scratch(place, WriteMode::Buffered).ok()).flatten()
}

fn acts(order: &RunOrder, scenario: Part, ways: Ways) -> Result<Measured, String> {
    let kinds = Kinds::bring_in(order, scenario.bytes)?;
    let mut stage = Stage::open(&order.dir)?;
    let mut told = kinds.look("before")?;
    stage.sampler.mark("before");
    let start = monotonic_ns();
    (ways.at_once)().map_err(|e| format!("write /proc/sys/vm/drop_caches: {e}"))?;
    let elapsed_ns = monotonic_ns() - start;
    stage.sampler.mark("dropped");
    told.extend(kinds.look("dropped")?);
    (ways.after_sync)().map_err(|e| format!("sync, write /proc/sys/vm/drop_caches: {e}"))?;
    stage.sampler.mark("synced");
    told.extend(kinds.look("synced")?);
    for (name, value) in told {
        stage.put(&name, value);
    }
    stage.put("kind_bytes", scenario.bytes as f64);
    let (mut measured, acts) = stage.close(elapsed_ns, 3 * scenario.bytes);
    levels(&mut measured, &acts);
    Ok(measured)
}

/// The page cache of the whole machine, as /proc/meminfo has it, and what of it is shared memory.
fn levels(measured: &mut Measured, acts: &Acts) {
    for mark in ["before", "dropped", "synced"] {
        put(measured, &format!("cached_{mark}_bytes"), acts.level(Field::Cached, mark, 1024.0));
        let shmem = acts.level(Field::Shared, mark, page_bytes() as f64);
        put(measured, &format!("shmem_{mark}_bytes"), shmem);
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a test that cannot run here says so")]
mod tests {
    use super::*;
    use crate::run_on_set::order_for_set;

    /// What is told comes from looking: with ways that drop nothing, everything stays.
    #[test]
    fn what_was_not_dropped_is_told_to_stay() {
        let kept = Ways { at_once: || Ok(()), after_sync: || Ok(()) };
        let (_place, _, order) = order_for_set("pagecache:drop", "count=1,size=2MiB");
        let bytes = 1 << 20;
        let seen = match acts(&order, Part { bytes }, kept) {
            Ok(seen) => seen.extra,
            Err(reason) => {
                assert!(reason.contains("cachestat does not answer"), "{reason}");
                println!("skipped: {reason}");
                return;
            }
        };
        for when in ["before", "dropped", "synced"] {
            for kind in ["clean", "changed"] {
                assert_eq!(seen[&format!("{kind}_{when}_bytes")], bytes as f64, "{seen:?}");
            }
            assert_eq!(seen.contains_key(&format!("shared_{when}_bytes")), in_memory().is_some());
            assert!(seen.contains_key(&format!("cached_{when}_bytes")), "{seen:?}");
        }
        let failing = Ways { at_once: || Err(io::ErrorKind::PermissionDenied.into()), ..kept };
        let error = acts(&order, Part { bytes }, failing).unwrap_err();
        assert!(error.contains("drop_caches"), "{error}");
    }
}
