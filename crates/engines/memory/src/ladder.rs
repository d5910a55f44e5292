//! The latency ladder: dependent load time by working set size, and the resulting levels.

use crate::blocks::{Bench, region, summary};
use crate::cycle::sattolo;
use crate::error::MemoryError;
use crate::options::{Advertised, MemoryOptions};
use ioloom_model::memory::{LadderPoint, MemoryLevel, MemoryResult};
use ioloom_stats::levels::{Agreement, Levels, levels};
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys_lab::memory::{Chain, Layout, Pages, Region, Step};

/// Minimum working set size in bytes.
const BYTES_MIN: usize = 4 << 10;
/// Maximum duration of a two-lap warm-up. A set that fits in no cache does not get warmer.
const WARM_NS: u64 = 20_000_000;
/// Number of warm-up steps between clock reads.
const WARM_STEPS: usize = 16_384;

/// The results of the ladder, as needed by the checks.
#[derive(Debug)]
pub(crate) struct LadderFacts {
    pub(crate) found: Levels,
    /// All blocks of one size per level.
    pub(crate) blocks_of_levels: Vec<Vec<f64>>,
    /// Duration of a lap in a new order divided by that of a second lap in the same order.
    pub(crate) fresh_over_same: Option<f64>,
}

/// Returns sizes with `per_octave` points per doubling, rounded to whole lines.
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
    check_stop: &dyn Fn() -> Result<(), MemoryError>,
) -> Result<LadderFacts, MemoryError> {
    let line = options.advertised.line();
    let mut walk = ChaseRegion::new(options.bytes_max, line)?;
    let (passes, blocks) = if options.quick { (3, 7) } else { (5, 13) };
    let mut points: Vec<(usize, Vec<f64>)> =
        sizes(options.bytes_max, 4, line).into_iter().map(|size| (size, Vec::new())).collect();
    for _ in 0..passes {
        walk.pass(bench, &mut points, blocks, check_stop)?;
    }
    let mut found = found_in(&points)?;
    if !options.quick {
        let mut more = between(&found, line);
        more.retain(|size| points.iter().all(|(have, _)| have != size));
        let mut more: Vec<_> = more.into_iter().map(|size| (size, Vec::new())).collect();
        for _ in 0..passes {
            walk.pass(bench, &mut more, blocks, check_stop)?;
        }
        points.extend(more);
        points.sort_by_key(|(size, _)| *size);
        found = found_in(&points)?;
    }
    // Repeat the measurement of disturbed sizes.
    for index in found.disturbed.clone() {
        let (size, times) = &mut points[index];
        times.extend(walk.measure(bench, *size, blocks));
    }
    found = found_in(&points)?;
    result.ladder = points
        .iter()
        .enumerate()
        .map(|(i, (size, times))| {
            let (ns_min, ns_p10, ns_median) = summary(times);
            let disturbed = found.disturbed.contains(&i);
            let blocks = times.len() as u32;
            LadderPoint { bytes: *size as u64, ns_min, ns_p10, ns_median, blocks, disturbed }
        })
        .collect();
    result.huge_share = walk.huge_share;
    let fresh_over_same = walk.fresh_over_same(bench, &found);
    advertised(&options.advertised, &found, result);
    let blocks_of_levels = found.levels.iter().map(|l| blocks_of(l.plateau, &points)).collect();
    Ok(LadderFacts { found, blocks_of_levels, fresh_over_same })
}

/// Returns the blocks of the size at the middle of a plateau.
fn blocks_of(plateau: (f64, f64), points: &[(usize, Vec<f64>)]) -> Vec<f64> {
    let middle = (plateau.0 * plateau.1).sqrt();
    let near = |size: usize| (size as f64 / middle).ln().abs();
    let nearest = points.iter().min_by(|a, b| near(a.0).total_cmp(&near(b.0)));
    nearest.map_or(Vec::new(), |(_, times)| times.clone())
}

