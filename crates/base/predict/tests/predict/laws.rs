//! Properties of the closed-form laws.

use crate::{near, reader_s, synchronous_s};
use ioloom_predict::{WalkModel, Workload};
use proptest::prelude::*;

#[test]
fn without_waiting_a_reader_never_pays_off() {
    assert!(Workload::new(5.0, 0.0).unwrap().break_even_threads().is_infinite());
}

#[test]
fn invalid_numbers_are_refused_by_name() {
    let e = Workload::new(-1.0, 0.0).unwrap_err();
    assert_eq!(e.to_string(), "total compute is -1; it must be a finite number of at least 0");
    assert!(Workload::new(0.0, f64::NAN).is_err());
    let walk = WalkModel {
        cpu_s: 1.0,
        device_s: 1.0,
        contention: 0.0,
        interleave: 0.0,
        interleave_half_threads: 28.0,
    };
    assert!(walk.elapsed_s(0).is_err());
    assert!(WalkModel { contention: -0.1, ..walk }.elapsed_s(1).is_err());
    near(walk.elapsed_s(1).unwrap(), 2.0, 1e-12);
}

proptest! {
    #[test]
    fn a_reader_pays_off_beyond_the_break_even(
        compute in 0.001..10.0_f64, wait in 0.001..10.0_f64, n in 2_u32..64
    ) {
        let work = Workload::new(compute, wait).unwrap();
        let even = work.break_even_threads();
        prop_assume!((even - f64::from(n)).abs() > 1e-6);
        prop_assert_eq!(reader_s(&work, n) < synchronous_s(&work, n), f64::from(n) > even);
    }
}
