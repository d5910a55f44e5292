//! `--diff`: the changes between two scans, by directory.

use super::args::DuArgs;
use super::document::{comparable, not_written, save};
use super::input::{exit_of, print_notes, scan};
use super::lines::Lines;
use super::picture::{ROWS, size_in};
use crate::exit::{Ended, Exit, Failure};
use crate::out::readable;
use crate::remote::url_of;
use crate::{out, standard_input, stderr};
use ioloom_du::document::{Change, Document, compare};
use ioloom_du::scan::Recorded;
use ioloom_du::{Measure, Tally};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::units::format_count;
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

pub(super) fn run(args: &DuArgs, old: &Path) -> Ended {
    let url = args.paths.iter().map(Path::new).chain([old]).find_map(url_of);
    if let Some(url) = url.map(crate::remote::shown) {
        return Err(Failure::refused(format!(
            "cannot compare {}: --diff compares files and saved scans; save the scan of a URL with \
             --save first",
            quoted(Path::new(&url))
        )));
    }
    let old = read_old(args, old)?;
    let refuse = |new: Option<&Recorded>| -> Result<(), Failure> {
        match old.options.as_ref().zip(new).and_then(|(old, new)| old.difference(new)) {
            None => Ok(()),
            Some(flags) => Err(Failure::refused(format!(
                "cannot compare: the scans differ in {flags}; scan both with the same options"
            ))),
        }
    };
    let (new, exit) = match saved(args)? {
        Some(new) => {
            refuse(new.options.as_ref())?;
            (new, Exit::Ok)
        }
        None => {
            // Before a scan that can last hours, and before `--save` replaces the old one.
            refuse(Some(&Recorded::of(&args.options())))?;
            let lines = Lines::of(args);
            let scan = scan(args, &lines, false)?;
            print_notes(&scan);
            let new = comparable(&lines, &scan);
            match &args.save {
                Some(file) if scan.interrupted => not_written(file),
                Some(file) => save(file, &new)?,
                None => {}
            }
            (new, exit_of(&scan))
        }
    };
    let exit = match exit {
        Exit::Ok if !(old.complete && new.complete) => Exit::Failed,
        exit => exit,
    };
    let compared = compare(&old, &new).map_err(Failure::failed)?;
    if compared.is_disjoint {
        warn_of_arguments(&old, &new);
    }
    let mut changed = compared.changes;
    let measure = args.measure();
    let shown = |tally: Option<Tally>| {
        tally.is_some_and(|tally| args.choices.threshold.shows(tally.by(measure)))
    };
    changed
        .retain(|change| delta(change, measure) != 0 && (shown(change.old) || shown(change.new)));
    changed.sort_by_key(|change| std::cmp::Reverse(delta(change, measure).unsigned_abs()));
    if args.json {
        changed.truncate(args.top.unwrap_or(usize::MAX));
        out::print_json_to_slow_reader(&changes_json(&old, &new, &changed))?;
    } else {
        out::print_to_slow_reader(&text(args, &old, &new, &changed))?;
    }
    Ok(exit)
}

/// Prints the first argument of each of two scans without a path in common.
fn warn_of_arguments(old: &Document, new: &Document) {
    if let (Some(old), Some(new)) = (old.roots.first(), new.roots.first()) {
        let (old, new) = (quoted(Path::new(&old.path)), quoted(Path::new(&new.path)));
        stderr::message(&format!(
            "the scans have different arguments, such as {old} and {new}: every path is new or gone"
        ));
    }
}

/// Returns the saved scan named by the arguments, or `None` if they must be scanned.
fn saved(args: &DuArgs) -> Result<Option<Document>, Failure> {
    match &args.paths[..] {
        [file] if is_saved(Path::new(file)) && args.save.is_some() => Err(Failure::usage(format!(
            "--save needs a scan, but {} is a saved one",
            quoted(Path::new(file))
        ))),
        [file] if is_saved(Path::new(file)) => read(Path::new(file)).map(Some),
        _ => Ok(None),
    }
}

/// Returns whether a path, after links, is a file or a pipe, and not a tree to scan.
fn is_saved(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() || found.file_type().is_fifo())
}

