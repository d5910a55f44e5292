//! A disk whose power can be cut: a file system in a file, mounted through a loop device.
//!
//! What the loop device was given stands in the file, what only the page cache of the file system has
//! does not. So a copy of the file, made without any sync, is what a machine finds when its power went
//! at that moment. Only root may mount one; others are told so and skip what needs it.

#![allow(clippy::print_stdout, reason = "a test that needs root says that it skips")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// How often a busy file system is tried again.
const UMOUNT_TRIES: u32 = 1000;

/// A mounted file system in a file; unmounted when it goes.
#[derive(Debug)]
pub struct Disk {
    point: TempDir,
    image: PathBuf,
}

impl Disk {
    /// Makes an ext4 of so many bytes in the file `image`, which is made, and mounts it. None, with a
    /// word, where this user may not.
    pub fn make(image: &Path, bytes: u64) -> Option<Self> {
        Self::make_as("ext4", image, bytes)
    }

    /// The same with a file system of another kind, as `mkfs.KIND` makes it. None, with a word, where
    /// that is not installed too.
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

    /// Mounts the file `image`. None, with a word, where this user may not.
    fn mount(image: &Path) -> Option<Self> {
        let beside = image.parent().expect("a file lies in a directory");
        let point = tempfile::tempdir_in(beside).expect("a directory to mount on");
        let mut mount = Command::new("mount");
        let output = mount.args(["-o", "loop"]).arg(image).arg(point.path()).output().ok()?;
        if !output.status.success() {
            println!("skipped: mount: {}", String::from_utf8_lossy(&output.stderr).trim());
            return None;
        }
        Some(Self { point, image: image.to_owned() })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// Cuts the power: what the device has now is copied to the file `copy`, which is mounted. This
    /// disk goes on as if nothing were.
    pub fn cut(&self, copy: &Path) -> Option<Self> {
        // What was never written stays a hole.
        let copied = Command::new("cp").arg("--sparse=always").arg(&self.image).arg(copy).status();
        assert!(copied.expect("cp starts").success(), "no room for a copy of the image");
        Self::mount(copy)
    }

    /// The file that it lies in.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// From now on nothing can be written to it.
    pub fn set_read_only(&self) {
        let mounted = Command::new("mount").args(["-o", "remount,ro"]).arg(self.path()).output();
        let mounted = mounted.expect("mount starts");
        assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    }

    /// Brings everything to the device.
    pub fn sync(&self) {
        let synced = Command::new("sync").arg("-f").arg(self.path()).status();
        assert!(synced.expect("sync starts").success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What a process had in a ring may hold its files for a moment longer than the process lives.
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
