//! Gathering the facts of a plan: by trying, once for each pair of file systems.
//!
//! Versions are never asked: what a kernel says it can is tried on the two files at hand. Costs some
//! calls and a byte written to the new file, for the first file that is worth it.

use crate::plan::Facts;
use ioloom_sys::ring::Ring;
use ioloom_sys::{attr, cache, file, mount, proc, transfer};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// Offsets at which a file is sampled when the kernel does not tell what of it is in memory. A miss
/// starts read-ahead, so they are few.
const SAMPLES: u64 = 4;

/// What is known of two open files, the target new and empty.
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

/// A path of what is open.
pub(crate) fn proc_path(file: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

fn takes_uncached(from: impl AsFd, to: impl AsFd) -> bool {
    let reads = transfer::read_uncached_at(from, &mut [0], 0).is_ok();
    let writes = || transfer::write_uncached_at(&to, &[0], 0).is_ok();
    reads && writes() && transfer::set_len(&to, 0).is_ok()
}

/// Whether both lie on one disk that turns. Disks of virtual machines say that they turn and do not.
fn same_spindle(from: &Path, to: &Path) -> bool {
    let disk = |path: &Path| {
        let medium = mount::medium(path).ok()?;
        let disk = medium.disk?;
        let virtual_disk = disk.starts_with("vd") || disk.starts_with("xvd");
        (medium.rotational == Some(true) && !virtual_disk).then_some(disk)
    };
    disk(from).is_some_and(|from| disk(to) == Some(from))
}

/// Whether what lies below `path` is on a block device of this machine or in its memory.
pub(crate) fn is_here(path: &Path) -> bool {
    let on_disk = || mount::medium(path).is_ok_and(|medium| medium.disk.is_some());
    cache::is_memory_backed(path).unwrap_or(false) || on_disk()
}

/// Whether sharing blocks between the two paths changes one tree for both.
pub(crate) fn in_one_tree(from: &Path, to: &Path) -> bool {
    let one_tree = || attr::file_system(std::fs::File::open(to)?).map(|system| system.one_tree);
    let device = |path: &Path| mount::medium(path).ok()?.block_device;
    one_tree().unwrap_or(false) && device(from).is_some_and(|from| device(to) == Some(from))
}

/// What the kernel tells of memory.
pub(crate) struct Memory {
    pub(crate) available: u64,
    pub(crate) dirty_headroom: u64,
}

impl Memory {
    /// As now; zeros where nothing is told.
    pub(crate) fn read() -> Self {
        let (meminfo, vmstat) = (told("/proc/meminfo"), told(VMSTAT));
        let threshold = bytes_of(&vmstat, "nr_dirty_background_threshold");
        Self {
            available: proc::parse::field(&meminfo, "MemAvailable").unwrap_or(0) * 1024,
            dirty_headroom: threshold.saturating_sub(unwritten(&vmstat)),
        }
    }
}

const VMSTAT: &str = "/proc/vmstat";

fn told(path: &str) -> String {
    proc::read_text(Path::new(path)).unwrap_or_default()
}

/// Pages of a line of `/proc/vmstat`, in bytes.
fn bytes_of(vmstat: &str, name: &str) -> u64 {
    let line = vmstat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * proc::page_bytes()
}

fn unwritten(vmstat: &str) -> u64 {
    bytes_of(vmstat, "nr_dirty") + bytes_of(vmstat, "nr_writeback")
}

/// Bytes of all programs of this machine that are changed in memory and not yet on a device; zero where
/// nothing is told.
pub fn unwritten_bytes() -> u64 {
    unwritten(&told(VMSTAT))
}

/// Share of the first `bytes` of an open file that is in memory; `None` where nobody can tell.
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
