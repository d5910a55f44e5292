//! The histogram compared with hdrhistogram and with sorting.

use ioloom_stats::Histogram;
use proptest::prelude::*;

/// Maximum relative error of quantiles.
const ERROR_MAX: f64 = 1.0 / 64.0;

fn table(values: &[u64]) -> Histogram {
    let mut table = Histogram::new();
    values.iter().for_each(|v| table.record(*v));
    table
}

/// Durations over the whole range, with a random number of bits.
fn durations() -> impl Strategy<Value = Vec<u64>> {
    let one = (0_u32..46).prop_flat_map(|bits| 0_u64..(1 << (bits + 1)));
    proptest::collection::vec(one, 1..400)
}

#[test]
fn an_empty_histogram_has_zeros() {
    let empty = Histogram::new();
    assert_eq!(empty.quantile_ns(0.5), 0);
    assert_eq!((empty.min_ns(), empty.max_ns(), empty.count()), (0, 0, 0));
}

#[test]
fn durations_beyond_the_range_keep_their_maximum() {
    let table = table(&[u64::MAX, 1 << 60, 3]);
    assert_eq!((table.min_ns(), table.max_ns(), table.count()), (3, u64::MAX, 3));
    assert_eq!(table.sum_ns(), u64::MAX);
    assert_eq!(table.quantile_ns(1.0), u64::MAX);
    assert!(table.quantile_ns(0.9) >= (1 << 47));
}

#[test]
fn a_full_bucket_saturates() {
    let mut table = Histogram::new();
    table.record(100);
    for _ in 0..33 {
        let copy = table.clone();
        table.merge(&copy);
    }
    assert_eq!(table.count(), 1 << 33);
    assert_eq!(table.sum_ns(), 100 << 33);
    table.record(100);
    assert_eq!(table.count(), (1 << 33) + 1);
    assert_eq!(table.quantile_ns(0.5), 100);
}

proptest! {
    #[test]
    fn quantiles_agree_with_sorting(values in durations(), q in 0.0..=1.0_f64) {
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
        let exact = if q == 1.0 { sorted[values.len() - 1] } else { sorted[rank - 1] } as f64;
        let found = table(&values).quantile_ns(q) as f64;
        prop_assert!((found - exact).abs() <= ERROR_MAX * exact, "{found} for {exact}");
    }

    #[test]
    fn quantiles_agree_with_hdrhistogram(values in durations(), q in 0.001..1.0_f64) {
        let mut oracle = hdrhistogram::Histogram::<u64>::new(3).unwrap();
        values.iter().for_each(|v| oracle.record(*v).unwrap());
        let found = table(&values).quantile_ns(q) as f64;
        let exact = oracle.value_at_quantile(q) as f64;
        // Our bound plus the oracle's third digit.
        prop_assert!((found - exact).abs() <= (ERROR_MAX + 0.002) * exact, "{found} for {exact}");
    }

    #[test]
    fn count_sum_and_extremes_are_exact(values in durations()) {
        let table = table(&values);
        prop_assert_eq!(table.count(), values.len() as u64);
        prop_assert_eq!(table.sum_ns(), values.iter().sum::<u64>());
        prop_assert_eq!(table.min_ns(), *values.iter().min().unwrap());
        prop_assert_eq!(table.max_ns(), *values.iter().max().unwrap());
        prop_assert_eq!(table.quantile_ns(0.0), table.min_ns());
        prop_assert_eq!(table.quantile_ns(1.0), table.max_ns());
    }

    #[test]
    fn merging_equals_recording_together(left in durations(), right in durations()) {
        let mut merged = table(&left);
        merged.merge(&table(&right));
        let together = table(&[left, right].concat());
        prop_assert!(merged == together);
    }

    #[test]
    fn quantiles_never_fall(values in durations()) {
        let table = table(&values);
        let ladder: Vec<u64> = (0..=50).map(|i| table.quantile_ns(f64::from(i) / 50.0)).collect();
        prop_assert!(ladder.is_sorted());
    }
}
