//! The knee of a ladder: threads, window or size on `x`, time or rate on `y`.
//!
//! There are three answers because each fails in a different way:
//! - `first_flat`: the first step whose gain over the next step is within noise. This is the result
//!   of a search from below. A single outlier can stop it early.
//! - `near_best`: the smallest `x` within noise of the best `y`. This is the result of measuring
//!   the whole ladder. A slow rise at the far end moves it up.
//! - `segmented`: two straight lines that meet, over `log₂ x` and `ln y`, with the meeting point
//!   that minimises the squared error (a broken-stick fit, as in Hudson, 1966). It uses all points
//!   and requires no noise estimate. On a curve without a bend it still returns a point, with
//!   `explained` near 0.
//!
//! Cost: a few hundred passes over the points of the ladder.

use crate::StatsError;
use crate::error::{check_pairs, check_positive};
use crate::linear::Line;
use serde::{Deserialize, Serialize};

/// Which direction of `y` is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Higher is better: a rate.
    More,
    /// Lower is better: a time.
    Less,
}

/// The knee of a ladder, in units of `x`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// First `x` whose gain over the next is within noise; `None` if every step gains.
    pub first_flat: Option<f64>,
    /// Smallest `x` whose `y` is within noise of the best.
    pub near_best: f64,
    /// `x` of the best `y`.
    pub best: f64,
    /// The segmented fit; `None` for fewer than 5 points.
    pub segmented: Option<Segmented>,
}

/// Two lines over `log₂ x` and `ln y` that meet at one point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Segmented {
    /// The point where they meet, in units of `x`.
    pub x: f64,
    /// `y` at that point.
    pub y: f64,
    /// Change of `ln y` per doubling of `x` before the meeting point.
    pub slope_before: f64,
    /// Change of `ln y` per doubling of `x` after it.
    pub slope_after: f64,
    /// Share of a straight line's squared error that the bend removes, 0 to 1.
    pub explained: f64,
}

/// Finds the knee of a ladder of at least 3 points, with `x` ascending and above zero and `y` above
/// zero. `noise` is the share up to which a gain does not count, such as [`crate::AaNoise::floor`].
///
/// # Errors
/// Fails if lengths differ, there are too few points, a value is not finite and above zero, `x` is
/// not ascending, or the noise is negative.
pub fn knee(x: &[f64], y: &[f64], better: Better, noise: f64) -> Result<Knee, StatsError> {
    let what = "knee";
    check_pairs(what, x, y, 3)?;
    check_positive(what, x)?;
    check_positive(what, y)?;
    if let Some(step) = x.windows(2).find(|w| w[1] <= w[0]) {
        return Err(StatsError::OutOfRange {
            what: "x of a ladder",
            value: step[1],
            accepted: "above the x before it",
        });
    }
    if noise.is_nan() || noise < 0.0 {
        return Err(StatsError::OutOfRange {
            what: "noise of a ladder",
            value: noise,
            accepted: "a share of at least 0",
        });
    }
    let gain = |from: f64, to: f64| match better {
        Better::More => to / from - 1.0,
        Better::Less => from / to - 1.0,
    };
    let best = (1..y.len()).fold(0, |best, i| if gain(y[best], y[i]) > 0.0 { i } else { best });
    let near = (0..y.len()).find(|&i| gain(y[i], y[best]) <= noise).unwrap_or(best);
    Ok(Knee {
        first_flat: (0..y.len() - 1).find(|&i| gain(y[i], y[i + 1]) <= noise).map(|i| x[i]),
        near_best: x[near],
        best: x[best],
        segmented: segmented(x, y)?,
    })
}

/// Grid points in the search for the meeting point; the best one is refined.
const GRID: u32 = 256;

fn segmented(x: &[f64], y: &[f64]) -> Result<Option<Segmented>, StatsError> {
    if x.len() < 5 {
        return Ok(None);
    }
    let u: Vec<f64> = x.iter().map(|x| x.log2()).collect();
    let v: Vec<f64> = y.iter().map(|y| y.ln()).collect();
    // At least two points on either side, so both slopes are determined by data.
    let (low, high) = (u[1], u[u.len() - 2]);
    let step = (high - low) / f64::from(GRID);
    let mut bend = Bend::fit(&u, &v, low);
    for i in 1..=GRID {
        bend = bend.better(Bend::fit(&u, &v, low + f64::from(i) * step));
    }
    let mut reach = step;
    for _ in 0..30 {
        reach /= 2.0;
        for at in [bend.at - reach, bend.at + reach] {
            if (low..=high).contains(&at) {
                bend = bend.better(Bend::fit(&u, &v, at));
            }
        }
    }
    let line = Line::fit(&u, &v)?;
    let straight: f64 = u.iter().zip(&v).map(|(u, v)| (v - line.at(*u)).powi(2)).sum();
    let scale: f64 = v.iter().map(|v| v * v).sum();
    // If a straight line fits to within rounding, nothing is left to explain.
    let explained = if straight <= 1e-24 * scale { 0.0 } else { 1.0 - bend.error / straight };
    Ok(Some(Segmented {
        x: bend.at.exp2(),
        y: bend.level.exp(),
        slope_before: bend.before,
        slope_after: bend.after,
        explained: explained.clamp(0.0, 1.0),
    }))
}

/// Least-squares fit of two lines that meet at a given point.
struct Bend {
    at: f64,
    level: f64,
    before: f64,
    after: f64,
    error: f64,
}

impl Bend {
    /// Fits `level + before · min(u - at, 0) + after · max(u - at, 0)`. The two slope terms are
    /// never both non-zero, so the normal equations reduce to one for the level.
    fn fit(u: &[f64], v: &[f64], at: f64) -> Self {
        let n = u.len() as f64;
        let (mut l, mut ll, mut lv) = (0.0, 0.0, 0.0);
        let (mut r, mut rr, mut rv) = (0.0, 0.0, 0.0);
        for (u, v) in u.iter().zip(v) {
            let (left, right) = ((u - at).min(0.0), (u - at).max(0.0));
            l += left;
            ll += left * left;
            lv += left * v;
            r += right;
            rr += right * right;
            rv += right * v;
        }
        let sum: f64 = v.iter().sum();
        let level = (sum - l * lv / ll - r * rv / rr) / (n - l * l / ll - r * r / rr);
        let before = (lv - level * l) / ll;
        let after = (rv - level * r) / rr;
        let error = u
            .iter()
            .zip(v)
            .map(|(u, v)| {
                let fit = level + before * (u - at).min(0.0) + after * (u - at).max(0.0);
                (v - fit).powi(2)
            })
            .sum();
        Self { at, level, before, after, error }
    }

    fn better(self, other: Self) -> Self {
        if other.error < self.error { other } else { self }
    }
}
