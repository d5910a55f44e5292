//! Places to copy between: directories on several file systems, some of them mounted for the test.

use ioloom_sys_lab::image::can_mount_images;
use ioloom_testbed::Disk;
use std::path::Path;

/// A directory on one file system, removed at the end.
pub(crate) struct Place {
    pub(crate) kind: &'static str,
    /// Goes before the directory that its image lies in.
    mounted: Option<Disk>,
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn path(&self) -> &Path {
        self.mounted.as_ref().map_or(self.dir.path(), Disk::path)
    }

    /// On the disk of the build.
    pub(crate) fn disk() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { kind: "disk", mounted: None, dir }
    }

    /// In memory, if there is such a place.
    pub(crate) fn memory() -> Option<Self> {
        let dir = tempfile::tempdir_in("/dev/shm").ok()?;
        Some(Self { kind: "tmpfs", mounted: None, dir })
    }

    /// A file system of its own in a file, if this user may mount and the tool is installed.
    pub(crate) fn mounted(kind: &'static str, mebibytes: u64) -> Option<Self> {
        if let Err(why) = can_mount_images() {
            println!("skipped: {kind}: {why}");
            return None;
        }
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let disk = Disk::make_as(kind, &dir.path().join("image"), mebibytes << 20)?;
        Some(Self { kind, mounted: Some(disk), dir })
    }

    /// The file that a mounted one lies in.
    pub(crate) fn image(&self) -> Option<&Path> {
        self.mounted.as_ref().map(Disk::image)
    }

    /// From now on nothing can be written to a mounted one.
    pub(crate) fn read_only(&self) {
        self.mounted.as_ref().expect("it is mounted").set_read_only();
    }

    /// A fresh directory here.
    pub(crate) fn fresh(&self) -> tempfile::TempDir {
        tempfile::tempdir_in(self.path()).unwrap()
    }
}
