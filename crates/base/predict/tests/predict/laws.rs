//! Properties of the closed forms.

use crate::near;
use ioloom_predict::{DeviceLimits, Limit, PredictError, WalkModel, Work, little};
use proptest::prelude::*;

#[test]
fn one_thread_cannot_be_a_reader_and_compute() {
    let work = Work::new(1.0, 1.0).unwrap();
    assert!(work.reader_s(1, 0.0).is_infinite() && work.sync_s(0).is_infinite());
    assert_eq!(work.break_even_compute_s(1), None);
    assert!(Work::from_pair(1, 1.0, 1.0).is_err());
}

#[test]
fn the_device_limits_the_reader() {
    // 1 s of compute, 8 s of waiting, and a device that needs 2 s: from 2 threads the reader
    // takes 2 s; synchronous threads get there only with 5.
    let work = Work::new(1.0, 8.0).unwrap();
    near(work.reader_s(2, 2.0), 2.0, 1e-12);
    near(work.reader_s(9, 2.0), 2.0, 1e-12);
    assert_eq!(work.first_paying_threads(2.0, 32), Some(2));
    assert!(work.reader_gain_s(5, 2.0) < 0.0);
    // A device slower than everything: never.
    assert_eq!(work.first_paying_threads(20.0, 32), None);
    // Without waiting there is nothing to save.
    let computing = Work::new(5.0, 0.0).unwrap();
    assert!(computing.break_even_threads().is_infinite());
    assert_eq!(computing.first_paying_threads(0.0, 64), None);
}

#[test]
fn bad_numbers_are_refused_with_their_name() {
    let e = Work::new(-1.0, 0.0).unwrap_err();
    assert_eq!(e.to_string(), "total compute is -1; it must be a finite number of at least 0");
    assert!(Work::new(0.0, f64::NAN).is_err());
    // A pair that would need waiting of less than nothing.
    assert!(Work::from_pair(4, 1.0, 2.0).is_err());
    assert!(matches!(
        DeviceLimits::new(0.0, None).unwrap_err(),
        PredictError::OutOfRange { what: "bandwidth", .. }
    ));
    assert!(DeviceLimits::new(1.0, Some(-1.0)).is_err());
    let device = DeviceLimits::new(1.0, None).unwrap();
    assert!(device.job(1, 1, 1.0, 0).is_err());
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

#[test]
fn interleaving_starts_at_none_and_grows_to_all() {
    let walk = WalkModel {
        cpu_s: 1.0,
        device_s: 100.0,
        contention: 0.06,
        interleave: 0.5,
        interleave_half_threads: 28.0,
    };
    near(walk.device_s_with(1), 100.0, 1e-12);
    // h(1) = 1 / (1 + 28²) is taken off, so that one thread loses nothing.
    let lost_at_one = 50.0 / 785.0;
    near(walk.device_s_with(28), 125.0 - lost_at_one, 1e-3);
    near(walk.device_s_with(100_000), 150.0 - lost_at_one, 1e-3);
}

#[test]
fn each_limit_can_be_the_one() {
    let device = DeviceLimits::new(100.0, Some(10.0)).unwrap();
    let job = |bytes, requests, compute| device.job(bytes, requests, compute, 2).unwrap();
    assert_eq!((job(1000, 1, 1.0).limit, job(1000, 1, 1.0).least_s), (Limit::Bandwidth, 10.0));
    assert_eq!((job(10, 50, 1.0).limit, job(10, 50, 1.0).least_s), (Limit::Requests, 5.0));
    assert_eq!((job(10, 1, 8.0).limit, job(10, 1, 8.0).least_s), (Limit::Compute, 4.0));
    near(job(10, 1, 8.0).gap(5.0), 0.25, 1e-12);
}

#[test]
fn a_window_holds_rate_times_latency() {
    // 10 000 requests a second at 800 µs each: 8 in flight.
    assert_eq!(little::window_for_rate(10_000.0, 800e-6), 8);
    assert_eq!(little::window_for_rate(10_000.0, 801e-6), 9);
    assert_eq!(little::window_for_rate(1.0, 1e-6), 1);
    near(little::rate_per_s(8.0, 800e-6), 10_000.0, 1e-6);
}

proptest! {
    #[test]
    fn the_reader_pays_beyond_the_break_even(
        compute in 0.001..10.0_f64, wait in 0.001..10.0_f64, n in 2_u32..64
    ) {
        let work = Work::new(compute, wait).unwrap();
        let even = work.break_even_threads();
        prop_assume!((even - f64::from(n)).abs() > 1e-6);
        prop_assert_eq!(work.reader_gain_s(n, 0.0) > 0.0, f64::from(n) > even);
        // The same crossing, seen from the compute.
        let crossing = work.break_even_compute_s(n).unwrap();
        prop_assert_eq!(compute < crossing, f64::from(n) > even);
    }

    #[test]
    fn a_pair_gives_back_its_work(
        compute in 0.1..10.0_f64, wait in 0.0..10.0_f64, n in 2_u32..64
    ) {
        let work = Work::new(compute, wait).unwrap();
        let again = Work::from_pair(n, work.sync_s(n), work.reader_s(n, 0.0));
        // Without any waiting rounding may leave a little less than none, which is refused.
        prop_assume!(wait > 1e-6);
        let again = again.unwrap();
        prop_assert!((again.compute_s - compute).abs() < 1e-9);
        prop_assert!((again.read_wait_s - wait).abs() < 1e-9);
    }

    #[test]
    fn no_job_beats_its_bound(
        bytes in 0_u64..1 << 40, requests in 1_u64..1_000_000, compute in 0.0..1e4_f64, cores in 1_u32..64
    ) {
        let device = DeviceLimits::new(5e8, Some(1e5)).unwrap();
        let bound = device.job(bytes, requests, compute, cores).unwrap();
        prop_assert!(bound.least_s >= device.least_s(bytes, requests));
        prop_assert!(bound.least_s >= bytes as f64 / 5e8 && bound.least_s >= requests as f64 / 1e5);
        prop_assert!(bound.least_s >= compute / f64::from(cores));
        let more = device.job(bytes, requests, compute, cores + 1).unwrap();
        prop_assert!(more.least_s <= bound.least_s);
    }
}
