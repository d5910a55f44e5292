//! Fits of elapsed times over a ladder of thread counts: the universal scalability law, and the
//! closed network of a walk.
//!
//! - The universal scalability law (Gunther, 1993) has a serial share `sigma` and a coherency cost
//!   `kappa`: `T(n) = T(1) (1 + sigma (n-1) + kappa n (n-1)) / n`. It is linear in its terms, so it
//!   is fitted by least squares of the relative errors, with both parameters held at zero or above.
//! - The closed network ([`crate::WalkModel`]) has a processor time and a device time, fitted by a
//!   coarse-to-fine search over their logarithms. Contention and interleaving are fitted too.
//!
//! Both fits report the error at every point: a poor fit shows that something else is the
//! bottleneck, and where. A fit with as many parameters as points explains nothing, so each law
//! requires one more point than it has parameters. Cost: the search solves several thousand small
//! networks.

use crate::PredictError;
use crate::error::above_zero;
use crate::least_squares::solve;
use crate::walk::WalkModel;
use serde::{Deserialize, Serialize};

/// Minimum number of points for the scalability law, which has three parameters.
pub const USL_POINTS_MIN: usize = 4;
/// Minimum number of points for the network, which has four parameters.
pub const NETWORK_POINTS_MIN: usize = 5;

/// A measured point: number of threads and elapsed seconds.
pub type Point = (u32, f64);

/// Fit errors, relative to the measured times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FitErrors {
    /// Predicted divided by measured time, minus one, at each point.
    pub each: Vec<f64>,
    /// Root mean square of `each`.
    pub rms: f64,
    /// Largest absolute value of `each`.
    pub worst: f64,
}

impl FitErrors {
    fn of(points: &[Point], predicted: impl Fn(u32) -> f64) -> Self {
        let each: Vec<f64> = points.iter().map(|(n, s)| predicted(*n) / s - 1.0).collect();
        let square = each.iter().map(|e| e * e).sum::<f64>() / each.len() as f64;
        let worst = each.iter().fold(0.0_f64, |worst, e| worst.max(e.abs()));
        Self { each, rms: square.sqrt(), worst }
    }
}

/// A fit of the universal scalability law.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Usl {
    /// Seconds with one thread.
    pub one_s: f64,
    /// Serial share.
    pub sigma: f64,
    /// Coherency cost per pair of threads, as a share.
    pub kappa: f64,
    /// Fit errors.
    pub errors: FitErrors,
}

impl Usl {
    /// Fits the law to a ladder.
    ///
    /// # Errors
    /// Fails if there are too few points or a point is not positive.
    pub fn fit(points: &[Point]) -> Result<Self, PredictError> {
        check(points, USL_POINTS_MIN)?;
        // T n = a + b (n-1) + c n (n-1), with a = T(1), b = a sigma, c = a kappa. Negative
        // parameters are meaningless here, so each term can be omitted; the best valid fit wins.
        let mut best: Option<(f64, [f64; 3])> = None;
        for terms in [[true, true], [true, false], [false, true], [false, false]] {
            let Some(found) = least_squares(points, terms) else { continue };
            let allowed = found[0] > 0.0 && found[1] >= 0.0 && found[2] >= 0.0;
            let loss: f64 =
                points.iter().map(|(n, s)| (elapsed(found, *n) / s - 1.0).powi(2)).sum();
            if allowed && best.is_none_or(|(least, _)| loss < least) {
                best = Some((loss, found));
            }
        }
        let (_, [a, b, c]) = best.ok_or(PredictError::NoDemand)?;
        let errors = FitErrors::of(points, |n| elapsed([a, b, c], n));
        Ok(Self { one_s: a, sigma: b / a, kappa: c / a, errors })
    }

    /// Returns the elapsed time with `threads`, in seconds.
    pub fn elapsed_s(&self, threads: u32) -> f64 {
        elapsed([self.one_s, self.one_s * self.sigma, self.one_s * self.kappa], threads)
    }

    /// Returns the number of threads beyond which more threads slow the run down, or
    /// `None` if more threads always help. With a serial share of 1 or more, the second thread already does.
    pub fn best_threads(&self) -> Option<f64> {
        (self.kappa > 0.0 || self.sigma > 1.0).then(|| {
            if self.sigma >= 1.0 { 1.0 } else { ((1.0 - self.sigma) / self.kappa).sqrt().max(1.0) }
        })
    }
}

