//! `ioloom cp`: flags and output. The crate `ioloom-copy` does the copying.

mod apart;
mod args;
mod backup;
mod choices;
mod explain;
pub(crate) mod locale;
mod notes;
#[cfg(feature = "objects")]
mod objects;
mod order;
mod progress;
mod shard;
#[cfg(feature = "objects")]
mod to_objects;
mod words;

pub(crate) use args::CpArgs;
pub(crate) use shard::{copies, options_of, part_of};
pub(crate) use words::expand;

use crate::exit::{Ended, Exit, Failure};
use crate::interrupt::{StopSignals, unless_stuck};
use crate::{out, remote, stderr};
use ioloom_copy::{
    CopyCounters, CopyError, CopyOptions, Durable, Reason, Report, Target, Verify, Watcher,
};
use ioloom_failure::{Operation, PathError};
use progress::CopyProgress;
use serde::Serialize;
use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of errors in the JSON document.
const ERRORS_LISTED_MAX: usize = 1000;

/// Exit codes are those of GNU cp: 1 for every error. Signals have their own.
pub(crate) fn run(args: &CpArgs) -> Ended {
    copy(args).map_err(with_gnu_code)
}

fn with_gnu_code(failure: Failure) -> Failure {
    match failure.exit {
        Exit::Ok | Exit::Usage | Exit::Refused => Failure { exit: Exit::Failed, ..failure },
        _ => failure,
    }
}

fn copy(args: &CpArgs) -> Ended {
    // Exceeding the file size limit must fail one file, not kill the program.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    if args.flags.sharding.manifest.is_some() {
        return shard::run(args);
    }
    let url = args.flags.paths.iter().find_map(|path| remote::url_of(path));
    #[cfg(feature = "objects")]
    if url.is_some() {
        return match args.flags.paths.as_slice() {
            [from, to] if remote::url_of(from).is_none() => to_objects::run(args, from, to),
            _ => objects::run(args),
        };
    }
    #[cfg(not(feature = "objects"))]
    if let Some(url) = url {
        return Err(remote::unsupported(url));
    }
    let (sources, mut target, invalid) = args.sources_and_target()?;
    let signals = StopSignals::catch();
    signals.share();
    let mut options = args.options(signals.flag.clone())?;
    if args.flags.explain {
        return explain::run(args, &sources, &target, &options);
    }
    back_up_itself(&sources, &mut target, &mut options)?;
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let progress = Arc::new(CopyCounters::default());
    let watcher = CopyProgress::start(args, Some((&sources, &target)), &options, progress.clone());
    // A thread that prints may hold the bar, which therefore stays.
    let stuck = || {
        stderr::message(
            "interrupted: a file system or the reader of the output does not answer; incomplete files may remain under \
             hidden names",
        );
        std::process::exit(signals.exit() as i32)
    };
    let quiet = Cell::new(((u64::MAX, u64::MAX), Instant::now()));
    let may_block = || may_block(&options, &progress, &quiet, Instant::now());
    let run = || ioloom_copy::copy(&sources, &target, &options, &watcher, &progress);
    let invalid: Vec<CopyError> = invalid.into_iter().map(invalid_source).collect();
    invalid.iter().for_each(|error| watcher.failed(error));
    let copied = unless_stuck(&signals.flag, may_block, stuck, run);
    watcher.finish();
    let mut report = copied.map_err(Failure::failed)?;
    // A signal that is noticed after the last answer has still ended the input.
    let is_raised = args.flags.interactive && signals.flag.load(Ordering::Relaxed);
    report.cancelled |= is_raised;
    report.errors_count += invalid.len() as u64;
    report.errors.splice(..0, invalid);
    let printed = if args.flags.json {
        out::print_json_to_slow_reader(&Document::of(&report))
    } else {
        notes::print_notes(args, &report);
        Ok(())
    };
    let printed = watcher.stream_failure().map_or(printed, Err);
    let exit = match report.cancelled {
        true => signals.exit(),
        false if report.errors_count == 0 => Exit::Ok,
        false => Exit::Failed,
    };
    // The signal can be the reason why no answer could be read.
    let ended = |failure: Failure| match is_raised && !failure.is_quiet() {
        true => Failure { exit, ..failure },
        false => failure,
    };
    out::then(printed.map_err(ended), Ok(exit))
}

/// Returns the error of a source that is not a path.
fn invalid_source(text: String) -> CopyError {
    let (path, reason) = (PathBuf::new(), Reason::Whole(text));
    CopyError { operation: Operation::Copy, path, other: None, reason }
}

/// How long an interrupted copy may make no progress: a write to a slow device can take seconds.
const QUIET: Duration = Duration::from_secs(8);

/// Returns whether an interrupted copy waits for a file system, as far as its progress shows; `quiet` is its last
/// progress and when it was seen. Synced and verified copies and the removal of incomplete ones can be busy for long
/// without progress: if they hang, a second signal is needed.
fn may_block(
    options: &CopyOptions,
    progress: &CopyCounters,
    quiet: &Cell<((u64, u64), Instant)>,
    now: Instant,
) -> bool {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let done = (load(&progress.bytes), load(&progress.entries));
    let (before, since) = quiet.get();
    let is_busy = options.durable != Durable::None
        || options.verify != Verify::None
        || options.resume
        || load(&progress.cleaning) > 0;
    if is_busy || done != before {
        quiet.set((done, now));
        return false;
    }
    now.saturating_duration_since(since) >= QUIET
}

