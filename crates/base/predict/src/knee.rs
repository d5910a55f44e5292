//! Time per job over the number in flight, from a few probes of one machine.
//!
//! With one in flight, a job takes a latency `L`; with many, the machine completes one per gap `g`. In
//! between, `t(n) = ((L/n)^s + g^s)^(1/s)`: the larger the sharpness `s`, the more abrupt the change. A
//! closed network fixes its form by the law of its service times, which is not known for a machine that
//! was probed for seconds; two cores, for example, halve a time that exponential service cannot halve.
//!
//! The three parameters are fitted to the probes with a weak prior for `s`, because three noisy times
//! do not determine it. What remains at each probe is interpolated over the logarithm of the number and
//! added, so the law returns the probes, and a device that slows down with many in flight is followed.
//! Beyond the probes the remainder of the nearest one is kept.
//!
//! Nothing queues for a processor while there are fewer threads than processors. If they are busy with
//! many in flight, the change is therefore abrupt, and the mean of the prior grows with the share of
//! their time that is used then ([`Knee::fit_busy`]).
//!
//! The prior was chosen on ladders that are not test cells: `results/read-cold-small-by-threads`,
//! `results/read-cold-lognormal-by-threads`, `results/study-walk-ladder` and source 001.

use crate::PredictError;
use crate::error::above_zero;
use crate::least_squares;
use crate::walk_media::PROBES;

/// Relative error of a probe.
const NOISE: f64 = 0.05;
/// Mean and standard deviation of the logarithm of the sharpness, and the mean with busy processors.
const SHARPNESS: (f64, f64) = (0.7, 1.0);
const SHARPNESS_BUSY: f64 = 3.0;
/// Range of the sharpness; outside, the curve no longer differs from its ends.
const SHARPNESS_MIN: f64 = 0.3;
const SHARPNESS_MAX: f64 = 40.0;

/// Longest accepted time of a probe.
const SECONDS_MAX: f64 = 1e6;

/// The stored session on whose ladders the prior was chosen. The other ladders are not kept as a session.
pub const TUNED_ON: &str = "walk-20261122T125843Z";

/// A ladder of walks: threads and seconds, and the share of the time of all processors that is used with
/// [`PROBES`]' most threads.
pub type Ladder = (f64, [(u32, f64); 9]);

/// The kept ladders of walks, cold and warm: medians of the runs without doubts in
/// `results/study-walk-ladder/2026-11-22-intel-xeon-2c`.
pub const KEPT_WALKS: [Ladder; 2] = [
    (
        0.979,
        [
            (1, 21.695),
            (2, 10.944),
            (4, 9.536),
            (8, 9.742),
            (16, 8.936),
            (32, 7.986),
            (64, 9.805),
            (128, 8.844),
            (256, 8.279),
        ],
    ),
    (
        0.988,
        [
            (1, 4.146),
            (2, 2.093),
            (4, 2.026),
            (8, 2.044),
            (16, 2.120),
            (32, 2.106),
            (64, 2.129),
            (128, 2.130),
            (256, 2.138),
        ],
    ),
];

/// Returns the relative errors of a ladder at all numbers but [`PROBES`], from which it is predicted.
///
/// # Errors
/// As [`Knee::fit`].
pub fn errors(ladder: &[(u32, f64)], busy: f64) -> Result<Vec<f64>, PredictError> {
    let part = |probes: bool| ladder.iter().filter(move |(n, _)| PROBES.contains(n) == probes);
    let knee = Knee::fit_busy(&part(true).copied().collect::<Vec<_>>(), busy)?;
    Ok(part(false).map(|(n, seconds)| knee.seconds(*n) / seconds - 1.0).collect())
}

/// A fitted curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Knee {
    latency_s: f64,
    gap_s: f64,
    sharpness: f64,
    /// Logarithms of the number and of the measured over the fitted time, in rising order.
    rest: Vec<(f64, f64)>,
}

impl Knee {
    /// Fits a curve to probes: number in flight, and seconds per job.
    ///
    /// # Errors
    /// Fails without probes, if a number or time is not above zero, if a time exceeds a million seconds, or if
    /// two probes have the same number.
    pub fn fit(probes: &[(u32, f64)]) -> Result<Self, PredictError> {
        Self::fit_busy(probes, 0.0)
    }

