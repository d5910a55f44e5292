//! Values computed with SciPy 1.17.1 and NumPy 2.4.6. Each comment names the function.

use crate::bootstrap;
use ioloom_stats::{
    Alternation, Bootstrap, Correlation, Drift, Line, Ratio, mad, mean, median, quantile, spearman,
    theil_sen, trimmed_mean,
};

pub(crate) const A: [f64; 12] =
    [12.1, 11.8, 13.4, 12.9, 15.2, 11.1, 12.5, 14.8, 12.2, 13.0, 19.5, 12.7];
pub(crate) const B: [f64; 12] =
    [10.2, 10.9, 11.1, 12.0, 13.1, 10.4, 10.0, 12.2, 11.5, 10.8, 14.9, 11.6];

#[track_caller]
pub(crate) fn near(value: f64, golden: f64, tolerance: f64) {
    assert!((value - golden).abs() <= tolerance, "{value} is not {golden} within {tolerance}");
}

#[test]
fn location_and_spread() {
    near(median(&A), 12.8, 1e-12); // numpy.median
    near(mean(&A), 13.433_333_333_333_332, 1e-12); // numpy.mean
    near(mad(&A), 0.65, 1e-12); // scipy.stats.median_abs_deviation
}

#[test]
fn quantiles_of_type_7() {
    // numpy.quantile(method='linear')
    for (q, golden) in [
        (0.0, 11.1),
        (0.1, 11.83),
        (0.25, 12.175),
        (0.5, 12.8),
        (0.9, 15.16),
        (0.99, 19.027),
        (1.0, 19.5),
    ] {
        near(quantile(&A, q), golden, 1e-12);
    }
}

#[test]
fn trimmed_means() {
    // scipy.stats.trim_mean
    near(trimmed_mean(&A, 0.1), 13.06, 1e-12);
    near(trimmed_mean(&A, 0.25), 12.783_333_333_333_333, 1e-12);
    near(trimmed_mean(&A, 0.0), mean(&A), 1e-12);
}

#[test]
fn straight_line() {
    // scipy.stats.linregress(B, A)
    let line = Line::fit(&B, &A).unwrap();
    near(line.slope, 1.480_128_637_789_335_7, 1e-12);
    near(line.intercept, -3.674_486_838_448_411, 1e-11);
    near(line.r2.unwrap(), 0.834_733_081_459_313_1, 1e-12);
    near(line.slope_error.unwrap(), 0.208_266_113_954_422_16, 1e-12);
    // scipy.stats.theilslopes(A, B)
    near(theil_sen(&B, &A).unwrap(), 1.285_714_285_714_286_3, 1e-12);
}

#[test]
fn correlations() {
    // scipy.stats.spearmanr
    let c = Correlation::spearman(&A, &B).unwrap();
    near(c.rho, 0.748_251_748_251_748_4, 1e-12);
    near(c.p, 0.005_124_081_698_753_054, 1e-12);
    assert!(c.lo > 0.2 && c.lo < c.rho && c.rho < c.hi && c.hi < 1.0);
    let (t, u) = ([1., 1., 2., 3., 3., 3., 5.], [2., 1., 2., 2., 4., 3., 3.]);
    near(spearman(&t, &u), 0.745_098_039_215_686_3, 1e-12);
    near(Correlation::spearman(&t, &u).unwrap().p, 0.054_619_936_162_546_734, 1e-12);
}

#[test]
fn drift_without_ties_is_exact() {
    // scipy.stats.kendalltau(range(12), x, method='exact')
    let d = Drift::test(&A).unwrap();
    near(d.tau, 0.242_424_242_424_242_4, 1e-12);
    near(d.p, 0.310_810_013_995_777_9, 1e-12);
    assert!(!d.found);
    let rising = [10.0, 10.4, 10.1, 10.9, 11.2, 10.8, 11.5, 11.9, 11.6, 12.4, 12.1, 12.8];
    let d = Drift::test(&rising).unwrap();
    near(d.tau, 0.848_484_848_484_848_4, 1e-12);
    near(d.p, 1.634_232_537_010_314_8e-5, 1e-15);
    assert!(d.found);
    assert!(d.change > 0.2 && d.change < 0.28, "{}", d.change);
}

