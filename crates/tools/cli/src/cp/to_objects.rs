//! `cp FILE s3://BUCKET/KEY` and `cp -r DIR s3://BUCKET/PREFIX`.

use super::args::CpArgs;
use super::objects::check;
use crate::exit::{Ended, Exit, Failure};
use crate::interrupt::StopSignals;
use crate::status_line::StatusLine;
use crate::{out, remote, stderr};
use ioloom_model::units::{format_count, format_counted, format_size};
use ioloom_objects::{Options, Progress, Uploaded, upload};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Errors that are printed one by one.
const ERRORS_PRINTED: usize = 20;

/// Copies to a store.
pub(super) fn run(args: &CpArgs, source: &Path, target: &Path) -> Ended {
    check(&args.flags)?;
    let url = remote::url_of(target).ok_or_else(|| Failure::usage("the target is not a URL"))?;
    if source.is_dir() && !args.flags.recursive {
        let shown = ioloom_failure::quoted(source);
        return Err(Failure::usage(format!("cannot copy {shown}: it is a directory; add -r")));
    }
    let store = remote::open(url)?;
    let records = records()?;
    let signals = StopSignals::catch();
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let shown = counts.clone();
    let status = StatusLine::start("cp-progress", move |_| {
        let files = format_count(shown.0.load(Ordering::Relaxed));
        format!("{files} files, {}", format_size(shown.1.load(Ordering::Relaxed)))
    });
    let progress = |now: &Progress| {
        counts.0.store(now.objects, Ordering::Relaxed);
        counts.1.store(now.bytes, Ordering::Relaxed);
    };
    let options = Options { stop: signals.flag.clone(), progress: &progress, ..Options::default() };
    let done = upload(&store, source, &records, &options);
    status.finish();
    let done = done.map_err(|error| remote::failure(&error))?;
    print(args, &done)?;
    Ok(match done.failed {
        _ if done.cancelled => signals.exit(),
        0 => Exit::Ok,
        _ => Exit::Failed,
    })
}

/// Returns the directory for the IDs of uploads.
fn records() -> Result<PathBuf, Failure> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            Failure::refused("cannot record uploads: set HOME or XDG_STATE_HOME to a directory")
        })?;
    Ok(state.join("ioloom/uploads"))
}

fn print(args: &CpArgs, done: &Uploaded) -> Result<(), Failure> {
    for error in done.errors.iter().take(ERRORS_PRINTED) {
        stderr::message(&out::readable(error.as_bytes()));
    }
    let more = done.failed.saturating_sub(done.errors.len().min(ERRORS_PRINTED) as u64);
    if more > 0 {
        stderr::message(&format!("and {} more errors", format_count(more)));
    }
    if done.gave_up && args.flags.recursive {
        stderr::message("no file was copied");
    }
    if done.cancelled {
        stderr::message("interrupted: no partial file became an object");
    }
    if args.flags.json {
        return out::print_json(&json!({
            "schema": 1,
            "command": "cp",
            "files": done.files,
            "bytes": done.bytes,
            "errors": done.failed,
            "error_samples": done.errors,
            "cancelled": done.cancelled,
            "elapsed_ns": done.elapsed.as_nanos() as u64,
            "verified_files": done.verified,
            "length_only_files": done.length_only,
            "aborted_uploads": done.aborted,
            "requests": {
                "sent": done.requests.sent,
                "refused": done.requests.refused,
                "repeated": done.requests.repeated,
            },
        }));
    }
    if done.length_only > 0 {
        let files = format_counted(done.length_only, "file", "files");
        stderr::message(&format!("{files} verified by length only: the store has no checksum"));
    }
    Ok(())
}
