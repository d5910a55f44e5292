//! cgroups of this program: created, removed, and recognized as leftovers after their process was
//! killed.
//!
//! The name of a group contains the ID of the process that created it, so a group whose process has
//! exited is a leftover that any later run can remove.

use ioloom_sys::fault::call;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Name prefix of all our groups, followed by the ID of the creating process.
pub(super) const NAME: &str = "ioloom-study-";
/// Number of attempts to remove a group: the kernel releases a dead process shortly after it exits.
const REMOVE_TRIES: u32 = 50;

/// Creates an empty group below `point`.
pub(super) fn create_group(point: &Path) -> Result<PathBuf, (PathBuf, io::Error)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = point.join(format!("{NAME}{}-{count}", std::process::id()));
    match call("mkdir", || std::fs::create_dir(&dir)) {
        Ok(()) => Ok(dir),
        Err(error) => Err((dir, error)),
    }
}

/// Removes an empty group; a group that is already gone is not an error.
pub(super) fn remove_group(dir: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match call("rmdir", || std::fs::remove_dir(dir)) {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && tries < REMOVE_TRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => return result,
        }
    }
}

/// Removes groups below `point` whose process has exited; returns their number.
pub(super) fn remove_leftovers_in(point: &Path) -> io::Result<usize> {
    let mut found = 0;
    for entry in call("read-dir", || std::fs::read_dir(point))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(process) = maker(&name) else { continue };
        if !is_alive(process) {
            remove_group(&path)?;
            found += 1;
        }
    }
    Ok(found)
}

/// Reports whether a process is running. A zombie has an empty command line and does not count.
pub fn is_alive(process: u32) -> bool {
    std::fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Returns the process that created the group with this name; `None` if it is not one of ours.
fn maker(name: &str) -> Option<u32> {
    let (process, count) = name.strip_prefix(NAME)?.split_once('-')?;
    count.parse::<u32>().ok()?;
    process.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_name_holds_the_process_that_made_it() {
        assert_eq!(maker("ioloom-study-17-0"), Some(17));
        for other in ["ioloom-study-", "ioloom-study-17", "ioloom-study-x-1", "user.slice"] {
            assert_eq!(maker(other), None, "{other}");
        }
    }

    #[test]
    fn groups_of_dead_processes_are_removed_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        // No process has the ID 4294967295, and `user.slice` is not ours.
        let [dead, mine, foreign] = [
            format!("{NAME}4294967295-3"),
            format!("{NAME}{}-9", std::process::id()),
            "user.slice".to_owned(),
        ]
        .map(|name| dir.path().join(name));
        for group in [&dead, &mine, &foreign] {
            std::fs::create_dir(group).unwrap();
        }
        assert_eq!(remove_leftovers_in(dir.path()).unwrap(), 1);
        assert!(!dead.exists() && mine.exists() && foreign.exists());
        assert_eq!(remove_leftovers_in(dir.path()).unwrap(), 0);
    }
}
