//! Results of memory hierarchy measurements.
//!
//! Used by the predictor ([`MemoryResult::costs`]), the machine diagram and the memory study.
//! Numbers specific to one experiment are in `extra` and `curves`, with the unit as the last part
//! of the name, as in run records.

use crate::Doubt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of [`MemoryResult`].
pub const MEMORY_SCHEMA: u32 = 1;

/// A point of the ladder: the time of a dependent load for one working-set size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LadderPoint {
    /// Working set size in bytes.
    pub bytes: u64,
    /// Minimum over all blocks: what the hardware can achieve.
    pub ns_min: f64,
    /// 10th percentile.
    pub ns_p10: f64,
    /// Median: the typical performance at present.
    pub ns_median: f64,
    /// Number of blocks.
    pub blocks: u32,
    /// Whether the point was disturbed: a larger working set was more than 10 % faster.
    pub disturbed: bool,
}

/// A level of the memory hierarchy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryLevel {
    /// `L1`, `L2`, …, or `memory` for the last level.
    pub name: String,
    /// Time of a dependent load.
    pub latency_ns: f64,
    /// Latency in clock cycles, measured at the same time; `None` if the cycle time could not be
    /// measured.
    pub latency_cycles: Option<f64>,
    /// Capacity range: above the first size, up to the second; `None` for memory.
    pub bracket_bytes: Option<(u64, u64)>,
    /// Capacity reported by the kernel (sysfs); `None` if it reports none for this level.
    pub advertised_bytes: Option<u64>,
    /// Capacity reported by the processor (CPUID).
    pub cpuid_bytes: Option<u64>,
    /// Comparison with the capacity reported by the kernel: `confirmed`, `smaller than advertised`,
    /// `larger than advertised`, `not advertised`, `memory`.
    pub verdict: String,
}

/// Result of a plausibility check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    /// No objection.
    Pass,
    /// Use the numbers with care.
    Warn,
    /// Do not use the affected numbers.
    Fail,
    /// Not possible, or not required in this run.
    Skipped,
}

impl CheckState {
    /// Returns the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
            Self::Skipped => "skip",
        }
    }
}

/// A plausibility check of a memory measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// `H1` to `H16`.
    pub id: String,
    /// The question.
    pub asks: String,
    /// The result.
    pub state: CheckState,
    /// The evidence, in one sentence.
    pub evidence: String,
}

/// Two processors and the time to transfer a cache line between them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuPair {
    /// The first processor.
    pub a: u32,
    /// The second.
    pub b: u32,
    /// Minimum one-way time over all rounds.
    pub one_way_ns: f64,
}

/// Times of one workload on one thread, on two siblings, and on two cores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SmtWork {
    /// `alu`, `wide`, `chase`, `l1-share` or `mixed`.
    pub work: String,
    /// Minimum time of one thread alone.
    pub alone_ns: f64,
    /// Time of two threads on sibling hardware threads of one core; `None` without siblings.
    pub siblings_ns: Option<f64>,
    /// Time of two threads on different cores; `None` with one core.
    pub cores_ns: Option<f64>,
}

impl SmtWork {
    /// Returns the throughput of two threads relative to one: 1 means no gain, 2 means twice as
    /// much.
    pub fn throughput_ratio(&self, both_ns: f64) -> f64 {
        2.0 * self.alone_ns / both_ns
    }

    /// Returns the share of time saved by running two pieces of work concurrently rather than in
    /// sequence.
    pub fn time_saved(&self, both_ns: f64) -> f64 {
        1.0 - both_ns / (2.0 * self.alone_ns)
    }
}

/// Measurements of hardware threads that share a core.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SmtResult {
    /// Why siblings were not measured; `None` if they were.
    pub skipped: Option<String>,
    /// The measured siblings.
    pub siblings: Option<(u32, u32)>,
    /// The measured processors on different cores.
    pub cores: Option<(u32, u32)>,
    /// Results by workload.
    pub works: Vec<SmtWork>,
    /// Describes whether processors reported as separate cores behave like siblings.
    pub hidden: Option<String>,
}

