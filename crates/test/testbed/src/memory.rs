//! Directories in memory, for tests in which processes die but the machine does not: syncs cost
//! nothing there. Tests of power failures, direct I/O and file systems need a real disk.

use rustix::fs::statvfs;
use std::path::Path;
use tempfile::TempDir;

/// Where Linux mounts a file system in memory that all users can write to.
pub(crate) const MEMORY: &str = "/dev/shm";
/// Least free space there; containers often have only 64 MiB. The tests of a crate that run at the
/// same time use up to 1 GiB, for images of disks.
const FREE_MIN: u64 = 4 << 30;

/// Creates a temporary directory in memory, or in the usual place if there is little room.
pub fn in_memory() -> TempDir {
    let has_room = |dir: &Path| statvfs(dir).is_ok_and(|fs| fs.f_bavail * fs.f_frsize >= FREE_MIN);
    let memory = Path::new(MEMORY);
    let made = has_room(memory).then(|| TempDir::new_in(memory)).and_then(Result::ok);
    made.unwrap_or_else(|| tempfile::tempdir().expect("a temporary directory"))
}
