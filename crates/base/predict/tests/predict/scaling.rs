//! Fits recover known parameters and match the published tables within known errors.

use ioloom_predict::scaling::{Point, Usl, WalkFit};
use ioloom_predict::{PredictError, WalkModel};
use proptest::prelude::*;

const THREADS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The published times of source 001: NVMe, hard disk, USB 2 and USB 3.2 flash drives.
const MEDIA: [[f64; 9]; 4] = [
    [36.14, 19.00, 11.07, 7.19, 6.00, 6.06, 6.08, 6.15, 6.35],
    [149.83, 110.02, 108.61, 102.38, 112.52, 124.47, 139.83, 135.01, 138.10],
    [87.22, 66.68, 58.99, 54.05, 57.75, 63.22, 66.49, 66.63, 67.44],
    [39.68, 25.27, 25.33, 22.57, 23.57, 22.46, 22.72, 25.15, 24.03],
];

fn ladder(times: &[f64; 9]) -> Vec<Point> {
    THREADS.into_iter().zip(times.iter().copied()).collect()
}

#[test]
fn the_law_recovers_its_parameters() {
    let made = |n: f64| 30.0 * (1.0 + 0.1 * (n - 1.0) + 0.002 * n * (n - 1.0)) / n;
    let points: Vec<Point> = THREADS.map(|n| (n, made(f64::from(n)))).to_vec();
    let usl = Usl::fit(&points).unwrap();
    assert!((usl.one_s - 30.0).abs() < 1e-6, "{usl:?}");
    assert!((usl.sigma - 0.1).abs() < 1e-9 && (usl.kappa - 0.002).abs() < 1e-9, "{usl:?}");
    assert!(usl.errors.rms < 1e-9);
    // Its minimum is at sqrt((1 - sigma) / kappa).
    assert!((usl.best_threads().unwrap() - (0.9f64 / 0.002).sqrt()).abs() < 1e-6);
    for (n, seconds) in points {
        assert!((usl.elapsed_s(n) / seconds - 1.0).abs() < 1e-9);
    }
}

#[test]
fn negative_parameters_are_held_at_zero() {
    // Superlinear speedup, which no serial share explains.
    let points = [(1, 10.0), (2, 4.0), (4, 1.6), (8, 0.7), (16, 0.3)];
    let usl = Usl::fit(&points).unwrap();
    assert_eq!((usl.sigma, usl.kappa, usl.best_threads()), (0.0, 0.0, None));
    assert!(usl.errors.worst > 0.2, "the errors show that the law does not fit: {usl:?}");
}

#[test]
fn the_network_recovers_the_times_of_a_network() {
    let model = WalkModel {
        cpu_s: 30.0,
        device_s: 6.0,
        contention: 0.06,
        interleave: 0.2,
        interleave_half_threads: 28.0,
    };
    let points: Vec<Point> = THREADS.map(|n| (n, model.elapsed_s(n).unwrap())).to_vec();
    let fit = WalkFit::fit(&points).unwrap();
    assert!(fit.errors.worst < 0.01, "{fit:?}");
    assert!((fit.model.cpu_s / 30.0 - 1.0).abs() < 0.05, "{fit:?}");
    assert!((fit.model.device_s / 6.0 - 1.0).abs() < 0.05, "{fit:?}");
}

#[test]
fn the_network_fits_the_published_media_better_than_the_law() {
    for (i, times) in MEDIA.iter().enumerate() {
        let points = ladder(times);
        let (usl, fit) = (Usl::fit(&points).unwrap(), WalkFit::fit(&points).unwrap());
        assert!(fit.errors.rms < 0.05, "medium {i}: {fit:?}");
        assert!(fit.errors.rms < usl.errors.rms, "medium {i}: {usl:?} {fit:?}");
        assert_eq!(usl.errors.each.len(), 9);
    }
    // The law has no term for a single-server device behind a fast processor. On the fast medium it
    // attributes the wait for the device to a serial share.
    let nvme = Usl::fit(&ladder(&MEDIA[0])).unwrap();
    assert!((0.08..0.2).contains(&nvme.sigma), "{nvme:?}");
}

#[test]
fn too_few_or_invalid_points_are_refused() {
    for points in [vec![(1, 1.0), (2, 0.6), (4, 0.5)], vec![(1, 1.0), (2, 0.6), (4, 0.5), (8, 0.0)]]
    {
        assert!(matches!(Usl::fit(&points), Err(PredictError::OutOfRange { .. })));
        assert!(matches!(WalkFit::fit(&points), Err(PredictError::OutOfRange { .. })));
    }
}

proptest! {
    #[test]
    fn any_ladder_is_fitted_with_parameters_of_at_least_zero(
        times in proptest::collection::vec(0.01f64..1e4, 4..9),
    ) {
        let points: Vec<Point> = THREADS.into_iter().zip(times).collect();
        let usl = Usl::fit(&points).unwrap();
        prop_assert!(usl.one_s > 0.0 && usl.sigma >= 0.0 && usl.kappa >= 0.0);
        prop_assert!(usl.errors.worst >= usl.errors.rms * 0.999);
    }
}
