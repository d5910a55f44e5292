//! Places to copy between: directories on several file systems, some of them mounted for the test.

use ioloom_sys::mount::can_mount_images;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory on one file system, removed at the end.
pub(crate) struct Place {
    pub(crate) kind: &'static str,
    dir: tempfile::TempDir,
    mounted: Option<PathBuf>,
    image: Option<tempfile::TempDir>,
}

impl Place {
    pub(crate) fn path(&self) -> &Path {
        self.mounted.as_deref().unwrap_or(self.dir.path())
    }

    /// On the disk of the build.
    pub(crate) fn disk() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { kind: "disk", dir, mounted: None, image: None }
    }

    /// In memory, if there is such a place.
    pub(crate) fn memory() -> Option<Self> {
        let dir = tempfile::tempdir_in("/dev/shm").ok()?;
        Some(Self { kind: "tmpfs", dir, mounted: None, image: None })
    }

    /// A file system of its own in a file, if this user may mount and the tool is installed.
    pub(crate) fn mounted(kind: &'static str, mebibytes: u64) -> Option<Self> {
        if let Err(why) = can_mount_images() {
            println!("skipped: {kind}: {why}");
            return None;
        }
        let holder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let file = holder.path().join("image");
        std::fs::File::create(&file).unwrap().set_len(mebibytes << 20).unwrap();
        let mut mkfs = Command::new(format!("mkfs.{kind}"));
        if kind == "ext4" {
            mkfs.args(["-q", "-F"]);
        }
        if kind != "ext4" {
            mkfs.arg("-q");
        }
        let Ok(made) = mkfs.arg(&file).output() else {
            println!("skipped: mkfs.{kind} is not installed");
            return None;
        };
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mount = Command::new("mount").args(["-o", "loop"]).arg(&file).arg(dir.path()).output();
        let mount = mount.unwrap();
        if !mount.status.success() {
            println!("skipped: {kind}: {}", String::from_utf8_lossy(&mount.stderr));
            return None;
        }
        let mounted = Some(dir.path().to_owned());
        Some(Self { kind, dir, mounted, image: Some(holder) })
    }

    /// The file that a mounted one lies in.
    pub(crate) fn image(&self) -> Option<PathBuf> {
        self.image.as_ref().map(|holder| holder.path().join("image"))
    }

    /// From now on nothing can be written to a mounted one.
    pub(crate) fn read_only(&self) {
        let mount = Command::new("mount").args(["-o", "remount,ro"]).arg(self.path()).output();
        let mount = mount.unwrap();
        assert!(mount.status.success(), "{}", String::from_utf8_lossy(&mount.stderr));
    }

    /// A fresh directory here.
    pub(crate) fn fresh(&self) -> tempfile::TempDir {
        tempfile::tempdir_in(self.path()).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(point) = &self.mounted {
            let _ = Command::new("umount").arg(point).status();
        }
    }
}
