//! The laws against the published times of seeds 000 and 001.

use crate::near;
use ioloom_predict::{DeviceLimits, Limit, WalkModel, Work, little};

/// Milliseconds as seconds.
fn ms(ms: f64) -> f64 {
    ms / 1e3
}

#[test]
fn work_from_the_pair_at_four_threads() {
    // 50 files with long compute: 222.35 ms synchronous, 234.46 ms with a reader.
    let work = Work::from_pair(4, ms(222.35), ms(234.46)).unwrap();
    near(work.compute_s, ms(703.0), ms(0.5));
    near(work.read_wait_s, ms(186.0), ms(0.5));
    near(work.reader_gain_s(4, 0.0), ms(-12.11), 1e-9);
}

#[test]
fn gains_at_five_to_eight_threads_come_from_the_pair_at_four() {
    let work = Work::from_pair(4, ms(222.35), ms(234.46)).unwrap();
    for (n, gain) in [(5, 2.0), (6, 7.6), (7, 9.8), (8, 10.7)] {
        near(work.reader_gain_s(n, 0.0), ms(gain), ms(0.06));
    }
    // Published: 4 threads lose 12.11 ms, 5 gain 4.49 ms. The law puts the change between them.
    let even = work.break_even_threads();
    assert!(even > 4.0 && even < 5.0, "{even}");
    assert_eq!(work.first_paying_threads(0.0, 32), Some(5));
    // Times themselves, synchronous and with a reader: within 20 % of what was published.
    let published =
        [(5, 189.62, 185.13), (6, 159.82, 152.16), (7, 141.92, 128.93), (8, 133.60, 118.21)];
    for (n, sync, reader) in published {
        near(work.sync_s(n) / ms(sync), 1.0, 0.2);
        near(work.reader_s(n, 0.0) / ms(reader), 1.0, 0.2);
    }
}

#[test]
fn the_pair_with_short_compute() {
    // Published for 50 files of 1 MiB at 4 threads: 28.33 ms synchronous, 21.62 ms with a reader.
    let work = Work::new(ms(62.3), ms(51.0)).unwrap();
    near(work.sync_s(4), ms(28.33), ms(0.01));
    near(work.reader_s(4, 0.0), ms(20.8), ms(0.04));
    near(work.reader_s(4, 0.0) / ms(21.62), 1.0, 0.05);
}

#[test]
fn the_crossing_is_found_from_the_pair_before_it() {
    // Compute of 4.88 ms in the mean: 131.46 against 118.83 ms, the reader wins. Its waiting puts
    // the crossing between that compute and the longer one for which synchronous threads win.
    let before = Work::from_pair(4, ms(131.46), ms(118.83)).unwrap();
    let after = Work::from_pair(4, ms(222.35), ms(234.46)).unwrap();
    let crossing = before.break_even_compute_s(4).unwrap();
    assert!(before.compute_s < crossing && crossing < after.compute_s, "{crossing}");
}

#[test]
fn latency_grows_with_the_number_overlapped() {
    // 40 files of 512 MiB at once: the device serves 40 / 38.461 files a second, so the last one
    // takes 38.461 s; alone it takes 0.96172 s.
    let rate = 40.0 / 38.461;
    near(little::latency_s(40.0, rate), 38.461, 1e-9);
    near(little::latency_s(1.0, rate) / 0.961_72, 1.0, 0.001);
    near(little::in_flight(rate, 38.461), 40.0, 1e-9);
}

#[test]
fn large_files_stand_at_the_bandwidth() {
    // 20 GiB in 38.461 s give the bandwidth; 4999.64 MiB took 9377.56 ms with 1 thread and
    // 9382.31 ms with 16.
    let mib = f64::from(1 << 20);
    let device = DeviceLimits::new(20.0 * 1024.0 * mib / 38.461, None).unwrap();
    near(device.bytes_per_s / mib, 532.5, 0.1);
    let bytes = (4999.64 * mib) as u64;
    let bound = device.job(bytes, 10_000, 10_000.0 * 390.625e-6, 16).unwrap();
    assert_eq!(bound.limit, Limit::Bandwidth);
    near(bound.gap(9.377_56), 0.0, 0.002);
    near(bound.gap(9.382_31), 0.0, 0.002);
}

/// Threads of seed 001.
const THREADS: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// A medium: its fitted demands, the published times, and the times of an earlier fit that was made
/// with other code.
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
    // stick on USB 2
    Medium {
        cpu_s: 33.2,
        device_s: 56.4,
        interleave: 0.196,
        published_s: [87.22, 66.68, 58.99, 54.05, 57.75, 63.22, 66.49, 66.63, 67.44],
        fitted_s: [89.62, 62.99, 56.87, 57.26, 59.15, 62.70, 65.72, 67.00, 67.37],
    },
    // stick on USB 3.2
    Medium {
        cpu_s: 15.2,
        device_s: 23.5,
        interleave: 0.0,
        published_s: [39.68, 25.27, 25.33, 22.57, 23.57, 22.46, 22.72, 25.15, 24.03],
        fitted_s: [38.75, 26.70, 23.66, 23.54, 23.54, 23.54, 23.54, 23.54, 23.54],
    },
];

#[test]
fn the_walk_of_seed_001() {
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
            // The parameters are rounded to three digits.
            near(predicted / medium.fitted_s[i], 1.0, 0.002);
            errors.push((predicted / medium.published_s[i] - 1.0).abs());
        }
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let worst = errors.iter().copied().fold(0.0, f64::max);
    near(mean, 0.0241, 0.0005);
    near(worst, 0.066, 0.002);
}
