//! The ladder: time of one dependent load over the size of the working set, and its levels.

use crate::blocks::{Bench, region, three};
use crate::cycle::sattolo;
use crate::{MemoryError, MemoryOptions};
use ioloom_model::memory::{LadderPoint, MemoryLevel, MemoryResult};
use ioloom_stats::levels::{Agreement, Levels, levels};
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys_lab::memory::{Chain, Layout, Pages, Region, Step};

/// Smallest working set.
const BYTES_MIN: usize = 4 << 10;
/// A warm-up is two laps, but no longer than this: what no cache holds is not warmer after a lap.
const WARM_NS: u64 = 20_000_000;
/// Steps of a warm-up between two looks at the clock.
const WARM_STEPS: usize = 16_384;

/// What is told about the caches of the processor that measures; smallest level first.
#[derive(Debug, Clone, Default)]
pub struct Advertised {
    /// Capacities of data caches that the kernel (sysfs) tells, bytes.
    pub kernel_bytes: Vec<u64>,
    /// The same by the instruction CPUID.
    pub cpuid_bytes: Vec<u64>,
    /// Last level by the older leaf of CPUID, that of the whole socket.
    pub cpuid_socket_bytes: Option<u64>,
    /// Entries of the first and second translation buffer for small pages, as told.
    pub tlb_entries: (Option<u32>, Option<u32>),
    /// Bytes of a cache line; 64 when nothing tells.
    pub line_bytes: usize,
}

impl Advertised {
    /// Bytes of a line that can be used for a chain.
    pub(crate) fn line(&self) -> usize {
        let told = self.line_bytes;
        if told.is_power_of_two() && (16..=4096).contains(&told) { told } else { 64 }
    }
}

/// What the checks need of the ladder beside its result.
#[derive(Debug)]
pub(crate) struct LadderFacts {
    pub(crate) found: Levels,
    /// All blocks of the size that stands for each level.
    pub(crate) blocks_of_levels: Vec<Vec<f64>>,
    /// Time of a lap in a new order over that of the same order again.
    pub(crate) fresh_over_same: Option<f64>,
}

/// Sizes with `per_octave` points for each doubling, whole lines each.
pub(crate) fn sizes(bytes_max: usize, per_octave: u32, line: usize) -> Vec<usize> {
    let octaves = (bytes_max as f64 / BYTES_MIN as f64).log2();
    let count = (octaves * f64::from(per_octave)).floor().max(0.0) as u32;
    let mut all: Vec<usize> = (0..=count)
        .map(|i| BYTES_MIN as f64 * (f64::from(i) / f64::from(per_octave)).exp2())
        .map(|bytes| (bytes / line as f64).round() as usize * line)
        .collect();
    all.dedup();
    all
}

pub(crate) fn run(
    bench: &mut Bench,
    options: &MemoryOptions,
    result: &mut MemoryResult,
    go_on: &dyn Fn() -> Result<(), MemoryError>,
) -> Result<LadderFacts, MemoryError> {
    let line = options.advertised.line();
    let mut walk = Walk::new(options.bytes_max, line)?;
    let (passes, blocks) = if options.quick { (3, 7) } else { (5, 13) };
    let mut points: Vec<(usize, Vec<f64>)> =
        sizes(options.bytes_max, 4, line).into_iter().map(|size| (size, Vec::new())).collect();
    for _ in 0..passes {
        walk.pass(bench, &mut points, blocks, go_on)?;
    }
    let mut found = found_in(&points)?;
    if !options.quick {
        let mut more = between(&found, line);
        more.retain(|size| points.iter().all(|(have, _)| have != size));
        let mut more: Vec<_> = more.into_iter().map(|size| (size, Vec::new())).collect();
        for _ in 0..passes {
            walk.pass(bench, &mut more, blocks, go_on)?;
        }
        points.extend(more);
        points.sort_by_key(|(size, _)| *size);
        found = found_in(&points)?;
    }
    // What was disturbed is measured once more.
    for index in found.disturbed.clone() {
        let (size, times) = &mut points[index];
        times.extend(walk.measure(bench, *size, blocks));
    }
    found = found_in(&points)?;
    result.ladder = points
        .iter()
        .enumerate()
        .map(|(i, (size, times))| {
            let (ns_min, ns_p10, ns_median) = three(times);
            let disturbed = found.disturbed.contains(&i);
            let blocks = times.len() as u32;
            LadderPoint { bytes: *size as u64, ns_min, ns_p10, ns_median, blocks, disturbed }
        })
        .collect();
    result.huge_share = walk.huge_share;
    let fresh_over_same = walk.fresh_over_same(bench, &found);
    told(options, &found, result);
    let blocks_of_levels = found.levels.iter().map(|l| blocks_of(l.plateau, &points)).collect();
    Ok(LadderFacts { found, blocks_of_levels, fresh_over_same })
}

/// The blocks of the size in the middle of a plateau.
fn blocks_of(plateau: (f64, f64), points: &[(usize, Vec<f64>)]) -> Vec<f64> {
    let middle = (plateau.0 * plateau.1).sqrt();
    let near = |size: usize| (size as f64 / middle).ln().abs();
    let nearest = points.iter().min_by(|a, b| near(a.0).total_cmp(&near(b.0)));
    nearest.map_or(Vec::new(), |(_, times)| times.clone())
}

fn found_in(points: &[(usize, Vec<f64>)]) -> Result<Levels, MemoryError> {
    let bytes: Vec<f64> = points.iter().map(|(size, _)| *size as f64).collect();
    let times: Vec<f64> = points.iter().map(|(_, times)| three(times).0).collect();
    Ok(levels(&bytes, &times)?)
}

