//! Scans the arguments or imports a scan, and reports problems.

use super::args::DuArgs;
use super::lines::Lines;
use super::operands::{self, List, Operand};
use crate::exit::{Exit, Failure};
use crate::interrupt::{StopSignals, unless_stuck};
use crate::status_line::StatusLine;
use crate::{out, standard_input, stderr};
use ioloom_du::scan::{ERRORS_KEPT_MAX, ScanError, ScanProgress, Scanner};
use ioloom_du::{Scan, ncdu};
use ioloom_failure::{Operation, PathError, quoted, reason};
use ioloom_model::units::{format_count, format_counted, format_size};
use ioloom_walk::TablesUse;
use std::ffi::OsStr;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Scans the arguments. When the scan of a root is complete, prints its errors and, with `print`, its lines.
pub(super) fn scan(args: &DuArgs, lines: &Lines, print: bool) -> Result<Scan, Failure> {
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let reading = Arc::new(AtomicBool::new(false));
    // Before a list is opened, which can block as well.
    let (signals, progress) = (StopSignals::catch(), Arc::new(ScanProgress::default()));
    let stuck = || {
        stderr::message(if reading.load(Ordering::Relaxed) {
            "interrupted: the totals are incomplete"
        } else {
            "interrupted: a file system does not answer, and nothing can be summed up"
        });
        std::process::exit(signals.exit() as i32)
    };
    signals.share();
    let may_block = || progress.walking.load(Ordering::Relaxed) || reading.load(Ordering::Relaxed);
    // Of one directory, the end of a list decides whether it is exported.
    let prompt = print && args.export_ncdu.is_none();
    let operands = || operands_of(args, prompt, &reading);
    let scan = || scan_all(args, (lines, print), operands()?, &signals, &progress);
    unless_stuck(&signals.flag, may_block, stuck, scan)
}

/// Returns the operands, and the rest of a list of them that is long, or that pauses if they are scanned promptly.
/// `reading` is true while the list is being read.
fn operands_of(
    args: &DuArgs,
    prompt: bool,
    reading: &Arc<AtomicBool>,
) -> Result<(Vec<Operand>, Option<List>), Failure> {
    let (operands, further) = match &args.files0_from {
        Some(file) => List::open(file, &args.paths, reading.clone())?.begin(prompt),
        None => (operands::given(&args.paths), None),
    };
    if (operands.len() != 1 || further.is_some()) && args.export_ncdu.is_some() {
        return Err(Failure::usage("--export-ncdu takes one directory"));
    }
    if (operands.len() > 1 || further.is_some()) && args.interactive {
        return Err(Failure::usage("--interactive takes one directory"));
    }
    Ok((operands, further))
}

fn scan_all(
    args: &DuArgs,
    (lines, print): (&Lines, bool),
    (operands, further): (Vec<Operand>, Option<List>),
    signals: &StopSignals,
    progress: &Arc<ScanProgress>,
) -> Result<Scan, Failure> {
    let roots: Vec<PathBuf> = operands.iter().flatten().cloned().collect();
    let stop = signals.flag.clone();
    let failure = |error: ScanError| match error {
        ScanError::NoSizes => Failure::usage(error),
        ScanError::Walk(refused) => Failure::refused(refused),
    };
    let mut scanner =
        Scanner::new(args.options(), &roots, stop, progress.clone()).map_err(failure)?;
    drop(roots);
    if further.is_some() {
        scanner = scanner.with_further_roots();
    }
    let shown = progress.clone();
    let status = StatusLine::start("du-progress", move |elapsed| {
        let progress = &shown;
        let entries = progress.entries.load(Ordering::Relaxed);
        progress_line(entries, progress.disk_bytes.load(Ordering::Relaxed), elapsed)
    });
    let mut printed = Ok(());
    for operand in operands.into_iter().chain(further.into_iter().flatten()) {
        let mut text = Vec::new();
        match operand {
            Ok(root) => {
                let tree = scanner.root(&root).map_err(failure)?;
                tree.filter(|_| print).into_iter().for_each(|tree| lines.tree(tree, &mut text));
                if print && !writes_files(args) {
                    scanner.drop_trees();
                }
            }
            Err(message) => scanner.fail(message),
        }
        if scanner.was_cut() {
            // Its sums would look like those of a whole tree.
            text.clear();
        }
        let (errors, more) = scanner.take_errors();
        printed = status.hide_during(|| {
            print_errors(&errors, more);
            out::print_bytes_to_slow_reader(&text)
        });
        if printed.is_err() || scanner.stopped() {
            break;
        }
    }
    status.finish();
    let mut scan = scanner.finish();
    scan.signal = scan.interrupted.then(|| signals.exit() as i32 - 128);
    if print && args.total && printed.is_ok() && !scan.interrupted {
        let mut text = Vec::new();
        lines.total(scan.total(), &mut text);
        printed = out::print_bytes_to_slow_reader(&text);
    }
    match printed {
        Ok(()) => Ok(scan),
        Err(failure) => {
            // A process that a signal is about to end says no more.
            if !failure.is_quiet() || ioloom_sys::stdio::pipe_signal_was_ignored() {
                print_notes(&scan);
            }
            Err(failure)
        }
    }
}

