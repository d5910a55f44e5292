//! `copy_versus`: compares copying programs in one interleaved experiment.
//!
//! Each run copies to a name that does not exist. A previously copied file is removed and its
//! blocks are discarded; a tree is renamed and kept until the end because ext4 does not reuse
//! recently freed inodes and scans past them, which is not part of copying. So trees need space for
//! all runs; those that a killed experiment has left are kept. Two times are recorded: until the
//! program returned, and until its data was on the device, because a program that leaves writing to
//! the kernel has not finished. The second time is used for comparisons: fdatasync of the file, or
//! syncfs for a tree, then fsync of the parent directory, the same for every arm. Warm: the source
//! is read before each block, and the device may read at most 10 % of it. Cold: it must read 95 %
//! of it. The copies are counted after each run and compared byte by byte in the first block.
//!
//! With `--volume`, source and target are in a file system of its own, which returns to the same
//! state before each block. With `--removed`, it does so before each run, and a copy of the source
//! is removed right before the run, as in `rm -r TARGET; cp -r SOURCE TARGET`.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use ioloom_versus::device::Medium;
use ioloom_versus::interleaved::{self, Order, Work};
use ioloom_versus::volume::{Kind, Volume};
use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Bytes that a file system reads at least for each file whose blocks it shares: its inode.
const INODE_BYTES_MIN: u64 = 200;

/// Time between a removal and the run. Without a journal, ext4 reuses inodes freed in the same second
/// at once, but avoids them from the next one; otherwise the fraction of a second would decide.
const AFTER_REMOVAL: Duration = Duration::from_millis(1100);

/// Compare copying programs on one source; write README.md, raw.jsonl and summary.md.
///
/// Commands have the placeholders {from} and {to}; {to} does not exist beforehand.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// The file or tree to copy; must not change during the experiment.
    #[arg(long, value_name = "PATH", required_unless_present = "from")]
    source: Option<PathBuf>,
    /// Directory in which the target is created and removed.
    #[arg(long, value_name = "DIR", required_unless_present = "from")]
    into: Option<PathBuf>,
    /// Keep copied trees at the end: removing them disturbs the next measurement.
    #[arg(long)]
    leave: bool,
    /// Copy within a new file system of this type in an image below --into (root).
    #[arg(long, value_enum, value_name = "TYPE")]
    volume: Option<Kind>,
    /// Size of the image, which takes only the space of what is in it; it must hold the copies of a block.
    #[arg(long, value_name = "MIB", default_value = "8192", requires = "volume")]
    volume_mib: u64,
    /// Leave the source outside the volume, so no blocks can be shared.
    #[arg(long, requires = "volume")]
    source_outside: bool,
    /// Remove a copy of the source right before each run.
    #[arg(long, requires = "volume")]
    removed: bool,
    #[command(flatten)]
    order: Order,
}

/// Number of files and bytes below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    files: u64,
    bytes: u64,
}

struct Copying {
    source: PathBuf,
    /// Does not exist before a run.
    to: PathBuf,
    texts: [String; 2],
    size: Size,
    /// Number of the first tree that was copied, after those of earlier experiments.
    first: u32,
    /// Number of the next tree.
    done: Cell<u32>,
    leave: bool,
    volume: Option<Volume>,
    shares: bool,
    removed: bool,
    state: String,
}

impl Copying {
    fn new(cli: &Cli) -> Result<Self> {
        let (given, into) = cli.source.as_ref().zip(cli.into.as_ref()).context("give --source")?;
        ensure!(into.is_dir(), "{} is not a directory", into.display());
        let (mut source, mut to) = (given.clone(), into.join(TARGET));
        let volume = cli.volume.map(|kind| prepare(cli, given, into, kind)).transpose()?;
        if let Some(volume) = &volume {
            to = volume.point().join(TARGET);
            if !cli.source_outside {
                source = volume.point().join("source");
            }
        }
        let text = |path: &Path| path.to_str().map(str::to_owned).context("paths must be UTF-8");
        let texts = [text(&source)?, text(&to)?];
        let size = size_of(&source, false).context("cannot use the source")?;
        let shares = cli.volume.is_some_and(Kind::shares) && !cli.source_outside;
        // A volume has none: it returns to its prepared state.
        let first = if volume.is_some() { 0 } else { after_copied(into)? };
        let (done, leave, removed) = (Cell::new(first), cli.leave, cli.removed);
        let state = state(cli);
        Ok(Self { source, to, texts, size, first, done, leave, volume, shares, removed, state })
    }
}