/// The result of a measurement.
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
    /// Seed for all random orders.
    pub seed: u64,
    /// Start time in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Elapsed time.
    pub elapsed_ns: u64,
    /// Processor to which the measuring thread was pinned; `None` if pinning failed.
    pub cpu: Option<u32>,
    /// Clock cycle time during the measurement.
    pub cycle_ns: Option<f64>,
    /// Share of memory in huge pages; `None` if the kernel does not report it.
    pub huge_share: Option<f64>,
    /// The ladder in ascending order of size.
    pub ladder: Vec<LadderPoint>,
    /// Levels, fastest first.
    pub levels: Vec<MemoryLevel>,
    /// Advertised capacities without a matching level.
    pub not_visible_bytes: Vec<u64>,
    /// Why the levels should not be trusted; `None` if they can be trusted.
    pub unclear: Option<String>,
    /// Plausibility checks.
    pub checks: Vec<Check>,
    /// Reasons to distrust the result.
    pub doubts: Vec<Doubt>,
    /// Transfer times between processors.
    pub pairs: Vec<CpuPair>,
    /// Why pairs were not measured.
    pub pairs_skipped: Option<String>,
    /// Hardware threads that share a core.
    pub smt: Option<SmtResult>,
    /// Additional numbers, with the unit as the last part of the name.
    pub extra: BTreeMap<String, f64>,
    /// Additional curves by name: points (size or count, value).
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
}

/// Memory costs for the predictor; `None` if not measured.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct MemoryCosts {
    /// Load from the first cache level.
    pub l1_ns: Option<f64>,
    /// Load from memory.
    pub memory_ns: Option<f64>,
    /// Capacity of the last cache level: the lower end of its range.
    pub last_cache_bytes: Option<u64>,
    /// Single-threaded copy rate beyond the caches.
    pub copy_bytes_per_s: Option<f64>,
    /// Page fault on memory that the machine has already allocated.
    pub fault_ns: Option<f64>,
    /// First access to a 4 KiB page of new memory.
    pub first_touch_ns: Option<f64>,
    /// Rate of read(2) on a cached file with the best buffer size.
    pub warm_read_bytes_per_s: Option<f64>,
}

impl MemoryResult {
    /// Adds a point to a curve, creating the curve if necessary.
    pub fn add_point(&mut self, curve: &str, at: f64, value: f64) {
        self.curves.entry(curve.to_owned()).or_default().push((at, value));
    }

    /// Returns the costs for the predictor.
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

    /// Returns the doubts implied by the checks.
    pub fn doubts_of_checks(&self) -> Vec<Doubt> {
        let failed = |ids: &[&str]| {
            self.checks.iter().any(|c| ids.contains(&c.id.as_str()) && c.state == CheckState::Fail)
        };
        // Waits for a processor, medians far above minima, and sizes slower than larger ones.
        if failed(&["H2", "H3", "H13"]) { vec![Doubt::NoisyNeighbour] } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_and_time_saved_differ() {
        // The published build: 93 s on one thread, 73 s on two siblings.
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
    fn a_busy_machine_causes_a_doubt() {
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
    fn costs_come_from_the_first_cache_and_memory() {
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

    #[test]
    fn the_reference_of_json_names_every_state_of_a_check() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/json.md");
        let text = std::fs::read_to_string(path).unwrap();
        let row = text.lines().find(|line| line.starts_with("| `state` | `CheckState` |")).unwrap();
        for state in [CheckState::Pass, CheckState::Warn, CheckState::Fail, CheckState::Skipped] {
            let word = serde_json::to_value(state).unwrap();
            assert!(row.contains(&format!("`{}`", word.as_str().unwrap())), "{word}");
        }
    }
}