/// Returns whether files are written after the scan, from its trees.
pub(super) fn writes_files(args: &DuArgs) -> bool {
    args.save.is_some() || args.svg.is_some() || args.export_ncdu.is_some()
}

pub(super) fn import(file: &Path) -> Result<Scan, Failure> {
    let limits = ncdu::Limits::default();
    let read = if file.as_os_str() == "-" {
        let input = standard_input::open().map_err(|e| {
            Failure::failed(format!("cannot import {}: {}", quoted(file), reason(&e)))
        })?;
        ncdu::import(&mut input.lock(), limits)
    } else {
        let opened = File::open(file)
            .map_err(PathError::on(Operation::Open, file))
            .map_err(Failure::failed)?;
        ncdu::import(&mut BufReader::new(opened), limits)
    };
    let ncdu::Imported { tree, unix_s } =
        read.map_err(|e| Failure::failed(format!("cannot import {}: {e}", quoted(file))))?;
    let unreadable = || (0..tree.nodes().len()).filter(|at| tree.nodes()[*at].unreadable);
    let message = |at: usize| {
        let path = tree.path(at);
        let path = quoted(Path::new(OsStr::from_bytes(&path))).to_string();
        format!("cannot read {path}: {} records a read error", quoted(file))
    };
    let errors: Vec<String> = unreadable().take(ERRORS_KEPT_MAX).map(message).collect();
    let errors_count = unreadable().count() as u64;
    let started_unix_s = unix_s;
    let roots = vec![tree];
    let scan = Scan { errors, errors_count, roots, started_unix_s, ..Scan::default() };
    print_errors_of(&scan);
    if let Some(note) = excluded_note(file, &scan) {
        stderr::message(&note);
    }
    Ok(scan)
}

/// Returns how many entries an import excludes, which its sizes do not show.
fn excluded_note(file: &Path, scan: &Scan) -> Option<String> {
    let nodes = scan.roots.iter().flat_map(|tree| tree.nodes());
    let count = nodes.filter(|node| node.excluded.is_some()).count() as u64;
    let entries = format_counted(count, "entry", "entries");
    (count > 0).then(|| format!("{} records {entries} as excluded; see --json", quoted(file)))
}

/// Prints the messages of errors; `more` is the number of those without a message.
pub(super) fn print_errors(errors: &[String], more: u64) {
    for error in errors {
        stderr::message(&out::readable(error.as_bytes()));
    }
    if more > 0 && !errors.is_empty() {
        stderr::message(&format!("and {more} more errors"));
    }
}

/// Prints the messages of all errors of a scan.
pub(super) fn print_errors_of(scan: &Scan) {
    print_errors(&scan.errors, scan.errors_count.saturating_sub(scan.errors.len() as u64));
}

/// Prints skipped paths and whether the scan was interrupted.
pub(super) fn print_notes(scan: &Scan) {
    for (path, kind) in &scan.not_entered {
        let path = quoted(path);
        stderr::message(&format!(
            "skipped {path} ({kind}); give it as an argument or use --all-file-systems"
        ));
    }
    scan.inode_tables.iter().for_each(|used| stderr::message(&tables_line(used)));
    if scan.interrupted {
        stderr::message("interrupted: the totals are incomplete");
    }
}

/// Describes the sizes read from inode tables.
fn tables_line(used: &TablesUse) -> String {
    let count = |n: u64| format_count(n);
    let device = quoted(&used.device);
    let checked = if used.checksums { "with checksums" } else { "without checksums" };
    format!(
        "sizes as of a sync at the start: {} entries from the inode tables of {device}, {checked}; \
         {} from statx; {} compared with statx, {} changed since the sync",
        count(used.read),
        count(used.asked),
        count(used.sampled),
        count(used.changed),
    )
}

pub(super) fn exit_of(scan: &Scan) -> Exit {
    if scan.interrupted {
        match scan.signal {
            Some(signal_hook::consts::SIGTERM) => Exit::Terminated,
            Some(signal_hook::consts::SIGHUP) => Exit::Hangup,
            _ => Exit::Interrupted,
        }
    } else if scan.errors_count > 0 {
        Exit::Failed
    } else {
        Exit::Ok
    }
}

/// Formats the progress of a scan.
fn progress_line(entries: u64, bytes: u64, elapsed: Duration) -> String {
    let per_s = entries as f64 / elapsed.as_secs_f64().max(0.001);
    let (entries, size) = (format_count(entries), format_size(bytes));
    format!("{entries} entries, {size}, {} per s", format_count(per_s as u64))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_progress_line_has_amount_and_rate() {
        let text = super::progress_line(20_000, 3 << 30, std::time::Duration::from_secs(2));
        assert_eq!(text, "20 000 entries, 3.00 GiB, 10 000 per s");
    }
}