#[test]
fn drift_with_ties_is_normal() {
    // tau: scipy.stats.kendalltau(variant='b'); p: scipy.stats.norm.sf of (S - 1) / sqrt(variance),
    // with S = 47 and the Mann-Kendall variance with ties, 207.6667
    let d = Drift::test(&[1., 2., 2., 3., 1., 4., 4., 5., 3., 6., 5., 7.]).unwrap();
    near(d.tau, 0.740_731_771_210_252_7, 1e-12);
    near(d.p, 0.001_412_498_011_606_275, 1e-14);
}

#[test]
fn runs_are_counted_exactly() {
    // Of the 126 orders of 5 and 4 symbols, 9 have 8 or more runs.
    let values = [9., 1., 8., 2., 7., 3., 3.5, 6., 5.];
    let a = Alternation::test(&values).unwrap();
    assert_eq!((a.runs, a.turning_points), (7, 6));
    let strict = Alternation::test(&[9., 1., 8., 2., 7., 3., 6., 4., 5.]).unwrap();
    assert_eq!(strict.runs, 9);
    near(strict.p, 1.0 / 126.0, 1e-12);
    let eight = Alternation::test(&[9., 1., 8., 2., 7., 3., 6., 5., 4.]).unwrap();
    assert_eq!(eight.runs, 8);
    near(eight.p, 9.0 / 126.0, 1e-12);
    // Of the 924 orders of 6 and 6 symbols, 2 have 12 runs.
    let twelve = Alternation::test(&[9., 1., 9.1, 2., 7., 3., 7.1, 4., 8., 1.1, 8.1, 1.2]).unwrap();
    near(twelve.p, 2.0 / 924.0, 1e-12);
    assert!(twelve.found && twelve.lag1 < -0.8);
    let nine = Alternation::test(&[9., 1., 9.1, 2., 7., 7.1, 3., 4., 8., 1.1, 8.1, 1.2]).unwrap();
    assert_eq!(nine.runs, 10);
}

#[test]
fn bootstrap_intervals() {
    let boot = bootstrap(7, 20_000);
    // The third smallest and the third largest of twelve values.
    let m = boot.median(&A).unwrap();
    assert_eq!((m.lo, m.hi), (12.1, 14.8));
    near(m.confidence, 0.961_425_781_25, 1e-12);
    // A bootstrap written in Python with 200 000 resamples, at the quantile 0.010757 to which the
    // 2.5 % quantile of twelve values is moved; the tolerance is the error of 20 000
    let percentile = boot.of(&A, mean).unwrap();
    near(percentile.lo, 12.283, 0.03);
    near(percentile.hi, 15.067, 0.06);
}

#[test]
fn few_values_have_the_confidence_of_their_range() {
    // 1 - 2^(1-n), unless all values are on one side of the median
    let boot = Bootstrap::new(7);
    for (n, confidence) in
        [(2, 0.5), (3, 0.75), (5, 0.9375), (6, 0.96875), (7, 0.984_375), (8, 0.992_187_5)]
    {
        let m = boot.median(&A[..n]).unwrap();
        near(m.confidence, confidence, 1e-15);
        let any = boot.of(&A[..n], mean).unwrap();
        near(any.confidence, confidence.min(0.95), 1e-15);
    }
    let five = boot.median(&A[..5]).unwrap();
    assert_eq!((five.estimate, five.lo, five.hi), (12.9, 11.8, 15.2));
    let apart = boot.ratio_of_medians(&A[..3], &B[..2]).unwrap();
    near(apart.lo, 11.8 / 10.9, 1e-12);
    near(apart.hi, 13.4 / 10.2, 1e-12);
    near(apart.confidence, 0.75 * 0.5, 1e-15);
}

#[test]
fn paired_ratio() {
    // exponentials of numpy.median and of the third and tenth of numpy.sort over ln(A / B)
    let r = Ratio::of(&A, &B).unwrap();
    near(r.ratio, 1.173_218_075_464_624_2, 1e-12);
    near(r.lo, 1.075, 1e-12);
    near(r.hi, 1.2131147540983604, 1e-12);
    near(r.noise, 0.103_246_264_318_913_15, 1e-12);
    assert_eq!(r.n, 12);
}