    /// Like [`Knee::fit`]; all processors were used for the share `busy` of their time in the probe with
    /// most in flight.
    ///
    /// # Errors
    /// As [`Knee::fit`].
    pub fn fit_busy(probes: &[(u32, f64)], busy: f64) -> Result<Self, PredictError> {
        let mean = SHARPNESS.0 + busy.clamp(0.0, 1.0) * (SHARPNESS_BUSY - SHARPNESS.0);
        above_zero("number of probes", probes.len() as f64)?;
        for (n, seconds) in probes {
            above_zero("number in flight of a probe", f64::from(*n))?;
            above_zero("time of a probe", *seconds)?;
            if *seconds > SECONDS_MAX {
                let (what, value) = ("time of a probe, in seconds,", *seconds);
                return Err(PredictError::OutOfRange { what, value, accepted: "at most 1e6" });
            }
        }
        let mut numbers: Vec<u32> = probes.iter().map(|(n, _)| *n).collect();
        numbers.sort_unstable();
        if let Some(pair) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
            let (what, value) = ("number in flight of two probes", f64::from(pair[0]));
            return Err(PredictError::OutOfRange { what, value, accepted: "different" });
        }
        let work = probes.iter().map(|(n, t)| f64::from(*n) * t).fold(f64::INFINITY, f64::min);
        let best = probes.iter().map(|(_, t)| *t).fold(f64::INFINITY, f64::min);
        let start = [work, best * 0.95, mean.exp()];
        let fit = least_squares::fit(&start, |p| {
            let one = |(n, t): &(u32, f64)| (curve(p, f64::from(*n)) / t).ln() / NOISE;
            let prior = (p[2].ln() - mean) / SHARPNESS.1;
            // Weak priors for the times, so that a single probe also has a minimum.
            let times = [(p[0] / work).ln() / 10.0, (p[1] / best).ln() / 10.0];
            probes.iter().map(one).chain([prior]).chain(times).collect()
        })?;
        let p = &fit.parameters;
        let mut rest: Vec<(f64, f64)> = probes
            .iter()
            .map(|(n, t)| (f64::from(*n).ln(), (t / curve(p, f64::from(*n))).ln()))
            .collect();
        rest.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(Self { latency_s: p[0], gap_s: p[1], sharpness: p[2], rest })
    }

    /// Returns the seconds per job with `n` in flight.
    pub fn seconds(&self, n: u32) -> f64 {
        self.seconds_at(f64::from(n.max(1)))
    }

    /// Returns the seconds per job with `n` in flight on average. Below one, the latency counts.
    pub(crate) fn seconds_at(&self, n: f64) -> f64 {
        let at = n.max(1.0);
        let fitted = curve(&[self.latency_s, self.gap_s, self.sharpness], at);
        // One at a time is busy for the share `n` of the time.
        fitted * interpolated(&self.rest, at.ln()).exp() * (at / n.max(1e-12))
    }

    /// Returns the time of a job with one in flight.
    pub fn latency_s(&self) -> f64 {
        self.seconds(1)
    }

    /// Returns the shortest time between two completions.
    pub fn gap_s(&self) -> f64 {
        self.gap_s
    }
}

fn curve(p: &[f64], n: f64) -> f64 {
    let s = p[2].clamp(SHARPNESS_MIN, SHARPNESS_MAX);
    let (wait, gap) = (p[0] / n, p[1]);
    // The larger one is factored out, so that no power overflows.
    let most = wait.max(gap);
    most * ((wait / most).powf(s) + (gap / most).powf(s)).powf(1.0 / s)
}

