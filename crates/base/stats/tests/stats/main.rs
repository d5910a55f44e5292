//! Tests of the statistics against other programs, brute force and simulation.

use ioloom_stats::Bootstrap;

mod golden;
mod histogram;
mod judgement;
mod ladder;
mod noise_source;
mod properties;
mod simulation;
mod tails;

/// Bootstrap settings with fewer or more resamples than the default.
fn bootstrap(seed: u64, resamples: u32) -> Bootstrap {
    Bootstrap { resamples, ..Bootstrap::new(seed) }
}