/// Reads the value of `--diff`; `-` is standard input.
fn read_old(args: &DuArgs, file: &Path) -> Result<Document, Failure> {
    if file.as_os_str() != "-" {
        return read(file);
    }
    let mut others = args.files0_from.iter().chain(&args.exclude_from);
    if others.any(|file| file.as_os_str() == "-") {
        return Err(Failure::usage(
            "--diff - cannot be combined with another option that reads standard input",
        ));
    }
    read_from(standard_input::required()?, "standard input")
}

fn read(file: &Path) -> Result<Document, Failure> {
    let opened =
        File::open(file).map_err(PathError::on(Operation::Open, file)).map_err(Failure::failed)?;
    read_from(opened, &quoted(file).to_string())
}

/// Reads a saved scan, which messages call `name`.
fn read_from(reader: impl Read, name: &str) -> Result<Document, Failure> {
    let document =
        Document::read(reader).map_err(|e| Failure::failed(format!("cannot read {name}: {e}")))?;
    if document.selected {
        return Err(Failure::refused(format!(
            "cannot compare {name}: it lists only some directories; save the scan with --save"
        )));
    }
    Ok(document)
}

fn delta(change: &Change, measure: Measure) -> i128 {
    let value = |tally: Option<Tally>| i128::from(tally.unwrap_or_default().by(measure));
    value(change.new) - value(change.old)
}

/// Formats a change: `+1.50 MiB`, `-3`, `0 B`, or in the unit that an option gives.
fn signed(delta: i128, args: &DuArgs) -> String {
    let value = u64::try_from(delta.unsigned_abs()).unwrap_or(u64::MAX);
    let sign = if delta > 0 {
        "+"
    } else if delta < 0 {
        "-"
    } else {
        ""
    };
    format!("{sign}{}", size_in(args.unit(), value, args.measure()))
}

fn text(args: &DuArgs, old: &Document, new: &Document, changed: &[Change]) -> String {
    let measure = args.measure();
    let total = i128::from(new.total.by(measure)) - i128::from(old.total.by(measure));
    let mut out = String::new();
    let rows = args.top.unwrap_or(ROWS);
    for change in changed.iter().take(rows) {
        let word = match (change.old, change.new) {
            (None, _) => "new ",
            (_, None) => "gone",
            _ => "    ",
        };
        let size = signed(delta(change, measure), args);
        out.push_str(&format!("{size:>12} {word} {}\n", readable(&change.path)));
    }
    if changed.len() > rows {
        let more = format_count((changed.len() - rows) as u64);
        out.push_str(&format!("{more} smaller changes not shown (--top N)\n"));
    }
    let (was, is) = (old.total.by(measure), new.total.by(measure));
    let size = |value: u64| size_in(args.unit(), value, measure);
    let word = measure.word();
    out.push_str(&format!(
        "{:>12}      in total ({word}), from {} to {}\n",
        signed(total, args),
        size(was),
        size(is)
    ));
    for (document, name) in [(old, "older"), (new, "newer")] {
        if !document.complete {
            out.push_str(&format!("INCOMPLETE: the {name} scan could not read everything\n"));
        }
    }
    out
}

fn changes_json(old: &Document, new: &Document, changed: &[Change]) -> serde_json::Value {
    let sums = |tally: Option<Tally>| tally.map(|tally| json!(tally));
    let changes: Vec<_> = changed
        .iter()
        .map(|change| {
            let path = String::from_utf8_lossy(&change.path);
            let exact = std::str::from_utf8(&change.path)
                .is_err()
                .then(|| change.path.iter().map(|b| format!("{b:02x}")).collect::<String>());
            json!({
                "path": path,
                "path_hex": exact,
                "old": sums(change.old),
                "new": sums(change.new),
            })
        })
        .collect();
    json!({
        "schema": ioloom_du::document::SCHEMA,
        "command": "du-diff",
        "complete": old.complete && new.complete,
        "old": old.total,
        "new": new.total,
        "old_started_unix_s": old.started_unix_s,
        "new_started_unix_s": new.started_unix_s,
        "changes": changes,
    })
}
