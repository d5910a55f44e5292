//! Notes of the boot in which a set was last used.

use ioloom_sys::proc;
use std::path::{Path, PathBuf};

/// The file beside a set that holds the name of the last start of the machine in which it was used.
fn note_of_use(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".used-in-boot");
    dir.with_file_name(name)
}

/// Notes that the set is used in this start of the machine: from now on it is not cold by that.
pub(crate) fn note_use(dir: &Path) -> Result<(), String> {
    let path = note_of_use(dir);
    let boot = proc::boot_id().map_err(|e| format!("read the name of this start: {e}"))?;
    std::fs::write(&path, boot).map_err(|e| format!("write {}: {e}", path.display()))
}

/// Removes the note of a set that is not there any more.
pub(crate) fn forget_use(dir: &Path) {
    // One that stays is overwritten when the set is made again.
    let _ = std::fs::remove_file(note_of_use(dir));
}

/// Whether the set was used since the machine was started. A set without a note was made by a
/// program that kept none, and then the device alone can tell.
pub(crate) fn used_since_start(dir: &Path) -> bool {
    match (std::fs::read_to_string(note_of_use(dir)), proc::boot_id()) {
        (Ok(noted), Ok(now)) => noted == now,
        _ => false,
    }
}
