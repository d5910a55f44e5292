//! Where a short read may not be the end of a file.
//!
//! A local file system returns less than requested only at the end of a file or at a page that cannot
//! be read. A server may return less anywhere, and so may a process under FUSE
//! (`FOPEN_DIRECT_IO`), and the kernel for files that it makes up, as in /proc. Local files must not
//! pay for that: the table of mounts is read once per run. Only where it contains a server's file
//! system is one queried, once for neighbours in a directory; files that the kernel makes up are known
//! by their paths.

use ioloom_sys::attr;
use ioloom_sys::mount::{self, Mount};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

/// What a run knows of the file systems on which reads may be short.
#[derive(Debug, Default)]
pub(crate) struct ShortReads {
    mounted: OnceLock<(Mounted, MadeUp)>,
    /// The directory whose file was queried last, and the answer.
    last: Mutex<Option<(PathBuf, bool)>>,
}

#[derive(Debug)]
enum Mounted {
    /// The table of mounts could not be read.
    Unknown,
    /// The last names of the mount points. A mount point may be a file, which then has another file
    /// system than its neighbours.
    Names(Vec<OsString>),
}

/// Where the kernel makes up files.
#[derive(Debug)]
struct MadeUp {
    /// Mount points, each ending with a slash.
    points: Vec<Vec<u8>>,
    /// The last names of mount points that are files and not below another one.
    files: Vec<OsString>,
    /// Whether relative paths are below one.
    here: bool,
}

impl MadeUp {
    fn of(mounts: &[Mount]) -> Self {
        let made_up = mounts.iter().filter(|mount| mount.is_made_up());
        let with_slash = |mount: &Mount| {
            let mut point = mount.point.clone().into_os_string().into_vec();
            point.push(b'/');
            point
        };
        let mut points: Vec<_> = made_up.clone().map(with_slash).collect();
        points.sort_unstable();
        // /sys/kernel/debug is below /sys.
        points.dedup_by(|later, earlier| later.starts_with(earlier));
        // Containers have some below /proc, whose paths show it.
        let is_below = |mount: &Mount| {
            let point = mount.point.as_os_str().as_bytes();
            points.iter().any(|above| point.starts_with(above))
        };
        let is_file = |mount: &Mount| {
            std::fs::symlink_metadata(&mount.point).is_ok_and(|found| !found.is_dir())
        };
        let name = |mount: &Mount| mount.point.file_name().unwrap_or_default().to_owned();
        let files = made_up.filter(|mount| !is_below(mount) && is_file(mount)).map(name).collect();
        let mut all = Self { points, files, here: false };
        all.here = std::env::current_dir().is_ok_and(|dir| all.contain(&dir.join("a file")));
        all
    }

    #[inline]
    fn contain(&self, path: &Path) -> bool {
        if !self.files.is_empty() && self.files.iter().any(|file| path.ends_with(file)) {
            return true;
        }
        let path = path.as_os_str().as_bytes();
        match path.first() {
            Some(b'/') => self.points.iter().any(|point| path.starts_with(point)),
            _ => self.here,
        }
    }
}

impl ShortReads {
    fn find() -> (Mounted, MadeUp) {
        let Ok(mounts) = mount::mounts() else { return (Mounted::Unknown, MadeUp::of(&[])) };
        let remote = mounts.iter().filter(|mount| mount.is_remote());
        let name = |mount: &Mount| mount.point.file_name().unwrap_or_default().to_owned();
        (Mounted::Names(remote.map(name).collect()), MadeUp::of(&mounts))
    }

    /// Reports whether a short read of an open file may not be its end.
    #[inline]
    pub(crate) fn are_possible(&self, path: &Path, file: &OwnedFd) -> bool {
        let (_, made_up) = self.mounted.get_or_init(Self::find);
        made_up.contain(path) || self.are_of_a_server(path, file)
    }

    /// Reports whether a server or a process may return less than there is.
    #[inline]
    pub(crate) fn are_of_a_server(&self, path: &Path, file: &OwnedFd) -> bool {
        let (mounted, _) = self.mounted.get_or_init(Self::find);
        match mounted {
            Mounted::Names(names) if names.is_empty() => false,
            mounted => self.query(mounted, path, file),
        }
    }

    #[cold]
    fn query(&self, mounted: &Mounted, path: &Path, file: &OwnedFd) -> bool {
        // An error does not prove a local file system.
        let is_remote = || attr::file_system(file).map_or(true, |system| system.remote);
        let name = path.file_name().unwrap_or_default();
        let (Mounted::Names(names), Some(dir)) = (mounted, path.parent()) else {
            return is_remote();
        };
        // Another thread may hold the lock: a query takes no longer than a wait for it.
        let Ok(mut last) = self.last.try_lock() else { return is_remote() };
        if names.iter().any(|mount| mount == name) {
            return is_remote();
        }
        match &*last {
            Some((queried, remote)) if queried == dir => *remote,
            _ => last.insert((dir.to_owned(), is_remote())).1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_the_kernel_makes_up_are_known_by_their_paths() {
        let made_up = MadeUp::of(&mount::mounts().unwrap());
        for (path, expected) in
            [("/proc/1/maps", true), ("/procession", false), ("/sys/kernel/x", true), ("x", false)]
        {
            assert_eq!(made_up.contain(Path::new(path)), expected, "{path}");
        }
        let one = MadeUp { points: Vec::new(), files: vec!["uptime".into()], here: false };
        assert!(one.contain(Path::new("here/uptime")) && !one.contain(Path::new("here/downtime")));
        let below = |points: &[Vec<u8>], point: &[u8]| points.iter().any(|p| point.starts_with(p));
        assert!(below(&made_up.points, b"/sys/fs/cgroup/"));
        assert!(!made_up.points.iter().any(|point| point.starts_with(b"/sys/f")));
    }
}
