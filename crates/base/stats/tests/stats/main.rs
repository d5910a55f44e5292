//! Tests of the statistics against other programs, brute force and simulation.

use ioloom_stats::Bootstrap;

mod coverage;
mod golden;
mod histogram;
mod judgement;
mod ladder;
mod noise_source;
mod properties;
mod shape;
mod simulation;
mod tails;

/// Bootstrap settings with a non-default number of resamples.
fn bootstrap(seed: u64, resamples: u32) -> Bootstrap {
    Bootstrap { resamples, ..Bootstrap::new(seed) }
}
