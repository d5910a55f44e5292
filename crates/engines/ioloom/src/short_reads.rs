//! Where a short read may not be the end of a file.
//!
//! A local file system returns less than requested only at the end of a file or at a page that cannot
//! be read. A server may return less anywhere, and so may a process under FUSE
//! (`FOPEN_DIRECT_IO`). Local files must not pay for that: the table of mounts is read once per run,
//! and only where it contains such a file system is one queried, once for neighbours in a directory.

use ioloom_sys::attr;
use ioloom_sys::mount::{self, Mount};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

/// What a run knows of the file systems on which reads may be short.
#[derive(Debug, Default)]
pub(crate) struct ShortReads {
    mounted: OnceLock<Mounted>,
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

impl Mounted {
    fn find() -> Self {
        let Ok(mounts) = mount::mounts() else { return Self::Unknown };
        let remote = mounts.iter().filter(|mount| mount.is_remote());
        let name = |mount: &Mount| mount.point.file_name().unwrap_or_default().to_owned();
        Self::Names(remote.map(name).collect())
    }
}

impl ShortReads {
    /// Reports whether a short read of an open file may not be its end.
    #[inline]
    pub(crate) fn are_possible(&self, path: &Path, file: &OwnedFd) -> bool {
        match self.mounted.get_or_init(Mounted::find) {
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
