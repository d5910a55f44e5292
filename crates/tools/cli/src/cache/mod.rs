//! `ioloom cache`: shows, evicts and loads the page cache contents of files.
//!
//! The crate `ioloom-cache` does the work; this module contains the flags and the output as tables,
//! maps and JSON.

mod args;
mod document;
mod show;
mod strip;

pub(crate) use args::CacheArgs;

use crate::atomic_file::Begun;
use crate::exit::{Ended, Exit, Failure};
use crate::interrupt::{self, unless_stuck};
use crate::status_line::StatusLine;
use crate::{atomic_file, out, stderr};
use args::PathArgs;
use ioloom_cache::{Action, CacheProgress, FileReport, Report, Scan};
use ioloom_model::units::{format_count, format_size};
use ioloom_walk::{Separator, read_list};
use std::io::BufReader;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub(crate) fn run(args: &CacheArgs) -> Ended {
    let (act, args) = (args.what.act(), args.what.paths());
    args.is_list()?;
    atomic_file::refuse_dash("--svg", args.svg.as_deref())?;
    // A picture that cannot be written is an error before the work. The scan would count its temporary file.
    let begun = args.svg.as_deref().map(atomic_file::begin).transpose()?;
    let begun = begun.filter(|picture| !picture.is_temporary());
    let stop = interrupt::stop_flag();
    let started = Instant::now();
    let stuck = || {
        stderr::message("interrupted: standard input or a file system does not answer");
        std::process::exit(Exit::Interrupted as i32)
    };
    let progress = Arc::new(CacheProgress::default());
    // No signal ends the wait for a list from an idle pipe, or for a server. Writing back and dropping pages end, except
    // on a server that does not answer: then a second signal is needed.
    let may_block = || progress.writing.load(Ordering::Relaxed) == 0;
    let scan = || scan(act, args, &stop, &progress);
    let (report, unread) = unless_stuck(&stop, may_block, stuck, scan)?;
    let elapsed_ns = started.elapsed().as_nanos() as u64;
    let strips = if args.map || args.svg.is_some() { strip::of(&report) } else { Vec::new() };
    for error in &report.errors {
        stderr::message(&out::readable(error.as_bytes()));
    }
    let more = report.errors_count.saturating_sub(report.errors.len() as u64);
    if more > 0 {
        stderr::message(&format!("and {} more errors", format_count(more)));
    }
    let printed = if unread {
        Ok(())
    } else if args.json {
        out::print_json_to_slow_reader(&document::Document::of(act, &report, &strips, elapsed_ns))
    } else {
        let text = show::Show { act, columns: out::columns(), map: args.map };
        out::print_to_slow_reader(&text.report(&report, &strips))
    };
    // After the report, which must not be lost with the picture.
    let drawn = match &args.svg {
        Some(path) if !unread && !report.stopped => draw(begun, path, &strips),
        // It would be incomplete, and replace an earlier one.
        _ => Ok(()),
    };
    out::then(printed, drawn.map(|()| exit_of(&report)))
}

/// Writes the picture. A pipe, a device or a descriptor was opened before the scan.
fn draw(begun: Option<Begun>, path: &Path, strips: &[strip::Strip]) -> Result<(), Failure> {
    let picture = match begun {
        Some(picture) => picture,
        None => atomic_file::begin(path)?,
    };
    picture.finish(|out| out.write_all(strip::picture(strips).as_bytes()))
}

/// Returns the report, and whether it is incomplete because the reader of a list has left.
fn scan(
    act: Action,
    args: &PathArgs,
    stop: &Arc<AtomicBool>,
    progress: &Arc<CacheProgress>,
) -> Result<(Report, bool), Failure> {
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let seen = progress.clone();
    let status = StatusLine::start("cache-progress", move |_| {
        let files = format_count(seen.files.load(Ordering::Relaxed));
        format!("{files} files, {}", format_size(seen.bytes.load(Ordering::Relaxed)))
    });
    let show = show::Show { act, columns: out::columns(), map: false };
    let failed: Mutex<Option<Failure>> = Mutex::default();
    let unread = AtomicBool::new(false);
    let each = |file: &FileReport| {
        if unread.load(Ordering::Relaxed) {
            return;
        }
        let print = || out::print_to_slow_reader(&show.file_line(file));
        let Err(failure) = status.hide_during(print) else { return };
        // The reader has closed the pipe, so further output would be lost.
        unread.store(true, Ordering::Relaxed);
        // Evicting and loading go on.
        if act == Action::Status || !failure.is_quiet() {
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            stop.store(true, Ordering::Relaxed);
        }
    };
    let scan = Scan {
        action: act,
        top: args.top,
        depth_max: args.max_depth,
        threads: args.threads,
        stop: stop.clone(),
        progress: progress.clone(),
        each: args.all.then_some(&each as _),
    };
    let mut report = if args.is_list()? {
        let separator = if args.zero { Separator::Nul } else { Separator::Newline };
        let reader = BufReader::with_capacity(1 << 20, std::io::stdin());
        scan.list(read_list(reader, separator))
    } else {
        scan.trees(&args.paths).map_err(Failure::refused)?
    };
    status.finish();
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        // Status changes nothing, so only the errors so far matter.
        Some(failure) if failure.is_quiet() => {
            report.stopped = false;
            Ok((report, true))
        }
        Some(failure) => Err(failure),
        None => Ok((report, false)),
    }
}

fn exit_of(report: &Report) -> Exit {
    if report.stopped {
        stderr::message("interrupted: the totals are incomplete");
        Exit::Interrupted
    } else if report.errors_count > 0 || report.incomplete_count > 0 {
        Exit::Failed
    } else {
        Exit::Ok
    }
}
