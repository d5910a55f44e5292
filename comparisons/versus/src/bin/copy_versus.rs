//! `copy_versus`: compares copying programs in one interleaved experiment.
//!
//! Each run copies to a name that does not exist. A previously copied file is removed and its
//! blocks are discarded; a tree is renamed and kept until the end because ext4 does not reuse
//! recently freed inodes and scans past them, which is not part of copying. So trees need space for
//! all runs. Two times are recorded: until the program returned, and until its data was on the
//! device, because a program that leaves writing to the kernel has not finished. The second time is
//! used for comparisons: fdatasync of the file, or syncfs for a tree, then fsync of the parent
//! directory, the same for every arm. Warm: the source is read before each block, and the device
//! may read at most 10 % of it. Cold: it must read 95 % of it. The copies are counted after each
//! run and compared byte by byte in the first block.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use ioloom_versus::interleaved::{self, Order, Work};
use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
    /// Trees that were copied.
    done: Cell<u32>,
    leave: bool,
}

impl Copying {
    fn new(cli: &Cli) -> Result<Self> {
        let (source, into) = cli.source.as_ref().zip(cli.into.as_ref()).context("give --source")?;
        ensure!(into.is_dir(), "{} is not a directory", into.display());
        let to = into.join("copy-versus");
        let text = |path: &Path| path.to_str().map(str::to_owned).context("paths must be UTF-8");
        let texts = [text(source)?, text(&to)?];
        let size = size_of(source, false).context("cannot use the source")?;
        let done = Cell::new(0);
        Ok(Self { source: source.clone(), to, texts, size, done, leave: cli.leave })
    }
}

impl Copying {
    /// Path at which a copied tree is kept until the end.
    fn aside(&self, number: u32) -> PathBuf {
        self.to.with_file_name(format!("copied-{number}"))
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

    fn warm(&self) -> Result<Option<()>> {
        size_of(&self.source, true).map(|_| Some(()))
    }

    fn reset(&self) -> Result<()> {
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
        let removed = if self.leave { 0 } else { self.done.get() };
        (0..removed).try_for_each(|number| {
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
