//! Bounds of a closed network of single servers, without solving it.
//!
//! `demands` are the seconds that one job needs at each station (processor, device), `delay` the
//! seconds it spends where nobody queues, `n` the jobs in the network (threads, or requests in
//! flight). With `D` the sum, `D_max` the largest and `D_avg` the mean of the demands:
//! - asymptotic (Muntz and Wong, 1974; Denning and Buzen, 1978):
//!   `n / (n D + Z) ≤ X(n) ≤ min(1 / D_max, n / (D + Z))`;
//! - balanced jobs (Zahorjan and others, 1982; here with delay as in Lazowska and others,
//!   "Quantitative System Performance", 1984, chapter 5):
//!   `n / (D + Z + (n-1) D_max / (1 + Z / (n D))) ≤ X(n) ≤
//!    min(1 / D_max, n / (D + Z + (n-1) D_avg / (1 + Z / D)))`.
//!
//! The asymptotes meet at `n* = (D + Z) / D_max`: below it another thread helps, above it only the
//! slowest station counts. A processor with several cores is not a single server; for it divide
//! nothing and use [`crate::Network`].

use crate::PredictError;
use crate::error::at_least_zero;
use serde::{Deserialize, Serialize};

/// Lowest and highest possible rate, jobs per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateBounds {
    /// No order of service gives less.
    pub low_per_s: f64,
    /// No order of service gives more.
    pub high_per_s: f64,
}

/// Sum, largest and mean of the demands, and the delay, all checked.
struct Totals {
    sum: f64,
    largest: f64,
    mean: f64,
    delay: f64,
}

fn totals(demands_s: &[f64], delay_s: f64) -> Result<Totals, PredictError> {
    let delay = at_least_zero("delay", delay_s)?;
    let (mut sum, mut largest) = (0.0, 0.0_f64);
    for demand in demands_s {
        sum += at_least_zero("demand", *demand)?;
        largest = largest.max(*demand);
    }
    if sum == 0.0 {
        return Err(PredictError::NoDemand);
    }
    Ok(Totals { sum, largest, mean: sum / demands_s.len() as f64, delay })
}

/// Asymptotic bounds of the rate with `n` jobs.
///
/// # Errors
/// No demand above zero, or a number that is negative or not finite.
pub fn asymptotic(demands_s: &[f64], delay_s: f64, n: u32) -> Result<RateBounds, PredictError> {
    let t = totals(demands_s, delay_s)?;
    let n = f64::from(n);
    if n == 0.0 {
        return Ok(RateBounds { low_per_s: 0.0, high_per_s: 0.0 });
    }
    Ok(RateBounds {
        low_per_s: n / (n * t.sum + t.delay),
        high_per_s: (1.0 / t.largest).min(n / (t.sum + t.delay)),
    })
}

/// Balanced-job bounds of the rate with `n` jobs; never wider than the asymptotic ones.
///
/// # Errors
/// No demand above zero, or a number that is negative or not finite.
pub fn balanced(demands_s: &[f64], delay_s: f64, n: u32) -> Result<RateBounds, PredictError> {
    let t = totals(demands_s, delay_s)?;
    let n = f64::from(n);
    if n == 0.0 {
        return Ok(RateBounds { low_per_s: 0.0, high_per_s: 0.0 });
    }
    let alone = t.sum + t.delay;
    let worst = (n - 1.0) * t.largest / (1.0 + t.delay / (n * t.sum));
    let best = (n - 1.0) * t.mean / (1.0 + t.delay / t.sum);
    Ok(RateBounds {
        low_per_s: n / (alone + worst),
        high_per_s: (1.0 / t.largest).min(n / (alone + best)),
    })
}

/// Number of jobs at which the asymptotes meet, `(D + Z) / D_max`.
///
/// # Errors
/// No demand above zero, or a number that is negative or not finite.
pub fn saturation_customers(demands_s: &[f64], delay_s: f64) -> Result<f64, PredictError> {
    let t = totals(demands_s, delay_s)?;
    Ok((t.sum + t.delay) / t.largest)
}
