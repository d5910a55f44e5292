//! A file system in an image file that returns to the same state before each block or run.
//!
//! How fast files are created depends on what the file system did before: which inodes are in use,
//! and which were removed a moment ago. So a master image is prepared once, and each start copies
//! it, attaches the copy to a loop device with direct I/O and mounts it. Requires root, loop
//! devices and the commands mkfs, losetup, mount and umount. Locks the directory. Everything is
//! removed on drop, and what a killed experiment has left, by the next one in the same directory.

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Number of times to look whether a device has released its image, and the time between them.
const RELEASE_TRIES: u32 = 600;
const RELEASE_WAIT: Duration = Duration::from_millis(50);

/// The type of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// ext4 as mkfs.ext4 creates it, with a journal.
    Ext4,
    /// ext4 without a journal: it avoids inodes that were freed within the last minutes.
    Ext4NoJournal,
    /// XFS; shares blocks.
    Xfs,
    /// btrfs with single metadata; shares blocks.
    Btrfs,
}

impl Kind {
    /// Returns true if files can share blocks.
    pub fn shares(self) -> bool {
        matches!(self, Self::Xfs | Self::Btrfs)
    }

    fn mkfs(self) -> &'static [&'static str] {
        // The tables are written now; otherwise the kernel would write them during the runs.
        const EXT4: &str = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        match self {
            Self::Ext4 => &["mkfs.ext4", "-q", "-F", "-E", EXT4],
            Self::Ext4NoJournal => &["mkfs.ext4", "-q", "-F", "-E", EXT4, "-O", "^has_journal"],
            Self::Xfs => &["mkfs.xfs", "-q", "-f", "-K"],
            Self::Btrfs => &["mkfs.btrfs", "-q", "-f", "-K", "-m", "single"],
        }
    }
}

/// A mounted image.
#[derive(Debug)]
pub struct Volume {
    master: PathBuf,
    image: PathBuf,
    point: PathBuf,
    /// The loop device while mounted.
    device: RefCell<Option<String>>,
    /// The directory of the files, locked.
    _lock: File,
}

