//! A rate limit on a process's reads from one device.
//!
//! A throttled loop device simulates a slower disk: the same files and the same calls with fewer
//! bytes and reads per second. The limit belongs to a cgroup created for one study and affects only
//! the process that [`Throttle::enter`] moves into it. Both cgroup versions work (version 1:
//! controller `blkio`, version 2: `io`). In version 2 the controller must already be enabled
//! because enabling it would change the machine for other programs.
//!
//! Requires root. The group is removed on drop. Leftovers of killed processes are recognized by
//! name and removed by [`super::remove_leftover_groups`].

use super::group::{create_group, remove_group};
use ioloom_failure::{quoted, reason};
use ioloom_sys::fault::call;
use std::io;
use std::path::{Path, PathBuf};

/// File that identifies a version 1 hierarchy.
const READ_BYTES_FILE: &str = "blkio.throttle.read_bps_device";
/// Rates of a throttled device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    /// Bytes per second.
    pub bytes_per_s: u64,
    /// Reads per second.
    pub reads_per_s: u64,
}

/// A cgroup hierarchy that supports throttling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hierarchy {
    Blkio(PathBuf),
    Unified(PathBuf),
}

impl Hierarchy {
    pub(super) fn point(&self) -> &Path {
        match self {
            Self::Blkio(point) | Self::Unified(point) => point,
        }
    }

    /// Returns the files of a group and the text to write to each, to limit reads from `device`.
    fn limits(&self, device: (u32, u32), limit: ReadLimit) -> Vec<(&'static str, String)> {
        let (major, minor) = device;
        let ReadLimit { bytes_per_s, reads_per_s } = limit;
        match self {
            Self::Blkio(_) => vec![
                (READ_BYTES_FILE, format!("{major}:{minor} {bytes_per_s}")),
                ("blkio.throttle.read_iops_device", format!("{major}:{minor} {reads_per_s}")),
            ],
            Self::Unified(_) => {
                vec![("io.max", format!("{major}:{minor} rbps={bytes_per_s} riops={reads_per_s}"))]
            }
        }
    }
}

/// Returns a hierarchy that supports throttling, or a sentence with the reason and the remedy.
pub(super) fn hierarchy() -> Result<Hierarchy, String> {
    hierarchy_among(
        ioloom_sys::mount::mounts()
            .map_err(|e| format!("cannot read '/proc/self/mountinfo': {}", reason(&e)))?,
    )
}

/// Searches the given mounts for the hierarchy.
fn hierarchy_among(mounts: Vec<ioloom_sys::mount::Mount>) -> Result<Hierarchy, String> {
    let mut off = None;
    for mount in mounts {
        if mount.file_system == "cgroup" && mount.point.join(READ_BYTES_FILE).exists() {
            return Ok(Hierarchy::Blkio(mount.point));
        }
        if mount.file_system == "cgroup2" {
            let has = |file: &str| {
                ioloom_sys::proc::read_text(&mount.point.join(file))
                    .is_ok_and(|text| text.split_whitespace().any(|word| word == "io"))
            };
            if has("cgroup.subtree_control") {
                return Ok(Hierarchy::Unified(mount.point));
            }
            if has("cgroup.controllers") {
                off = Some(mount.point.join("cgroup.subtree_control"));
            }
        }
    }
    Err(match off {
        Some(file) => {
            format!("the io controller is off; remedy: write +io to {}", quoted(&file))
        }
        None => "no cgroup controller for disks (blkio or io); remedy: mount one, or run outside \
        this container"
            .to_owned(),
    })
}

/// A group with limited reads from one device. Dropping it removes the group.
#[derive(Debug)]
pub struct Throttle {
    dir: PathBuf,
}

impl Throttle {
    /// Creates a group whose reads from `device` (major and minor number) are limited to `limit`.
    /// The error is a sentence with the reason and the remedy.
    pub fn create(device: (u32, u32), limit: ReadLimit) -> Result<Self, String> {
        Self::create_in(&hierarchy()?, device, limit)
    }

    fn create_in(
        hierarchy: &Hierarchy,
        device: (u32, u32),
        limit: ReadLimit,
    ) -> Result<Self, String> {
        let sentence = |what: &str, dir: &Path, e: io::Error| {
            let (dir, reason) = (quoted(dir), reason(&e));
            format!("cannot {what} {dir}: {reason}; remedy: run as root, outside a container")
        };
        let dir = create_group(hierarchy.point())
            .map_err(|(dir, e)| sentence("create cgroup", &dir, e))?;
        let failed = |what: &str, e| sentence(what, &dir, e);
        let group = Self { dir: dir.clone() };
        let lines = hierarchy.limits(device, limit);
        for (file, line) in lines {
            call("write-cgroup", || std::fs::write(dir.join(file), &line))
                .map_err(|e| failed("limit reads in cgroup", e))?;
        }
        Ok(group)
    }

    /// Moves a process into the group; threads that it starts later join the group as well.
    pub fn enter(&self, process: u32) -> io::Result<()> {
        let file = self.dir.join("cgroup.procs");
        call("enter-cgroup", || std::fs::write(&file, process.to_string()))
    }

