//! Maps of the pages in a file, for the text, the picture and the document.

use crate::out::readable;
use ioloom_cache::{Cell, Report, map};
use ioloom_model::units::format_size;
use ioloom_report::svg::WIDE;
use ioloom_report::svg::strips::{Mark, Row, Strips, draw};
use ioloom_sys::file::{OpenHow, identity, open};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Number of parts in a file map; the output can merge parts.
const CELLS: usize = 600;
/// Maximum number of mapped files.
const FILES_MAX: usize = 40;

/// Map of one file.
pub(super) struct Strip {
    pub(super) path: PathBuf,
    pub(super) size_bytes: u64,
    pub(super) cells: Vec<Cell>,
}

/// Returns the current maps of the files with the most resident pages. Files that can no longer be
/// opened are omitted.
pub(super) fn of(report: &Report) -> Vec<Strip> {
    let files = report.top.iter().take(FILES_MAX);
    let strip = |file: &ioloom_cache::FileReport| {
        let opened = open(&file.path, OpenHow::default()).ok()?;
        let size_bytes = identity(&opened).ok()?.size;
        let cells = map(&opened, size_bytes, CELLS).ok()?;
        Some(Strip { path: file.path.clone(), size_bytes, cells })
    };
    files.filter_map(strip).collect()
}

impl Strip {
    /// Merges the parts into at most `cells`.
    pub(super) fn merged(&self, cells: usize) -> Vec<Cell> {
        let parts = self.cells.len().min(cells.max(1));
        let at = |i: usize| self.cells.len() * i / parts;
        (0..parts).map(|i| sum(&self.cells[at(i)..at(i + 1)])).collect()
    }
}

fn sum(cells: &[Cell]) -> Cell {
    let all = |of: fn(&Cell) -> Option<u64>| cells.iter().map(of).sum::<Option<u64>>();
    Cell {
        total: cells.iter().map(|cell| cell.total).sum(),
        resident: all(|cell| cell.resident),
        dirty: all(|cell| cell.dirty),
        writeback: all(|cell| cell.writeback),
    }
}

/// Draws all files as SVG, one row each.
pub(super) fn picture(strips: &[Strip]) -> String {
    let rows = strips.iter().map(|strip| {
        let all = sum(&strip.cells);
        let part = match all.resident {
            Some(n) if all.total > 0 => format!("{:.0} %", n as f64 / all.total as f64 * 100.0),
            Some(_) => "empty".to_owned(),
            None => "unknown".to_owned(),
        };
        Row {
            name: readable(strip.path.as_os_str().as_bytes()),
            note: format!("{} of {}", part, format_size(strip.size_bytes)),
            marks: strip.cells.iter().map(mark).collect(),
        }
    });
    let chart = Strips {
        title: "Files in the page cache, each from its first to its last byte".to_owned(),
        description: "Each row is a file. Filled parts are in memory.".to_owned(),
        rows: rows.collect(),
    };
    draw(&chart, WIDE).standalone()
}

fn mark(cell: &Cell) -> Mark {
    let some = |pages: Option<u64>| pages.is_some_and(|n| n > 0);
    match cell.resident {
        _ if some(cell.writeback) => Mark::Writeback,
        _ if some(cell.dirty) => Mark::Dirty,
        None => Mark::Unknown,
        Some(n) => Mark::Resident(n as f64 / cell.total.max(1) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_every_page() {
        let cell = |resident| Cell { total: 3, resident: Some(resident), ..Cell::default() };
        let strip = Strip {
            path: PathBuf::new(),
            size_bytes: 0,
            cells: (0..10).map(|i| cell(i % 3)).collect(),
        };
        for parts in 1..12 {
            let merged = strip.merged(parts);
            assert_eq!(merged.len(), parts.min(10));
            assert_eq!(merged.iter().map(|cell| cell.total).sum::<u64>(), 30);
            assert_eq!(merged.iter().filter_map(|cell| cell.resident).sum::<u64>(), 9);
            assert!(merged.iter().all(|cell| cell.dirty.is_none()));
        }
    }
}
