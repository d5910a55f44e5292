//! `ioloom clean`: removes file sets created by studies, but no results.

use crate::directories::{short, work_dir};
use crate::exit::{Ended, Exit, Failure};
use crate::{out, stderr};
use clap::Args;
use ioloom_failure::{Operation, PathError};
use ioloom_model::units::{format_counted, format_size};
use ioloom_subjects::FileSets;
use std::path::PathBuf;

/// Remove file sets created by studies
///
/// Also removes leftovers of killed studies: images, control groups, sets in memory and run
/// directories. Only directories with a manifest or mark written by ioloom are removed. Results are
/// stored elsewhere and are never removed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom clean
  ioloom clean --dir /mnt/a      clean up after `ioloom study --on /mnt/a`")]
pub(crate) struct CleanArgs {
    /// Work directory of the studies
    ///
    /// Default: $XDG_CACHE_HOME/ioloom or ~/.cache/ioloom.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &CleanArgs) -> Ended {
    let dir = work_dir(args.dir.as_deref())?;
    if args.dir.is_some() {
        std::fs::read_dir(&dir)
            .map_err(PathError::on(Operation::OpenDir, &dir))
            .map_err(Failure::failed)?;
    }
    let left = crate::media::remove_leftovers(&dir);
    let done = ioloom_lab::clean(&dir, &FileSets).map_err(Failure::failed)?;
    let (mut files, mut bytes, mut failed) = (0u64, 0u64, false);
    let mut text = String::new();
    for set in &done {
        files += set.files;
        bytes += set.bytes;
        if let Some(reason) = &set.failed {
            stderr::message(reason);
            failed = true;
            continue;
        }
        let (files, size) = (counted(set.files), format_size(set.bytes));
        text.push_str(&format!("{}  {files}, {size}\n", short(&set.dir)));
    }
    text.push_str(&summary(left, files, bytes));
    out::then(out::print(&text), Ok(if failed { Exit::Failed } else { Exit::Ok }))
}

fn counted(files: u64) -> String {
    format_counted(files, "file", "files")
}

/// Returns the last line, with the totals.
fn summary(left: usize, files: u64, bytes: u64) -> String {
    let mut parts = Vec::new();
    if left > 0 {
        let what = if left == 1 { "1 leftover".to_owned() } else { format!("{left} leftovers") };
        parts.push(format!("{what} of killed studies removed"));
    }
    if files > 0 || left == 0 {
        let (files, bytes) = (counted(files), format_size(bytes));
        parts.push(format!("{files} removed, {bytes} freed"));
    }
    format!("{}\n", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn leftovers_are_counted_apart_from_files() {
        assert_eq!(summary(0, 0, 0), "0 files removed, 0 B freed\n");
        assert_eq!(summary(0, 1, 4096), "1 file removed, 4.00 KiB freed\n");
        assert_eq!(summary(1, 0, 0), "1 leftover of killed studies removed\n");
        let both = "2 leftovers of killed studies removed; 40 files removed, 4.00 KiB freed\n";
        assert_eq!(summary(2, 40, 4096), both);
    }
}
