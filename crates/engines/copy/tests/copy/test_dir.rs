//! Directories to copy between, on several file systems, some of which are mounted for the test.

use ioloom_sys_lab::image::can_mount_images;
use ioloom_testbed::Disk;
use std::path::Path;

/// A directory on one file system, removed when dropped.
pub(crate) struct TestDir {
    pub(crate) kind: &'static str,
    /// Dropped before the directory that contains the image.
    mounted: Option<Disk>,
    dir: tempfile::TempDir,
}

impl TestDir {
    pub(crate) fn path(&self) -> &Path {
        self.mounted.as_ref().map_or(self.dir.path(), Disk::path)
    }

    /// Creates a directory on the build disk.
    pub(crate) fn disk() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { kind: "disk", mounted: None, dir }
    }

    /// Creates a directory in memory if `/dev/shm` exists.
    pub(crate) fn memory() -> Option<Self> {
        let dir = tempfile::tempdir_in("/dev/shm").ok()?;
        Some(Self { kind: "tmpfs", mounted: None, dir })
    }

    /// Creates and mounts a file system image if the user may mount and the tool is installed.
    pub(crate) fn mounted(kind: &'static str, mebibytes: u64) -> Option<Self> {
        if let Err(why) = can_mount_images() {
            println!("skipped: {kind}: {why}");
            return None;
        }
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let disk = Disk::make_as(kind, &dir.path().join("image"), mebibytes << 20)?;
        Some(Self { kind, mounted: Some(disk), dir })
    }

    /// Returns the image of a mounted file system.
    pub(crate) fn image(&self) -> Option<&Path> {
        self.mounted.as_ref().map(Disk::image)
    }

    /// Remounts a mounted file system read-only.
    pub(crate) fn read_only(&self) {
        self.mounted.as_ref().expect("the file system is mounted").set_read_only();
    }

    /// Creates a directory here.
    pub(crate) fn fresh(&self) -> tempfile::TempDir {
        tempfile::tempdir_in(self.path()).unwrap()
    }
}