/// Interpolates between points in rising order; outside, the nearest one counts.
fn interpolated(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.iter().position(|(at, _)| *at >= x);
    match after {
        Some(0) => points[0].1,
        None => points.last().map_or(0.0, |(_, value)| *value),
        Some(i) => {
            let ((x0, y0), (x1, y1)) = (points[i - 1], points[i]);
            y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(ladder: &[(u32, f64)]) -> Vec<f64> {
        let probes: Vec<(u32, f64)> =
            ladder.iter().copied().filter(|(n, _)| [1, 4, 64].contains(n)).collect();
        let knee = Knee::fit(&probes).unwrap();
        for (n, t) in &probes {
            assert!((knee.seconds(*n) / t - 1.0).abs() < 1e-9, "{n}: {knee:?}");
        }
        let rest = ladder.iter().filter(|cell| !probes.contains(cell));
        rest.map(|(n, t)| (knee.seconds(*n) / t - 1.0).abs()).collect()
    }

    /// The other times of the kept ladder of blocking threads over files of real sizes, read cold.
    #[test]
    fn three_probes_predict_a_kept_ladder_of_reads() {
        let threads = [1, 2, 4, 8, 16, 32, 64, 128, 256];
        let seconds = [9.527, 5.667, 3.869, 2.737, 2.273, 1.701, 1.672, 1.557, 1.476];
        let errors = errors(&threads.into_iter().zip(seconds).collect::<Vec<_>>());
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        assert!(mean < 0.05, "{errors:?}");
    }

    #[test]
    fn two_cores_halve_the_time_and_more_threads_save_nothing() {
        let errors = errors(&[(1, 4.0), (2, 2.05), (4, 2.0), (16, 2.0), (64, 2.0), (256, 2.0)]);
        assert!(errors.iter().all(|error| *error < 0.2), "{errors:?}");
        assert!(errors[1..].iter().all(|error| *error < 0.03), "{errors:?}");
    }

    /// The kept ladder of a walk with names and attributes cached, which keeps both processors busy.
    #[test]
    fn busy_processors_make_the_change_abrupt() {
        let probes = [(1, 4.145), (4, 2.03), (64, 2.13)];
        let rest = [(2, 2.09), (8, 2.05), (16, 2.12), (32, 2.11), (128, 2.18), (256, 2.18)];
        let errors = |busy| {
            let knee = Knee::fit_busy(&probes, busy).unwrap();
            let error = |(n, t): (u32, f64)| (knee.seconds(n) / t - 1.0).abs();
            rest.map(error)
        };
        let (busy, idle) = (errors(0.97), errors(0.0));
        assert!(busy.iter().all(|error| *error < 0.06), "{busy:?}");
        assert!(busy[0] < 0.5 * idle[0], "{busy:?} {idle:?}");
    }

    #[test]
    fn a_cap_is_flat_and_a_latency_is_shared() {
        let flat = Knee::fit(&[(1, 1.0 / 600.0), (4, 1.0 / 600.0), (64, 1.0 / 600.0)]).unwrap();
        for n in [2, 8, 64, 1000] {
            assert!((flat.seconds(n) * 600.0 - 1.0).abs() < 0.05, "{n}: {}", flat.seconds(n));
        }
        let shared = Knee::fit(&[(1, 4e-3), (4, 1e-3), (64, 4e-3 / 64.0)]).unwrap();
        for n in [2, 16, 32] {
            let law = 4e-3 / f64::from(n);
            assert!((shared.seconds(n) / law - 1.0).abs() < 0.05, "{n}: {}", shared.seconds(n));
        }
    }

    #[test]
    fn one_probe_is_returned_and_bad_ones_are_refused() {
        let one = Knee::fit(&[(4, 2.0)]).unwrap();
        assert!((one.seconds(4) - 2.0).abs() < 1e-9);
        assert!(one.gap_s() > 0.0 && one.latency_s() > 0.0);
        for bad in [&[][..], &[(0, 1.0)], &[(1, 0.0)], &[(1, f64::NAN)], &[(1, -1.0), (4, 1.0)]] {
            assert!(Knee::fit(bad).is_err(), "{bad:?}");
        }
        assert!(Knee::fit(&[(1, 1.0), (4, 0.5), (1, 2.0)]).is_err(), "twice one in flight");
        let huge = Knee::fit(&[(1, 1e300)]).unwrap_err().to_string();
        assert!(huge.len() < 80, "{huge}");
    }
}
