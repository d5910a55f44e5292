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

/// Returns the mounts that are not hidden by a later one at the same point, as an automatic mount hides
/// the `autofs` that causes it.
fn visible(mounts: &[Mount]) -> impl Iterator<Item = &Mount> {
    let last: HashMap<&Path, u64> =
        mounts.iter().map(|mount| (mount.point.as_path(), mount.id)).collect();
    mounts.iter().filter(move |mount| last.get(mount.point.as_path()) == Some(&mount.id))
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
        let own = mounts.iter().find(|m| Some(m.id) == root_mount);
        let mut unwanted = Self::default();
        for mount in visible(mounts).filter(|m| m.is_made_up()) {
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

    fn mount(id: u64, point: &str, file_system: &str) -> Mount {
        Mount {
            id,
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
            mount(1, "/", "ext4"),
            mount(2, "/proc", "proc"),
            mount(3, "/home/a/share", "autofs"),
            mount(4, "/home/a/disk", "xfs"),
            mount(5, "/home/a/my", "sysfs"),
            mount(6, "/home/a/far", "nfs4"),
            mount(7, "/home/a/auto", "autofs"),
            mount(8, "/home/a/auto", "nfs4"),
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
        let mounts =
            [mount(1, "/net", "sysfs"), mount(2, "/net/vol", "sysfs"), mount(3, "/net/p", "proc")];
        let net = Unwanted::below(&mounts, Path::new("/net"), Some(1));
        assert_eq!(net.on(&net.all(), 0, b"vol"), None);
        assert_eq!(net.on(&net.all(), 0, b"p"), Some("proc"));
    }
}
