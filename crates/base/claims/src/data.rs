//! The published tables of the seeds, compiled in.
//!
//! Each table is a CSV under `claims/data/` with one header line, no comments and no quotes; a cell
//! is a number exactly as it was printed, or a word. Nothing in them is computed, so that a test
//! can hold every number against the published text. A number is named by
//! `TABLE[CELL,CELL].COLUMN`: the row whose first cells are the given ones.

use crate::ClaimsError;

/// Name and text of every table.
pub const TABLES: &[(&str, &str)] = &[
    ("000_call_cost", include_str!("../../../../claims/data/000_call_cost.csv")),
    ("000_call_growth", include_str!("../../../../claims/data/000_call_growth.csv")),
    ("000_fault_share", include_str!("../../../../claims/data/000_fault_share.csv")),
    ("000_large_calls_end", include_str!("../../../../claims/data/000_large_calls_end.csv")),
    ("000_large_threads", include_str!("../../../../claims/data/000_large_threads.csv")),
    ("000_million", include_str!("../../../../claims/data/000_million.csv")),
    ("000_mmap_large", include_str!("../../../../claims/data/000_mmap_large.csv")),
    ("000_mmap_small", include_str!("../../../../claims/data/000_mmap_small.csv")),
    ("000_mmap_task", include_str!("../../../../claims/data/000_mmap_task.csv")),
    ("000_overlap", include_str!("../../../../claims/data/000_overlap.csv")),
    ("000_overlap_terms", include_str!("../../../../claims/data/000_overlap_terms.csv")),
    ("000_roles", include_str!("../../../../claims/data/000_roles.csv")),
    ("000_sets", include_str!("../../../../claims/data/000_sets.csv")),
    ("000_shares", include_str!("../../../../claims/data/000_shares.csv")),
    ("000_small_task", include_str!("../../../../claims/data/000_small_task.csv")),
    ("000_small_threads", include_str!("../../../../claims/data/000_small_threads.csv")),
    ("000_sync_overlapped", include_str!("../../../../claims/data/000_sync_overlapped.csv")),
    ("001_terms", include_str!("../../../../claims/data/001_terms.csv")),
    ("001_walk", include_str!("../../../../claims/data/001_walk.csv")),
    ("002_cache_levels", include_str!("../../../../claims/data/002_cache_levels.csv")),
    ("002_caches", include_str!("../../../../claims/data/002_caches.csv")),
    ("002_cat", include_str!("../../../../claims/data/002_cat.csv")),
    ("002_dd", include_str!("../../../../claims/data/002_dd.csv")),
    ("002_free", include_str!("../../../../claims/data/002_free.csv")),
    ("002_ladder", include_str!("../../../../claims/data/002_ladder.csv")),
    ("002_sar_device_read", include_str!("../../../../claims/data/002_sar_device_read.csv")),
    (
        "002_sar_device_write_buffered",
        include_str!("../../../../claims/data/002_sar_device_write_buffered.csv"),
    ),
    (
        "002_sar_device_write_direct",
        include_str!("../../../../claims/data/002_sar_device_write_direct.csv"),
    ),
    ("002_sar_memory", include_str!("../../../../claims/data/002_sar_memory.csv")),
    ("002_sar_paging_read", include_str!("../../../../claims/data/002_sar_paging_read.csv")),
    (
        "002_sar_paging_write_buffered",
        include_str!("../../../../claims/data/002_sar_paging_write_buffered.csv"),
    ),
    (
        "002_sar_paging_write_direct",
        include_str!("../../../../claims/data/002_sar_paging_write_direct.csv"),
    ),
    ("002_sharing", include_str!("../../../../claims/data/002_sharing.csv")),
    ("002_smt", include_str!("../../../../claims/data/002_smt.csv")),
    ("002_sysctl", include_str!("../../../../claims/data/002_sysctl.csv")),
    ("003_large", include_str!("../../../../claims/data/003_large.csv")),
    ("003_large_terms", include_str!("../../../../claims/data/003_large_terms.csv")),
    ("003_means", include_str!("../../../../claims/data/003_means.csv")),
    ("003_runs", include_str!("../../../../claims/data/003_runs.csv")),
    ("004_exchange", include_str!("../../../../claims/data/004_exchange.csv")),
    ("004_peers", include_str!("../../../../claims/data/004_peers.csv")),
];

