//! Exact intervals of a proportion.
//!
//! The number of hits among `n` independent trials is binomial. The ends of the interval are the shares
//! at which so many hits or more, and so many or fewer, have half of the remaining probability each
//! (Clopper and Pearson, 1934). The interval has at least the requested confidence for any share.
//!
//! Cost: one sum over the hits for each of 60 halvings.

use crate::interval::Interval;

/// Returns the share of `hits` among `n` trials with its interval; `hits` must not exceed `n`. Without trials, any
/// share is possible, and the estimate is NaN.
pub fn proportion_interval(hits: usize, n: usize, confidence: f64) -> Interval {
    let outside = (1.0 - confidence) / 2.0;
    let lo = if hits == 0 { 0.0 } else { share(hits - 1, n, 1.0 - outside) };
    let hi = if hits >= n { 1.0 } else { share(hits, n, outside) };
    Interval { estimate: hits as f64 / n as f64, lo, hi, confidence, resamples: 0 }
}

/// Returns the share at which at most `hits` of `n` trials hit with the specified probability.
fn share(hits: usize, n: usize, probability: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if at_most(hits, n, middle) > probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Returns the probability of at most `hits` hits in `n` trials with a share between 0 and 1.
fn at_most(hits: usize, n: usize, share: f64) -> f64 {
    let odds = share.ln() - (-share).ln_1p();
    let mut log = n as f64 * (-share).ln_1p();
    let mut sum = 0.0;
    for i in 0..=hits {
        sum += log.exp();
        log += odds + ((n - i) as f64).ln() - ((i + 1) as f64).ln();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_those_of_clopper_and_pearson() {
        for (hits, n, lo, hi) in
            [(0, 12, 0.0, 0.2646), (1, 12, 0.0021, 0.3848), (12, 12, 0.7354, 1.0)]
        {
            let found = proportion_interval(hits, n, 0.95);
            assert!((found.lo - lo).abs() < 1e-4, "{hits} of {n}: {found:?}");
            assert!((found.hi - hi).abs() < 1e-4, "{hits} of {n}: {found:?}");
            assert!(found.contains(found.estimate), "{hits} of {n}: {found:?}");
        }
        let many = proportion_interval(2000, 4000, 0.95);
        assert!((many.half_width() - 0.0156).abs() < 1e-3, "{many:?}");
    }
}
