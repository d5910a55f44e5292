//! Chooses the copy method for a file: a pure function from facts to a plan and its reason.
//!
//! Facts are probed once per pair of file systems (`crate::facts`); for each large file, its cached
//! fraction is queried as well. Nothing in this module accesses the system, so the same facts
//! always produce the same plan.

pub use crate::mode::Refused;

use crate::mode::Mode;
use crate::options::{Durable, Tuning, When};

/// Maximum size of a file that is copied with one read and one write, in bytes.
pub const SMALL_BYTES: u64 = 256 << 10;

/// Minimum size of a file for which the page cache is queried and many requests are kept in flight,
/// in bytes.
pub const BIG_BYTES: u64 = 32 << 20;

/// Fraction of a file that must be cached for it to count as warm.
const WARM_SHARE: f64 = 0.5;

/// A file larger than the available memory divided by this number bypasses the page cache.
const MEMORY_PARTS: u64 = 2;

/// Why blocks cannot be shared when contents are hashed.
pub(crate) const SHARED_NOT_HASHED: &str = "shared blocks are not read, so nothing is hashed";

/// Why the kernel cannot copy; known only after the first call, because some pairs of file systems work.
pub(crate) const NOT_IN_KERNEL: &str =
    "the kernel does not copy between these files (copy_file_range)";

/// Facts about a pair of file systems and the machine.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Facts {
    /// Whether source and target are on the same file system.
    pub same_file_system: bool,
    /// Whether blocks can be shared; null if not probed.
    pub reflink: Option<bool>,
    /// Direct I/O alignment of the source in bytes; null if unsupported.
    pub direct_source_bytes: Option<u32>,
    /// Direct I/O alignment of the target in bytes; null if unsupported.
    pub direct_target_bytes: Option<u32>,
    /// Whether this process may use io_uring, which the direct method requires. Container policies
    /// and `kernel.io_uring_disabled` can forbid it.
    pub ring: bool,
    /// Whether both file systems support `RWF_DONTCACHE`.
    pub uncached: bool,
    /// Whether the target file system stores files only in memory.
    pub target_in_memory: bool,
    /// Whether space is reserved before the first write; otherwise, the free space is checked.
    pub reserves: bool,
    /// Whether source and target are on the same rotating disk.
    pub same_spindle: bool,
    /// Number of processors available to this process.
    pub cores: usize,
    /// Memory available to this process in bytes, limited by its control groups.
    pub memory_available_bytes: u64,
    /// Number of bytes that can be dirtied before the kernel starts background writeback.
    pub dirty_headroom_bytes: u64,
}

/// Facts about one file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FileFacts {
    /// File size in bytes.
    pub bytes: u64,
    /// Fraction of the file in the page cache; `None` if unknown.
    pub resident: Option<f64>,
}

/// The options that affect a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanRequest {
    /// The required method.
    pub mode: Option<Mode>,
    /// Whether to share blocks.
    pub reflink: When,
    /// What to sync before the copy returns.
    pub durable: Durable,
    /// Whether this process must see every byte, for hashing or to find zeros.
    pub sees_bytes: bool,
}

/// How to copy one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct CopyPlan {
    /// The method.
    pub mode: Mode,
    /// Request size in bytes.
    pub block_bytes: u32,
    /// Number of requests in flight.
    pub depth: u32,
    /// Number of threads that copy parts of the file.
    pub threads: u32,
    /// With `direct`: whether source reads bypass the page cache too.
    pub reads_direct: bool,
    /// With `direct`: whether to fill all buffers before the first write, to reduce disk seeks.
    pub in_turns: bool,
    /// Whether to let the target grow during the copy, without preallocation. For measurements
    /// only.
    pub extends: bool,
    /// The reason for this plan.
    pub why: &'static str,
}

const MIB: u32 = 1 << 20;

