//! Tail probabilities of the normal and of Student's t distribution.
//!
//! Only what the tests of this crate need, so that no statistics library stands in the program;
//! such a library is the oracle in the tests instead.
//! - Normal below 3: the series `Φ(x) = 1/2 + φ(x) (x + x³/3 + x⁵/(3·5) + …)` (Marsaglia,
//!   "Evaluating the normal distribution", 2004). Beyond: Laplace's continued fraction of Mills'
//!   ratio, evaluated from the back, which keeps the small tail exact where `1 - Φ` would cancel.
//! - Normal quantile: the rational start of Hastings (Abramowitz and Stegun 26.2.23), then Newton
//!   steps on the function above.
//! - Student's t with whole degrees of freedom: the finite sums of Abramowitz and Stegun 26.7.3
//!   and 26.7.4.
//!
//! Absolute error below 1e-12 in all three.

use std::f64::consts::PI;

/// Density of the standard normal distribution.
pub fn normal_density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

/// Probability that a standard normal value lies below `x`.
pub fn normal_below(x: f64) -> f64 {
    if x < -3.0 {
        upper_tail(-x)
    } else if x > 3.0 {
        1.0 - upper_tail(x)
    } else {
        let mut term = x;
        let mut sum = x;
        let mut odd = 1.0;
        // 60 terms are enough for |x| ≤ 3: the last is below 1e-20 of the sum.
        for _ in 0..60 {
            odd += 2.0;
            term *= x * x / odd;
            sum += term;
        }
        0.5 + normal_density(x) * sum
    }
}

/// Probability above `x`, for `x` above 3.
fn upper_tail(x: f64) -> f64 {
    let mut fraction = x;
    for k in (1..=60).rev() {
        fraction = x + f64::from(k) / fraction;
    }
    normal_density(x) / fraction
}

/// The value below which a standard normal value lies with probability `p`; infinite at 0 and 1,
/// NaN outside.
pub fn normal_quantile(p: f64) -> f64 {
    if p.is_nan() || !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.0 || p == 1.0 {
        return if p == 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    if p > 0.5 {
        return -normal_quantile(1.0 - p);
    }
    let t = (-2.0 * p.ln()).sqrt();
    let top = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let bottom = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let mut x = top / bottom - t;
    // The start is within 4.5e-4; each Newton step squares that error.
    for _ in 0..4 {
        x -= (normal_below(x) - p) / normal_density(x);
    }
    x
}

/// Probability that a standard normal value is at least as far from zero as `z`, either side.
pub fn normal_two_sided(z: f64) -> f64 {
    2.0 * normal_below(-z.abs())
}

/// Probability that a value of Student's t distribution with `freedom` degrees of freedom is at
/// least as far from zero as `t`, either side. NaN for zero degrees.
pub fn student_two_sided(t: f64, freedom: u32) -> f64 {
    if freedom == 0 || t.is_nan() {
        return f64::NAN;
    }
    if t.is_infinite() {
        return 0.0;
    }
    let angle = (t.abs() / f64::from(freedom).sqrt()).atan();
    let cos2 = angle.cos().powi(2);
    let even = freedom.is_multiple_of(2);
    // Sum of cos^k products: k runs over 0, 2, … for even freedom, over 1, 3, … for odd.
    let mut term = if even { 1.0 } else { angle.cos() };
    let mut sum = if freedom == 1 { 0.0 } else { term };
    let mut k = if even { 2 } else { 3 };
    while k + 1 < freedom {
        term *= f64::from(k - 1) / f64::from(k) * cos2;
        sum += term;
        k += 2;
    }
    let within = if even { angle.sin() * sum } else { 2.0 / PI * (angle + angle.sin() * sum) };
    (1.0 - within).clamp(0.0, 1.0)
}
