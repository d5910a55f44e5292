//! `walk_versus`: compares programs that sum up a directory tree in one interleaved experiment.
//!
//! The measure is the wall time of the whole process. Warm: the tree is walked once before each
//! block. Cold: a run counts only if the device read at least half of what the first cold run read.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use ioloom_versus::interleaved::{self, Order, Work};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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

fn main() -> ExitCode {
    let cli = Cli::parse();
    interleaved::main(&cli.order, || Walking::new(&cli))
}
