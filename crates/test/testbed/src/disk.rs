//! A disk whose power can be cut: a file system in a file, mounted through a loop device.
//!
//! The file contains the data received by the loop device, but not data that is only in the file
//! system's page cache. A copy of the file made without a sync is therefore the state after a power
//! failure at that moment. Only root can mount one; for other users the constructors print a
//! message and return `None`.

#![allow(clippy::print_stdout, reason = "a test that needs root reports that it is skipped")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Number of attempts to unmount a busy file system.
const UMOUNT_TRIES: u32 = 1000;

/// A mounted file system in a file. Unmounted on drop.
#[derive(Debug)]
pub struct Disk {
    point: TempDir,
    image: PathBuf,
}

impl Disk {
    /// Creates an ext4 file system of `bytes` bytes in the file `image` and mounts it. Prints a
    /// message and returns `None` if this user is not allowed to.
    pub fn make(image: &Path, bytes: u64) -> Option<Self> {
        Self::make_as("ext4", image, bytes)
    }

    /// Like [`make`](Self::make) with another file system, created by `mkfs.KIND`. Also returns
    /// `None` if that program is not installed.
    pub fn make_as(kind: &str, image: &Path, bytes: u64) -> Option<Self> {
        File::create(image).and_then(|file| file.set_len(bytes)).expect("room for an image");
        let mut mkfs = Command::new(format!("mkfs.{kind}"));
        if kind == "ext4" {
            mkfs.arg("-F");
        }
        let Ok(made) = mkfs.arg("-q").arg(image).output() else {
            println!("skipped: mkfs.{kind} does not run");
            return None;
        };
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self::mount(image)
    }

    /// Mounts the file `image`, or prints a message and returns `None` if this user is not allowed
    /// to.
    fn mount(image: &Path) -> Option<Self> {
        let dir = image.parent().expect("a file has a parent directory");
        let point = tempfile::tempdir_in(dir).expect("a directory to mount on");
        let mut mount = Command::new("mount");
        let output = mount.args(["-o", "loop"]).arg(image).arg(point.path()).output().ok()?;
        if !output.status.success() {
            println!("skipped: mount: {}", String::from_utf8_lossy(&output.stderr).trim());
            return None;
        }
        Some(Self { point, image: image.to_owned() })
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// Cuts the power: copies the current contents of the device to the file `copy` and mounts
    /// that. This disk continues unchanged.
    pub fn cut(&self, copy: &Path) -> Option<Self> {
        // Blocks that were never written remain holes.
        let copied = Command::new("cp").arg("--sparse=always").arg(&self.image).arg(copy).status();
        assert!(copied.expect("cp starts").success(), "no room for a copy of the image");
        Self::mount(copy)
    }

    /// Returns the image file.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Remounts it read-only.
    pub fn set_read_only(&self) {
        let mounted = Command::new("mount").args(["-o", "remount,ro"]).arg(self.path()).output();
        let mounted = mounted.expect("mount starts");
        assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    }

    /// Syncs it to the device.
    pub fn sync(&self) {
        let synced = Command::new("sync").arg("-f").arg(self.path()).status();
        assert!(synced.expect("sync starts").success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Requests in an io_uring can keep files open for a moment after their process has exited.
        for _ in 0..UMOUNT_TRIES {
            let mut umount = Command::new("umount");
            let output = umount.arg(self.path()).output();
            if !output.is_ok_and(|out| String::from_utf8_lossy(&out.stderr).contains("busy")) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
