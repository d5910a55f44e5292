//! Tables and maps of the page cache for a terminal of 80 columns.

use super::strip::Strip;
use crate::out::{fitted, readable, wrap};
use ioloom_cache::{
    Action, Cell, FileReport, Incomplete, Report, RootReport, Source, State, Tally,
};
use ioloom_model::units::{format_count, format_counted, format_size};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of incomplete files listed.
const STAYS_SHOWN: usize = 20;
/// Column width of numbers.
const NUMBER: usize = 9;

/// Display options.
pub(super) struct Show {
    pub(super) act: Action,
    pub(super) columns: usize,
    pub(super) map: bool,
}

/// The formatted numbers of a line.
struct Row {
    size: String,
    was: String,
    now: String,
    share: String,
    dirty: String,
    writeback: String,
    evicted: String,
}

fn size_of(pages: u64) -> String {
    format_size(pages.saturating_mul(ioloom_sys::proc::page_bytes()))
}

fn known(pages: Option<u64>) -> String {
    pages.map_or_else(|| "unknown".to_owned(), size_of)
}

fn share(resident: u64, total: u64) -> String {
    if total == 0 {
        return "–".to_owned();
    }
    match resident as f64 / total as f64 * 100.0 {
        // Do not round a remainder away.
        percent if percent > 99.0 && resident < total => ">99 %".to_owned(),
        percent if percent < 1.0 && resident > 0 => "<1 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

impl Row {
    fn of_file(file: &FileReport) -> Self {
        let resident = |state: &State| {
            let about = if state.source == Source::Sampled { "~" } else { "" };
            format!("{about}{}", known(state.pages.resident))
        };
        let pages = &file.now.pages;
        let part = pages.resident.map(|n| share(n, file.now.total));
        Self {
            size: format_size(file.size_bytes),
            was: resident(&file.before),
            now: resident(&file.now),
            share: part.unwrap_or_else(|| "unknown".to_owned()),
            dirty: known(pages.dirty),
            writeback: known(pages.writeback),
            evicted: known(pages.recently_evicted),
        }
    }

    fn of_tally(tally: &Tally) -> Self {
        let none = tally.unknown_files == tally.files && tally.files > 0;
        let about = if tally.sampled_files + tally.unknown_files > 0 { "~" } else { "" };
        let resident = |pages: u64| {
            if none { "unknown".to_owned() } else { format!("{about}{}", size_of(pages)) }
        };
        // Only cachestat reports these; they are unknown if it was never used.
        let exact_files =
            tally.files - tally.unknown_files - tally.sampled_files - tally.asked_files;
        let exact = |pages: u64| match exact_files {
            0 if tally.files > 0 => "unknown".to_owned(),
            n if n < tally.files => format!("~{}", size_of(pages)),
            _ => size_of(pages),
        };
        let known_pages = tally.pages - tally.unknown_pages;
        Self {
            size: format_size(tally.size_bytes),
            was: resident(tally.was_resident_pages),
            now: resident(tally.resident_pages),
            share: if none {
                "unknown".to_owned()
            } else {
                share(tally.resident_pages, known_pages)
            },
            dirty: exact(tally.dirty_pages),
            writeback: exact(tally.writeback_pages),
            evicted: exact(tally.recently_evicted_pages),
        }
    }
}

impl Show {
    fn head(&self) -> String {
        match self.act {
            Action::Status => format!(
                "{:>NUMBER$} {:>NUMBER$} {:>7} {:>NUMBER$} {:>NUMBER$} {:>NUMBER$}  path\n",
                "size", "resident", "share", "dirty", "writing", "evicted"
            ),
            Action::Drop { .. } | Action::Warm => format!(
                "{:>NUMBER$} {:>NUMBER$} {:>NUMBER$} {:>7}  path\n",
                "size", "was", "resident", "share"
            ),
        }
    }

    fn line(&self, row: &Row, name: &str) -> String {
        let mut line = match self.act {
            Action::Status => format!(
                "{:>NUMBER$} {:>NUMBER$} {:>7} {:>NUMBER$} {:>NUMBER$} {:>NUMBER$}  ",
                row.size, row.now, row.share, row.dirty, row.writeback, row.evicted
            ),
            Action::Drop { .. } | Action::Warm => {
                format!(
                    "{:>NUMBER$} {:>NUMBER$} {:>NUMBER$} {:>7}  ",
                    row.size, row.was, row.now, row.share
                )
            }
        };
        let room = self.columns.saturating_sub(line.chars().count()).max(12);
        line.push_str(&tail(name, room));
        line.push('\n');
        line
    }

    /// Formats the line of one file, for --all.
    pub(super) fn file_line(&self, file: &FileReport) -> String {
        self.line(&Row::of_file(file), &name(&file.path))
    }

    /// Formats the complete report.
    pub(super) fn report(&self, report: &Report, strips: &[Strip]) -> String {
        let shown: Vec<&RootReport> = report.roots.iter().filter(|root| is_shown(root)).collect();
        if shown.is_empty() {
            return String::new();
        }
        let mut out = self.head();
        for root in &shown {
            let name = root.path.as_deref().map_or_else(|| "standard input".to_owned(), name);
            out.push_str(&self.line(&Row::of_tally(&root.tally), &name));
        }
        if shown.len() > 1 {
            out.push_str(&self.line(&Row::of_tally(&report.total()), "total"));
        }
        if !report.directories.is_empty() {
            out.push_str("\nDirectories:\n");
        }
        for dir in &report.directories {
            out.push_str(&self.line(&Row::of_tally(&dir.tally), &name(&dir.path)));
        }
        // A single file is already listed above.
        let files = report.total().files;
        if !report.top.is_empty() && files > report.roots.len() as u64 {
            let before = if matches!(self.act, Action::Drop { .. }) { " before" } else { "" };
            let _ = write!(out, "\nFiles with the most pages in memory{before}:\n");
            for file in &report.top {
                out.push_str(&self.file_line(file));
            }
        }
        if self.map {
            self.maps(strips, &mut out);
        }
        self.stays(report, &mut out);
        self.notes(report, &mut out);
        out
    }

    fn maps(&self, strips: &[Strip], out: &mut String) {
        let key = "Maps: █ all in memory, ▓ more than half, ▒ less, · nothing, D dirty, \
                   W under writeback, ? unknown.";
        let _ = write!(out, "\n{}", wrap(key, self.columns, 2));
        let width = self.columns - 12;
        for strip in strips {
            let rows = if strips.len() == 1 { 8 } else { 1 };
            let _ = writeln!(out, "{}", tail(&name(&strip.path), self.columns));
            let cells = strip.merged(rows * width);
            let start = |i: usize| cells[..i].iter().map(|cell| cell.total).sum::<u64>();
            for (at, row) in cells.chunks(width).enumerate() {
                let glyphs: String = row.iter().map(glyph).collect();
                let _ = writeln!(out, "{:>10}  {glyphs}", size_of(start(at * width)));
            }
        }
    }

    fn stays(&self, report: &Report, out: &mut String) {
        if report.incomplete_count == 0 {
            return;
        }
        let word = if self.act == Action::Warm { "not all in memory" } else { "still in memory" };
        let of = if report.incomplete_count == 1 { "file is" } else { "files are" };
        let count = format_count(report.incomplete_count);
        let _ = write!(out, "\n{count} {of} {word}:\n");
        for file in report.incomplete.iter().take(STAYS_SHOWN) {
            out.push_str(&wrap(&self.why(file), self.columns, 4));
        }
        if report.incomplete_count > STAYS_SHOWN as u64 {
            let more = format_count(report.incomplete_count - STAYS_SHOWN as u64);
            let _ = writeln!(out, "  and {more} more; --json lists up to 1000");
        }
    }

    fn why(&self, file: &FileReport) -> String {
        let Some(stays) = file.incomplete else { return String::new() };
        let reason = match (&file.mapped_by, stays) {
            (Some((pid, name)), _) => {
                format!("mapped by process {pid} ({})", readable(name.as_bytes()))
            }
            (None, Incomplete::Unknown) if self.act == Action::Warm => {
                "read, but it is unknown whether it is still in memory".to_owned()
            }
            (None, stays) => stays.sentence().to_owned(),
        };
        let pages = match file.now.pages.resident {
            Some(n) if self.act == Action::Warm => {
                format!("{} missing, ", size_of(file.now.total.saturating_sub(n)))
            }
            Some(n) => format!("{}, ", size_of(n)),
            None => String::new(),
        };
        format!("  {}: {pages}{reason}", name(&file.path))
    }

    fn notes(&self, report: &Report, out: &mut String) {
        let total = report.total();
        let mut note = |text: String| {
            let _ = write!(out, "\n{}", wrap(&text, self.columns, 2));
        };
        if total.sampled_files > 0 {
            let files = counted(total.sampled_files);
            note(format!(
                "~ estimated: the kernel reports pages only to owners and users with write permission. \
                 In {files}, up to 256 pages each were probed with non-blocking reads. Pages in holes, \
                 and files stored in metadata, do not count, as these reads find them in any case."
            ));
        }
        if total.unknown_files > 0 {
            let (files, size) = (counted(total.unknown_files), size_of(total.unknown_pages));
            note(format!(
                "unknown: {files} with {size}, for which this user can query neither the kernel nor the \
                 file system; run as their owner or as root. On overlayfs, query the files of the layers."
            ));
        }
    }
}

/// Returns whether an argument has a row. An argument that is not a directory and contains no file was
/// reported as an error instead.
fn is_shown(root: &RootReport) -> bool {
    root.tally.files > 0 || root.path.as_ref().is_none_or(|path| path.is_dir())
}

fn counted(files: u64) -> String {
    format_counted(files, "file", "files")
}

fn glyph(cell: &Cell) -> char {
    let some = |pages: Option<u64>| pages.is_some_and(|n| n > 0);
    match cell.resident {
        _ if some(cell.writeback) => 'W',
        _ if some(cell.dirty) => 'D',
        None => '?',
        Some(0) => '·',
        Some(n) if n >= cell.total => '█',
        Some(n) if n * 2 >= cell.total => '▓',
        Some(_) => '▒',
    }
}

fn name(path: &Path) -> String {
    readable(path.as_os_str().as_bytes())
}

/// Shortens a path to `width` columns, keeping its end.
fn tail(name: &str, width: usize) -> String {
    let backwards = |text: &str| text.chars().rev().collect::<String>();
    backwards(&fitted(&backwards(name), width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remainder_is_not_rounded_away() {
        for (resident, total, text) in [
            (0, 0, "–"),
            (0, 9, "0 %"),
            (1, 1000, "<1 %"),
            (999, 1000, ">99 %"),
            (1000, 1000, "100 %"),
            (1, 2, "50 %"),
        ] {
            assert_eq!(share(resident, total), text);
        }
    }

    #[test]
    fn long_paths_keep_their_end() {
        assert_eq!(tail("/a/long/path", 6), "…/path");
        assert_eq!(tail("short", 6), "short");
    }

    #[test]
    fn writeback_and_dirty_take_precedence() {
        let cell = |resident, dirty, writeback| Cell { total: 4, resident, dirty, writeback };
        let marks: String = [
            cell(Some(4), Some(1), Some(1)),
            cell(Some(4), Some(1), Some(0)),
            cell(Some(4), None, None),
            cell(Some(2), None, None),
            cell(Some(1), None, None),
            cell(Some(0), None, None),
            cell(None, None, None),
        ]
        .iter()
        .map(glyph)
        .collect();
        assert_eq!(marks, "WD█▓▒·?");
    }
}
