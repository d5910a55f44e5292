//! Percentiles of latencies.

use crate::tally::Table;
use serde::Serialize;

/// Latencies in nanoseconds; all zero if there were no samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Number of samples.
    pub count: u64,
    /// Minimum.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// 99.99th percentile.
    pub p9999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

impl From<&Table> for Latency {
    fn from(table: &Table) -> Self {
        if table.is_empty() {
            return Self::default();
        }
        let quantile = |q| table.value_at_quantile(q);
        Self {
            count: table.len(),
            min_ns: table.min(),
            mean_ns: table.mean(),
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            p9999_ns: quantile(0.9999),
            max_ns: table.max(),
        }
    }
}