fn found_in(points: &[(usize, Vec<f64>)]) -> Result<Levels, MemoryError> {
    let bytes: Vec<f64> = points.iter().map(|(size, _)| *size as f64).collect();
    let times: Vec<f64> = points.iter().map(|(_, times)| summary(times).0).collect();
    Ok(levels(&bytes, &times)?)
}

/// Returns three additional sizes inside each bracket.
fn between(found: &Levels, line: usize) -> Vec<usize> {
    let inside = |(low, high): (f64, f64)| {
        [0.25, 0.5, 0.75].map(|part| {
            let bytes = low * (high / low).powf(part);
            (bytes / line as f64).round() as usize * line
        })
    };
    found.levels.iter().filter_map(|l| l.bracket).flat_map(inside).collect()
}

/// Adds the levels to the result, together with the advertised sizes.
fn advertised(by: &Advertised, found: &Levels, result: &mut MemoryResult) {
    let advertised: Vec<f64> = by.kernel_bytes.iter().map(|b| *b as f64).collect();
    let verdicts = found.compare(&advertised);
    result.levels = found
        .levels
        .iter()
        .zip(&verdicts)
        .enumerate()
        .map(|(rank, (level, (index, how)))| MemoryLevel {
            name: name(&verdicts, rank, advertised.is_empty()),
            latency_ns: level.time,
            latency_cycles: None,
            bracket_bytes: level.bracket.map(|(low, high)| (low as u64, high as u64)),
            advertised_bytes: index.and_then(|i| by.kernel_bytes.get(i).copied()),
            cpuid_bytes: index.and_then(|i| by.cpuid_bytes.get(i).copied()),
            verdict: how.words().to_owned(),
        })
        .collect();
    let kernel = &by.kernel_bytes;
    result.not_visible_bytes =
        found.not_visible(&advertised).into_iter().map(|i| kernel[i]).collect();
    result.unclear.clone_from(&found.unclear);
}

/// Returns the name of a level: that of the advertised cache that ends there. An extra level is named
/// by the caches around it; without any advertised size, levels are only numbered.
fn name(verdicts: &[(Option<usize>, Agreement)], rank: usize, unknown: bool) -> String {
    let (index, how) = verdicts[rank];
    match (index, how) {
        (_, Agreement::Memory) => "memory".to_owned(),
        (Some(index), _) => format!("L{}", index + 1),
        (None, _) if unknown => format!("level {}", rank + 1),
        (None, _) => {
            let below = verdicts[..rank].iter().rev().find_map(|(index, _)| *index);
            let above = verdicts[rank + 1..].iter().find_map(|(index, _)| *index);
            match (below, above) {
                (Some(below), _) => format!("extra, after L{}", below + 1),
                (None, Some(above)) => format!("extra, before L{}", above + 1),
                (None, None) => "extra".to_owned(),
            }
        }
    }
}

/// A region in which chains of any size can be linked.
pub(crate) struct ChaseRegion {
    region: Option<Region>,
    line: usize,
    bytes_max: usize,
    pub(crate) huge_share: Option<f64>,
}

impl ChaseRegion {
    pub(crate) fn new(bytes_max: usize, line: usize) -> Result<Self, MemoryError> {
        let region = region(bytes_max + 4096, Pages::Huge)?;
        let huge_share = region.huge_bytes().map(|huge| huge as f64 / region.bytes() as f64);
        Ok(Self { region: Some(region), line, bytes_max, huge_share })
    }

    /// Links a chain with one load per line of `bytes` in a new random order.
    pub(crate) fn chain(&mut self, bench: &mut Bench, bytes: usize) -> Chain {
        let nodes = (bytes.min(self.bytes_max) / self.line).max(2) as u32;
        let next = sattolo(nodes, bench.next_seed());
        let region = self.region.take().expect("the region must be returned after each use");
        Chain::link(region, Layout::packed(self.line), &next)
    }

    pub(crate) fn return_region(&mut self, chain: Chain) {
        self.region = Some(chain.into_region());
    }