fn elapsed([a, b, c]: [f64; 3], threads: u32) -> f64 {
    let n = f64::from(threads);
    (a + b * (n - 1.0) + c * n * (n - 1.0)) / n
}

/// Minimises the squared relative errors over the constant and the selected terms.
fn least_squares(points: &[Point], terms: [bool; 2]) -> Option<[f64; 3]> {
    let mut used = vec![0];
    used.extend((1..3).filter(|i| terms[i - 1]));
    let row = |(n, s): &Point| {
        let n = f64::from(*n);
        [1.0 / n / s, (n - 1.0) / n / s, (n - 1.0) / s]
    };
    let size = used.len();
    let mut matrix = vec![vec![0.0; size + 1]; size];
    for point in points {
        let row = row(point);
        for (i, &x) in used.iter().enumerate() {
            for (j, &y) in used.iter().enumerate() {
                matrix[i][j] += row[x] * row[y];
            }
            matrix[i][size] += row[x];
        }
    }
    let solved = solve(matrix)?;
    let mut out = [0.0; 3];
    for (value, at) in solved.into_iter().zip(used) {
        out[at] = value;
    }
    Some(out)
}

/// A fit of the closed network of a walk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WalkFit {
    /// The fitted network.
    pub model: WalkModel,
    /// Fit errors.
    pub errors: FitErrors,
}

/// Number of threads at which half of the interleaving loss is reached: the value for all four
/// published media.
const HALF_THREADS: f64 = 28.0;
/// Number of search rounds, each with a smaller step.
const ROUNDS: usize = 14;

impl WalkFit {
    /// Fits processor time, device time, contention and interleaving to a ladder.
    ///
    /// # Errors
    /// Fails if there are too few points or a point is not positive.
    pub fn fit(points: &[Point]) -> Result<Self, PredictError> {
        check(points, NETWORK_POINTS_MIN)?;
        let best = points.iter().map(|(_, s)| *s).fold(f64::INFINITY, f64::min);
        let first = points.iter().min_by_key(|(n, _)| *n).map_or(best, |(_, s)| *s);
        let start = [(first - best).max(first * 0.05), best * 0.95, 0.05, 0.05];
        let loss = |at: &[f64; 4]| {
            let model = network(at);
            let error = |(n, s): &Point| model.elapsed_s(*n).map(|t| (t / s - 1.0).powi(2));
            points.iter().map(error).sum::<Result<f64, _>>().unwrap_or(f64::INFINITY)
        };
        let (mut at, mut step) = (start, [0.5, 0.5, 1.0, 1.0]);
        let mut least = loss(&at);
        for _ in 0..ROUNDS {
            let mut moved = true;
            let mut tries = 0;
            while moved && tries < 30 {
                (moved, tries) = (false, tries + 1);
                for i in 0..at.len() {
                    for factor in [1.0 + step[i], 1.0 / (1.0 + step[i])] {
                        let mut next = at;
                        next[i] *= factor;
                        let found = loss(&next);
                        if found < least * (1.0 - 1e-9) {
                            (least, at, moved) = (found, next, true);
                        }
                    }
                }
            }
            step.iter_mut().for_each(|s| *s *= 0.6);
        }
        let model = network(&at);
        let errors = FitErrors::of(points, |n| model.elapsed_s(n).unwrap_or(f64::NAN));
        Ok(Self { model, errors })
    }
}

/// Builds the network from the four search parameters. Shares below 0.001 count as zero.
fn network([cpu_s, device_s, contention, interleave]: &[f64; 4]) -> WalkModel {
    let share = |value: f64| if value < 1e-3 { 0.0 } else { value };
    WalkModel {
        cpu_s: *cpu_s,
        device_s: *device_s,
        contention: share(*contention),
        interleave: share(*interleave),
        interleave_half_threads: HALF_THREADS,
    }
}

fn check(points: &[Point], least: usize) -> Result<(), PredictError> {
    if points.len() < least {
        return Err(PredictError::OutOfRange {
            what: "number of points",
            value: points.len() as f64,
            accepted: "larger than the number of parameters of the law",
        });
    }
    for (threads, seconds) in points {
        above_zero("number of threads", f64::from(*threads))?;
        above_zero("elapsed time", *seconds)?;
    }
    Ok(())
}
