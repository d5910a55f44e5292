//! What a measurement of the memory hierarchy found.
//!
//! The predictor takes its latencies and rates from here ([`MemoryResult::costs`]), the drawing of
//! the machine its numbers in the boxes, the study its metrics. Numbers that only one experiment
//! has stand in `extra` and `curves`, under names with the unit last, as in a run's record.

use crate::Doubt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of [`MemoryResult`].
pub const MEMORY_SCHEMA: u32 = 1;

/// A size of the ladder: time of one dependent load in a working set of so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LadderPoint {
    /// Working set, bytes.
    pub bytes: u64,
    /// Least of all blocks: what the hardware can do.
    pub ns_min: f64,
    /// Tenth percentile.
    pub ns_p10: f64,
    /// Median: what a program gets now.
    pub ns_median: f64,
    /// Blocks measured.
    pub blocks: u32,
    /// Whether a larger set was more than a tenth cheaper, so that something disturbed it.
    pub disturbed: bool,
}

/// A level that the ladder shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryLevel {
    /// `L1`, `L2`, … and `memory` for the last.
    pub name: String,
    /// Time of a dependent load.
    pub latency_ns: f64,
    /// The same in cycles of the clock measured beside it; `None` where that could not be.
    pub latency_cycles: Option<f64>,
    /// Where its capacity lies: above the first, up to the second; `None` for memory.
    pub bracket_bytes: Option<(u64, u64)>,
    /// Capacity that the kernel (sysfs) tells; `None` when it tells none for this level.
    pub advertised_bytes: Option<u64>,
    /// Capacity that the processor (CPUID) tells.
    pub cpuid_bytes: Option<u64>,
    /// How the curve stands against the kernel's figure: `confirmed`, `smaller than advertised`,
    /// `larger than advertised`, `not advertised`, `memory`.
    pub verdict: String,
}

/// The state of an honesty check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    /// Nothing to object.
    Pass,
    /// A reason for care.
    Warn,
    /// The numbers that it speaks of should not be used.
    Fail,
    /// Could not be tried, or nothing in this run needs it.
    Skipped,
}

impl CheckState {
    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
            Self::Skipped => "skip",
        }
    }
}

/// A question that a measurement of memory should be asked, and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// `H1` to `H16`.
    pub id: String,
    /// What is asked, in some words.
    pub asks: String,
    /// The answer.
    pub state: CheckState,
    /// The evidence in one sentence.
    pub evidence: String,
}

/// Two processors and the time that one line takes from one to the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuPair {
    /// The first processor.
    pub a: u32,
    /// The second.
    pub b: u32,
    /// One way, the least of all rounds.
    pub one_way_ns: f64,
}

/// One kind of work on two threads: on siblings, on separate cores, and alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SmtWork {
    /// `alu`, `wide`, `chase`, `l1-share` or `mixed`.
    pub work: String,
    /// One thread alone, least time.
    pub alone_ns: f64,
    /// Two threads on siblings of one core; `None` without siblings.
    pub siblings_ns: Option<f64>,
    /// Two threads on different cores; `None` with one core.
    pub cores_ns: Option<f64>,
}

impl SmtWork {
    /// Work per time of two threads over that of one: 1 is no gain, 2 is twice as much.
    pub fn throughput_ratio(&self, both_ns: f64) -> f64 {
        2.0 * self.alone_ns / both_ns
    }

    /// Share of the time saved for two pieces of work, against one after the other.
    pub fn time_saved(&self, both_ns: f64) -> f64 {
        1.0 - both_ns / (2.0 * self.alone_ns)
    }
}

/// What is known of threads that share a core.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SmtResult {
    /// Why siblings were not measured; `None` when they were.
    pub skipped: Option<String>,
    /// The siblings used.
    pub siblings: Option<(u32, u32)>,
    /// The two processors of different cores used.
    pub cores: Option<(u32, u32)>,
    /// Each kind of work.
    pub works: Vec<SmtWork>,
    /// Whether processors that are told to be cores behave like siblings, in words.
    pub hidden: Option<String>,
}

/// Everything that one measurement found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MemoryResult {
    /// [`MEMORY_SCHEMA`].
    pub schema: u32,
    /// Fingerprint of the machine.
    pub machine: String,
    /// Version and commit of the program.
    pub version: String,
    /// Whether only the ladder was measured.
    pub quick: bool,
    /// Seed of all random orders.
    pub seed: u64,
    /// When it started, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long it took.
    pub elapsed_ns: u64,
    /// The processor that the measuring thread was held to; `None` where it could not be.
    pub cpu: Option<u32>,
    /// Length of a clock cycle while it measured.
    pub cycle_ns: Option<f64>,
    /// Share of the memory that huge pages held; `None` when the kernel does not tell.
    pub huge_share: Option<f64>,
    /// The ladder, sizes ascending.
    pub ladder: Vec<LadderPoint>,
    /// Levels, fastest first.
    pub levels: Vec<MemoryLevel>,
    /// Advertised capacities that no level stands for.
    pub not_visible_bytes: Vec<u64>,
    /// Why the levels should not be believed; `None` when they can be.
    pub unclear: Option<String>,
    /// Honesty checks.
    pub checks: Vec<Check>,
    /// Reasons to distrust it, from the list that all results share.
    pub doubts: Vec<Doubt>,
    /// From processor to processor.
    pub pairs: Vec<CpuPair>,
    /// Why pairs are missing.
    pub pairs_skipped: Option<String>,
    /// Threads that share a core.
    pub smt: Option<SmtResult>,
    /// Other numbers by name, unit last.
    pub extra: BTreeMap<String, f64>,
    /// Other curves by name: points (size or count, value).
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
}