/// Name of the target.
const TARGET: &str = "copy-versus";

/// Name of copied trees, without their number.
const COPIED: &str = "copied-";

/// Returns the number after the highest one of the copied trees in a directory.
fn after_copied(dir: &Path) -> Result<u32> {
    let mut after = 0;
    let entries =
        std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(COPIED)?.parse::<u32>().ok());
        after = after.max(number.map_or(0, |number| number.saturating_add(1)));
    }
    Ok(after)
}

/// Prepares a volume with the source and, if one will be removed before each run, its copy.
fn prepare(cli: &Cli, source: &Path, into: &Path, kind: Kind) -> Result<Volume> {
    Volume::prepare(into, kind, cli.volume_mib, |point| {
        let inside = (!cli.source_outside).then(|| point.join("source"));
        for target in inside.into_iter().chain(cli.removed.then(|| point.join(TARGET))) {
            let status = Command::new("cp").arg("-rT").arg(source).arg(&target).status();
            ensure!(status.is_ok_and(|s| s.success()), "cannot fill the volume");
        }
        Ok(())
    })
}

/// Describes how runs start.
fn state(cli: &Cli) -> String {
    let Some(kind) = cli.volume else { return String::new() };
    let (source, starts) = (
        if cli.source_outside { "outside it" } else { "in it" },
        if cli.removed {
            "before each run, then a copy of the source in it is removed"
        } else {
            "before each block"
        },
    );
    let mib = cli.volume_mib;
    format!("volume: {kind:?} in an image of {mib} MiB, source {source}, restored {starts}")
}

impl Copying {
    /// Path at which a copied tree is kept until the end.
    fn aside(&self, number: u32) -> PathBuf {
        self.to.with_file_name(format!("{COPIED}{number}"))
    }
}

/// Counts files and bytes; with `read` also reads every byte, which loads it into memory.
fn size_of(path: &Path, read: bool) -> Result<Size> {
    let meta = path.symlink_metadata()?;
    if meta.is_dir() {
        let mut sum = Size { files: 0, bytes: 0 };
        for entry in std::fs::read_dir(path)? {
            let size = size_of(&entry?.path(), read)?;
            (sum.files, sum.bytes) = (sum.files + size.files, sum.bytes + size.bytes);
        }
        return Ok(sum);
    }
    if read && meta.is_file() {
        let mut file = File::open(path)?;
        let mut buffer = vec![0; 1 << 20];
        while file.read(&mut buffer)? > 0 {}
    }
    Ok(Size { files: 1, bytes: meta.len() })
}

