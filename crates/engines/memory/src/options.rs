//! The options of a measurement.

use crate::smt::SmtPlan;
use std::path::PathBuf;

/// The advertised caches of the measuring processor, smallest level first.
#[derive(Debug, Clone, Default)]
pub struct Advertised {
    /// Data cache sizes reported by the kernel (sysfs), in bytes.
    pub kernel_bytes: Vec<u64>,
    /// Data cache sizes reported by CPUID, in bytes.
    pub cpuid_bytes: Vec<u64>,
    /// Last-level size from an older CPUID leaf, which covers the whole socket, in bytes.
    pub cpuid_socket_bytes: Option<u64>,
    /// Reported number of first- and second-level TLB entries for small pages.
    pub tlb_entries: (Option<u32>, Option<u32>),
    /// Cache line size in bytes; 64 if unknown.
    pub line_bytes: usize,
}

impl Advertised {
    /// Returns the line size to use for chains, in bytes.
    pub(crate) fn line(&self) -> usize {
        let advertised = self.line_bytes;
        if advertised.is_power_of_two() && (16..=4096).contains(&advertised) {
            advertised
        } else {
            64
        }
    }
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Latency of dependent loads; always measured because the other parts need its levels.
    Ladder,
    /// Other ways to measure the same memory.
    Rulers,
    /// TLB and page faults.
    Pages,
    /// Parallel loads, and bandwidth by number of threads.
    Parallel,
    /// Latency between processors.
    Pairs,
    /// read(2) of a warm file by buffer size.
    Buffers,
    /// Threads that share a core.
    Smt,
}

impl Part {
    /// All parts in execution order.
    pub const ALL: [Self; 7] = [
        Self::Ladder,
        Self::Rulers,
        Self::Pages,
        Self::Parallel,
        Self::Pairs,
        Self::Buffers,
        Self::Smt,
    ];

    /// Returns the name used on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ladder => "ladder",
            Self::Rulers => "rulers",
            Self::Pages => "tlb",
            Self::Parallel => "bandwidth",
            Self::Pairs => "pairs",
            Self::Buffers => "bufsize",
            Self::Smt => "smt",
        }
    }
}

/// Measurement options.
#[derive(Debug, Clone)]
pub struct MemoryOptions {
    /// Parts to measure in addition to the ladder.
    pub parts: Vec<Part>,
    /// Whether to use fewer and shorter blocks and smaller sets.
    pub quick: bool,
    /// Maximum working set size in bytes.
    pub bytes_max: usize,
    /// Seed for all random orders.
    pub seed: u64,
    /// The processor of the measuring thread; `None` chooses the last permitted one.
    pub cpu: Option<u32>,
    /// Directory for the read buffer file.
    pub dir: PathBuf,
    /// The advertised caches.
    pub advertised: Advertised,
    /// The processors that share a core.
    pub smt: SmtPlan,
    /// Machine fingerprint, stored in the result.
    pub machine: String,
    /// Program version, stored in the result.
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_line_size_is_ignored() {
        for (advertised, used) in [(0, 64), (48, 64), (128, 128), (64, 64)] {
            assert_eq!(Advertised { line_bytes: advertised, ..Advertised::default() }.line(), used);
        }
    }
}
