//! Which way the bytes of a file go: pure, from facts to a plan and a sentence why.
//!
//! The facts are gathered once for a pair of file systems by trying (`crate::facts`), and per big
//! file by asking what of it is in memory. Nothing here touches the system, so the same facts give
//! the same plan.

use crate::options::{Durable, Tuning, When};
use std::fmt;
use std::str::FromStr;

/// Up to this size a file is read by one call and written by one, bytes.
pub const SMALL_BYTES: u64 = 256 << 10;

/// From this size on it pays to look at what is in memory and to keep many requests under way.
pub const BIG_BYTES: u64 = 32 << 20;

/// Share of a file that must be in memory for it to count as warm.
const WARM_SHARE: f64 = 0.5;

/// A copy of more than this part of the free memory leaves the page cache alone.
const MEMORY_PARTS: u64 = 2;

/// How bytes are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The copy shares the blocks of the source until one of them is changed.
    Reflink,
    /// The kernel copies from file to file (`copy_file_range`).
    Range,
    /// Read and written through the page cache.
    Buffered,
    /// The same, but pages leave the cache when they are written (`RWF_DONTCACHE`).
    Uncached,
    /// Past the page cache, many requests at a time (io_uring, `O_DIRECT`).
    Direct,
    /// The source is mapped: for measurements only, because a file that is cut meanwhile ends the
    /// process.
    Mmap,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 6] =
        [Self::Reflink, Self::Range, Self::Buffered, Self::Uncached, Self::Direct, Self::Mmap];

    /// The word for flags.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reflink => "reflink",
            Self::Range => "range",
            Self::Buffered => "buffered",
            Self::Uncached => "uncached",
            Self::Direct => "direct",
            Self::Mmap => "mmap",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mode| mode.word() == text).ok_or_else(|| {
            format!("'{text}' is no way to copy: use reflink, range, buffered, uncached or direct")
        })
    }
}

/// What is known of a pair of file systems and of this machine.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Facts {
    /// Source and target lie on one file system.
    pub same_file_system: bool,
    /// Blocks can be shared; null where it was not tried.
    pub reflink: Option<bool>,
    /// What direct requests to the source must be multiples of; null where it has none.
    pub direct_source_bytes: Option<u32>,
    /// The same for the target.
    pub direct_target_bytes: Option<u32>,
    /// This program may have an io_uring, which going past the cache needs: rules of containers and
    /// `kernel.io_uring_disabled` take it away.
    pub ring: bool,
    /// Both take reads and writes whose pages leave the cache.
    pub uncached: bool,
    /// The target keeps its files in memory alone.
    pub target_in_memory: bool,
    /// Space is reserved before the first byte; elsewhere the free space is looked at.
    pub reserves: bool,
    /// Both lie on one disk that turns.
    pub same_spindle: bool,
    /// Processors that this process may use.
    pub cores: usize,
    /// Memory that programs can still get, bytes.
    pub memory_available_bytes: u64,
    /// Bytes that can be changed in memory before the kernel begins to write them by itself.
    pub dirty_headroom_bytes: u64,
}

/// What is known of one file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FileFacts {
    /// Size, bytes.
    pub bytes: u64,
    /// Share of it in memory; `None` where that cannot be known.
    pub resident: Option<f64>,
}

/// What the user asks that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Pinned.
    pub mode: Option<Mode>,
    /// Sharing of blocks.
    pub reflink: When,
    /// What is on the device at the end.
    pub durable: Durable,
    /// Every byte has to pass this process: it is hashed, or looked at for zeros.
    pub sees_bytes: bool,
}

/// How one file is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct CopyPlan {
    /// The way.
    pub mode: Mode,
    /// Bytes of one request.
    pub block_bytes: u32,
    /// Requests under way at a time.
    pub depth: u32,
    /// Threads that copy parts of the file.
    pub threads: u32,
    /// With `direct`: the source is read past the cache too, not from it.
    pub reads_direct: bool,
    /// With `direct`: buffers are filled, then written, so that a disk seeks less.
    pub in_turns: bool,
    /// The target has neither its size nor its space before: for measurements only.
    pub extends: bool,
    /// Why.
    pub why: &'static str,
}

/// Why a pinned mode cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{mode} cannot be used here: {why}")]
pub struct Refused {
    /// What was asked for.
    pub mode: Mode,
    /// What is missing.
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

    /// Through the page cache, for a reason.
    pub(crate) const fn buffered(why: &'static str) -> Self {
        Self::of(Mode::Buffered, MIB, why)
    }

