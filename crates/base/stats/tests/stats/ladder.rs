//! Knees of constructed ladders.

use crate::golden::near;
use crate::noise_source::Noise;
use ioloom_stats::{Better, StatsError, knee};

const STEPS: [f64; 9] = [1., 2., 4., 8., 16., 32., 64., 128., 256.];

/// Elapsed seconds of a directory walk on NVMe with 1 to 256 threads (source 001).
const WALK_S: [f64; 9] = [36.14, 19.00, 11.07, 7.19, 6.00, 6.06, 6.08, 6.15, 6.35];

#[test]
fn a_rate_that_saturates() {
    let rate: Vec<f64> = STEPS.iter().map(|x| x.min(16.0) * 1000.0).collect();
    let k = knee(&STEPS, &rate, Better::More, 0.02).unwrap();
    assert_eq!((k.first_flat, k.near_best, k.best), (Some(16.0), 16.0, 16.0));
    let s = k.segmented.unwrap();
    near(s.x, 16.0, 0.01);
    near(s.y, 16_000.0, 10.0);
    near(s.slope_before, std::f64::consts::LN_2, 1e-3);
    near(s.slope_after, 0.0, 1e-3);
    assert!(s.explained > 0.999);
}

#[test]
fn both_slopes_are_recovered() {
    // Each doubling of x adds 40 % up to x = 10, which is not a step of the ladder, and 10 % above
    // it.
    let rate = |x: &f64| {
        let doublings = x.log2() - 10_f64.log2();
        7.0 * if doublings < 0.0 { 1.4_f64 } else { 1.1 }.powf(doublings)
    };
    let rates: Vec<f64> = STEPS.iter().map(rate).collect();
    let s = knee(&STEPS, &rates, Better::More, 0.02).unwrap().segmented.unwrap();
    near(s.x, 10.0, 1e-3);
    near(s.y, 7.0, 1e-3);
    near(s.slope_before, 1.4_f64.ln(), 1e-4);
    near(s.slope_after, 1.1_f64.ln(), 1e-4);
}

#[test]
fn the_walk_of_source_001() {
    let k = knee(&STEPS, &WALK_S, Better::Less, 0.05).unwrap();
    assert_eq!((k.first_flat, k.near_best, k.best), (Some(16.0), 16.0, 16.0));
    let s = k.segmented.unwrap();
    assert!(s.x > 7.0 && s.x < 16.0, "{s:?}");
    assert!(s.slope_before < -0.5 && s.slope_after.abs() < 0.05, "{s:?}");
}

#[test]
fn a_ladder_without_an_end() {
    let k = knee(&STEPS, &STEPS, Better::More, 0.02).unwrap();
    assert_eq!((k.first_flat, k.near_best, k.best), (None, 256.0, 256.0));
    assert!(k.segmented.unwrap().explained < 0.01);
    let flat = [5.0; 9];
    let k = knee(&STEPS, &flat, Better::More, 0.0).unwrap();
    assert_eq!((k.first_flat, k.near_best, k.best), (Some(1.0), 1.0, 1.0));
    assert_eq!(k.segmented.unwrap().explained, 0.0);
}

#[test]
fn a_rate_that_falls_again() {
    let rate = [1.0, 1.9, 3.0, 2.9, 2.0];
    let k = knee(&STEPS[..5], &rate, Better::More, 0.05).unwrap();
    assert_eq!((k.first_flat, k.near_best, k.best), (Some(4.0), 4.0, 4.0));
    assert!(knee(&STEPS[..4], &rate[..4], Better::More, 0.05).unwrap().segmented.is_none());
}

#[test]
fn noise_moves_the_bend_by_less_than_a_step() {
    let mut noise = Noise::new(2);
    for _ in 0..50 {
        let time: Vec<f64> =
            STEPS.iter().map(|x| 10.0 / x.min(8.0) * noise.lognormal(0.02)).collect();
        let s = knee(&STEPS, &time, Better::Less, 0.05).unwrap().segmented.unwrap();
        assert!(s.x > 5.0 && s.x < 13.0, "{s:?}");
    }
}

#[test]
fn invalid_ladders_are_refused() {
    let order = knee(&[1., 3., 2.], &[1., 2., 3.], Better::More, 0.1).unwrap_err();
    assert_eq!(order.to_string(), "x of a ladder is 2; it must be above the x before it");
    let noise = knee(&[1., 2., 3.], &[1., 2., 3.], Better::More, -0.1).unwrap_err();
    assert!(matches!(noise, StatsError::OutOfRange { what: "noise of a ladder", .. }));
    assert!(knee(&[0., 2., 3.], &[1., 2., 3.], Better::More, 0.1).is_err());
    assert!(knee(&[1., 2.], &[1., 2.], Better::More, 0.1).is_err());
}
