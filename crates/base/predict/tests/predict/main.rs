//! Tests of the laws against published measurements, against each other and against oracles.

mod laws;
mod network;
mod published;
mod scaling;

#[track_caller]
fn near(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance, "{value} is not {expected} within {tolerance}");
}