/// As in GNU cp, `--force --backup` with a file as its own target only makes the backup.
fn back_up_itself(
    sources: &[PathBuf],
    target: &mut Target,
    options: &mut CopyOptions,
) -> Result<(), Failure> {
    let (Target::As(path) | Target::Auto(path)) = &*target else { return Ok(()) };
    let Some(backup) = options.backup.clone().filter(|_| options.force) else { return Ok(()) };
    let is_file = || std::fs::metadata(path).is_ok_and(|found| found.is_file());
    if sources == [path.clone()] && is_file() {
        let failed = |e| PathError::new(Operation::Backup, path.clone(), e);
        *target = Target::As(backup.path_of(path).map_err(failed).map_err(Failure::failed)?);
        options.backup = None;
    }
    Ok(())
}

/// The `--json` document.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    command: &'static str,
    files: u64,
    hard_links: u64,
    directories: u64,
    symlinks: u64,
    specials: u64,
    skipped: u64,
    resumed: u64,
    bytes: u64,
    errors: u64,
    error_samples: Vec<String>,
    cancelled: bool,
    out_of_space: bool,
    elapsed_ns: u64,
    sync_ns: u64,
    durable: Durable,
    may_be_lost_bytes: u64,
    unwritten_bytes: u64,
    verified: &'static str,
    verify: Verify,
    verified_files: u64,
    verified_bytes: u64,
    verified_device_bytes: u64,
    hash: ioloom_copy::HashKind,
    hashes: Vec<HashLine<'a>>,
    modes: Vec<ModeLine>,
    facts: &'a [ioloom_copy::Facts],
    threads: usize,
    threads_why: &'a str,
    lost_xattrs: bool,
}

#[derive(Serialize)]
struct HashLine<'a> {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
    bytes: u64,
    hash: &'a str,
}

#[derive(Serialize)]
struct ModeLine {
    mode: ioloom_copy::Mode,
    files: u64,
}

impl<'a> Document<'a> {
    fn of(report: &'a Report) -> Self {
        let (counts, seen) = (&report.counts, &report.evidence);
        let errors = report.errors.iter().take(ERRORS_LISTED_MAX);
        Self {
            schema: 1,
            command: "cp",
            files: counts.files,
            hard_links: counts.hard_links,
            directories: counts.directories,
            symlinks: counts.symlinks,
            specials: counts.specials,
            skipped: counts.skipped,
            resumed: counts.resumed,
            bytes: report.bytes,
            errors: report.errors_count,
            error_samples: errors.map(|e| crate::stderr::without_errno(&e.to_string())).collect(),
            cancelled: report.cancelled,
            out_of_space: report.out_of_space,
            elapsed_ns: report.elapsed_ns,
            sync_ns: report.sync_ns,
            durable: report.durable,
            may_be_lost_bytes: report.may_be_lost_bytes(),
            unwritten_bytes: ioloom_copy::unwritten_bytes(),
            verified: report.verified_word(),
            verify: report.verify,
            verified_files: seen.files,
            verified_bytes: seen.bytes,
            verified_device_bytes: seen.device_bytes,
            hash: report.hash,
            hashes: report
                .hashes
                .iter()
                .map(|of| HashLine {
                    path: of.path.to_string_lossy().into_owned(),
                    path_base64: out::base64_unless_utf8(&of.path),
                    bytes: of.bytes,
                    hash: &of.hash,
                })
                .collect(),
            modes: report.modes.iter().map(|&(mode, files)| ModeLine { mode, files }).collect(),
            facts: &report.facts,
            threads: report.threads,
            threads_why: &report.threads_why,
            lost_xattrs: report.lost_xattrs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_without_progress_is_blocked_unless_it_syncs_or_cleans_up() {
        let (progress, begun) = (CopyCounters::default(), Instant::now());
        let usual = CopyOptions::default();
        let synced = CopyOptions { durable: Durable::Full, ..CopyOptions::default() };
        let quiet = Cell::new(((0, 0), begun));
        let blocks = |options: &CopyOptions, after: u32| {
            may_block(options, &progress, &quiet, begun + QUIET * after)
        };
        assert!(blocks(&usual, 1));
        assert!(!blocks(&synced, 2));
        assert!(blocks(&usual, 3));
        progress.bytes.store(1, Ordering::Relaxed);
        assert!(!blocks(&usual, 4));
        assert!(blocks(&usual, 5));
        progress.cleaning.store(1, Ordering::Relaxed);
        assert!(!blocks(&usual, 9));
        progress.cleaning.store(0, Ordering::Relaxed);
        assert!(blocks(&usual, 10));
    }

    #[test]
    fn interrupts_keep_their_code() {
        for (exit, code) in [
            (Exit::Usage, Exit::Failed),
            (Exit::Refused, Exit::Failed),
            (Exit::Interrupted, Exit::Interrupted),
            (Exit::Terminated, Exit::Terminated),
        ] {
            assert_eq!(with_gnu_code(Failure::new(exit, "")).exit, code);
        }
    }
}
