//! Tests of the laws against published measurements, oracles and each other.

mod laws;
mod machine;
mod network;
mod published;
mod scaling;
mod verify;

use ioloom_predict::Workload;

/// Elapsed time of `n` synchronous threads, from the definition of law D1.
fn synchronous_s(work: &Workload, n: u32) -> f64 {
    (work.compute_s + work.read_wait_s) / f64::from(n)
}

/// Elapsed time of one reader and `n - 1` compute threads if the device is not the bottleneck, from
/// the definition of law D1.
fn reader_s(work: &Workload, n: u32) -> f64 {
    work.compute_s / f64::from(n - 1)
}

#[track_caller]
fn near(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance, "{value} is not {expected} within {tolerance}");
}
