//! Tail probabilities compared with SciPy 1.17.1 (scipy.stats.norm, scipy.stats.t) and statrs.

use crate::golden::near;
use ioloom_stats::tails::{normal_below, normal_two_sided, student_two_sided};
use proptest::prelude::*;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

#[test]
fn normal_matches_scipy() {
    let cases = [
        (-3.5, 0.000_232_629_079_035_525_02),
        (-3.0, 0.001_349_898_031_630_093_3),
        (-1.0, 0.158_655_253_931_457_07),
        (0.0, 0.5),
        (0.5, 0.691_462_461_274_013_1),
        (2.0, 0.977_249_868_051_820_8),
        (3.0, 0.998_650_101_968_369_9),
        (4.0, 0.999_968_328_758_166_9),
    ];
    for (x, golden) in cases {
        near(normal_below(x), golden, 1e-14);
    }
    assert!((normal_below(-8.0) / 6.220_960_574_271_74e-16 - 1.0).abs() < 1e-12);
    near(normal_two_sided(-1.959_963_984_540_054), 0.05, 1e-14);
}

#[test]
fn student_matches_scipy() {
    let cases = [
        (2.0, 1, 0.295_167_235_300_866_5),
        (2.0, 2, 0.183_503_419_072_273_97),
        (2.5, 5, 0.054_490_099_342_376_26),
        (2.5, 10, 0.031_446_844_236_608_82),
        (-3.3, 11, 0.007_077_990_164_459_755),
        (0.3, 30, 0.766_246_105_284_352_8),
    ];
    for (t, freedom, golden) in cases {
        near(student_two_sided(t, freedom), golden, 1e-12);
    }
    assert!(student_two_sided(1.0, 0).is_nan());
    assert_eq!(student_two_sided(f64::INFINITY, 3), 0.0);
}

proptest! {
    #[test]
    fn tails_agree_with_statrs(x in -8.0..8.0_f64, freedom in 1_u32..60) {
        let normal = Normal::new(0.0, 1.0).unwrap();
        prop_assert!((normal_below(x) - normal.cdf(x)).abs() < 1e-10);
        let student = StudentsT::new(0.0, 1.0, f64::from(freedom)).unwrap();
        let oracle = 2.0 * student.cdf(-x.abs());
        prop_assert!((student_two_sided(x, freedom) - oracle).abs() < 1e-9);
    }
}
