//! The `cache --json` document.

use super::strip::Strip;
use ioloom_cache::{Action, DirReport, FileReport, Incomplete, Report, RootReport, Source, Tally};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Document version.
const SCHEMA: u32 = 1;
/// Number of parts in a file map.
const CELLS: usize = 100;

#[derive(Debug, Serialize)]
pub(super) struct Document {
    schema: u32,
    command: &'static str,
    act: &'static str,
    complete: bool,
    interrupted: bool,
    page_bytes: u64,
    elapsed_ns: u64,
    total: Tally,
    roots: Vec<Root>,
    directories: Vec<Directory>,
    files: Vec<File>,
    stays: u64,
    stays_samples: Vec<File>,
    skipped: u64,
    errors: u64,
    error_samples: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Root {
    path: Option<String>,
    path_hex: Option<String>,
    tally: Tally,
}

#[derive(Debug, Serialize)]
struct Directory {
    path: String,
    path_hex: Option<String>,
    root: usize,
    depth: u32,
    tally: Tally,
}

#[derive(Debug, Serialize)]
struct File {
    path: String,
    path_hex: Option<String>,
    size_bytes: u64,
    pages: u64,
    source: Source,
    resident_pages: Option<u64>,
    resident_pages_low: Option<u64>,
    resident_pages_high: Option<u64>,
    was_resident_pages: Option<u64>,
    dirty_pages: Option<u64>,
    writeback_pages: Option<u64>,
    evicted_pages: Option<u64>,
    recently_evicted_pages: Option<u64>,
    stays: Option<Incomplete>,
    mapped_by_pid: Option<u32>,
    mapped_by_name: Option<String>,
    resident_map: Option<Vec<Option<f64>>>,
}

impl Document {
    pub(super) fn of(act: Action, report: &Report, strips: &[Strip], elapsed_ns: u64) -> Self {
        let mapped = |file: &FileReport| {
            let strip = strips.iter().find(|strip| strip.path == file.path);
            File::of(file, strip)
        };
        Self {
            schema: SCHEMA,
            command: "cache",
            act: match act {
                Action::Status => "status",
                Action::Drop { .. } => "drop",
                Action::Warm => "warm",
            },
            complete: !report.stopped && report.errors_count == 0,
            interrupted: report.stopped,
            page_bytes: ioloom_sys::proc::page_bytes(),
            elapsed_ns,
            total: report.total(),
            roots: report.roots.iter().map(Root::of).collect(),
            directories: report.directories.iter().map(Directory::of).collect(),
            files: report.top.iter().map(mapped).collect(),
            stays: report.incomplete_count,
            stays_samples: report.incomplete.iter().map(|file| File::of(file, None)).collect(),
            skipped: report.skipped,
            errors: report.errors_count,
            error_samples: report.errors.clone(),
        }
    }
}

/// Returns a path as text and, if it is not UTF-8, also as hexadecimal digits.
fn spelled(path: &Path) -> (String, Option<String>) {
    let bytes = path.as_os_str().as_bytes();
    let hex = || bytes.iter().map(|b| format!("{b:02x}")).collect();
    (path.display().to_string(), std::str::from_utf8(bytes).is_err().then(hex))
}

impl Root {
    fn of(root: &RootReport) -> Self {
        let (path, path_hex) = root.path.as_deref().map(spelled).unzip();
        Self { path, path_hex: path_hex.flatten(), tally: root.tally }
    }
}

impl Directory {
    fn of(dir: &DirReport) -> Self {
        let (path, path_hex) = spelled(&dir.path);
        Self { path, path_hex, root: dir.root, depth: dir.depth, tally: dir.tally }
    }
}

impl File {
    fn of(file: &FileReport, strip: Option<&Strip>) -> Self {
        let (path, path_hex) = spelled(&file.path);
        let pages = &file.now.pages;
        let (low, high) = file.now.resident_between.unzip();
        let (pid, name) = file.mapped_by.clone().unzip();
        let share =
            |cell: &ioloom_cache::Cell| cell.resident.map(|n| n as f64 / cell.total.max(1) as f64);
        Self {
            path,
            path_hex,
            size_bytes: file.size_bytes,
            pages: file.now.total,
            source: file.now.source,
            resident_pages: pages.resident,
            resident_pages_low: low,
            resident_pages_high: high,
            was_resident_pages: file.before.pages.resident,
            dirty_pages: pages.dirty,
            writeback_pages: pages.writeback,
            evicted_pages: pages.evicted,
            recently_evicted_pages: pages.recently_evicted,
            stays: file.incomplete,
            mapped_by_pid: pid,
            mapped_by_name: name,
            resident_map: strip.map(|strip| strip.merged(CELLS).iter().map(share).collect()),
        }
    }
}
