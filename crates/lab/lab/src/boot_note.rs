//! Records the boot in which a file set was last used.
//!
//! A set is cold if it has not been used since the machine booted.

use ioloom_failure::{Operation, PathError, reason};
use ioloom_sys::proc;
use std::path::{Path, PathBuf};

/// Returns the file next to a set that holds the boot identifier.
fn path_of(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".used-in-boot");
    dir.with_file_name(name)
}

/// Records that the set was used in this boot and is therefore no longer cold.
pub(crate) fn note_use(dir: &Path) -> Result<(), String> {
    let path = path_of(dir);
    let boot =
        proc::boot_id().map_err(|e| format!("cannot read the boot identifier: {}", reason(&e)))?;
    std::fs::write(&path, boot).map_err(|e| PathError::new(Operation::Write, &path, e).to_string())
}

/// Removes the record of a deleted set.
pub(crate) fn forget_use(dir: &Path) {
    // A leftover note is overwritten when the set is recreated.
    let _ = std::fs::remove_file(path_of(dir));
}

/// Returns whether the set was used since the machine booted. Returns false for a set created by an
/// older program, which has no note; then the device reads of the run are the only evidence.
pub(crate) fn used_since_start(dir: &Path) -> bool {
    match (std::fs::read_to_string(path_of(dir)), proc::boot_id()) {
        (Ok(noted), Ok(now)) => noted == now,
        _ => false,
    }
}