    /// Bytes of the buffer that one thread needs for it.
    pub(crate) fn buffer_bytes(&self) -> usize {
        if self.mode == Mode::Range { 0 } else { self.block_bytes as usize }
    }

    /// The same with the numbers that were pinned.
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
        // Chosen by results/copy-tuning/2026-11-22-amd-epyc-2c: 1 MiB takes twice as long, a depth of 8 no less.
        // A file of a few requests still has some under way.
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

/// Chooses how a file is copied.
///
/// # Errors
/// A pinned mode that cannot be used here.
pub fn plan(facts: &Facts, file: FileFacts, wanted: Wanted) -> Result<CopyPlan, Refused> {
    if let Some(mode) = wanted.mode {
        return pinned(facts, file, wanted, mode);
    }
    if wanted.reflink == When::Always {
        return pinned(facts, file, wanted, Mode::Reflink);
    }
    let may_share = wanted.reflink == When::Auto && !wanted.sees_bytes;
    if may_share && facts.same_file_system && facts.reflink == Some(true) {
        return Ok(CopyPlan::of(Mode::Reflink, MIB, "the file system shares the blocks"));
    }
    if file.bytes <= SMALL_BYTES {
        let why = "small: one read and one write";
        return Ok(CopyPlan::of(Mode::Buffered, SMALL_BYTES as u32, why));
    }
    if file.bytes < BIG_BYTES {
        let why = "of middle size: through the page cache in blocks";
        return Ok(CopyPlan::of(Mode::Buffered, MIB, why));
    }
    Ok(big(facts, file, wanted))
}

fn big(facts: &Facts, file: FileFacts, wanted: Wanted) -> CopyPlan {
    let warm = file.resident.is_some_and(|share| share >= WARM_SHARE);
    let may_direct = facts.ring && facts.direct_target_bytes.is_some();
    let too_much = file.bytes > facts.memory_available_bytes / MEMORY_PARTS;
    if may_direct && !warm && facts.direct_source_bytes.is_some() {
        let why = "big and not in memory: past the page cache on both sides";
        return CopyPlan::direct(facts, file, warm, why);
    }
    if may_direct && wanted.sees_bytes && wanted.durable != Durable::None {
        // One thread hashes; the device need not wait for it.
        let why = "big, hashed and to be on the device at the end: written past the page cache";
        return CopyPlan::direct(facts, file, warm, why);
    }
    if may_direct && too_much {
        let why = "much of the free memory: written past the page cache";
        return CopyPlan::direct(facts, file, warm, why);
    }
    if too_much && facts.uncached && !facts.target_in_memory {
        let why = "much of the free memory: pages leave the cache when written";
        return CopyPlan::of(Mode::Uncached, 4 * MIB, why);
    }
    let threads = if wanted.sees_bytes { 1 } else { facts.cores.clamp(1, 4) as u32 };
    let why = "big and in memory: through the page cache, parts side by side, written at once";
    // With writes of 1 MiB some copies took five times the processor time of others
    // (results/copy-tuning/2026-11-22-amd-epyc-2c); small ones ask for smaller pieces of memory.
    CopyPlan { threads, ..CopyPlan::of(Mode::Buffered, MIB / 4, why) }
}

/// Why two files cannot share blocks.
pub(crate) const fn no_sharing(same_file_system: bool) -> &'static str {
    if same_file_system {
        "this file system does not share blocks between files"
    } else {
        "source and target lie on different file systems"
    }
}