/// Compares two trees of equal sizes.
fn same(from: &Path, to: &Path) -> Result<()> {
    if from.symlink_metadata()?.is_dir() {
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            same(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    let (mut a, mut b) = (File::open(from)?, File::open(to)?);
    let (mut one, mut two) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let n = a.read(&mut one)?;
        b.read_exact(&mut two[..n]).with_context(|| format!("{} is short", to.display()))?;
        ensure!(one[..n] == two[..n], "{} differs", to.display());
        if n == 0 {
            return Ok(());
        }
    }
}

impl Work for Copying {
    const TITLE: &'static str = "Comparison of copiers";
    const PROGRAM: &'static str = "copy_versus";
    const SCHEMA: &'static str = "ioloom-copy-versus-1";

    fn subject(&self) -> &Path {
        &self.source
    }

    fn fill(&self, word: &str) -> String {
        word.replace("{from}", &self.texts[0]).replace("{to}", &self.texts[1])
    }

    fn bytes(&self) -> Result<Option<u64>> {
        Ok(Some(self.size.bytes))
    }

    fn cold_bytes(&self) -> Option<u64> {
        self.shares.then_some(self.size.files * INODE_BYTES_MIN)
    }

    fn medium(&self) -> Option<Medium> {
        self.volume.as_ref().map(|_| Medium::of(&self.source))
    }

    fn state(&self) -> String {
        self.state.clone()
    }

    fn begin_block(&self) -> Result<()> {
        let Some(volume) = self.volume.as_ref().filter(|_| !self.removed) else { return Ok(()) };
        self.done.set(0);
        volume.restore()
    }

    fn warm(&self) -> Result<Option<()>> {
        size_of(&self.source, true).map(|_| Some(()))
    }

    fn reset(&self) -> Result<()> {
        if let Some(volume) = self.volume.as_ref().filter(|_| self.removed) {
            volume.restore()?;
            size_of(&self.source, true)?;
            std::fs::remove_dir_all(&self.to).context("cannot remove the target")?;
            std::thread::sleep(AFTER_REMOVAL);
            return Ok(());
        }
        match self.to.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {
                std::fs::rename(&self.to, self.aside(self.done.get()))?;
                self.done.set(self.done.get() + 1);
            }
            Ok(_) => std::fs::remove_file(&self.to).context("cannot remove the target")?,
            Err(_) => {}
        }
        let parent = self.to.parent().context("a target without a directory")?;
        Ok(ioloom_sys::cache::flush_file_system(File::open(parent)?)?)
    }

    fn end(&self) -> Result<()> {
        let leaves = self.leave || self.volume.is_some();
        let removed = if leaves { self.first } else { self.done.get() };
        (self.first..removed).try_for_each(|number| {
            std::fs::remove_dir_all(self.aside(number)).context("cannot remove what was copied")
        })
    }

    fn settle(&self) -> Result<Option<()>> {
        let file = File::open(&self.to).context("nothing was copied")?;
        if file.metadata()?.is_dir() {
            ioloom_sys::cache::flush_file_system(&file)?;
        } else {
            file.sync_data()?;
        }
        File::open(self.to.parent().context("a target without a directory")?)?.sync_all()?;
        Ok(Some(()))
    }

    fn wrong(&self, first: bool) -> Option<String> {
        match size_of(&self.to, false) {
            Err(error) => Some(format!("{error:#}")),
            Ok(copied) if copied != self.size => {
                Some(format!("copied {copied:?} of {:?}", self.size))
            }
            Ok(_) if first => same(&self.source, &self.to).err().map(|error| format!("{error:#}")),
            Ok(_) => None,
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    interleaved::main(&cli.order, || Copying::new(&cli))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_an_earlier_experiment_are_kept() {
        let into = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(after_copied(into.path()).expect("lists"), 0);
        for name in ["copied-0/file", "copied-9/file", "copied-x", "tree"] {
            std::fs::create_dir_all(into.path().join(name)).expect("makes directories");
        }
        assert_eq!(after_copied(into.path()).expect("lists"), 10);
        let text = |name: &str| into.path().join(name).to_str().expect("UTF-8").to_owned();
        let (source, place) =
            (format!("--source={}", text("tree")), format!("--into={}", text("")));
        let cli = Cli::parse_from(["copy_versus", &source, &place, "--out=o", "--ours=a=b"]);
        let work = Copying::new(&cli).expect("a source and a directory");
        std::fs::create_dir(&work.to).expect("makes the target");
        work.reset().expect("keeps the target");
        assert!(into.path().join("copied-10").is_dir() && !work.to.exists());
        work.end().expect("removes its copies");
        assert!(!into.path().join("copied-10").exists());
        assert!(into.path().join("copied-9/file").exists());
    }
}
