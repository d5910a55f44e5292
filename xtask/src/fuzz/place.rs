//! The file systems of a fuzz run, mounted in a private mount namespace.
//!
//! As root, the command runs itself again in such a namespace (`unshare`), so no mount is visible
//! outside, and all of them end with it; loop devices detach with their mounts. Without root, trees
//! are created on the file system of the temporary directory.

use anyhow::{Context, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

/// Set in the private namespace.
const INSIDE: &str = "IOLOOM_FUZZ_INSIDE";
/// Size of each image. XFS needs more than 300 MiB.
const IMAGE_BYTES: u64 = 512 << 20;

/// The file systems by name.
pub(super) const ALL: [&str; 6] = ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "fuse"];

/// The name of a directory in the temporary directory, without a mount.
const HERE: &str = "here";

/// A mounted file system, or a directory of the temporary directory.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) dir: PathBuf,
    /// Everything of this place; removed when dropped.
    base: PathBuf,
    mounts: Vec<PathBuf>,
}

/// Runs this command again in a private mount namespace, as root. Returns `None` if it already
/// runs in one or needs none.
pub(crate) fn enter(words: &[&str]) -> anyhow::Result<Option<ExitCode>> {
    if std::env::var_os(INSIDE).is_some() || !rustix::process::getuid().is_root() {
        return Ok(None);
    }
    let own = std::env::current_exe().context("find this program")?;
    let status = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(own)
        .args(words)
        .env(INSIDE, "1")
        .status()
        .context("start unshare")?;
    Ok(Some(ExitCode::from(status.code().unwrap_or(1) as u8)))
}

/// Refuses names of unknown file systems.
pub(super) fn check_name(name: &str) -> anyhow::Result<()> {
    let is_known = name == HERE || ALL.contains(&name);
    ensure!(is_known, "unknown file system '{name}'; known: {}, {HERE}", ALL.join(", "));
    Ok(())
}

impl Place {
    /// Mounts a file system by its name.
    pub(super) fn mount(name: &str) -> anyhow::Result<Self> {
        Self::mount_as(name, name)
    }

    /// Mounts a file system by its name, at a place with another name.
    pub(super) fn mount_as(name: &str, place: &str) -> anyhow::Result<Self> {
        let base = std::env::temp_dir().join(format!("ioloom-fuzz-{}-{place}", std::process::id()));
        fs::create_dir(&base).with_context(|| format!("create {}", base.display()))?;
        let dir = base.join("fs");
        fs::create_dir(&dir).context("create a mount point")?;
        let mut place = Self { name: name.to_owned(), dir, base, mounts: Vec::new() };
        if !rustix::process::getuid().is_root() {
            HERE.clone_into(&mut place.name);
            return Ok(place);
        }
        match name {
            HERE => {}
            "tmpfs" => place.run_mount(&["-t", "tmpfs", "-o", "noatime", "tmpfs"], "fs")?,
            "ext4" => place.image(&["mkfs.ext4", "-q", "-F"])?,
            "xfs" => place.image(&["mkfs.xfs", "-q", "-f"])?,
            "btrfs" => place.image(&["mkfs.btrfs", "-q", "-f"])?,
            "overlay" => place.overlay()?,
            "fuse" => place.fuse()?,
            _ => bail!("unknown file system '{name}'"),
        }
        Ok(place)
    }

    fn image(&mut self, make: &[&str]) -> anyhow::Result<()> {
        let image = self.make_image(make)?;
        self.run_mount(&["-o", "loop,noatime", &image], "fs")
    }

    fn make_image(&self, make: &[&str]) -> anyhow::Result<String> {
        let image = self.base.join("image");
        let file = fs::File::create(&image).context("create an image")?;
        file.set_len(IMAGE_BYTES).context("size an image")?;
        run(Command::new(make[0]).args(&make[1..]).arg(&image))?;
        Ok(image.to_string_lossy().into_owned())
    }

    /// The lower and the upper layer are on one tmpfs.
    fn overlay(&mut self) -> anyhow::Result<()> {
        let layers = self.base.join("layers");
        fs::create_dir(&layers).context("create the layers")?;
        self.run_mount(&["-t", "tmpfs", "tmpfs"], "layers")?;
        for layer in ["lower", "upper", "work"] {
            fs::create_dir(layers.join(layer)).context("create a layer")?;
        }
        let at = layers.display();
        let options = format!("lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work,noatime");
        self.run_mount(&["-t", "overlay", "-o", &options, "overlay"], "fs")
    }

    /// An ext4 image served by `fuse2fs`.
    fn fuse(&mut self) -> anyhow::Result<()> {
        let image = self.make_image(&["mkfs.ext4", "-q", "-F"])?;
        run(Command::new("fuse2fs").args(["-o", "allow_other", &image]).arg(&self.dir))?;
        self.mounts.push(self.dir.clone());
        Ok(())
    }

    fn run_mount(&mut self, args: &[&str], at: &str) -> anyhow::Result<()> {
        let at = self.base.join(at);
        run(Command::new("mount").args(args).arg(&at))?;
        self.mounts.push(at);
        Ok(())
    }

    /// Returns the directory for one case, empty.
    pub(super) fn fresh(&self, case: u64) -> anyhow::Result<PathBuf> {
        let dir = self.dir.join(format!("case-{case}"));
        fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        Ok(dir)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for mounted in self.mounts.iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(mounted).output();
        }
        let _ = remove(&self.base);
    }
}

/// Removes a tree whose directories may be closed to their owner.
pub(super) fn remove(dir: &Path) -> anyhow::Result<()> {
    if fs::remove_dir_all(dir).is_err() {
        run(Command::new("chmod").args(["-R", "u+rwx", "--"]).arg(dir))?;
        fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| format!("start {shown}"))?;
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let status: ExitStatus = output.status;
    ensure!(status.success(), "{shown}: {status}: {message}");
    Ok(())
}