/// What the predictor needs of memory; `None` for what was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct MemoryCosts {
    /// A load that hits the first level.
    pub l1_ns: Option<f64>,
    /// A load that goes to memory.
    pub memory_ns: Option<f64>,
    /// Capacity of the last cache level, the lower end of its bracket.
    pub last_cache_bytes: Option<u64>,
    /// Copying beyond the caches on one thread.
    pub copy_bytes_per_s: Option<f64>,
    /// A page fault on memory that the machine already has.
    pub fault_ns: Option<f64>,
    /// First touch of a small page of fresh memory.
    pub first_touch_ns: Option<f64>,
    /// read(2) of a warm file through the best buffer.
    pub warm_read_bytes_per_s: Option<f64>,
}

impl MemoryResult {
    /// Adds a point to a curve, which begins with its first one.
    pub fn add_point(&mut self, curve: &str, at: f64, value: f64) {
        self.curves.entry(curve.to_owned()).or_default().push((at, value));
    }

    /// The costs for the predictor.
    pub fn costs(&self) -> MemoryCosts {
        let number = |name: &str| self.extra.get(name).copied();
        let caches = || self.levels.iter().filter(|l| l.bracket_bytes.is_some());
        MemoryCosts {
            l1_ns: caches().next().map(|l| l.latency_ns),
            memory_ns: self.levels.iter().find(|l| l.bracket_bytes.is_none()).map(|l| l.latency_ns),
            last_cache_bytes: caches()
                .next_back()
                .and_then(|l| l.bracket_bytes)
                .map(|(low, _)| low),
            copy_bytes_per_s: number("copy_bytes_per_s"),
            fault_ns: number("fault_ns"),
            first_touch_ns: number("first_touch_ns"),
            warm_read_bytes_per_s: number("warm_read_bytes_per_s"),
        }
    }

    /// The doubts that its checks give.
    pub fn doubts_of_checks(&self) -> Vec<Doubt> {
        let failed = |ids: &[&str]| {
            self.checks.iter().any(|c| ids.contains(&c.id.as_str()) && c.state == CheckState::Fail)
        };
        // Waiting for a processor, medians far above the least, sizes that were dearer than larger.
        if failed(&["H2", "H3", "H13"]) { vec![Doubt::NoisyNeighbour] } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_and_time_saved_are_two_numbers() {
        // The published build: 93 s alone for all of it, 73 s with siblings.
        let work = SmtWork {
            work: "build".to_owned(),
            alone_ns: 46.5e9,
            siblings_ns: Some(73e9),
            cores_ns: None,
        };
        assert!((work.throughput_ratio(73e9) - 1.274).abs() < 1e-3);
        assert!((work.time_saved(73e9) - 0.215).abs() < 1e-3);
    }

    #[test]
    fn a_busy_machine_is_a_doubt() {
        let check = |id: &str, state| Check {
            id: id.to_owned(),
            asks: String::new(),
            state,
            evidence: String::new(),
        };
        let with =
            |id, state| MemoryResult { checks: vec![check(id, state)], ..Default::default() };
        assert_eq!(with("H2", CheckState::Fail).doubts_of_checks(), [Doubt::NoisyNeighbour]);
        assert_eq!(with("H2", CheckState::Warn).doubts_of_checks(), []);
        assert_eq!(with("H9", CheckState::Fail).doubts_of_checks(), []);
    }

    #[test]
    fn costs_are_those_of_the_first_cache_and_of_memory() {
        let level = |latency_ns, bracket_bytes| MemoryLevel {
            name: String::new(),
            latency_ns,
            latency_cycles: None,
            bracket_bytes,
            advertised_bytes: None,
            cpuid_bytes: None,
            verdict: String::new(),
        };
        let mut result = MemoryResult {
            levels: vec![level(1.0, Some((1, 2))), level(9.0, Some((5, 8))), level(99.0, None)],
            ..MemoryResult::default()
        };
        result.extra.insert("fault_ns".to_owned(), 500.0);
        let costs = result.costs();
        assert_eq!((costs.l1_ns, costs.memory_ns), (Some(1.0), Some(99.0)));
        assert_eq!((costs.last_cache_bytes, costs.fault_ns), (Some(5), Some(500.0)));
        assert_eq!(costs.copy_bytes_per_s, None);
    }
}
