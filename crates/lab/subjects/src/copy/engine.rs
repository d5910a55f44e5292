//! Calls the engine `copy`, and creates the directory for copies.

use super::plan::How;
use crate::sets::{SCRATCH, Scratch, set_of};
use ioloom_copy::{CopyCounters, CopyError, CopyOptions, Report, Silent, Target, When};
use ioloom_sys::clock::monotonic_ns;
use std::path::Path;

/// Creates the directory for copies next to the items of a set.
pub(super) fn scratch_dir(items: &Path) -> Result<Scratch, String> {
    Scratch::fresh(set_of(items)?.join(SCRATCH))
}

/// Returns the engine's options for a copy method. Block sharing is a separate method here, so the
/// other methods must not share blocks.
pub(super) fn options(how: &How) -> CopyOptions {
    let reflink = if how.mode.is_none() { When::Auto } else { When::Never };
    CopyOptions { mode: how.mode, tuning: how.tuning, reflink, ..CopyOptions::default() }
}

/// Copies. Returns the time in ns until the engine returned, and its report.
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
        let errors: Vec<_> = report.errors.iter().map(CopyError::to_string).collect();
        return Err(format!("the copy failed: {}", errors.join("; ")));
    }
    Ok((ns, report))
}
