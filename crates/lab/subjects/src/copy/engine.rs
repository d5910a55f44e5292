//! Calls of the engine `copy`, and the directory that copies are made in.

use super::plan::How;
use crate::sets::{SCRATCH, Scratch};
use ioloom_copy::{CopyCounters, CopyError, CopyOptions, Report, Silent, Target, When};
use ioloom_lab::files::SET_MANIFEST;
use ioloom_sys::clock::monotonic_ns;
use std::path::Path;

/// The directory that copies are made in: beside the items of a set.
pub(super) fn scratch_dir(items: &Path) -> Result<Scratch, String> {
    let home = items.parent().filter(|home| home.join(SET_MANIFEST).exists());
    let Some(home) = home else {
        return Err("copies are made beside a set of our own, and a directory of yours gets \
                    none; remedy: leave --files out"
            .to_owned());
    };
    Scratch::fresh(home.join(SCRATCH))
}

/// The engine's options for a way. Sharing of blocks is a way of its own here: where the copier is
/// asked for another one, it must not share.
pub(super) fn options(how: &How) -> CopyOptions {
    let reflink = if how.mode.is_none() { When::Auto } else { When::Never };
    CopyOptions { mode: how.mode, tuning: how.tuning, reflink, ..CopyOptions::default() }
}

/// Copies and tells how long it took until the copier returned, ns, with its report.
pub(super) fn timed(
    from: &Path,
    to: Target,
    options: &CopyOptions,
) -> Result<(u64, Report), String> {
    let sources = [from.to_owned()];
    let progress = CopyCounters::default();
    let start = monotonic_ns();
    let copied = ioloom_copy::copy(&sources, &to, options, &Silent, &progress);
    let ns = monotonic_ns() - start;
    let report = copied.map_err(|e| e.to_string())?;
    if report.errors_count > 0 || report.cancelled {
        let told: Vec<_> = report.errors.iter().map(CopyError::to_string).collect();
        return Err(format!("the copy failed: {}", told.join("; ")));
    }
    Ok((ns, report))
}