impl CopyPlan {
    const fn of(mode: Mode, block_bytes: u32, why: &'static str) -> Self {
        Self {
            mode,
            block_bytes,
            depth: 1,
            threads: 1,
            reads_direct: false,
            in_turns: false,
            extends: false,
            why,
        }
    }

    /// Returns a plan that copies through the page cache.
    pub(crate) const fn buffered(why: &'static str) -> Self {
        Self::of(Mode::Buffered, MIB, why)
    }

    /// Returns the fallback plan for a file that rejected the chosen method.
    pub(crate) const fn fallback() -> Self {
        Self::buffered("the chosen method does not work for this file")
    }

    /// Returns the buffer size that a thread needs, in bytes.
    pub(crate) fn buffer_bytes(&self) -> usize {
        if self.mode == Mode::Range { 0 } else { self.block_bytes as usize }
    }

    /// Returns the plan with the specified tuning values applied.
    #[must_use]
    pub(crate) fn tuned(self, tuning: Tuning) -> Self {
        Self {
            block_bytes: tuning.block_bytes.unwrap_or(self.block_bytes),
            depth: tuning.depth.unwrap_or(self.depth),
            threads: tuning.threads.unwrap_or(self.threads),
            extends: tuning.extends,
            ..self
        }
    }

    fn direct(facts: &Facts, file: FileFacts, warm: bool, why: &'static str) -> Self {
        // Measured in results/copy-tuning/2026-11-22-amd-epyc-2c: 1 MiB blocks take twice as long,
        // and a depth of 8 is not faster. Smaller files use smaller blocks to keep several in
        // flight.
        let block_bytes = if file.bytes >= u64::from(64 * MIB) { 4 * MIB } else { 2 * MIB };
        let depth = if facts.same_spindle { 16 } else { 4 };
        Self {
            depth,
            reads_direct: !warm && facts.direct_source_bytes.is_some(),
            in_turns: facts.same_spindle,
            ..Self::of(Mode::Direct, block_bytes, why)
        }
    }
}

/// Chooses how to copy a file.
///
/// # Errors
/// Returns an error if the required method cannot be used here.
pub fn plan(facts: &Facts, file: FileFacts, request: PlanRequest) -> Result<CopyPlan, Refused> {
    if let Some(mode) = request.mode {
        return pinned(facts, file, request, mode);
    }
    if request.reflink == When::Always {
        return pinned(facts, file, request, Mode::Reflink);
    }
    let may_share = request.reflink == When::Auto && !request.sees_bytes;
    if may_share && facts.same_file_system && facts.reflink == Some(true) {
        return Ok(CopyPlan::of(Mode::Reflink, MIB, "the file system shares the blocks"));
    }
    if file.bytes <= SMALL_BYTES {
        let why = "small: one read and one write";
        return Ok(CopyPlan::of(Mode::Buffered, SMALL_BYTES as u32, why));
    }
    if file.bytes < BIG_BYTES {
        let why = "medium: through the page cache in blocks";
        return Ok(CopyPlan::of(Mode::Buffered, MIB, why));
    }
    Ok(big(facts, file, request))
}

fn big(facts: &Facts, file: FileFacts, request: PlanRequest) -> CopyPlan {
    let warm = file.resident.is_some_and(|share| share >= WARM_SHARE);
    let may_direct = facts.ring && facts.direct_target_bytes.is_some();
    let too_much = file.bytes > facts.memory_available_bytes / MEMORY_PARTS;
    if may_direct && !warm && facts.direct_source_bytes.is_some() {
        let why = "big and not cached: bypass the page cache on both sides";
        return CopyPlan::direct(facts, file, warm, why);
    }
    if may_direct && request.sees_bytes && request.durable != Durable::None {
        // The device can write while a single thread hashes.
        let why = "big, hashed and synced: writes bypass the page cache";
        return CopyPlan::direct(facts, file, warm, why);
    }
    if may_direct && too_much {
        let why = "large compared with free memory: writes bypass the page cache";
        return CopyPlan::direct(facts, file, warm, why);
    }
    if too_much && facts.uncached && !facts.target_in_memory {
        let why = "large compared with free memory: pages are dropped once written";
        return CopyPlan::of(Mode::Uncached, 4 * MIB, why);
    }
    let threads = if request.sees_bytes { 1 } else { facts.cores.clamp(1, 4) as u32 };
    let why = "big and cached: through the page cache in parallel, written back immediately";
    // With 1 MiB writes, some copies took five times as much processor time as others
    // (results/copy-tuning/2026-11-22-amd-epyc-2c). Smaller writes allocate smaller folios.
    CopyPlan { threads, ..CopyPlan::of(Mode::Buffered, MIB / 4, why) }
}

