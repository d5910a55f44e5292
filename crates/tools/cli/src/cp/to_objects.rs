//! `cp FILE s3://BUCKET/KEY` and `cp -r DIR s3://BUCKET/PREFIX`, and the same for the other schemes of stores.

use super::args::CpArgs;
use super::objects::{check, options, print_errors, print_length_only, with_progress};
use crate::exit::{Ended, Exit, Failure};
use crate::interrupt::StopSignals;
use crate::{out, remote, stderr};
use ioloom_objects::{Uploaded, upload};
use serde_json::json;
use std::path::{Path, PathBuf};

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
    signals.share();
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let done = with_progress(|progress| {
        upload(&store, source, &records, &options(&signals.flag, progress))
    });
    let done = done.map_err(|error| remote::failure(&error))?;
    let exit = match done.failed {
        _ if done.cancelled => signals.exit(),
        0 => Exit::Ok,
        _ => Exit::Failed,
    };
    out::then(print(args, &done), Ok(exit))
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
    print_errors(&done.errors, done.failed);
    if done.gave_up && args.flags.recursive {
        stderr::message(match done.files {
            0 => "no file was copied",
            _ => "the other files were not tried",
        });
    }
    if done.cancelled {
        stderr::message("interrupted: no partial file became an object");
    }
    if args.flags.json {
        return out::print_json_to_slow_reader(&json!({
            "schema": 1,
            "command": "cp",
            "files": done.files,
            "bytes": done.bytes,
            "errors": done.failed,
            "error_samples": done.errors,
            "cancelled": done.cancelled,
            "gave_up": done.gave_up,
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
    print_length_only(done.length_only);
    Ok(())
}
