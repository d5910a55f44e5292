//! Long-run behaviour of intervals and tests, simulated with fixed seeds.

use crate::bootstrap;
use crate::noise_source::Noise;
use ioloom_stats::{
    Alternation, Bootstrap, Claimed, Drift, FirstRun, Judgement, Ratio, Rule, TwoRegimes, decide,
};

const STUDIES: usize = 1500;

/// Share of studies for which `hit` holds.
fn share(seed: u64, mut hit: impl FnMut(&mut Noise, u64) -> bool) -> f64 {
    let mut noise = Noise::new(seed);
    (0..STUDIES).filter(|i| hit(&mut noise, *i as u64)).count() as f64 / STUDIES as f64
}

#[track_caller]
fn between(value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{value} is not in {low} to {high}");
}

#[test]
fn a_range_covers_as_often_as_its_confidence_says() {
    for n in 2..8 {
        let mut confidence = 0.0;
        let covered = share(200 + n as u64, |noise, i| {
            let range = Bootstrap::new(i).median(&noise.lognormals(n, 0.5)).unwrap();
            confidence = range.confidence;
            assert_eq!(range.reaches_confidence(), n >= 6, "{range:?}");
            range.contains(1.0)
        });
        // Three standard errors of a share of 1500 studies.
        between(covered, confidence - 0.04, confidence + 0.04);
    }
    for (n, m) in [(3, 3), (4, 12), (7, 7)] {
        let mut confidence = 1.0;
        let covered = share(300 + n as u64, |noise, i| {
            let (a, b) = (noise.lognormals(n, 0.4), noise.lognormals(m, 0.4));
            let range = Bootstrap::new(i).ratio_of_medians(&a, &b).unwrap();
            confidence = range.confidence;
            range.contains(1.0)
        });
        between(covered, confidence, 1.0);
    }
}

#[test]
fn paired_ratios_cover_and_cancel_common_factors() {
    // Blocks differ by a factor of up to ten; within a block the true ratio is 0.8.
    let covered = share(7, |noise, _| {
        let block = noise.lognormals(12, 1.0);
        let a: Vec<f64> = block.iter().map(|b| b * 0.8 * noise.lognormal(0.05)).collect();
        let b: Vec<f64> = block.iter().map(|b| b * noise.lognormal(0.05)).collect();
        let r = Ratio::of(&a, &b).unwrap();
        assert!(r.hi / r.lo < 1.5, "{r:?}");
        r.lo <= 0.8 && 0.8 <= r.hi
    });
    between(covered, 0.94, 0.98);
}

#[test]
fn ratios_of_medians_cover() {
    let covered = share(8, |noise, i| {
        let (a, b) = (noise.lognormals(12, 0.4), noise.lognormals(15, 0.4));
        let a: Vec<f64> = a.iter().map(|v| 2.0 * v).collect();
        bootstrap(i, 500).ratio_of_medians(&a, &b).unwrap().contains(2.0)
    });
    between(covered, 0.94, 0.99);
}

#[test]
fn wrong_confirmations_are_rare_and_right_ones_common() {
    let judged = |seed, effect: f64, claimed, wanted| {
        share(seed, |noise, _| {
            let b = noise.lognormals(12, 0.06);
            let a: Vec<f64> = noise.lognormals(12, 0.06).iter().map(|v| v * effect).collect();
            let r = Ratio::of(&a, &b).unwrap();
            decide(&r, claimed, &Rule::FULL).judgement == wanted
        })
    };
    between(judged(21, 1.0, Claimed::Less, Judgement::Confirmed), 0.0, 0.05);
    between(judged(22, 1.3, Claimed::Less, Judgement::Confirmed), 0.0, 0.001);
    between(judged(23, 0.75, Claimed::Less, Judgement::Confirmed), 0.99, 1.0);
    between(judged(24, 0.75, Claimed::Greater, Judgement::Refuted), 0.99, 1.0);
    between(judged(25, 1.3, Claimed::Equal, Judgement::Confirmed), 0.0, 0.001);
    // A difference of exactly the margin must not pass as equality.
    between(judged(26, 1.05, Claimed::Equal, Judgement::Confirmed), 0.0, 0.03);
}

