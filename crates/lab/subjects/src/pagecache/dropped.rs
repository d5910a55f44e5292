//! Drops the page cache of the system and records which pages are evicted and which remain.
//!
//! Three kinds of pages are loaded: from a file that was read (clean), from a file that was written
//! but not synced (dirty, `changed` in the recorded names), and from a file on tmpfs (shared
//! memory). Then 3 is written to drop_caches, once directly and once after a sync, and the resident
//! pages are counted after each. A clean page can be read again from the device; a dirty page only
//! after writeback, and a tmpfs page never.
//!
//! This makes the files of every program on the machine cold, so it requires the user's permission.
//! Without a writable tmpfs, the metrics of the third kind are missing.

use super::plan::{PART_STEP, Part};
use super::write;
use crate::stage::{Acts, Stage, cannot, only_file, page_state, put, sync_file_system};
use ioloom_failure::reason;
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

/// Usual mount point of a tmpfs.
const TMPFS: &str = "/dev/shm";

/// How to drop the page cache: directly, and after a sync.
#[derive(Clone, Copy)]
struct Methods {
    at_once: fn() -> io::Result<()>,
    after_sync: fn() -> io::Result<()>,
}

/// Files with the three kinds of pages.
struct Kinds {
    clean: OwnedFd,
    changed: OwnedFd,
    shared: Option<OwnedFd>,
    bytes: u64,
}

pub(super) fn probe() -> Result<(), String> {
    cache::can_drop_caches()
        .map_err(|e| format!("cannot open '/proc/sys/vm/drop_caches': {}; run as root", reason(&e)))
}

pub(super) fn run(order: &RunOrder, scenario: Part) -> Result<Measured, String> {
    let system = Methods { at_once: cache::drop_caches, after_sync: cache::flush_and_drop_caches };
    measure(order, scenario, system)
}

impl Kinds {
    /// Loads all three kinds.
    fn load(order: &RunOrder, bytes: u64) -> Result<Self, String> {
        let (_, clean, file_bytes) = only_file(&order.dir)?;
        if file_bytes < bytes {
            return Err(format!("the scenario needs a file of {bytes} bytes, not of {file_bytes}"));
        }
        let changed =
            scratch(&order.dir, WriteMode::Buffered).map_err(|e| cannot("create a file", &e))?;
        let kinds = Self { clean, changed, shared: on_tmpfs(), bytes };
        sync_file_system(&kinds.changed)?;
        let mut buffer = vec![0; PART_STEP as usize];
        for at in (0..bytes).step_by(buffer.len()) {
            read_full_at(&kinds.clean, &mut buffer, at).map_err(|e| cannot("read the file", &e))?;
        }
        write::fill(&mut buffer, order.seed);
        for file in kinds.shared.iter().chain([&kinds.changed]) {
            for at in (0..bytes).step_by(buffer.len()) {
                write_full_at(file, &buffer, at).map_err(|e| cannot("write to the file", &e))?;
            }
        }
        Ok(kinds)
    }

    /// Returns the resident bytes of each kind, and the dirty bytes.
    fn resident(&self, when: &str) -> Result<Vec<(String, f64)>, String> {
        let mut numbers = Vec::new();
        let kinds = [("clean", Some(&self.clean)), ("changed", Some(&self.changed))];
        for (kind, file) in kinds.into_iter().chain([("shared", self.shared.as_ref())]) {
            let Some(file) = file else { continue };
            let state = page_state(file, 0, self.bytes)?;
            let bytes = |pages: u64| (pages * page_bytes()) as f64;
            numbers.push((format!("{kind}_{when}_bytes"), bytes(state.resident)));
            if kind == "changed" {
                let left = bytes(state.dirty + state.writeback);
                numbers.push((format!("unwritten_{when}_bytes"), left));
            }
        }
        Ok(numbers)
    }
}

/// Creates an unnamed file on tmpfs; `None` if there is no writable tmpfs.
fn on_tmpfs() -> Option<OwnedFd> {
    let dir = Path::new(TMPFS);
    let exists = cache::is_memory_backed(dir).unwrap_or(false);
    exists.then(|| scratch(dir, WriteMode::Buffered).ok()).flatten()
}

fn measure(order: &RunOrder, scenario: Part, methods: Methods) -> Result<Measured, String> {
    let kinds = Kinds::load(order, scenario.bytes)?;
    let mut stage = Stage::open(&order.dir)?;
    let mut numbers = kinds.resident("before")?;
    stage.sampler.mark("before");
    let start = monotonic_ns();
    (methods.at_once)().map_err(|e| cannot("write to '/proc/sys/vm/drop_caches'", &e))?;
    let elapsed_ns = monotonic_ns() - start;
    stage.sampler.mark("dropped");
    numbers.extend(kinds.resident("dropped")?);
    (methods.after_sync)().map_err(|e| cannot("write to '/proc/sys/vm/drop_caches'", &e))?;
    stage.sampler.mark("synced");
    numbers.extend(kinds.resident("synced")?);
    for (name, value) in numbers {
        stage.put(&name, value);
    }
    stage.put("kind_bytes", scenario.bytes as f64);
    let (mut measured, acts) = stage.close(elapsed_ns, 3 * scenario.bytes);
    levels(&mut measured, &acts);
    Ok(measured)
}

/// Records the size of the machine's page cache from /proc/meminfo, and how much of it is shared
/// memory.
fn levels(measured: &mut Measured, acts: &Acts) {
    for mark in ["before", "dropped", "synced"] {
        put(measured, &format!("cached_{mark}_bytes"), acts.level(Field::Cached, mark, 1024.0));
        let shmem = acts.level(Field::Shared, mark, page_bytes() as f64);
        put(measured, &format!("shmem_{mark}_bytes"), shmem);
    }
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "tests that cannot run here report it")]
mod tests {
    use super::*;
    use crate::run_on_set::order_for_set;

    /// The metrics come from observation: if nothing is dropped, everything remains.
    #[test]
    fn pages_that_were_not_dropped_are_found_resident() {
        let kept = Methods { at_once: || Ok(()), after_sync: || Ok(()) };
        let (_dir, _, order) = order_for_set("pagecache:drop", "count=1,size=2MiB");
        let bytes = 1 << 20;
        let seen = match measure(&order, Part { bytes }, kept) {
            Ok(seen) => seen.extra,
            Err(reason) => {
                assert!(reason.contains("cachestat is not available"), "{reason}");
                println!("skipped: {reason}");
                return;
            }
        };
        for when in ["before", "dropped", "synced"] {
            for kind in ["clean", "changed"] {
                assert_eq!(seen[&format!("{kind}_{when}_bytes")], bytes as f64, "{seen:?}");
            }
            assert_eq!(seen.contains_key(&format!("shared_{when}_bytes")), on_tmpfs().is_some());
            assert!(seen.contains_key(&format!("cached_{when}_bytes")), "{seen:?}");
        }
        let failing = Methods { at_once: || Err(io::ErrorKind::PermissionDenied.into()), ..kept };
        let error = measure(&order, Part { bytes }, failing).unwrap_err();
        assert!(error.contains("drop_caches"), "{error}");
    }
}
