//! `ioloom clean`: gives back the space of file sets; results stay.

use crate::directories::{short, work_dir};
use crate::exit::{Ended, Exit, Failure};
use crate::{out, stderr};
use clap::Args;
use ioloom_model::units::{format_count, format_size};
use ioloom_subjects::FileSets;
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
    let left = crate::media::undo_left(&dir);
    let done = ioloom_lab::clean(&dir, &FileSets).map_err(Failure::failed)?;
    let (mut files, mut bytes, mut failed) = (0u64, 0u64, false);
    let mut text = String::new();
    for set in &done {
        if let Some(reason) = &set.failed {
            stderr::message(reason);
            failed = true;
            continue;
        }
        let (count, size) = (format_count(set.files), format_size(set.bytes));
        text.push_str(&format!("{}  {count} files, {size}\n", short(&set.dir)));
        files += set.files;
        bytes += set.bytes;
    }
    text.push_str(&summary(left, files, bytes));
    out::print(&text)?;
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

/// The last line: what was removed in all.
fn summary(left: usize, files: u64, bytes: u64) -> String {
    let mut parts = Vec::new();
    if left > 0 {
        let what = if left == 1 { "1 leftover".to_owned() } else { format!("{left} leftovers") };
        parts.push(format!("{what} of killed studies removed"));
    }
    if files > 0 || left == 0 {
        let (files, bytes) = (format_count(files), format_size(bytes));
        parts.push(format!("{files} files removed, {bytes} given back"));
    }
    format!("{}\n", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::summary;

    #[test]
    fn leftovers_are_counted_apart_from_files() {
        assert_eq!(summary(0, 0, 0), "0 files removed, 0 B given back\n");
        assert_eq!(summary(1, 0, 0), "1 leftover of killed studies removed\n");
        let both = "2 leftovers of killed studies removed; 40 files removed, 4.00 KiB given back\n";
        assert_eq!(summary(2, 40, 4096), both);
    }
}
