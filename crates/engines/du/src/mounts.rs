//! Decides which mounted file systems a walk descends into.
//!
//! A user who scans a tree rarely wants the `/proc` inside it, whose files take no space. A walk
//! therefore skips file systems of the kernel unless a path specified by the user is inside one. A
//! root on such a file system is walked, including other file systems of the same type. File systems
//! with files that users store are entered as in GNU du, also those of networks. Mount points are
//! matched by name, before a call on them can block.

use ioloom_sys::mount::Mount;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns a test of whether a path leads to a mount. None does if another mount covers the mount, as an automatic
/// mount covers the `autofs` that causes it, or covers a directory above it. The order of the table does not
/// show which of two mounts is covered: mounts can be moved with those below them.
pub(crate) fn visible(mounts: &[Mount]) -> impl Fn(&Mount) -> bool {
    let by_id: HashMap<u64, &Mount> = mounts.iter().map(|mount| (mount.id, mount)).collect();
    let on: HashMap<(u64, &Path), u64> =
        mounts.iter().map(|mount| ((mount.parent, mount.point.as_path()), mount.id)).collect();
    move |mount| {
        let covers = |parent: u64, point: &Path, covered: u64| {
            on.get(&(parent, point)).is_some_and(|id| *id != covered)
        };
        if covers(mount.id, &mount.point, mount.id) {
            return false;
        }
        let mut at = mount;
        // A damaged table could contain a circle.
        for _ in 0..by_id.len() {
            // Paths start inside the root, so they never lead to what is mounted on it.
            let mut above = at.point.ancestors().filter(|point| *point != Path::new("/"));
            if above.any(|point| covers(at.parent, point, at.id)) {
                return false;
            }
            match by_id.get(&at.parent) {
                Some(parent) => at = parent,
                None => break,
            }
        }
        true
    }
}

/// Returns the indices of the file systems of the kernel that paths lead to.
pub(crate) fn made_up(mounts: &[Mount]) -> Vec<usize> {
    let is_visible = visible(mounts);
    let found = mounts.iter().enumerate();
    found.filter(|(_, mount)| mount.is_made_up() && is_visible(mount)).map(|(at, _)| at).collect()
}

/// The mount points that the walk of a root must not enter.
#[derive(Debug, Default)]
pub(crate) struct Unwanted {
    /// Paths below the root, split into names.
    points: Vec<Vec<Vec<u8>>>,
    types: Vec<String>,
    /// File system types by mount ID.
    by_id: HashMap<u64, String>,
}

impl Unwanted {
    /// Selects the skipped mounts below `root` (a canonical path). `root_mount` is the ID of the
    /// mount that contains the root.
    pub(crate) fn below(mounts: &[Mount], root: &Path, root_mount: Option<u64>) -> Self {
        Self::among(mounts, &made_up(mounts), root, root_mount)
    }

    /// Like [`Self::below`], with the result of [`made_up`], which serves many roots.
    pub(crate) fn among(
        mounts: &[Mount],
        made_up: &[usize],
        root: &Path,
        root_mount: Option<u64>,
    ) -> Self {
        let own = mounts.iter().find(|m| Some(m.id) == root_mount);
        let mut unwanted = Self::default();
        for mount in made_up.iter().map(|at| &mounts[*at]) {
            if own.is_some_and(|own| own.file_system == mount.file_system) {
                continue;
            }
            unwanted.by_id.insert(mount.id, mount.file_system.clone());
            let Ok(below) = mount.point.strip_prefix(root) else { continue };
            let names: Vec<Vec<u8>> = below.iter().map(|name| name.as_bytes().to_vec()).collect();
            if !names.is_empty() {
                unwanted.points.push(names);
                unwanted.types.push(mount.file_system.clone());
            }
        }
        unwanted
    }

    /// Returns all mount points, for use at the root.
    pub(crate) fn all(&self) -> Box<[u32]> {
        (0..self.points.len() as u32).collect()
    }

    /// Returns the mount points in `above` that are at or below child `name` of a directory at
    /// `depth`.
    pub(crate) fn within(&self, above: &[u32], depth: usize, name: &[u8]) -> Box<[u32]> {
        let within = |point: &&u32| {
            self.points.get(**point as usize).and_then(|p| p.get(depth)).is_some_and(|n| n == name)
        };
        above.iter().filter(within).copied().collect()
    }