#[test]
fn white_noise_raises_few_alarms() {
    for n in [6, 8, 9, 12, 13, 20, 40, 100] {
        for sigma in [0.02, 0.3] {
            let alarms = |seed, test: &dyn Fn(&[f64]) -> bool| {
                let rate = share(seed + n as u64, |noise, _| test(&noise.lognormals(n, sigma)));
                assert!(rate <= 0.07, "{rate} at {n} values, sigma {sigma}, seed {seed}");
            };
            alarms(1000, &|v| Drift::test(v).unwrap().found);
            alarms(2000, &|v| Alternation::test(v).unwrap().found);
            alarms(3000, &|v| FirstRun::test(v).unwrap().found);
            alarms(4000, &|v| TwoRegimes::test(v).unwrap().found);
        }
    }
}

#[test]
fn a_uniform_distribution_is_one_regime() {
    for n in [6, 8, 12, 20, 50, 200] {
        let alarms = share(50 + n as u64, |noise, _| {
            let values: Vec<f64> = (0..n).map(|_| noise.uniform()).collect();
            TwoRegimes::test(&values).unwrap().found
        });
        // The threshold is calibrated for this case: close to 5 %, not far below.
        between(alarms, 0.02, 0.07);
    }
}

#[test]
fn drift_is_detected() {
    let found = share(31, |noise, _| {
        let values: Vec<f64> =
            (0..12).map(|i| 100.0 * (1.0 + 0.02 * f64::from(i)) + 3.0 * noise.normal()).collect();
        let d = Drift::test(&values).unwrap();
        d.found && d.change > 0.1 && d.change < 0.35
    });
    between(found, 0.95, 1.0);
    let mut falling = Noise::new(3).normals(60);
    falling.iter_mut().enumerate().for_each(|(i, v)| *v -= i as f64);
    let long: Vec<f64> = falling.iter().chain(&falling[59..]).map(|v| v + 200.0).collect();
    // 61 values: too many for the exact distribution.
    let d = Drift::test(&long).unwrap();
    assert!(d.found && d.tau < -0.8 && d.change < 0.0, "{d:?}");
}

#[test]
fn alternation_is_detected() {
    for (n, least) in [(8, 0.9), (9, 0.9), (12, 0.95)] {
        let found = share(41, |noise, _| {
            let values: Vec<f64> = (0..n)
                .map(|i| 100.0 + if i % 2 == 0 { 8.0 } else { -8.0 } + 2.0 * noise.normal())
                .collect();
            let a = Alternation::test(&values).unwrap();
            a.found && a.lag1 < -0.5 && a.change > 0.1 && a.change < 0.25
        });
        between(found, least, 1.0);
    }
}

#[test]
fn a_first_run_is_detected() {
    for n in [8, 12] {
        for factor in [1.5, 0.6] {
            let found = share(51, |noise, _| {
                let mut values: Vec<f64> = (0..n).map(|_| noise.lognormal(0.03)).collect();
                values[0] *= factor;
                let f = FirstRun::test(&values).unwrap();
                f.found && (f.change > 0.0) == (factor > 1.0)
            });
            between(found, 0.95, 1.0);
        }
    }
}

#[test]
fn two_regimes_are_detected_and_an_outlier_is_not() {
    let found = share(61, |noise, _| {
        let values: Vec<f64> = (0..12)
            .map(|i| if i % 3 == 0 { 130.0 } else { 100.0 } + 2.0 * noise.normal())
            .collect();
        let t = TwoRegimes::test(&values).unwrap();
        t.found && t.cut > 104.0 && t.cut < 126.0 && (t.low_share - 2.0 / 3.0).abs() < 1e-9
    });
    between(found, 0.99, 1.0);
    let outlier = share(62, |noise, _| {
        let mut values: Vec<f64> = (0..12).map(|_| 100.0 + 2.0 * noise.normal()).collect();
        values[5] = 160.0;
        TwoRegimes::test(&values).unwrap().found
    });
    between(outlier, 0.0, 0.07);
}
