//! A memory limit for this process, including its page cache.
//!
//! The pages evicted by a copy are only visible if memory is short. A cgroup limits the memory of
//! one process without affecting the rest of the machine or any setting. A page is charged to the
//! group whose process loaded it. Both cgroup versions work (version 1: controller `memory`); in
//! version 2 the controller must already be enabled.
//!
//! Requires root. On drop, the process returns to its previous group and the group is removed.
//! Leftovers of killed processes are removed by [`super::remove_leftover_groups`].

use super::group::{create_group, remove_group};
use ioloom_failure::{quoted, reason};
use ioloom_sys::fault::call;
use std::io;
use std::path::{Path, PathBuf};

/// File that identifies a version 1 hierarchy.
const LIMIT_FILE: &str = "memory.limit_in_bytes";

/// Returns the mount point of the hierarchy and the file that sets the limit.
pub(super) fn hierarchy() -> Result<(PathBuf, &'static str), String> {
    let mut off = None;
    for mount in ioloom_sys::mount::mounts()
        .map_err(|e| format!("cannot read '/proc/self/mountinfo': {}", reason(&e)))?
    {
        if mount.file_system == "cgroup" && mount.point.join(LIMIT_FILE).exists() {
            return Ok((mount.point, LIMIT_FILE));
        }
        if mount.file_system == "cgroup2" {
            let has = |file: &str| {
                ioloom_sys::proc::read_text(&mount.point.join(file))
                    .is_ok_and(|text| text.split_whitespace().any(|word| word == "memory"))
            };
            if has("cgroup.subtree_control") {
                return Ok((mount.point, "memory.max"));
            }
            if has("cgroup.controllers") {
                off = Some(mount.point.join("cgroup.subtree_control"));
            }
        }
    }
    Err(off.map_or_else(
        || {
            "no cgroup controller for memory; remedy: mount one, or run outside this container"
                .to_owned()
        },
        |file| format!("the memory controller is off; remedy: write +memory to {}", quoted(&file)),
    ))
}

/// Returns the directory of this process's group.
fn own_group(point: &Path) -> io::Result<PathBuf> {
    let text = ioloom_sys::proc::read_text(Path::new("/proc/self/cgroup"))?;
    let v1 = point.join(LIMIT_FILE).exists();
    let line = text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let ours =
            if v1 { controllers.split(',').any(|c| c == "memory") } else { controllers.is_empty() };
        ours.then(|| path.trim_start_matches('/').to_owned())
    });
    // In a cgroup namespace the path may be outside the mount; use the root of the mount in that
    // case.
    let found = line.map(|path| point.join(path)).filter(|dir| dir.join("cgroup.procs").exists());
    Ok(found.unwrap_or_else(|| point.to_owned()))
}

/// A memory limit for this process. Dropping it removes the limit.
#[derive(Debug)]
pub struct MemoryLimit {
    dir: PathBuf,
    home: PathBuf,
}

impl MemoryLimit {
    /// Tries to create such a group. The error is a sentence with the reason and the remedy.
    pub fn probe() -> Result<(), String> {
        let (point, _) = hierarchy()?;
        let dir = create(&point)?;
        remove_group(&dir)
            .map_err(|e| format!("cannot remove cgroup {}: {}", quoted(&dir), reason(&e)))
    }

    /// Moves this process into a group limited to `bytes` of memory. Pages loaded earlier remain
    /// charged to their group. The error is a sentence.
    pub fn enter(bytes: u64) -> Result<Self, String> {
        let (point, file) = hierarchy()?;
        let home = own_group(&point)
            .map_err(|e| format!("cannot read '/proc/self/cgroup': {}", reason(&e)))?;
        let group = Self { dir: create(&point)?, home };
        let failed = |what: &str, e: io::Error| {
            format!("cannot {what} {}: {}", quoted(&group.dir), reason(&e))
        };
        call("write-cgroup", || std::fs::write(group.dir.join(file), bytes.to_string()))
            .map_err(|e| failed("limit memory in cgroup", e))?;
        group.join(&group.dir).map_err(|e| failed("enter cgroup", e))?;
        Ok(group)
    }

    /// Returns a counter of the group from `memory.stat`, such as `workingset_refault_file` (file
    /// pages read again soon after eviction); `None` if the kernel does not report it. The value
    /// can lag by several hundred pages.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn stat(&self, name: &str) -> io::Result<Option<u64>> {
        let text = ioloom_sys::proc::read_text(&self.dir.join("memory.stat"))?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let found = lines.find(|(key, _)| *key == name);
        Ok(found.and_then(|(_, number)| number.trim().parse().ok()))
    }

    fn join(&self, dir: &Path) -> io::Result<()> {
        let own = std::process::id().to_string();
        call("enter-cgroup", || std::fs::write(dir.join("cgroup.procs"), &own))
    }
}

fn create(point: &Path) -> Result<PathBuf, String> {
    create_group(point).map_err(|(dir, e)| {
        let (dir, reason) = (quoted(&dir), reason(&e));
        format!("cannot create cgroup {dir}: {reason}; remedy: run as root, outside a container")
    })
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // If removal fails, the group is empty and the next run removes it.
        let _ = self.join(&self.home);
        let _ = remove_group(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does not enter the group because that would move the other tests as well.
    #[test]
    fn a_group_is_created_and_removed() {
        match MemoryLimit::probe() {
            Ok(()) => {}
            Err(reason) => {
                println!("skipped: {reason}");
                assert!(reason.contains("remedy: "), "{reason}");
            }
        }
    }

    #[test]
    fn the_group_of_this_process_is_found() {
        let Ok((point, _)) = hierarchy() else {
            println!("skipped: no cgroup hierarchy for memory");
            return;
        };
        let own = own_group(&point).unwrap();
        assert!(own.starts_with(&point) && own.join("cgroup.procs").exists(), "{own:?}");
    }
}