    /// Returns the file system type if child `name` of a directory at `depth` is a skipped mount.
    pub(crate) fn on(&self, above: &[u32], depth: usize, name: &[u8]) -> Option<&str> {
        above.iter().find_map(|point| {
            let names = self.points.get(*point as usize)?;
            let here = names.len() == depth + 1 && names[depth] == name;
            here.then(|| self.types[*point as usize].as_str())
        })
    }

    /// Returns the type of the mount with this ID if it is skipped.
    pub(crate) fn mounted(&self, mount: u64) -> Option<&str> {
        self.by_id.get(&mount).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(id: u64, parent: u64, point: &str, file_system: &str) -> Mount {
        Mount {
            id,
            parent,
            device: (0, id as u32),
            point: point.into(),
            options: String::new(),
            file_system: file_system.to_owned(),
            source: "none".into(),
        }
    }

    #[test]
    fn mount_points_below_the_root_are_matched_by_name() {
        let mounts = [
            mount(1, 0, "/", "ext4"),
            mount(2, 1, "/proc", "proc"),
            mount(3, 1, "/home/a/share", "autofs"),
            mount(4, 1, "/home/a/disk", "xfs"),
            mount(5, 1, "/home/a/my", "sysfs"),
            mount(6, 1, "/home/a/far", "nfs4"),
            mount(7, 1, "/home/a/auto", "autofs"),
            mount(8, 7, "/home/a/auto", "nfs4"),
        ];
        let below = Unwanted::below(&mounts, Path::new("/home"), Some(1));
        let all = below.all();
        assert_eq!(all.len(), 2);
        let a = below.within(&all, 0, b"a");
        assert_eq!((a.len(), below.within(&all, 0, b"b").len()), (2, 0));
        assert_eq!(below.on(&a, 1, b"share"), Some("autofs"));
        assert_eq!((below.on(&a, 1, b"far"), below.on(&a, 1, b"auto")), (None, None));
        assert_eq!(below.on(&a, 1, b"disk"), None);
        assert_eq!(below.on(&all, 0, b"a"), None, "the parent directory is entered");
        assert_eq!(below.mounted(2), Some("proc"));
        let root = Unwanted::below(&mounts, Path::new("/"), Some(1));
        assert_eq!(root.on(&root.all(), 0, b"proc"), Some("proc"));
    }

    #[test]
    fn a_root_on_a_skipped_file_system_is_walked_with_others_of_its_kind() {
        let mounts = [
            mount(1, 0, "/net", "sysfs"),
            mount(2, 1, "/net/vol", "sysfs"),
            mount(3, 1, "/net/p", "proc"),
        ];
        let net = Unwanted::below(&mounts, Path::new("/net"), Some(1));
        assert_eq!(net.on(&net.all(), 0, b"vol"), None);
        assert_eq!(net.on(&net.all(), 0, b"p"), Some("proc"));
    }
    fn seen(mounts: &[Mount]) -> Vec<u64> {
        let is_visible = visible(mounts);
        mounts.iter().filter(|mount| is_visible(mount)).map(|mount| mount.id).collect()
    }

    #[test]
    fn mounts_below_a_covered_directory_are_hidden() {
        let mounts = [
            // The initial file system mounts these and then moves them below the root.
            mount(20, 27, "/sys", "sysfs"),
            mount(21, 27, "/proc", "proc"),
            mount(22, 21, "/proc/bus", "proc"),
            mount(27, 1, "/", "ext4"),
            mount(30, 27, "/m/proc", "proc"),
            mount(31, 30, "/m/proc/bus", "proc"),
            mount(32, 27, "/m", "tmpfs"),
            mount(33, 32, "/m/sys", "sysfs"),
            mount(34, 32, "/m/twice/proc", "proc"),
            mount(35, 32, "/m/twice", "tmpfs"),
            mount(36, 27, "/more/proc", "proc"),
        ];
        assert_eq!(seen(&mounts), [20, 21, 22, 27, 32, 33, 35, 36]);
        let covered = [
            mount(27, 1, "/", "ext4"),
            mount(21, 27, "/proc", "proc"),
            mount(40, 27, "/", "tmpfs"),
        ];
        assert!(seen(&covered).contains(&21), "paths do not lead to a mount on the root");
        let circle = [mount(1, 2, "/a", "proc"), mount(2, 1, "/b", "proc")];
        assert_eq!(seen(&circle), [1, 2]);
    }
}
