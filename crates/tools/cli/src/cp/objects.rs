//! `cp s3://BUCKET/KEY FILE` and `cp -r s3://BUCKET/PREFIX DIR`, and the same for the other schemes of stores.

use super::args::{CpArgs, CpFlags};
use crate::exit::{Ended, Exit, Failure};
use crate::interrupt::StopSignals;
use crate::status_line::StatusLine;
use crate::{out, remote, stderr};
use clap::{Args, Command, FromArgMatches};
use ioloom_failure::quoted;
use ioloom_model::units::{format_count, format_counted, format_size};
use ioloom_objects::{Downloaded, Location, Options, Place, Progress, download};
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Errors that are printed one by one.
const ERRORS_PRINTED: usize = 20;

/// Copies from a store.
pub(super) fn run(args: &CpArgs) -> Ended {
    let paths = &args.flags.paths;
    let [source, target] = paths.as_slice() else {
        return Err(Failure::usage("with a URL, cp takes one source and one target"));
    };
    let Some(url) = remote::url_of(source) else {
        return Err(Failure::usage("the source is not a URL"));
    };
    if remote::url_of(target).is_some() {
        return Err(Failure::refused(
            "cannot copy between stores: the target must be a local path",
        ));
    }
    check(&args.flags)?;
    let store = remote::open(url)?;
    let signals = StopSignals::catch();
    signals.share();
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let place = place(&args.flags, store.location(), target)?;
    if args.flags.recursive && std::fs::metadata(target).is_ok_and(|found| !found.is_dir()) {
        let target = quoted(target);
        return Err(Failure::failed(format!(
            "cannot overwrite non-directory {target} with a directory"
        )));
    }
    let done = with_progress(|progress| {
        let recursive = args.flags.recursive;
        let options = Options { recursive, ..options(&signals.flag, progress) };
        download(&store, &place, &options)
    });
    let done = done.map_err(|error| remote::failure(&error))?;
    let exit = match done.run.failed {
        _ if done.run.cancelled => signals.exit(),
        0 => Exit::Ok,
        _ => Exit::Failed,
    };
    out::then(print(args, &done), Ok(exit))
}

/// Returns the limits of a copy, which ends when `stop` is set.
pub(super) fn options<'a>(
    stop: &Arc<AtomicBool>,
    progress: &'a (dyn Fn(&Progress) + Sync),
) -> Options<'a> {
    let memory = ioloom::default_memory_bytes();
    Options { memory, stop: stop.clone(), progress, ..Options::default() }
}

/// Runs a copy, and shows its progress meanwhile.
pub(super) fn with_progress<T>(copy: impl FnOnce(&(dyn Fn(&Progress) + Sync)) -> T) -> T {
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let shown = counts.clone();
    let status = StatusLine::start("cp-progress", move |_| {
        let files = format_count(shown.0.load(Ordering::Relaxed));
        format!("{files} files, {}", format_size(shown.1.load(Ordering::Relaxed)))
    });
    let progress = move |now: &Progress| {
        counts.0.store(now.objects, Ordering::Relaxed);
        counts.1.store(now.bytes, Ordering::Relaxed);
    };
    let done = copy(&progress);
    status.finish();
    done
}

/// Prints errors, and the number of those that were not kept.
pub(super) fn print_errors(errors: &[String], failed: u64) {
    for error in errors.iter().take(ERRORS_PRINTED) {
        stderr::message(&out::readable(error.as_bytes()));
    }
    let more = failed.saturating_sub(errors.len().min(ERRORS_PRINTED) as u64);
    if more > 0 {
        stderr::message(&format!("and {} more errors", format_count(more)));
    }
}

/// Prints how many files have no checksum to compare with.
pub(super) fn print_length_only(files: u64) {
    if files > 0 {
        let files = format_counted(files, "file", "files");
        stderr::message(&format!("{files} verified by length only: the store has no checksum"));
    }
}

/// Prints which files have a checksum that is not that of the contents.
fn print_other_e_tag(done: &Downloaded) {
    if done.other_e_tag == 0 {
        return;
    }
    for url in done.other_e_tag_urls.iter().take(ERRORS_PRINTED) {
        let url = quoted(Path::new(url)).to_string();
        stderr::message(&format!("warning: the ETag of {url} is not the MD5 of the contents"));
    }
    let advice = match done.has_sums {
        true => "; other objects have their MD5, so compare these with their origin",
        false => "",
    };
    let files = format_counted(done.other_e_tag, "file", "files");
    stderr::message(&format!(
        "{files} verified by length only: the ETag looks like an MD5 and is not that of the contents, \
         which were the same when they were read again{advice}"
    ));
}

/// Refuses flags that have no meaning for objects: all that change how `cp` would copy files.
pub(super) fn check(flags: &CpFlags) -> Result<(), Failure> {
    let mut words: Vec<OsString> = vec!["cp".into()];
    words.extend(flags.recursive.then(|| "-r".into()));
    words.extend(flags.json.then(|| "--json".into()));
    words.push("--".into());
    words.extend(flags.paths.iter().map(|path| path.clone().into_os_string()));
    let command = CpFlags::augment_args(Command::new("cp"));
    let plain = command.try_get_matches_from(words).and_then(|m| CpFlags::from_arg_matches(&m));
    let plain = plain.map_err(Failure::usage)?;
    if format!("{plain:?}") == format!("{flags:?}") {
        return Ok(());
    }
    Err(Failure::usage("only -r and --json can be used with objects"))
}

/// Returns where the files go. With -r the contents of the prefix go into the target.
fn place(flags: &CpFlags, location: &Location, target: &Path) -> Result<Place, Failure> {
    let slash = target.as_os_str().as_encoded_bytes().ends_with(b"/");
    let into = slash || target.is_dir();
    let is_file = location.is_web_file();
    if is_file && flags.recursive {
        return Err(Failure::usage(
            "-r cannot be used with a file on a web server: there is nothing below it",
        ));
    }
    Ok(match location.name() {
        None if is_file && into => {
            let url = quoted(Path::new(&location.url())).to_string();
            return Err(Failure::usage(format!(
                "cannot copy {url} into a directory: the URL has no name of a file; give the target one"
            )));
        }
        None if is_file => Place::As(target.to_owned()),
        // Names no object: the copy reports it.
        None => Place::Below(target.to_owned()),
        Some(_) if flags.recursive => Place::Below(target.to_owned()),
        Some(name) if into => Place::As(target.join(name)),
        Some(_) => Place::As(target.to_owned()),
    })
}

fn print(args: &CpArgs, done: &Downloaded) -> Result<(), Failure> {
    let measured = &done.run.measured;
    print_errors(&done.errors, done.run.failed);
    if done.run.cancelled {
        stderr::message("interrupted: no partial file was renamed to its final name");
    }
    print_other_e_tag(done);
    if args.flags.json {
        let requests = done.run.requests;
        return out::print_json_to_slow_reader(&json!({
            "schema": 1,
            "command": "cp",
            "files": measured.files,
            "bytes": measured.bytes,
            "errors": done.run.failed,
            "error_samples": done.errors,
            "cancelled": done.run.cancelled,
            "elapsed_ns": measured.elapsed_ns,
            "verified_files": done.verified,
            "length_only_files": done.length_only,
            "other_etag_files": done.other_e_tag,
            "other_etag_samples": done.other_e_tag_urls,
            "requests": {
                "sent": requests.sent,
                "refused": requests.refused,
                "repeated": requests.repeated,
            },
        }));
    }
    print_length_only(done.length_only);
    Ok(())
}
