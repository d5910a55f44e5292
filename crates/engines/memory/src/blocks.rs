//! Times short blocks of work on a thread pinned to one processor.

use ioloom_model::distribution::stream;
use ioloom_stats::{median, quantile};
use ioloom_sys::affinity::PinnedThread;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys_lab::memory::{Pages, Region, dependent_adds};
use rand::RngExt;

use crate::error::MemoryError;

/// Block duration: shorter than a scheduler tick, but long compared with reading the clock.
const BLOCK_NS: f64 = 500_000.0;
/// Block duration in quick mode.
const BLOCK_QUICK_NS: f64 = 300_000.0;
/// Number of additions in one calibration of the clock rate.
const CALIBRATION_ADDS: u64 = 100_000;

/// The timer shared by all parts of the measurement.
#[derive(Debug)]
pub(crate) struct Bench {
    pinned: Option<PinnedThread>,
    /// Number of blocks that started or ended on another processor.
    moved: u64,
    /// Total number of blocks.
    blocks: u64,
    block_ns: f64,
    seed: u64,
    draws: u64,
    /// Cycle time at each calibration.
    cycles_ns: Vec<f64>,
}

/// The counts of a bench whose thread is no longer pinned.
#[derive(Debug)]
pub(crate) struct Released {
    pub(crate) moved: u64,
    pub(crate) blocks: u64,
    pub(crate) cycles_ns: Vec<f64>,
}

impl Released {
    /// Returns the cycle time: the minimum over all calibrations.
    pub(crate) fn cycle_ns(&self) -> Option<f64> {
        self.cycles_ns.iter().copied().reduce(f64::min)
    }
}

impl Bench {
    pub(crate) fn new(pinned: Option<PinnedThread>, quick: bool, seed: u64) -> Self {
        let block_ns = if quick { BLOCK_QUICK_NS } else { BLOCK_NS };
        Self { pinned, moved: 0, blocks: 0, block_ns, seed, draws: 0, cycles_ns: Vec::new() }
    }

    pub(crate) fn release(self) -> Released {
        let Self { moved, blocks, cycles_ns, .. } = self;
        Released { moved, blocks, cycles_ns }
    }

    /// Returns a new seed; each random order of a measurement uses a different one.
    pub(crate) fn next_seed(&mut self) -> u64 {
        self.draws += 1;
        self.seed.wrapping_add(self.draws.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Returns the indices `0..n` in random order.
    pub(crate) fn shuffled(&mut self, n: usize) -> Vec<usize> {
        let seed = self.next_seed();
        let mut random = stream(seed, n as u64);
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, random.random_range(0..=i));
        }
        order
    }

    /// Measures the cycle time if the processor has a loop of known length.
    pub(crate) fn calibrate(&mut self) {
        let minimum = (0..9)
            .filter_map(|_| {
                let start = monotonic_ns();
                let done = dependent_adds(CALIBRATION_ADDS);
                let ns = (monotonic_ns() - start) as f64;
                (done > 0).then(|| ns / done as f64)
            })
            .reduce(f64::min);
        self.cycles_ns.extend(minimum);
    }

    /// Returns the nanoseconds per step of `count` blocks. `work` receives the minimum number of
    /// steps and returns the number it executed.
    pub(crate) fn time(&mut self, count: usize, mut work: impl FnMut(usize) -> usize) -> Vec<f64> {
        let mut steps = 256;
        // Find the block length by doubling, to avoid a one-second block if steps are slow.
        let mut per_step = loop {
            let start = monotonic_ns();
            let took = work(steps).max(1);
            let ns = (monotonic_ns() - start).max(1) as f64;
            if ns > self.block_ns / 8.0 {
                break ns / took as f64;
            }
            steps = took * 4;
        };
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let steps = (self.block_ns / per_step).max(1.0) as usize;
            let holds =
                |pinned: &Option<PinnedThread>| pinned.as_ref().is_none_or(PinnedThread::is_on_cpu);
            let began = holds(&self.pinned);
            let start = monotonic_ns();
            let took = work(steps).max(1);
            let ns = (monotonic_ns() - start) as f64;
            self.blocks += 1;
            if !began || !holds(&self.pinned) {
                self.moved += 1;
            }
            times.push(ns / took as f64);
            per_step = per_step.min(ns / took as f64).max(0.01);
        }
        times
    }

    /// Returns the minimum of `count` blocks.
    pub(crate) fn minimum(&mut self, count: usize, work: impl FnMut(usize) -> usize) -> f64 {
        minimum(&self.time(count, work))
    }
}

/// Returns the minimum of the times; infinity if there are none.
pub(crate) fn minimum(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Returns the minimum, tenth percentile and median of the times.
pub(crate) fn summary(times: &[f64]) -> (f64, f64, f64) {
    (minimum(times), quantile(times, 0.1), median(times))
}

/// Maps memory and touches every page.
pub(crate) fn region(bytes: usize, pages: Pages) -> Result<Region, MemoryError> {
    let mut region = mapped(bytes, pages)?;
    region.touch(4096);
    Ok(region)
}

/// Maps memory. The thread that touches a page first determines its memory node.
pub(crate) fn mapped(bytes: usize, pages: Pages) -> Result<Region, MemoryError> {
    Region::new(bytes, pages).map_err(|source| MemoryError::Region { bytes, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_is_a_permutation_and_each_has_a_new_seed() {
        let mut bench = Bench::new(None, true, 7);
        let mut order = bench.shuffled(50);
        assert_ne!(order, bench.shuffled(50));
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn blocks_and_steps_are_counted() {
        let mut bench = Bench::new(None, true, 7);
        let mut all = 0;
        let times = bench.time(4, |steps| {
            all += steps + 1;
            std::hint::black_box((0..steps as u64).sum::<u64>());
            for i in 0..steps {
                std::hint::black_box(i);
            }
            steps + 1
        });
        assert_eq!((times.len(), bench.blocks, bench.moved), (4, 4, 0));
        assert!(all > 4 && times.iter().all(|ns| *ns > 0.0));
        assert_eq!(summary(&[3.0, 1.0, 2.0, 1.0, 5.0]), (1.0, 1.0, 2.0));
    }
}
