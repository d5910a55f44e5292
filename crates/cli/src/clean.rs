//! `ioloom clean`: gives back the space of file sets; results stay.

use crate::exit::{Ended, Exit, Failure};
use crate::place::{short, work_dir};
use crate::{out, tell};
use clap::Args;
use ioloom_model::units::{format_count, format_size};
use ioloom_subjects::Files;
use std::path::PathBuf;

/// Removes the file sets that studies made; results stay.
#[derive(Debug, Args)]
#[command(after_help = "\
Only what carries a manifest of ioloom is removed. Results lie elsewhere and are never touched.

Examples:
  ioloom clean
  ioloom clean --dir /mnt/a      what `study --on /mnt/a` or `--dir /mnt/a` made")]
pub(crate) struct CleanArgs {
    /// The work directory [default: $XDG_CACHE_HOME/ioloom or ~/.cache/ioloom]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &CleanArgs) -> Ended {
    let dir = work_dir(args.dir.as_deref())?;
    if args.dir.is_some() {
        std::fs::read_dir(&dir)
            .map_err(|e| Failure::failed(format!("read directory {}: {e}", dir.display())))?;
    }
    crate::media::undo_left(&dir);
    let done = ioloom_lab::clean(&dir, &Files).map_err(Failure::failed)?;
    let (mut files, mut bytes, mut failed) = (0u64, 0u64, false);
    let mut text = String::new();
    for set in &done {
        if let Some(reason) = &set.failed {
            tell(reason);
            failed = true;
            continue;
        }
        let (count, size) = (format_count(set.files), format_size(set.bytes));
        text.push_str(&format!("{}  {count} files, {size}\n", short(&set.dir)));
        files += set.files;
        bytes += set.bytes;
    }
    let (files, bytes) = (format_count(files), format_size(bytes));
    text.push_str(&format!("{files} files removed, {bytes} given back\n"));
    out::print(&text)?;
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}