fn pinned(facts: &Facts, file: FileFacts, wanted: Wanted, mode: Mode) -> Result<CopyPlan, Refused> {
    let no = |why| Err(Refused { mode, why });
    let why = "as asked";
    match mode {
        Mode::Reflink if wanted.sees_bytes => {
            no("shared blocks are not read, so nothing is hashed")
        }
        Mode::Reflink if !facts.same_file_system || facts.reflink == Some(false) => {
            no(no_sharing(facts.same_file_system))
        }
        Mode::Range if wanted.sees_bytes => no("the kernel copies, so no byte can be hashed"),
        Mode::Direct if !facts.ring => {
            no("this program may have no io_uring (a container forbids it, or the system)")
        }
        Mode::Direct if facts.direct_target_bytes.is_none() => {
            no("the target's file system does not say how to go past its cache (no DIOALIGN)")
        }
        Mode::Direct if facts.direct_source_bytes.is_none() => {
            no("the source's file system does not say how to go past its cache (no DIOALIGN)")
        }
        Mode::Uncached if !facts.uncached => {
            no("one of the file systems does not take RWF_DONTCACHE (Linux 6.14, ext4 or XFS)")
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

    fn mode(facts: &Facts, file: FileFacts, wanted: Wanted) -> Mode {
        plan(facts, file, wanted).unwrap().mode
    }

    #[test]
    fn each_class_has_its_way() {
        let (facts, wanted) = (disk(), Wanted::default());
        assert_eq!(mode(&facts, file(10, 1.0), wanted), Mode::Buffered);
        assert_eq!(mode(&facts, file(1 << 30, 0.0), wanted), Mode::Direct);
        assert_eq!(mode(&facts, file(1 << 30, 1.0), wanted), Mode::Buffered);
        assert_eq!(mode(&facts, file(9 << 30, 1.0), wanted), Mode::Direct);
        let durable = Wanted { durable: Durable::Full, ..wanted };
        assert_eq!(mode(&facts, file(1 << 30, 1.0), durable), Mode::Buffered);
        let shares = Facts { reflink: Some(true), ..disk() };
        assert_eq!(mode(&shares, file(1, 0.0), wanted), Mode::Reflink);
        let hashed = Wanted { sees_bytes: true, ..wanted };
        assert_ne!(mode(&shares, file(1 << 30, 0.0), hashed), Mode::Reflink);
        let never = Wanted { reflink: When::Never, ..wanted };
        assert_ne!(mode(&shares, file(1 << 30, 0.0), never), Mode::Reflink);
    }

    #[test]
    fn a_warm_source_is_read_from_memory_even_when_the_target_is_written_past_it() {
        let warm = plan(&disk(), file(9 << 30, 1.0), Wanted::default()).unwrap();
        assert_eq!((warm.mode, warm.reads_direct), (Mode::Direct, false));
        let cold = plan(&disk(), file(1 << 30, 0.1), Wanted::default()).unwrap();
        assert!(cold.reads_direct);
    }

    #[test]
    fn what_is_not_offered_is_never_planned_and_pinned_is_refused() {
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
                    let wanted = Wanted { durable, ..Wanted::default() };
                    assert_eq!(plan(&none, file, wanted).unwrap().mode, Mode::Buffered);
                }
                for mode in [Mode::Reflink, Mode::Uncached, Mode::Direct] {
                    let wanted = Wanted { mode: Some(mode), ..Wanted::default() };
                    assert_eq!(plan(&none, file, wanted).unwrap_err().mode, mode);
                }
            }
        }
        let wanted = Wanted { mode: Some(Mode::Range), sees_bytes: true, ..Wanted::default() };
        assert!(plan(&disk(), file(1, 1.0), wanted).is_err());
    }

    #[test]
    fn without_a_ring_nothing_goes_past_the_cache() {
        let none = Facts { ring: false, ..disk() };
        for resident in [0.0, 1.0] {
            let hashed = Wanted { sees_bytes: true, durable: Durable::Full, ..Wanted::default() };
            for wanted in [Wanted::default(), hashed] {
                assert_ne!(mode(&none, file(9 << 30, resident), wanted), Mode::Direct);
            }
        }
        let pinned = Wanted { mode: Some(Mode::Direct), ..Wanted::default() };
        let refused = plan(&none, file(1 << 30, 0.0), pinned).unwrap_err();
        assert!(refused.to_string().contains("io_uring"), "{refused}");
    }

    #[test]
    fn pinned_numbers_take_the_place_of_planned_ones() {
        let plan = plan(&disk(), file(1 << 30, 0.0), Wanted::default()).unwrap();
        assert_eq!(plan.tuned(Tuning::default()), plan);
        let tuning =
            Tuning { block_bytes: Some(65536), depth: Some(4), threads: None, extends: true };
        let tuned = plan.tuned(tuning);
        assert_eq!((tuned.block_bytes, tuned.depth, tuned.extends), (65536, 4, true));
        assert_eq!((tuned.mode, tuned.threads), (plan.mode, plan.threads));
    }

    #[test]
    fn a_disk_that_turns_is_read_and_written_in_turns() {
        let turns = Facts { same_spindle: true, ..disk() };
        assert!(plan(&turns, file(1 << 30, 0.0), Wanted::default()).unwrap().in_turns);
        assert!(!plan(&disk(), file(1 << 30, 0.0), Wanted::default()).unwrap().in_turns);
    }

    #[test]
    fn words_read_back() {
        for mode in Mode::ALL {
            assert_eq!(mode.word().parse(), Ok(mode));
        }
        assert!("fast".parse::<Mode>().is_err());
    }
}
