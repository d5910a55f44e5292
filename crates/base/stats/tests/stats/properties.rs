//! Properties checked with independent oracles: brute force, order, scale.

use crate::bootstrap;
use ioloom_stats::{
    Alternation, Bootstrap, Correlation, Drift, FirstRun, Line, StatsError, TwoRegimes, mad,
    median, quantile, spearman, trimmed_mean,
};
use proptest::prelude::*;

fn samples(least: usize) -> impl Strategy<Value = Vec<f64>> {
    proptest::collection::vec(-1e6..1e6_f64, least..40)
}

/// Returns every order of the numbers 1 to `n`.
fn orders(n: usize) -> Vec<Vec<f64>> {
    if n == 0 {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for shorter in orders(n - 1) {
        for place in 0..n {
            let mut order = shorter.clone();
            order.insert(place, n as f64);
            all.push(order);
        }
    }
    all
}

#[test]
fn exact_drift_probabilities_equal_a_count_of_all_orders() {
    for n in 3..=7 {
        let taus: Vec<f64> = orders(n).iter().map(|o| Drift::test(o).unwrap().tau.abs()).collect();
        for order in orders(n) {
            let d = Drift::test(&order).unwrap();
            let extreme = taus.iter().filter(|t| **t >= d.tau.abs() - 1e-9).count();
            let counted = extreme as f64 / taus.len() as f64;
            assert!((d.p - counted.min(1.0)).abs() < 1e-12, "{order:?}: {} {counted}", d.p);
        }
    }
}

#[test]
fn exact_run_probabilities_equal_a_count_of_all_orders() {
    for n in [6, 7] {
        let found: Vec<Alternation> =
            orders(n).iter().map(|o| Alternation::test(o).unwrap()).collect();
        for a in found.iter().step_by(17) {
            let counted = found.iter().filter(|b| b.runs >= a.runs).count() as f64;
            assert!((a.p - counted / found.len() as f64).abs() < 1e-12);
        }
        let mean = found.iter().map(|a| a.runs as f64).sum::<f64>() / found.len() as f64;
        assert!((mean - found[0].runs_expected).abs() < 1e-9);
        let turns = found.iter().map(|a| a.turning_points as f64).sum::<f64>() / found.len() as f64;
        assert!((turns - found[0].turning_points_expected).abs() < 1e-9);
    }
}

#[test]
fn undefined_statistics_are_nan_or_errors() {
    assert!(median(&[]).is_nan() && quantile(&[1.0], 1.5).is_nan());
    assert!(median(&[1.0, f64::NAN]).is_nan() && quantile(&[f64::NAN], 0.5).is_nan());
    // Interpolation between equal values must not round outside them.
    assert_eq!(quantile(&[851_353.441_485_040_5; 5], 0.024), 851_353.441_485_040_5);
    assert!(trimmed_mean(&[1.0], 0.5).is_nan() && trimmed_mean(&[], 0.1).is_nan());
    assert!(spearman(&[1.0, 2.0], &[3.0, 3.0]).is_nan());
    let constant = Correlation::spearman(&[1., 2., 3., 4.], &[5.; 4]).unwrap_err();
    assert_eq!(constant, StatsError::Undefined { what: "rank correlation" });
    assert!(Line::fit(&[2.0, 2.0], &[1.0, 3.0]).is_err());
    assert_eq!(Line::fit(&[1.0, 2.0], &[3.0, 3.0]).unwrap().r2, None);
    let boot = Bootstrap { confidence: 1.0, ..Bootstrap::new(1) };
    assert!(boot.median(&[1.0, 2.0]).is_err());
    assert!(bootstrap(1, 99).median(&[1.0, 2.0]).is_err());
    assert!(Bootstrap::new(1).of(&[1.0, 2.0], |_| f64::NAN).is_err());
}

#[test]
fn constant_series_raise_no_alarm() {
    let values = [7.0; 12];
    assert!(!Drift::test(&values).unwrap().found);
    assert!(!Alternation::test(&values).unwrap().found);
    assert!(!FirstRun::test(&values).unwrap().found);
    assert!(!TwoRegimes::test(&values).unwrap().found);
}

#[test]
fn rounding_is_not_a_finding() {
    // The mean of ten values of 0.1 is not exactly 0.1, and values that differ only in the last bit
    // can form two equal groups.
    let tenths = [0.1; 10];
    let near = 0.1_f64.next_up();
    let last_bit = [near, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1];
    let halves = [0.1, 0.1, 0.1, 0.1, 0.1, near, near, near, near, near];
    for values in [tenths, last_bit, halves] {
        let two = TwoRegimes::test(&values).unwrap();
        assert!(!two.found && two.explained == 0.0, "{values:?}: {two:?}");
        assert!(!FirstRun::test(&values).unwrap().found, "{values:?}");
        assert_eq!(Alternation::test(&values).unwrap().lag1, 0.0, "{values:?}");
    }
    assert!(FirstRun::test(&[0.2, 0.1, 0.1, 0.1, 0.1, 0.1]).unwrap().found);
    assert!(TwoRegimes::test(&[0.1, 0.1, 0.1, 0.2, 0.2, 0.2]).unwrap().found);
}

#[test]
fn evidence_is_always_a_number() {
    // A first value far from a constant rest, and a median of zero, must not cause a division by
    // zero.
    let first = FirstRun::test(&[9.0, 5.0, 5.0, 5.0, 5.0, 5.0]).unwrap();
    assert!(first.found && first.distance.is_finite());
    // The first value is far from the median, but another value is farther.
    let inside = FirstRun::test(&[20.0, 10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 30.0]).unwrap();
    assert!(inside.distance > inside.threshold && !inside.found, "{inside:?}");
    let zero = [0.0, 0.0, 0.0, 0.0, 1.0, -1.0];
    assert!(Drift::test(&zero).unwrap().change.is_finite());
    assert!(Alternation::test(&zero).unwrap().change.is_finite());
    assert!(FirstRun::test(&zero).unwrap().change.is_finite());
    assert!(TwoRegimes::test(&zero).unwrap().change.is_finite());
}

/// Computes the explained variance of the best cut by trying every cut.
fn best_cut(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let least = ((0.2 * values.len() as f64).ceil() as usize).max(2);
    let squares = |v: &[f64]| {
        let mean = v.iter().sum::<f64>() / v.len() as f64;
        v.iter().map(|x| (x - mean).powi(2)).sum::<f64>()
    };
    (least..=values.len() - least)
        .map(|k| 1.0 - (squares(&sorted[..k]) + squares(&sorted[k..])) / squares(&sorted))
        .fold(0.0, f64::max)
}

proptest! {
    #[test]
    fn half_of_the_values_are_on_either_side_of_the_median(values in samples(1)) {
        let m = median(&values);
        let below = values.iter().filter(|v| **v < m).count();
        let above = values.iter().filter(|v| **v > m).count();
        prop_assert!(below * 2 <= values.len() && above * 2 <= values.len());
    }

    #[test]
    fn a_shift_moves_location_but_not_spread(values in samples(2), shift in -1e6..1e6_f64) {
        let moved: Vec<f64> = values.iter().map(|v| v + shift).collect();
        prop_assert!((median(&moved) - median(&values) - shift).abs() < 1e-6);
        prop_assert!((mad(&moved) - mad(&values)).abs() < 1e-6);
        prop_assert!((trimmed_mean(&moved, 0.2) - trimmed_mean(&values, 0.2) - shift).abs() < 1e-6);
    }

    #[test]
    fn bootstrap_is_the_same_for_the_same_seed(values in samples(2), seed: u64) {
        let boot = bootstrap(seed, 200);
        let m = boot.median(&values).unwrap();
        prop_assert_eq!(m, boot.median(&values).unwrap());
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if values.len() < 9 {
            prop_assert_eq!((m.lo, m.hi, m.resamples), (least, most, 0));
        }
        prop_assert!(values.contains(&m.lo) && values.contains(&m.hi));
        let resampled = boot.resampled(&values, median).unwrap();
        prop_assert_eq!(resampled.interval, boot.of(&values, median).unwrap());
        // A p-value and the interval agree on what the values exclude.
        let (lo, hi) = (resampled.interval.lo, resampled.interval.hi);
        if values.len() >= 6 && lo > 0.0 {
            prop_assert!(resampled.above(0.0) <= 0.05, "{}", resampled.above(0.0));
        }
        prop_assert!(resampled.at_least(lo) <= resampled.above(lo));
        prop_assert!(resampled.above(hi) >= 0.0 && resampled.at_most(hi) <= resampled.below(hi));
        prop_assert_eq!(m.reaches_confidence(), values.len() >= 6);
        prop_assert!(least <= m.lo && m.lo <= m.hi && m.hi <= most);
        prop_assert!(m.contains(m.lo) && m.half_width() >= 0.0);
    }

    #[test]
    fn a_line_is_recovered(slope in -100.0..100.0_f64, start in -100.0..100.0_f64) {
        let x: Vec<f64> = (0..9).map(|i| f64::from(i) * 1.5).collect();
        let y: Vec<f64> = x.iter().map(|x| start + slope * x).collect();
        let line = Line::fit(&x, &y).unwrap();
        prop_assert!((line.slope - slope).abs() < 1e-9 && (line.at(2.0) - start - 2.0 * slope).abs() < 1e-9);
    }

    #[test]
    fn ranks_ignore_increasing_transformations(x in proptest::collection::vec(-5.0..5.0_f64, 5..20)) {
        let y: Vec<f64> = x.iter().enumerate().map(|(i, x)| x + (i as f64).sin()).collect();
        let grown: Vec<f64> = x.iter().map(|v| v.exp()).collect();
        prop_assert!((spearman(&x, &y) - spearman(&grown, &y)).abs() < 1e-9);
        prop_assert!((spearman(&x, &grown) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_best_cut_is_the_best(values in proptest::collection::vec(0.0..10.0_f64, 6..30)) {
        let t = TwoRegimes::test(&values).unwrap();
        prop_assert!((t.explained - best_cut(&values)).abs() < 1e-9);
        prop_assert!(t.low <= t.cut && t.cut <= t.high);
        prop_assert!(t.low_share >= 0.2 - 1e-9 && t.low_share <= 0.8 + 1e-9);
    }
}
