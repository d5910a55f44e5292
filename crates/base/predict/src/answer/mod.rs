//! Answers to questions about other devices, threads and scales: a curve over threads or clients, with
//! an interval, the limit and the distance from what was calibrated at each point.
//!
//! - [`walk`]: the closed network of source 001;
//! - [`files`]: the simulated machine, by a sample of the job;
//! - [`copy`]: a closed network of processor, source and target;
//! - [`exchange`]: laws of closed loops, and the cost of keeping orders.
//!
//! An interval covers what is known about the error of the method; where nothing is known, it covers a
//! device that is [`UNKNOWN_DEVICE`] times as fast or slow as its parameters say.

pub mod copy;
pub mod exchange;
pub mod files;
mod fitting;
pub mod profile;
mod question;
pub mod walk;

use crate::PredictError;
use ioloom_model::units::format_ns;
use serde::Serialize;

/// Factor by which a device may differ from published parameters.
pub const UNKNOWN_DEVICE: f64 = 1.25;

/// What bounds a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The cores are busy, or most of a shared commit is work other than its sync.
    Compute,
    /// The device is busy.
    Device,
    /// Metadata on the device.
    Metadata,
    /// More in flight would be faster: the latency of the device.
    InFlight,
    /// The clients think; the server waits for them.
    Clients,
    /// The pool has no thread for the remaining clients.
    Pool,
    /// Syncs of the order log.
    Sync,
}

impl Limit {
    /// Returns the words of tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Device => "device",
            Self::Metadata => "metadata",
            Self::InFlight => "too few in flight",
            Self::Clients => "clients",
            Self::Pool => "pool",
            Self::Sync => "sync",
        }
    }
}

/// How far a point is beyond what its parameters were calibrated with. A factor of 1 is inside.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Beyond {
    /// Threads or clients, over the most that were calibrated.
    pub threads: f64,
    /// Files or requests, over the most that were calibrated.
    pub files: f64,
    /// Cores, over those that were calibrated, or the reverse if there are fewer.
    pub cores: f64,
    /// Devices that share the files, over those that were calibrated.
    pub disks: f64,
    /// File size, over the largest that was calibrated, or the smallest one over it.
    pub size: f64,
}

impl Beyond {
    /// A point inside the calibration.
    pub const INSIDE: Self = Self { threads: 1.0, files: 1.0, cores: 1.0, disks: 1.0, size: 1.0 };
}

/// One point of a curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Threads, requests in flight or clients.
    pub threads: u32,
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
    /// Lower end of the interval.
    pub low_s: f64,
    /// Upper end of the interval.
    pub high_s: f64,
    /// Files or requests per second.
    pub rate_per_s: f64,
    /// What bounds the point.
    pub limit: Limit,
    /// Distance from the calibration; `None` if nothing was calibrated.
    pub beyond: Option<Beyond>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The question in one line.
    pub question: String,
    /// What the rate counts.
    pub unit: &'static str,
    /// What the first column of the curve is.
    pub axis: &'static str,
    /// The method.
    pub method: String,
    /// Where the parameters come from.
    pub parameters: String,
    /// The curve, in rising order.
    pub points: Vec<Point>,
    /// The smallest number of threads whose rate is within 2 % of the highest.
    pub enough: u32,
    /// Further remarks.
    pub notes: Vec<String>,
}

/// Most threads or requests in flight of a question about files: the controllers of the engine are
/// simulated up to twice as many, and no probe comes near.
pub const IN_FLIGHT_MAX: u32 = 8192;
/// Tolerance of [`Answer::enough`].
const ENOUGH: f64 = 0.02;
/// Gain of twice the threads from which the number in flight is the limit.
const DOUBLING: f64 = 0.05;
/// Share of a change of a device or of a sync in the elapsed time below which it is not the limit.
const FELT: f64 = 0.5;
/// Share of the errors of earlier predictions that an interval covers.
const COVERED: f64 = 0.9;

impl Answer {
    /// Returns the smallest number of threads whose rate is within [`ENOUGH`] of the highest.
    fn enough(points: &[Point]) -> u32 {
        let best = points.iter().map(|point| point.rate_per_s).fold(0.0, f64::max);
        let fast = |point: &&Point| point.rate_per_s >= best / (1.0 + ENOUGH);
        points.iter().find(fast).map_or(1, |point| point.threads)
    }
}

/// Seconds of a year.
const YEAR_S: f64 = 365.25 * 86_400.0;
/// Shortest time that is shown in years.
const YEARS_FROM_S: f64 = 10.0 * YEAR_S;

/// Formats a time with three significant digits, a huge one in years.
pub fn format_time(seconds: f64) -> String {
    if seconds < YEARS_FROM_S {
        return format_ns((seconds * 1e9).max(0.0));
    }
    format!("{} years", format_whole(seconds / YEAR_S))
}

/// Formats a large number without decimals, or a huge one with an exponent.
pub fn format_whole(value: f64) -> String {
    if value < 1e6 { format!("{value:.0}") } else { format!("{value:.1e}") }
}

/// Returns 1, 2, 4, ... up to `most`, and `most` itself.
pub fn ladder(most: u32) -> Vec<u32> {
    let powers = (0..31).map(|i| 1u32 << i).take_while(|n| *n < most);
    powers.chain([most.max(1)]).collect()
}

/// Returns how many of the threads have a file.
fn at_once(threads: u32, files: u64) -> u32 {
    u32::try_from(files).map_or(threads, |files| threads.min(files))
}

/// Returns the quantile [`COVERED`] of some errors.
fn covering(mut errors: Vec<f64>) -> f64 {
    errors.sort_by(f64::total_cmp);
    let rank = (COVERED * errors.len() as f64).ceil() as usize;
    errors.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Formats probes: the time per file by the number in flight.
fn probes(all: &[(u32, f64)]) -> String {
    let one = |(n, seconds): &(u32, f64)| format!("{:.1} µs with {n}", seconds * 1e6);
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns an error unless `value` is one of 1 to `most`.
fn one_to(what: &'static str, value: u64, most: u64) -> Result<(), PredictError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    let accepted = "at least 1, and within the limit of the prediction";
    Err(PredictError::OutOfRange { what, value: value as f64, accepted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_ends_at_its_most() {
        assert_eq!(ladder(1), [1]);
        assert_eq!(ladder(8), [1, 2, 4, 8]);
        assert_eq!(ladder(10), [1, 2, 4, 8, 10]);
    }

    #[test]
    fn times_have_the_unit_of_their_size() {
        assert_eq!(format_time(0.0), "0 ns");
        assert_eq!(format_time(5.89e-6), "5.89 µs");
        assert_eq!(format_time(3600.0 * 24.0), "24.0 h");
        assert_eq!(format_time(100.0 * YEAR_S), "100 years");
        assert_eq!(format_time(1.85e19), "5.9e11 years");
    }
}
