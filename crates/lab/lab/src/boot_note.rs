//! Notes in which boot of the machine a file set was last used.
//!
//! A set that was not used since the machine booted is cold.

use ioloom_failure::{Operation, PathError, reason};
use ioloom_sys::proc;
use std::path::{Path, PathBuf};

/// Returns the file next to a set that holds the boot identifier.
fn path_of(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".used-in-boot");
    dir.with_file_name(name)
}

/// Notes that the set is used in this boot and therefore no longer cold.
pub(crate) fn note_use(dir: &Path) -> Result<(), String> {
    let path = path_of(dir);
    let boot =
        proc::boot_id().map_err(|e| format!("cannot read the boot identifier: {}", reason(&e)))?;
    std::fs::write(&path, boot).map_err(|e| PathError::new(Operation::Write, &path, e).to_string())
}

/// Removes the note of a set that was removed.
pub(crate) fn forget_use(dir: &Path) {
    // A note that stays is overwritten when the set is made again.
    let _ = std::fs::remove_file(path_of(dir));
}

/// Returns whether the set was used since the machine booted. False for a set without a note, made
/// by an older program; then only the device reads of the run are evidence.
pub(crate) fn used_since_start(dir: &Path) -> bool {
    match (std::fs::read_to_string(path_of(dir)), proc::boot_id()) {
        (Ok(noted), Ok(now)) => noted == now,
        _ => false,
    }
}
