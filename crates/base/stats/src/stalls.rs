//! Numbers derived from the stalls of a walk over mapped files: offsets in bytes with times in nanoseconds,
//! concatenated for all files.
//!
//! Both need every stall: the distance between every eighth stall is eight times the period.

use crate::summary::median;

/// Returns the median distance in bytes between consecutive stalls in a file; `None` if it is undefined.
pub fn period(points: &[(f64, f64)]) -> Option<f64> {
    // The curve concatenates files, so a decreasing offset starts a new file.
    let steps = points.windows(2).map(|w| w[1].0 - w[0].0).filter(|step| *step > 0.0);
    Some(median(&steps.collect::<Vec<_>>())).filter(|n| n.is_finite())
}

/// Returns the median stall time in the last quarter of the offsets divided by that in the first quarter;
/// `None` if it is undefined.
pub fn growth(points: &[(f64, f64)]) -> Option<f64> {
    let end = points.iter().map(|(x, _)| *x).fold(0.0, f64::max);
    let part = |from: f64, to: f64| {
        let inside = |(x, _): &&(f64, f64)| (from * end..=to * end).contains(x);
        median(&points.iter().filter(inside).map(|(_, ns)| *ns).collect::<Vec<_>>())
    };
    Some(part(0.75, 1.0) / part(0.0, 0.25)).filter(|n| n.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_have_a_distance_and_a_growth() {
        let file =
            |from: f64| (0..64).map(move |i| (f64::from(i) * 16384.0, from + f64::from(i) * 100.0));
        let points: Vec<(f64, f64)> = file(1000.0).chain(file(1000.0)).collect();
        assert_eq!(period(&points), Some(16384.0));
        assert!(growth(&points).unwrap() > 3.0);
        assert_eq!(period(&points[..1]), None);
        assert_eq!(growth(&[]), None);
    }
}
