//! A group of processes that gets only so much memory, page cache included.
//!
//! What a copy pushes out of memory shows only where memory is short. The group makes it short for
//! one process, so nothing else on the machine is touched and no setting of the system is changed.
//! Pages belong to the group whose process brought them in. Version 1 (controller `memory`) and
//! version 2 are served; in version 2 the controller must be on already.
//!
//! Needs root. The process goes back to where it was on drop, and the group is removed; what a
//! killed process left is removed by [`super::remove_leftover_groups`].

use super::group::{create_group, remove_group};
use ioloom_failure::{quoted, reason};
use ioloom_sys::fault::call;
use std::io;
use std::path::{Path, PathBuf};

/// File of version 1, by which its hierarchy is known.
const LIMIT_FILE: &str = "memory.limit_in_bytes";

/// Returns the mount of the hierarchy, and the file that takes the limit.
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
            "no cgroup controller for memory; remedy: mount one, or run outside of this container"
                .to_owned()
        },
        |file| format!("the memory controller is off; remedy: write +memory to {}", quoted(&file)),
    ))
}

/// Returns the group that this process is in, as a directory.
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
    // A path from above a namespace cannot be gone back to; the root of the mount can.
    let found = line.map(|path| point.join(path)).filter(|dir| dir.join("cgroup.procs").exists());
    Ok(found.unwrap_or_else(|| point.to_owned()))
}

/// This process with little memory. Dropping it gives the memory back.
#[derive(Debug)]
pub struct MemoryLimit {
    dir: PathBuf,
    home: PathBuf,
}

impl MemoryLimit {
    /// Returns whether such a group can be made; the error is a sentence that says what is missing
    /// and what to do.
    pub fn probe() -> Result<(), String> {
        let (point, _) = hierarchy()?;
        let dir = create(&point)?;
        remove_group(&dir)
            .map_err(|e| format!("cannot remove cgroup {}: {}", quoted(&dir), reason(&e)))
    }

    /// Puts this process into a group with `bytes` of memory. Its pages of before stay with others.
    /// The error is a sentence.
    pub fn enter(bytes: u64) -> Result<Self, String> {
        let (point, file) = hierarchy()?;
        let home = own_group(&point)
            .map_err(|e| format!("cannot read '/proc/self/cgroup': {}", reason(&e)))?;
        let group = Self { dir: create(&point)?, home };
        let failed = |what: &str, e: io::Error| {
            format!("cannot {what} {}: {}", quoted(&group.dir), reason(&e))
        };
        call("write-cgroup", || std::fs::write(group.dir.join(file), bytes.to_string()))
            .map_err(|e| failed("limit the memory of cgroup", e))?;
        group.join(&group.dir).map_err(|e| failed("enter cgroup", e))?;
        Ok(group)
    }

    /// Returns a number of the group, by its name in `memory.stat`, such as
    /// `workingset_refault_file` (pages of files that were wanted again soon after they had gone);
    /// `None` where the kernel does not tell it. It may lag by some hundred pages.
    ///
    /// # Errors
    /// What reading the file reports.
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
        format!("cannot create cgroup {dir}: {reason}; remedy: run as root, outside of a container")
    })
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // A group that stays is empty, and is removed by the next start.
        let _ = self.join(&self.home);
        let _ = remove_group(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own: moving this one would move the other tests too.
    #[test]
    fn a_group_is_made_and_goes_away() {
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
            println!("skipped: no hierarchy for memory");
            return;
        };
        let own = own_group(&point).unwrap();
        assert!(own.starts_with(&point) && own.join("cgroup.procs").exists(), "{own:?}");
    }
}