/// A table: a header and rows of as many cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns, units last.
    pub header: Vec<String>,
    /// Rows as printed.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Reads a table; every row has as many cells as the header.
    ///
    /// # Errors
    /// An empty text, or a row with another number of cells.
    pub fn parse(name: &str, text: &str) -> Result<Self, ClaimsError> {
        let cells = |line: &str| line.split(',').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
        let wrong = |reason: String| ClaimsError::Table { table: name.to_owned(), reason };
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let header = cells(lines.next().ok_or_else(|| wrong("it is empty".to_owned()))?);
        let rows: Vec<_> = lines.map(cells).collect();
        match rows.iter().find(|row| row.len() != header.len()) {
            None => Ok(Self { header, rows }),
            Some(row) => Err(wrong(format!(
                "row '{}' has {} cells and the header {}",
                row.join(","),
                row.len(),
                header.len()
            ))),
        }
    }
}

/// A published table by name.
///
/// # Errors
/// No such table.
pub fn table(name: &str) -> Result<Table, ClaimsError> {
    let found = TABLES.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| ClaimsError::Table {
        table: name.to_owned(),
        reason: "there is no such table under claims/data".to_owned(),
    })?;
    Table::parse(name, text)
}

/// A published number by its path, such as `000_roles[12,12].elapsed_ms`.
///
/// # Errors
/// A path that is not of this form, or one that leads to no row, several rows or no number.
pub fn number(path: &str) -> Result<f64, ClaimsError> {
    let wrong =
        |reason: &str| ClaimsError::Path { path: path.to_owned(), reason: reason.to_owned() };
    let form = "use TABLE[CELL,CELL].COLUMN";
    let (name, rest) = path.split_once('[').ok_or_else(|| wrong(form))?;
    let (keys, column) = rest.split_once("].").ok_or_else(|| wrong(form))?;
    let table = table(name)?;
    let at =
        table.header.iter().position(|c| c == column).ok_or_else(|| wrong("no such column"))?;
    let keys: Vec<&str> = keys.split(',').map(str::trim).collect();
    let mut rows = table.rows.iter().filter(|row| {
        keys.len() <= row.len() && row.iter().zip(&keys).all(|(cell, key)| cell == key)
    });
    let row = rows.next().ok_or_else(|| wrong("no row begins with these cells"))?;
    if rows.next().is_some() {
        return Err(wrong("several rows begin with these cells"));
    }
    row[at].parse().map_err(|_| wrong("the cell is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_row() {
        assert_eq!(number("000_roles[12,12].elapsed_ms").unwrap(), 439.0);
        assert_eq!(number("001_walk[1].nvme_s").unwrap(), 36.14);
        for (path, part) in [
            ("000_roles", "use TABLE"),
            ("000_roles[12].elapsed_ms", "several rows"),
            ("000_roles[99].elapsed_ms", "no row"),
            ("000_roles[12,12].elapsed_s", "no such column"),
            ("000_nothing[1].x", "no such table"),
            ("000_shares[sync,io].state", "not a number"),
        ] {
            let error = number(path).unwrap_err().to_string();
            assert!(error.contains(part), "{path}: {error}");
        }
    }

    #[test]
    fn every_table_is_rectangular() {
        for (name, text) in TABLES {
            let table = Table::parse(name, text).unwrap();
            assert!(!table.rows.is_empty(), "{name}");
            assert!(!text.contains(['"', '#']), "{name}: quotes or comments");
        }
        assert!(Table::parse("x", "").is_err());
        assert!(Table::parse("x", "a,b\n1\n").is_err());
    }
}
