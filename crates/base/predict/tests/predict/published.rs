//! The laws compared with the published times of sources 000 and 001.

use crate::{near, reader_s, synchronous_s};
use ioloom_predict::{WalkModel, Workload};

/// Converts milliseconds to seconds.
fn ms(ms: f64) -> f64 {
    ms / 1e3
}

/// Solves law D1 for the workload, from the published times at 4 threads.
fn from_pair_at_4(synchronous_ms: f64, reader_ms: f64) -> Workload {
    let compute_s = 3.0 * ms(reader_ms);
    Workload::new(compute_s, 4.0 * ms(synchronous_ms) - compute_s).unwrap()
}

#[test]
fn the_pair_at_four_threads_predicts_five_to_eight() {
    // 50 files with long compute: 222.35 ms synchronous, 234.46 ms with a reader.
    let work = from_pair_at_4(222.35, 234.46);
    near(work.compute_s, ms(703.0), ms(0.5));
    near(work.read_wait_s, ms(186.0), ms(0.5));
    for (n, gain) in [(5, 2.0), (6, 7.6), (7, 9.8), (8, 10.7)] {
        near(synchronous_s(&work, n) - reader_s(&work, n), ms(gain), ms(0.06));
    }
    // Published: a reader loses 12.11 ms with 4 threads and gains 4.49 ms with 5. The law places
    // the break-even point between them.
    let even = work.break_even_threads();
    assert!(even > 4.0 && even < 5.0, "{even}");
    // The predicted times are within 20 % of the published ones.
    let published =
        [(5, 189.62, 185.13), (6, 159.82, 152.16), (7, 141.92, 128.93), (8, 133.60, 118.21)];
    for (n, synchronous, reader) in published {
        near(synchronous_s(&work, n) / ms(synchronous), 1.0, 0.2);
        near(reader_s(&work, n) / ms(reader), 1.0, 0.2);
    }
}

#[test]
fn the_pair_with_short_compute() {
    // Published for 50 files of 1 MiB at 4 threads: 28.33 ms synchronous, 21.62 ms with a reader.
    let work = Workload::new(ms(62.3), ms(51.0)).unwrap();
    near(synchronous_s(&work, 4), ms(28.33), ms(0.01));
    near(reader_s(&work, 4), ms(20.8), ms(0.04));
    near(reader_s(&work, 4) / ms(21.62), 1.0, 0.05);
    assert!(work.break_even_threads() < 4.0);
}

/// Thread counts of source 001.
const THREADS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// A medium: fitted demands, published times, and times from an earlier fit with independent code.
struct Medium {
    cpu_s: f64,
    device_s: f64,
    interleave: f64,
    published_s: [f64; 9],
    fitted_s: [f64; 9],
}

const MEDIA: [Medium; 4] = [
    // NVMe
    Medium {
        cpu_s: 29.8,
        device_s: 6.12,
        interleave: 0.0,
        published_s: [36.14, 19.00, 11.07, 7.19, 6.00, 6.06, 6.08, 6.15, 6.35],
        fitted_s: [35.92, 19.22, 10.99, 7.19, 6.15, 6.12, 6.12, 6.12, 6.12],
    },
    // hard disk
    Medium {
        cpu_s: 45.6,
        device_s: 103.7,
        interleave: 0.351,
        published_s: [149.83, 110.02, 108.61, 102.38, 112.52, 124.47, 139.83, 135.01, 138.10],
        fitted_s: [149.33, 111.21, 104.51, 106.38, 112.59, 124.24, 134.17, 138.36, 139.59],
    },
    // USB 2 flash drive
    Medium {
        cpu_s: 33.2,
        device_s: 56.4,
        interleave: 0.196,
        published_s: [87.22, 66.68, 58.99, 54.05, 57.75, 63.22, 66.49, 66.63, 67.44],
        fitted_s: [89.62, 62.99, 56.87, 57.26, 59.15, 62.70, 65.72, 67.00, 67.37],
    },
    // USB 3.2 flash drive
    Medium {
        cpu_s: 15.2,
        device_s: 23.5,
        interleave: 0.0,
        published_s: [39.68, 25.27, 25.33, 22.57, 23.57, 22.46, 22.72, 25.15, 24.03],
        fitted_s: [38.75, 26.70, 23.66, 23.54, 23.54, 23.54, 23.54, 23.54, 23.54],
    },
];

#[test]
fn the_walk_of_source_001() {
    let mut errors = Vec::new();
    for medium in &MEDIA {
        let model = WalkModel {
            cpu_s: medium.cpu_s,
            device_s: medium.device_s,
            contention: 0.06,
            interleave: medium.interleave,
            interleave_half_threads: 28.0,
        };
        for (i, threads) in THREADS.into_iter().enumerate() {
            let predicted = model.elapsed_s(threads).unwrap();
            // The parameters are rounded to three significant digits.
            near(predicted / medium.fitted_s[i], 1.0, 0.002);
            errors.push((predicted / medium.published_s[i] - 1.0).abs());
        }
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let worst = errors.iter().copied().fold(0.0, f64::max);
    near(mean, 0.0241, 0.0005);
    near(worst, 0.066, 0.002);
}
