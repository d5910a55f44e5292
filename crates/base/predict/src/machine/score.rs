//! The loss of a controller against the best fixed window.

use super::rivals::{Fixed, WINDOW_MAX};
use super::run::{Outcome, Prepared};
use ioloom_control::Tuner;

/// Windows of a sweep.
pub const WINDOWS: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
/// Share of throughput that the smallest sufficient window may lose.
pub const TOLERANCE: f64 = 0.005;

/// The elapsed times of all fixed windows.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// Nanoseconds, in the order of [`WINDOWS`].
    pub ns: Vec<u64>,
}

impl Sweep {
    /// Runs a scenario with each window.
    pub fn new(prepared: &Prepared<'_>) -> Self {
        let run = |window| prepared.run(&mut Fixed::new(window), WINDOW_MAX).ns;
        Self { ns: WINDOWS.iter().map(|window| run(*window)).collect() }
    }

    /// Returns the shortest time.
    pub fn best_ns(&self) -> u64 {
        self.ns.iter().copied().min().unwrap_or(0)
    }

    /// Returns the smallest window whose time exceeds the best by no more than [`TOLERANCE`].
    pub fn sufficient(&self) -> u32 {
        let limit = self.best_ns() as f64 * (1.0 + TOLERANCE);
        let found = self.ns.iter().position(|ns| *ns as f64 <= limit);
        WINDOWS[found.unwrap_or(0)]
    }

    /// Returns `t / best − 1`.
    pub fn regret(&self, outcome: &Outcome) -> f64 {
        outcome.ns as f64 / self.best_ns().max(1) as f64 - 1.0
    }
}

/// Runs a scenario with a controller and returns the outcome.
pub fn outcome(prepared: &Prepared<'_>, mut tuner: Box<dyn Tuner>) -> Outcome {
    prepared.run(tuner.as_mut(), WINDOW_MAX)
}

/// What a table shows of many losses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Nine of ten are at most this.
    pub p90: f64,
    /// 95 of 100 are at most this.
    pub p95: f64,
    /// The largest.
    pub max: f64,
    /// Share of at most 5 %.
    pub within: f64,
}

impl Summary {
    /// Summarizes losses; `None` if there are none.
    pub fn new(losses: &[f64]) -> Option<Self> {
        let mut sorted = losses.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let at = |share: f64| {
            let rank = (share * count as f64).ceil() as usize;
            sorted.get(rank.clamp(1, count.max(1)) - 1).copied()
        };
        Some(Self {
            mean: sorted.iter().sum::<f64>() / count.max(1) as f64,
            median: at(0.5)?,
            p90: at(0.9)?,
            p95: at(0.95)?,
            max: at(1.0)?,
            within: sorted.iter().filter(|loss| **loss <= 0.05).count() as f64 / count as f64,
        })
    }
}