/// Three more sizes inside of each bracket.
fn between(found: &Levels, line: usize) -> Vec<usize> {
    let inside = |(low, high): (f64, f64)| {
        [0.25, 0.5, 0.75].map(|part| {
            let bytes = low * (high / low).powf(part);
            (bytes / line as f64).round() as usize * line
        })
    };
    found.levels.iter().filter_map(|l| l.bracket).flat_map(inside).collect()
}

/// Writes the levels into the result, beside what is told about them.
fn told(options: &MemoryOptions, found: &Levels, result: &mut MemoryResult) {
    let told: Vec<f64> = options.advertised.kernel_bytes.iter().map(|b| *b as f64).collect();
    let verdicts = found.compare(&told);
    result.levels = found
        .levels
        .iter()
        .zip(&verdicts)
        .enumerate()
        .map(|(rank, (level, (index, how)))| MemoryLevel {
            name: match how {
                Agreement::Memory => "memory".to_owned(),
                _ => format!("L{}", rank + 1),
            },
            latency_ns: level.time,
            latency_cycles: None,
            bracket_bytes: level.bracket.map(|(low, high)| (low as u64, high as u64)),
            advertised_bytes: index.and_then(|i| options.advertised.kernel_bytes.get(i).copied()),
            cpuid_bytes: match level.bracket {
                Some(_) => options.advertised.cpuid_bytes.get(index.unwrap_or(rank)).copied(),
                None => None,
            },
            verdict: how.words().to_owned(),
        })
        .collect();
    let kernel = &options.advertised.kernel_bytes;
    result.not_visible_bytes = found.not_visible(&told).into_iter().map(|i| kernel[i]).collect();
    result.unclear.clone_from(&found.unclear);
}

/// One region in which chains of every size are laid.
pub(crate) struct Walk {
    region: Option<Region>,
    line: usize,
    bytes_max: usize,
    pub(crate) huge_share: Option<f64>,
}

impl Walk {
    pub(crate) fn new(bytes_max: usize, line: usize) -> Result<Self, MemoryError> {
        let region = region(bytes_max + 4096, Pages::Huge)?;
        let huge_share = region.huge_bytes().map(|huge| huge as f64 / region.bytes() as f64);
        Ok(Self { region: Some(region), line, bytes_max, huge_share })
    }

    /// A chain of one load in each line of `bytes`, in a new random order.
    pub(crate) fn chain(&mut self, bench: &mut Bench, bytes: usize) -> Chain {
        let nodes = (bytes.min(self.bytes_max) / self.line).max(2) as u32;
        let next = sattolo(nodes, bench.next_seed());
        let region = self.region.take().expect("the region comes back after each use");
        Chain::link(region, Layout::packed(self.line), &next)
    }

    pub(crate) fn give_back(&mut self, chain: Chain) {
        self.region = Some(chain.into_region());
    }

    /// Blocks of one size, warmed before.
    pub(crate) fn measure(&mut self, bench: &mut Bench, bytes: usize, blocks: usize) -> Vec<f64> {
        self.measure_with(bench, bytes, blocks, Step::Load)
    }

    pub(crate) fn measure_with(
        &mut self,
        bench: &mut Bench,
        bytes: usize,
        blocks: usize,
        step: Step,
    ) -> Vec<f64> {
        let mut chain = self.chain(bench, bytes);
        warm(&mut chain, step);
        let times = bench.time(blocks, |steps| chain.walk(steps, step));
        self.give_back(chain);
        times
    }

    fn pass(
        &mut self,
        bench: &mut Bench,
        points: &mut [(usize, Vec<f64>)],
        blocks: usize,
        go_on: &dyn Fn() -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        for index in bench.shuffled(points.len()) {
            go_on()?;
            let (size, times) = &mut points[index];
            times.extend(self.measure(bench, *size, blocks));
        }
        Ok(())
    }

    /// Whether a prefetcher learns an order that is walked again: a lap in a new order over the
    /// next lap in the same, beyond the second level, least of some rounds.
    fn fresh_over_same(&mut self, bench: &mut Bench, found: &Levels) -> Option<f64> {
        let level = found.levels.get(1)?;
        let bytes = (level.plateau.1 * 0.75) as usize;
        let (mut fresh, mut same) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..12 {
            let mut chain = self.chain(bench, bytes);
            let steps = chain.len();
            for least in [&mut fresh, &mut same] {
                let start = monotonic_ns();
                let took = chain.walk(steps, Step::Load);
                let ns = (monotonic_ns() - start) as f64 / took as f64;
                *least = least.min(ns);
            }
            self.give_back(chain);
        }
        Some(fresh / same)
    }
}

/// Walks along a chain until the caches hold of it what they can.
fn warm(chain: &mut Chain, step: Step) {
    let start = monotonic_ns();
    let mut left = 2 * chain.len();
    while left > 0 && monotonic_ns() - start < WARM_NS {
        left = left.saturating_sub(chain.walk(left.min(WARM_STEPS), step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_rise_by_quarters_of_a_doubling() {
        let all = sizes(64 << 20, 4, 64);
        assert_eq!((all[0], all[4], *all.last().unwrap()), (4096, 8192, 64 << 20));
        assert_eq!(all.len(), 57);
        assert!(all.windows(2).all(|w| w[0] < w[1]) && all.iter().all(|s| s % 64 == 0));
        assert_eq!(sizes(1024, 4, 64), [4096]);
    }

    #[test]
    fn an_odd_line_is_not_believed() {
        for (told, used) in [(0, 64), (48, 64), (128, 128), (64, 64)] {
            assert_eq!(Advertised { line_bytes: told, ..Advertised::default() }.line(), used);
        }
    }
}