/// Explains why two files cannot share blocks.
pub(crate) const fn no_sharing(same_file_system: bool) -> &'static str {
    if same_file_system {
        "this file system does not share blocks between files"
    } else {
        "source and target are on different file systems"
    }
}

fn pinned(
    facts: &Facts,
    file: FileFacts,
    request: PlanRequest,
    mode: Mode,
) -> Result<CopyPlan, Refused> {
    let no = |why| Err(Refused { mode, why });
    let why = "as requested";
    match mode {
        Mode::Reflink if request.sees_bytes => no(SHARED_NOT_HASHED),
        Mode::Reflink if !facts.same_file_system || facts.reflink == Some(false) => {
            no(no_sharing(facts.same_file_system))
        }
        Mode::Range if request.sees_bytes => no("the kernel copies, so no byte can be hashed"),
        Mode::Direct if !facts.ring => {
            no("io_uring is not available (disabled in this container or system)")
        }
        Mode::Direct if facts.direct_target_bytes.is_none() => {
            no("the target's file system does not report direct I/O alignment (no DIOALIGN)")
        }
        Mode::Direct if facts.direct_source_bytes.is_none() => {
            no("the source's file system does not report direct I/O alignment (no DIOALIGN)")
        }
        Mode::Uncached if !facts.uncached => {
            no("RWF_DONTCACHE is not supported by both file systems (Linux 6.14, ext4 or XFS)")
        }
        Mode::Direct => Ok(CopyPlan::direct(facts, file, false, why)),
        Mode::Uncached => Ok(CopyPlan::of(mode, 4 * MIB, why)),
        Mode::Range => Ok(CopyPlan::of(mode, 1 << 30, why)),
        _ => Ok(CopyPlan::of(mode, MIB, why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Facts {
        Facts {
            same_file_system: true,
            reflink: Some(false),
            direct_source_bytes: Some(512),
            direct_target_bytes: Some(512),
            ring: true,
            uncached: true,
            target_in_memory: false,
            reserves: true,
            same_spindle: false,
            cores: 2,
            memory_available_bytes: 16 << 30,
            dirty_headroom_bytes: 2 << 30,
        }
    }

    fn file(bytes: u64, resident: f64) -> FileFacts {
        FileFacts { bytes, resident: Some(resident) }
    }

    fn mode(facts: &Facts, file: FileFacts, request: PlanRequest) -> Mode {
        plan(facts, file, request).unwrap().mode
    }

    #[test]
    fn each_class_gets_its_method() {
        let (facts, request) = (disk(), PlanRequest::default());
        assert_eq!(mode(&facts, file(10, 1.0), request), Mode::Buffered);
        assert_eq!(mode(&facts, file(1 << 30, 0.0), request), Mode::Direct);
        assert_eq!(mode(&facts, file(1 << 30, 1.0), request), Mode::Buffered);
        assert_eq!(mode(&facts, file(9 << 30, 1.0), request), Mode::Direct);
        let durable = PlanRequest { durable: Durable::Full, ..request };
        assert_eq!(mode(&facts, file(1 << 30, 1.0), durable), Mode::Buffered);
        let shares = Facts { reflink: Some(true), ..disk() };
        assert_eq!(mode(&shares, file(1, 0.0), request), Mode::Reflink);
        let hashed = PlanRequest { sees_bytes: true, ..request };
        assert_ne!(mode(&shares, file(1 << 30, 0.0), hashed), Mode::Reflink);
        let never = PlanRequest { reflink: When::Never, ..request };
        assert_ne!(mode(&shares, file(1 << 30, 0.0), never), Mode::Reflink);
    }

    #[test]
    fn a_warm_source_is_read_from_the_cache_even_if_writes_bypass_it() {
        let warm = plan(&disk(), file(9 << 30, 1.0), PlanRequest::default()).unwrap();
        assert_eq!((warm.mode, warm.reads_direct), (Mode::Direct, false));
        let cold = plan(&disk(), file(1 << 30, 0.1), PlanRequest::default()).unwrap();
        assert!(cold.reads_direct);
    }

    #[test]
    fn unsupported_methods_are_never_planned_and_refused_if_required() {
        let none = Facts {
            direct_target_bytes: None,
            direct_source_bytes: None,
            uncached: false,
            same_file_system: false,
            reflink: None,
            ..disk()
        };
        for bytes in [0, 1, SMALL_BYTES, SMALL_BYTES + 1, BIG_BYTES, 1 << 40] {
            for resident in [None, Some(0.0), Some(1.0)] {
                let file = FileFacts { bytes, resident };
                for durable in [Durable::None, Durable::File, Durable::Full] {
                    let request = PlanRequest { durable, ..PlanRequest::default() };
                    assert_eq!(plan(&none, file, request).unwrap().mode, Mode::Buffered);
                }
                for mode in [Mode::Reflink, Mode::Uncached, Mode::Direct] {
                    let request = PlanRequest { mode: Some(mode), ..PlanRequest::default() };
                    assert_eq!(plan(&none, file, request).unwrap_err().mode, mode);
                }
            }
        }
        let request =
            PlanRequest { mode: Some(Mode::Range), sees_bytes: true, ..PlanRequest::default() };
        assert!(plan(&disk(), file(1, 1.0), request).is_err());
    }

    #[test]
    fn without_io_uring_nothing_bypasses_the_cache() {
        let none = Facts { ring: false, ..disk() };
        for resident in [0.0, 1.0] {
            let hashed =
                PlanRequest { sees_bytes: true, durable: Durable::Full, ..PlanRequest::default() };
            for request in [PlanRequest::default(), hashed] {
                assert_ne!(mode(&none, file(9 << 30, resident), request), Mode::Direct);
            }
        }
        let pinned = PlanRequest { mode: Some(Mode::Direct), ..PlanRequest::default() };
        let refused = plan(&none, file(1 << 30, 0.0), pinned).unwrap_err();
        assert!(refused.to_string().contains("io_uring"), "{refused}");
    }

    #[test]
    fn tuning_values_override_planned_ones() {
        let plan = plan(&disk(), file(1 << 30, 0.0), PlanRequest::default()).unwrap();
        assert_eq!(plan.tuned(Tuning::default()), plan);
        let tuning =
            Tuning { block_bytes: Some(65536), depth: Some(4), threads: None, extends: true };
        let tuned = plan.tuned(tuning);
        assert_eq!((tuned.block_bytes, tuned.depth, tuned.extends), (65536, 4, true));
        assert_eq!((tuned.mode, tuned.threads), (plan.mode, plan.threads));
    }

    #[test]
    fn a_rotating_disk_alternates_between_reading_and_writing() {
        let turns = Facts { same_spindle: true, ..disk() };
        assert!(plan(&turns, file(1 << 30, 0.0), PlanRequest::default()).unwrap().in_turns);
        assert!(!plan(&disk(), file(1 << 30, 0.0), PlanRequest::default()).unwrap().in_turns);
    }
}
