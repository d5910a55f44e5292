//! Gathers the facts for a plan by probing once per pair of file systems.
//!
//! Kernel versions are never compared: each feature is tried on the actual files. The first file
//! that is large enough costs a few system calls and a one-byte write to the new file.

use crate::plan::Facts;
use ioloom_sys::attr::{self, Attr};
use ioloom_sys::ring::Ring;
use ioloom_sys::{cache, cgroup, file, mount, proc, transfer};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// Number of offsets to sample in a file if the kernel cannot report its cached pages. The number
/// is small because each miss starts readahead.
const SAMPLES: u64 = 4;

/// Gathers facts about two open files. The target is being written.
pub(crate) fn gather(from: impl AsFd, to: impl AsFd) -> io::Result<Facts> {
    let (source, target) = (attr::of_file(&from)?, attr::of_file(&to)?);
    let target_system = attr::file_system(&to)?;
    let (from_path, to_path) = (proc_path(&from), proc_path(&to));
    let align = |path: &Path| file::direct_alignment(path).ok().flatten().map(|a| a.offset);
    let memory = Memory::read();
    Ok(Facts {
        same_file_system: source.device == target.device,
        reflink: None,
        direct_source_bytes: align(&from_path),
        direct_target_bytes: align(&to_path),
        ring: Ring::new(1).is_ok(),
        uncached: takes_uncached(&from, &to),
        target_in_memory: target_system.in_memory,
        reserves: target_system.reserves,
        same_spindle: same_spindle(&from_path, &to_path),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_available_bytes: memory.available,
        dirty_headroom_bytes: memory.dirty_headroom,
    })
}

/// Returns a path that leads to an open file.
pub(crate) fn proc_path(file: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

fn takes_uncached(from: impl AsFd, to: impl AsFd) -> bool {
    // A read at the end starts no readahead, which would make holes of reserved space look like data.
    let end = attr::of_file(&from).map_or(0, |attr| attr.bytes);
    let reads = transfer::read_uncached_at(from, &mut [0], end).is_ok();
    // An earlier copy may have written a part of the target.
    let Ok(Attr { bytes: size, .. }) = attr::of_file(&to) else { return false };
    let writes = || transfer::write_uncached_at(&to, &[0], size).is_ok();
    reads && writes() && transfer::set_len(&to, size).is_ok()
}

/// Returns true if both paths are on the same rotating disk. Virtual disks claim to rotate but do
/// not.
fn same_spindle(from: &Path, to: &Path) -> bool {
    let disk = |path: &Path| {
        let medium = mount::medium(path).ok()?;
        let disk = medium.disk?;
        let virtual_disk = disk.starts_with("vd") || disk.starts_with("xvd");
        (medium.rotational == Some(true) && !virtual_disk).then_some(disk)
    };
    disk(from).is_some_and(|from| disk(to) == Some(from))
}

/// Returns true if `path` is on a local block device or in memory.
pub(crate) fn is_local(path: &Path) -> bool {
    let on_disk = || mount::medium(path).is_ok_and(|medium| medium.disk.is_some());
    cache::is_memory_backed(path).unwrap_or(false) || on_disk()
}

/// Returns true if sharing blocks between the two paths modifies a single file system tree.
pub(crate) fn in_one_tree(from: &Path, to: &Path) -> bool {
    let one_tree = || attr::file_system(std::fs::File::open(to)?).map(|system| system.one_tree);
    let device = |path: &Path| mount::medium(path).ok()?.block_device;
    one_tree().unwrap_or(false) && device(from).is_some_and(|from| device(to) == Some(from))
}

/// Kernel memory figures in bytes.
pub(crate) struct Memory {
    pub(crate) available: u64,
    pub(crate) dirty_headroom: u64,
}

impl Memory {
    /// Reads the current figures; missing ones become zero.
    pub(crate) fn read() -> Self {
        let (meminfo, vmstat) = (read_or_empty("/proc/meminfo"), read_or_empty(VMSTAT));
        let threshold = bytes_of(&vmstat, "nr_dirty_background_threshold");
        let available = proc::parse::field(&meminfo, "MemAvailable").unwrap_or(0) * 1024;
        Self {
            available: cgroup::memory_available_bytes(Some(available)).unwrap_or(0),
            dirty_headroom: threshold.saturating_sub(unwritten(&vmstat)),
        }
    }
}

const VMSTAT: &str = "/proc/vmstat";

fn read_or_empty(path: &str) -> String {
    proc::read_text(Path::new(path)).unwrap_or_default()
}

/// Returns a `/proc/vmstat` page count converted to bytes.
fn bytes_of(vmstat: &str, name: &str) -> u64 {
    let line = vmstat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * proc::page_bytes()
}

fn unwritten(vmstat: &str) -> u64 {
    bytes_of(vmstat, "nr_dirty") + bytes_of(vmstat, "nr_writeback")
}

/// Returns the number of dirty bytes on this machine that have not reached a device, counting all
/// programs; zero if unknown.
pub fn unwritten_bytes() -> u64 {
    unwritten(&read_or_empty(VMSTAT))
}

/// Returns the fraction of the first `bytes` of an open file that is in the page cache; `None` if
/// unknown.
pub(crate) fn resident_share(file: impl AsFd, bytes: u64) -> Option<f64> {
    let pages = bytes.div_ceil(proc::page_bytes()).max(1);
    if let Ok(Some(resident)) = cache::resident_pages(&file, bytes) {
        return Some(resident as f64 / pages as f64);
    }
    let mut buffer = [0u8; 512];
    let mut hits = 0;
    for sample in 0..SAMPLES {
        let at = bytes / SAMPLES * sample;
        hits += u64::from(cache::read_if_resident(&file, at, &mut buffer).ok()??);
    }
    Some(hits as f64 / SAMPLES as f64)
}
