//! Tail probabilities of the normal and of Student's t distribution.
//!
//! Contains only the functions required by the tests in this crate, to avoid depending on a
//! statistics library. Such a library is the oracle of the unit tests.
//! - Normal up to 3: the series `Φ(x) = 1/2 + φ(x) (x + x³/3 + x⁵/(3·5) + …)` (Marsaglia,
//!   "Evaluating the normal distribution", 2004). Beyond: Laplace's continued fraction of Mills'
//!   ratio, evaluated from the back, which keeps the small tail exact where `1 - Φ` would cancel.
//! - Student's t with integer degrees of freedom: the finite sums of Abramowitz and Stegun 26.7.3
//!   and 26.7.4.
//!
//! The absolute error of both is below 1e-12.

use std::f64::consts::PI;

/// Returns the density of the standard normal distribution.
fn normal_density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * PI).sqrt()
}

/// Returns the probability that a standard normal value is below `x`.
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

/// Returns the probability above `x`, for `x` above 3.
fn upper_tail(x: f64) -> f64 {
    let mut fraction = x;
    for k in (1..=60).rev() {
        fraction = x + f64::from(k) / fraction;
    }
    normal_density(x) / fraction
}

/// Returns the two-sided probability that a standard normal value is at least as far from zero as
/// `z`.
pub fn normal_two_sided(z: f64) -> f64 {
    2.0 * normal_below(-z.abs())
}

/// Returns the value below which a standard normal value is with probability `p`, found by bisection
/// and exact to 1e-12. Infinite for 0 and 1, NaN outside.
pub fn normal_quantile(p: f64) -> f64 {
    if p <= 0.0 || p >= 1.0 || p.is_nan() {
        return if p == 0.0 || p == 1.0 { (p - 0.5) * f64::INFINITY } else { f64::NAN };
    }
    bisect(|x| normal_below(x) < p)
}

/// Returns the value that a value of Student's t distribution exceeds in size with probability `p`,
/// above 0 and below 1.
pub fn student_quantile_two_sided(p: f64, freedom: u32) -> f64 {
    bisect(|t| t < 0.0 || student_two_sided(t, freedom) > p)
}

/// Returns the boundary of an interval in which `below` holds.
fn bisect(below: impl Fn(f64) -> bool) -> f64 {
    // Student's t with one degree of freedom reaches 6e4 at a probability of 1e-5.
    let (mut low, mut high) = (-1e6, 1e6);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if below(middle) { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Returns the two-sided probability that a value of Student's t distribution with `freedom`
/// degrees of freedom is at least as far from zero as `t`. NaN for zero degrees.
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
    // Sum of products of cos^k: k is 0, 2, … for even degrees of freedom and 1, 3, … for odd ones.
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
