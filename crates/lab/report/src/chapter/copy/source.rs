//! The published copies of source 003.

use crate::input::Input;

/// Column of the buffered copies of the 64-bit program.
pub(super) const BUFFERED: &str = "buffered_64_s";
/// Column of the unbuffered copies of the 64-bit program.
pub(super) const UNBUFFERED: &str = "unbuffered_64_s";

/// A published series of copies.
pub(super) struct Series {
    /// Column of the published table.
    pub(super) column: &'static str,
    /// Display name.
    pub(super) name: &'static str,
    /// Whether the copies bypassed the cache.
    pub(super) direct: bool,
}

/// The published series in the order of the table.
pub(super) const SERIES: [Series; 4] = [
    Series { column: BUFFERED, name: "buffered, 64 bit", direct: false },
    Series { column: UNBUFFERED, name: "unbuffered, 64 bit", direct: true },
    Series { column: "buffered_32_s", name: "buffered, 32 bit", direct: false },
    Series { column: "unbuffered_32_s", name: "unbuffered, 32 bit", direct: true },
];

/// Fraction of a series that the published mean excludes at each end.
pub(super) const PUBLISHED_CUT: f64 = 1.0 / 3.0;

/// Returns a published column in seconds; empty without the table.
pub(super) fn column(input: &Input, name: &str) -> Vec<f64> {
    let Some(table) = input.published.get("003_runs") else { return Vec::new() };
    let Some(at) = table.columns.iter().position(|c| c == name) else { return Vec::new() };
    table.rows.iter().filter_map(|row| row[at].parse().ok()).collect()
}