    /// Returns the group directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // If removal fails, the group is empty and the next run removes it.
        let _ = remove_group(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::{NAME, remove_leftovers_in};
    use super::super::remove_leftover_groups;
    use super::*;

    const LIMIT: ReadLimit = ReadLimit { bytes_per_s: 1 << 20, reads_per_s: 1000 };

    fn root_device() -> Option<(u32, u32)> {
        let medium = ioloom_sys::mount::medium(Path::new(env!("CARGO_MANIFEST_DIR"))).ok()?;
        medium.disk.is_some().then_some(medium.mount.device)
    }

    /// Creates a directory that simulates a mounted hierarchy with these files.
    fn hierarchy_of(
        kind: &str,
        files: &[(&str, &str)],
    ) -> (tempfile::TempDir, ioloom_sys::mount::Mount) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let mount = ioloom_sys::mount::Mount {
            id: 1,
            parent: 0,
            device: (0, 30),
            point: dir.path().to_owned(),
            options: "rw".to_owned(),
            file_system: kind.to_owned(),
            source: kind.into(),
        };
        (dir, mount)
    }

    #[test]
    fn the_hierarchy_that_can_throttle_is_found() {
        let on = ("cgroup.subtree_control", "cpu io memory\n");
        let (_two, two) = hierarchy_of("cgroup2", &[("cgroup.controllers", "cpu io\n"), on]);
        let (_one, one) = hierarchy_of("cgroup", &[(READ_BYTES_FILE, "")]);
        let (_bare, bare) = hierarchy_of("cgroup", &[("cpu.shares", "1024\n")]);
        let off = [("cgroup.controllers", "cpuset cpu io\n"), ("cgroup.subtree_control", "cpu\n")];
        let (_off, off) = hierarchy_of("cgroup2", &off);
        let words = [("cgroup.controllers", "cpu iolatency\n"), ("cgroup.subtree_control", "\n")];
        let (_none, none) = hierarchy_of("cgroup2", &words);
        let (_disk, disk) = hierarchy_of("ext4", &[on]);
        let of = |mounts: &[&ioloom_sys::mount::Mount]| {
            hierarchy_among(mounts.iter().map(|m| (*m).clone()).collect())
        };
        assert_eq!(of(&[&disk, &bare, &two]), Ok(Hierarchy::Unified(two.point.clone())));
        assert_eq!(of(&[&off, &one]), Ok(Hierarchy::Blkio(one.point.clone())));
        let remedy = of(&[&disk, &off]).unwrap_err();
        let file = off.point.join("cgroup.subtree_control").display().to_string();
        assert!(remedy.contains("remedy: write +io to") && remedy.contains(&file), "{remedy}");
        for missing in [of(&[&none, &bare, &disk]), of(&[])] {
            assert!(missing.unwrap_err().contains("no cgroup controller for disks"));
        }
    }

    #[test]
    fn limits_are_written_as_the_kernel_reads_them() {
        let (dir, mount) = hierarchy_of("cgroup2", &[("cgroup.subtree_control", "io\n")]);
        let unified = hierarchy_among(vec![mount]).unwrap();
        let group = Throttle::create_in(&unified, (7, 12), LIMIT).unwrap();
        assert_eq!(group.dir().parent(), Some(dir.path()));
        let text = |file: &str| std::fs::read_to_string(group.dir().join(file)).unwrap();
        assert_eq!(text("io.max"), "7:12 rbps=1048576 riops=1000");
        // One line per device: the kernel uses the device as the key of a line.
        assert_eq!(text("io.max").lines().count(), 1);
        group.enter(4242).unwrap();
        assert_eq!(text("cgroup.procs"), "4242");
        let other = Throttle::create_in(&unified, (7, 12), LIMIT).unwrap();
        assert_ne!(group.dir(), other.dir(), "two studies in one process must not share a group");

        let (_dir, mount) = hierarchy_of("cgroup", &[(READ_BYTES_FILE, "")]);
        let blkio = hierarchy_among(vec![mount]).unwrap();
        let group = Throttle::create_in(&blkio, (254, 0), LIMIT).unwrap();
        let text = |file: &str| std::fs::read_to_string(group.dir().join(file)).unwrap();
        assert_eq!(text(READ_BYTES_FILE), "254:0 1048576");
        assert_eq!(text("blkio.throttle.read_iops_device"), "254:0 1000");
    }

    #[test]
    fn a_hierarchy_that_cannot_be_written_is_reported() {
        let gone = Hierarchy::Unified("/no/such/hierarchy".into());
        let reason = Throttle::create_in(&gone, (7, 0), LIMIT).unwrap_err();
        assert!(reason.starts_with("cannot create cgroup '/no/such/hierarchy/"), "{reason}");
        assert!(reason.contains("remedy: run as root"), "{reason}");
        assert!(remove_leftovers_in(gone.point()).is_err());
    }

    #[test]
    fn a_group_takes_a_process_and_is_removed() {
        let Some(device) = root_device() else {
            println!("skipped: the source tree is not on a disk");
            return;
        };
        let group = match Throttle::create(device, LIMIT) {
            Ok(group) => group,
            Err(reason) => {
                println!("skipped: {reason}");
                assert!(reason.contains("remedy: "), "{reason}");
                return;
            }
        };
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        group.enter(child.id()).unwrap();
        let members = std::fs::read_to_string(group.dir().join("cgroup.procs")).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(members.trim(), child.id().to_string());
        let dir = group.dir().to_owned();
        remove_leftover_groups().unwrap();
        assert!(dir.exists(), "the group of a running process must not be removed");
        drop(group);
        assert!(!dir.exists());
        // No process has this ID. Another program may remove the group at the same time.
        let left = dir.with_file_name(format!("{NAME}4294967295-{}", std::process::id()));
        std::fs::create_dir(&left).unwrap();
        remove_leftover_groups().unwrap();
        assert!(!left.exists());
    }
}