impl Volume {
    /// Formats an image of `mib` MiB in `dir`, fills it once by `fill`, and keeps that state.
    ///
    /// # Errors
    /// A command is missing or fails, or another experiment has a volume in `dir`.
    pub fn prepare(
        dir: &Path,
        kind: Kind,
        mib: u64,
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Self> {
        let dir = dir.canonicalize().with_context(|| format!("cannot open {}", dir.display()))?;
        let lock = File::open(&dir).with_context(|| format!("cannot open {}", dir.display()))?;
        lock.try_lock().with_context(|| {
            format!("cannot lock {}; another experiment may have a volume in it", dir.display())
        })?;
        let path = |name: &str| dir.join(format!("volume-{name}"));
        let volume = Self {
            master: path("master"),
            image: path("image"),
            point: path("mount"),
            device: RefCell::default(),
            _lock: lock,
        };
        volume.remove_leftovers()?;
        let image = File::create_new(&volume.image)
            .with_context(|| format!("cannot create {}", volume.image.display()))?;
        image.set_len(mib << 20).context("cannot set the size of the image")?;
        drop(image);
        fs::create_dir_all(&volume.point).context("cannot create the mount point")?;
        let (mkfs, options) = kind.mkfs().split_first().context("no command")?;
        run(command(mkfs).args(options).arg(&volume.image))?;
        volume.mount()?;
        fill(&volume.point)?;
        volume.unmount()?;
        fs::rename(&volume.image, &volume.master).context("cannot keep the image")?;
        volume.restore()?;
        Ok(volume)
    }

    /// Returns the mount point.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Returns to the prepared state.
    ///
    /// # Errors
    /// A command fails, for example because a file in the volume is open.
    pub fn restore(&self) -> Result<()> {
        self.unmount()?;
        let _ = fs::remove_file(&self.image);
        run(command("cp").args(["--sparse=always"]).arg(&self.master).arg(&self.image))?;
        File::open(&self.image)?.sync_all().context("cannot sync the image")?;
        self.mount()
    }

    /// Removes the loop devices and images of an experiment that was killed.
    fn remove_leftovers(&self) -> Result<()> {
        for image in [&self.image, &self.master] {
            for device in devices_of(Path::new("/sys/block"), image) {
                // It is not mounted here if the experiment had its own mount namespace.
                let _ = run(command("umount").arg(&device));
                run(command("losetup").arg("--detach").arg(&device))?;
                wait_until_free(&device)?;
            }
            match fs::remove_file(image) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error)
                        .with_context(|| format!("cannot remove {}", image.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn mount(&self) -> Result<()> {
        let mut attach = command("losetup");
        attach.args(["--find", "--show", "--direct-io=on"]).arg(&self.image);
        let device = run(&mut attach)?;
        *self.device.borrow_mut() = Some(device.clone());
        run(command("mount").arg(&device).arg(&self.point)).map(drop)
    }

    fn unmount(&self) -> Result<()> {
        let Some(device) = self.device.borrow_mut().take() else { return Ok(()) };
        let unmounted = run(command("umount").arg(&self.point));
        // Detach even if nothing was mounted.
        let detached = run(command("losetup").arg("--detach").arg(&device));
        unmounted.and(detached)?;
        wait_until_free(&device)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Errors cannot be reported; the next experiment would find the image.
        let _ = self.unmount();
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_file(&self.master);
        let _ = fs::remove_dir(&self.point);
    }
}

/// Returns the loop devices of an image, which may have been deleted.
fn devices_of(block: &Path, image: &Path) -> Vec<String> {
    let devices = fs::read_dir(block).into_iter().flatten().filter_map(Result::ok);
    let backed = devices.filter(|device| {
        let backing = fs::read(device.path().join("loop/backing_file")).unwrap_or_default();
        let backing = backing.strip_suffix(b"\n").unwrap_or(&backing);
        backing.strip_suffix(b" (deleted)").unwrap_or(backing) == image.as_os_str().as_bytes()
    });
    backed.map(|device| format!("/dev/{}", device.file_name().to_string_lossy())).collect()
}

/// Waits until a loop device has released its image. Another mount namespace, such as that of a
/// container that was started in the meantime, can hold a copy of the mount.
fn wait_until_free(device: &str) -> Result<()> {
    let name = device.trim_start_matches("/dev/");
    let backing = PathBuf::from(format!("/sys/block/{name}/loop/backing_file"));
    for _ in 0..RELEASE_TRIES {
        if !backing.exists() {
            return Ok(());
        }
        std::thread::sleep(RELEASE_WAIT);
    }
    bail!("{device} is still in use, probably in another mount namespace")
}

/// A command of the system, also if PATH does not include root's tools.
fn command(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Runs a command; returns the first line of its output.
fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {}", errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_devices_of_an_image_are_found() {
        let block = tempfile::tempdir().expect("a temporary directory");
        let devices = [
            ("loop0", Some("/into/volume-image\n")),
            ("loop1", Some("/into/volume-image-2\n")),
            ("loop2", Some("/into/volume-image (deleted)\n")),
            ("loop3", None),
        ];
        for (name, backing) in devices {
            let dir = block.path().join(name).join("loop");
            fs::create_dir_all(&dir).expect("makes directories");
            if let Some(text) = backing {
                fs::write(dir.join("backing_file"), text).expect("writes");
            }
        }
        let mut found = devices_of(block.path(), Path::new("/into/volume-image"));
        found.sort_unstable();
        assert_eq!(found, ["/dev/loop0", "/dev/loop2"]);
    }

    #[test]
    fn a_volume_returns_to_its_prepared_state() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            return;
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let fill = |point: &Path| Ok(fs::write(point.join("kept"), "x")?);
        let volume = match Volume::prepare(dir.path(), Kind::Ext4NoJournal, 16, fill) {
            Ok(volume) => volume,
            // A container can lack the right to mount.
            Err(error) if format!("{error:#}").contains("failed") => return,
            Err(error) => panic!("{error:#}"),
        };
        fs::remove_file(volume.point().join("kept")).expect("removes");
        fs::write(volume.point().join("added"), "y").expect("writes");
        volume.restore().expect("restores");
        assert!(volume.point().join("kept").exists() && !volume.point().join("added").exists());
        let second = Volume::prepare(dir.path(), Kind::Ext4NoJournal, 16, fill);
        assert!(second.is_err_and(|error| format!("{error:#}").contains("cannot lock")));
        drop(volume);
        assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), 0);
    }
}