    /// Measures blocks of one size after a warm-up.
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
        self.return_region(chain);
        times
    }

    fn pass(
        &mut self,
        bench: &mut Bench,
        points: &mut [(usize, Vec<f64>)],
        blocks: usize,
        check_stop: &dyn Fn() -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        for index in bench.shuffled(points.len()) {
            check_stop()?;
            let (size, times) = &mut points[index];
            times.extend(self.measure(bench, *size, blocks));
        }
        Ok(())
    }

    /// Measures whether a prefetcher learns a repeated order: the duration of a lap in a new order
    /// divided by that of the next lap in the same order, beyond the second level. Returns the
    /// minimum over several rounds.
    fn fresh_over_same(&mut self, bench: &mut Bench, found: &Levels) -> Option<f64> {
        let level = found.levels.get(1)?;
        let bytes = (level.plateau.1 * 0.75) as usize;
        let (mut fresh, mut same) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..12 {
            let mut chain = self.chain(bench, bytes);
            let steps = chain.len();
            for minimum in [&mut fresh, &mut same] {
                let start = monotonic_ns();
                let took = chain.walk(steps, Step::Load);
                let ns = (monotonic_ns() - start) as f64 / took as f64;
                *minimum = minimum.min(ns);
            }
            self.return_region(chain);
        }
        Some(fresh / same)
    }
}

/// Walks a chain until the caches contain as much of it as possible.
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

    /// A processor that advertises 32 KiB, 1 MiB and 32 MiB, whose curve has another step at 256 KiB.
    #[test]
    fn advertised_sizes_decide_the_names() {
        let sizes = sizes(256 << 20, 4, 64);
        let curve = |steps: &[(usize, f64)]| -> Vec<(usize, Vec<f64>)> {
            let time = |bytes: usize| {
                steps.iter().rev().find(|(from, _)| bytes > *from).map_or(1.0, |(_, ns)| *ns)
            };
            sizes.iter().map(|size| (*size, vec![time(*size)])).collect()
        };
        let named = |steps: &[(usize, f64)], kernel: &[u64]| -> Vec<(String, String)> {
            let mut result = MemoryResult::default();
            let by = Advertised { kernel_bytes: kernel.to_vec(), ..Advertised::default() };
            advertised(&by, &found_in(&curve(steps)).unwrap(), &mut result);
            result.levels.into_iter().map(|level| (level.name, level.verdict)).collect()
        };
        let epyc = [32 << 10, 1 << 20, 32 << 20];
        let four = [(32 << 10, 4.0), (256 << 10, 7.0), (1 << 20, 14.0), (32 << 20, 100.0)];
        let found = named(&four, &epyc);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["L1", "extra, after L1", "L2", "L3", "memory"], "{found:?}");
        assert_eq!(found[2].1, "confirmed", "1 MiB is the second level, not the third");
        assert!(found[1].1.starts_with("extra"), "{found:?}");
        // Without the extra step, the same caches keep their names.
        let three = [(32 << 10, 4.0), (1 << 20, 14.0), (32 << 20, 100.0)];
        let names: Vec<String> = named(&three, &epyc).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["L1", "L2", "L3", "memory"]);
        // A last level of which a program gets half is smaller than advertised, not extra.
        let half = [(32 << 10, 4.0), (1 << 20, 14.0), (16 << 20, 100.0)];
        assert_eq!(named(&half, &epyc)[2], ("L3".to_owned(), "smaller than advertised".to_owned()));
        // A hidden first level does not shift the others.
        let hidden = [(1 << 20, 14.0), (32 << 20, 100.0)];
        let names: Vec<String> = named(&hidden, &epyc).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["L2", "L3", "memory"]);
        let names: Vec<String> = named(&three, &[]).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["level 1", "level 2", "level 3", "memory"]);
    }

    #[test]
    fn sizes_have_four_points_per_doubling() {
        let all = sizes(64 << 20, 4, 64);
        assert_eq!((all[0], all[4], *all.last().unwrap()), (4096, 8192, 64 << 20));
        assert_eq!(all.len(), 57);
        assert!(all.windows(2).all(|w| w[0] < w[1]) && all.iter().all(|s| s % 64 == 0));
        assert_eq!(sizes(1024, 4, 64), [4096]);
    }
}
