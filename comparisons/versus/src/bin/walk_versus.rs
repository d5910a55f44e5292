//! `walk_versus`: compares programs that sum up a directory tree in one interleaved experiment.
//!
//! The measure is the wall time of the whole process. Warm: an arm drawn from the seed walks the
//! tree before each block, and a run counts only if the device read at most 16 bytes per entry, or
//! 128 KiB if that is more. Cold: a run counts only if the device read at least half of what the
//! first successful run read.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use ioloom_versus::interleaved::{self, Order, Work};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes that the device may read per entry in a warm run: a sixteenth of an inode of ext4, so
/// nearly all of the tree is in memory.
const WARM_BYTES_PER_ENTRY: u64 = 16;

/// Bytes that it may always read: one readahead window. Other processes read, too.
const WARM_BYTES_MIN: u64 = 128 << 10;

/// Compare walkers on one tree; write README.md, raw.jsonl and summary.md.
///
/// Commands have the placeholders {dir} and {threads}.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// The tree; must not change during the experiment.
    #[arg(long, value_name = "DIR", required_unless_present = "from")]
    dir: Option<PathBuf>,
    /// Directory with diskus, pdu, dust and dua; missing ones are skipped, du is always included.
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    #[command(flatten)]
    order: Order,
}

struct Walking {
    dir: PathBuf,
    text: String,
    peers: Option<PathBuf>,
}

impl Walking {
    fn new(cli: &Cli) -> Result<Self> {
        let dir = cli.dir.as_ref().context("give --dir")?;
        ensure!(dir.is_dir(), "{} is not a directory", dir.display());
        let text = dir.to_str().context("the directory's path must be UTF-8")?.to_owned();
        Ok(Self { dir: dir.clone(), text, peers: cli.peers.clone() })
    }
}

impl Work for Walking {
    const TITLE: &'static str = "Comparison of walkers";
    const PROGRAM: &'static str = "walk_versus";
    const SCHEMA: &'static str = "ioloom-walk-versus-1";

    fn subject(&self) -> &Path {
        &self.dir
    }

    fn fill(&self, word: &str) -> String {
        word.replace("{dir}", &self.text)
    }

    fn warm_bytes(&self) -> Result<Option<u64>> {
        let bytes = entries(&self.dir)?.saturating_mul(WARM_BYTES_PER_ENTRY);
        Ok(Some(bytes.max(WARM_BYTES_MIN)))
    }

    /// The programs in the directory of peers, and du.
    fn known(&self) -> Vec<String> {
        let mut arms = vec!["du=du -s {dir}".to_owned()];
        let Some(bin) = &self.peers else { return arms };
        let known = [
            ("diskus", "-j {threads} {dir}"),
            ("pdu", "--threads {threads} --max-depth 1 {dir}"),
            ("dust", "-P -T {threads} -d 0 {dir}"),
            ("dua", "-t {threads} aggregate {dir}"),
        ];
        for (program, arguments) in known {
            let path = bin.join(program);
            if path.is_file() {
                arms.push(format!("{program}={} {arguments}", path.display()));
            }
        }
        arms
    }
}

/// Counts the entries below a directory.
fn entries(dir: &Path) -> Result<u64> {
    let listed =
        std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut count = 0;
    for entry in listed {
        let entry = entry?;
        count += 1;
        if entry.file_type()?.is_dir() {
            count += entries(&entry.path())?;
        }
    }
    Ok(count)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    interleaved::main(&cli.order, || Walking::new(&cli))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_warm_walk_grows_with_the_entries_of_all_levels() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir_all(dir.path().join("a/b")).expect("makes directories");
        std::fs::write(dir.path().join("a/b/c"), "").expect("writes");
        assert_eq!(entries(dir.path()).expect("lists"), 3);
        let cli = Cli::parse_from([
            "walk_versus",
            "--dir",
            dir.path().to_str().expect("UTF-8"),
            "--out=o",
            "--ours=a=b",
        ]);
        let work = Walking::new(&cli).expect("a directory");
        assert_eq!(work.warm_bytes().expect("lists"), Some(WARM_BYTES_MIN));
    }
}
