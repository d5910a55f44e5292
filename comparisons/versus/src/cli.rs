//! The command line, checked before anything is touched.

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

/// Compare ioloom with its peers on one directory; write README.md, raw.jsonl and summary.md.
#[derive(Parser)]
#[command(version)]
pub(crate) struct Cli {
    /// The prepared file set: every arm reads every regular file below it.
    #[arg(long, value_name = "DIR", requires = "out", required_unless_present = "from")]
    dir: Option<PathBuf>,
    /// Directory for the result; must be empty or absent.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Summarize an existing result again.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dir", "out"])]
    pub(crate) from: Option<PathBuf>,
    /// Cold: no data in memory before each run. Warm: all data in memory.
    #[arg(long, value_enum, default_value = "warm")]
    condition: Condition,
    /// Drop the caches of the whole machine (root). Cold: before each run; without this flag, each
    /// file is evicted with fadvise, and names and inodes stay warm. Warm: before each block, to
    /// load inodes in random order rather than in the order of an earlier arm.
    #[arg(long)]
    drop_caches: bool,
    /// Cold only: before each run, write to this much memory and release it, so every arm gets
    /// memory that a virtual machine's host has already provided.
    #[arg(long, value_name = "MIB")]
    touch_memory_mib: Option<NonZeroU32>,
    /// Number of runs per arm.
    #[arg(long, default_value = "12")]
    blocks: NonZeroU32,
    /// Our command, split as a shell would: `[NAME=]PROGRAM ARG…`, with {dir}, {list} or {list0}
    /// replaced by the directory or a file with its paths. Repeat for several arms.
    #[arg(long, value_name = "TEMPLATE")]
    ours: Vec<String>,
    /// Pass the list of paths to our command on standard input.
    #[arg(long, value_enum, value_name = "LIST")]
    ours_stdin: Option<ListForm>,
    /// JSON field of our elapsed nanoseconds; dots select nested objects.
    #[arg(long, default_value = "elapsed_ns")]
    ours_elapsed_field: String,
    /// JSON field of our number of files.
    #[arg(long, default_value = "files")]
    ours_files_field: String,
    /// JSON field of our number of bytes.
    #[arg(long, default_value = "bytes")]
    ours_bytes_field: String,
    /// JSON field of our digest.
    #[arg(long, default_value = "digest")]
    ours_digest_field: String,
    /// JSON field of our peak resident memory in bytes (optional).
    #[arg(long, default_value = "memory_peak_bytes")]
    ours_peak_field: String,
    /// Meaning of our digest.
    #[arg(long, value_enum, default_value = "combined")]
    ours_digest: DigestKind,
    /// `full`, `quick`, `large`, `none`, or a list such as rayon:4x,std-threads:64,tokio:128 (Nx: N
    /// per core).
    #[arg(long, default_value = "full")]
    peers: String,
    /// The peer program; default: `peer` in the directory of this program.
    #[arg(long, value_name = "FILE")]
    peer: Option<PathBuf>,
    /// How the peers get their files: by walking the directory or reading a prepared list.
    #[arg(long, value_enum, default_value = "walk")]
    input: Input,
    /// The peers' walker.
    #[arg(long, value_enum, default_value = "walkdir")]
    walker: Walker,
    /// Add fio arms: the default grid, or a list such as psync:4x1,uring-direct:1x32 (jobs ×
    /// depth).
    #[arg(long, value_name = "GRID", num_args = 0..=1, default_missing_value = "default")]
    fio: Option<String>,
    /// Seed of orders, samples and intervals.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Number of files whose residency is checked before a run.
    #[arg(long, default_value = "64")]
    sample_files: NonZeroU32,
    /// Kill a run after this many seconds.
    #[arg(long, default_value = "900")]
    deadline_s: NonZeroU64,
    /// Measured commit (default: the commit of the working directory).
    #[arg(long)]
    commit: Option<String>,
    /// Skip the trial run of every arm before the first block.
    #[arg(long)]
    no_rehearsal: bool,
}

/// The cache state before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Condition {
    Cold,
    Warm,
}

/// How the peers get their files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Input {
    Walk,
    List,
}

/// Terminator of paths in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListForm {
    /// Newline.
    List,
    /// NUL.
    List0,
}

/// The walkers of the peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Walker {
    Walkdir,
    Ignore,
}

/// The data covered by a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DigestKind {
    /// XXH3-64 over the sorted lines `HEX  PATH`, paths relative to the directory.
    Combined,
    /// The same with absolute paths.
    CombinedAbsolute,
    /// The wrapping sum of the peers.
    Sum,
    /// Not checked: the arm does not hash.
    None,
}

/// Field names of our JSON.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    pub(crate) elapsed: String,
    pub(crate) files: String,
    pub(crate) bytes: String,
    pub(crate) digest: String,
    pub(crate) peak: String,
}

/// A validated plan to measure.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) dir: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) condition: Condition,
    pub(crate) drop_caches: bool,
    pub(crate) touch_memory_bytes: usize,
    pub(crate) blocks: u32,
    pub(crate) ours: Vec<String>,
    pub(crate) ours_stdin: Option<ListForm>,
    pub(crate) ours_fields: Fields,
    pub(crate) ours_digest: DigestKind,
    pub(crate) peers: String,
    pub(crate) peer: PathBuf,
    pub(crate) input: Input,
    pub(crate) walker: Walker,
    pub(crate) fio: Option<String>,
    pub(crate) seed: u64,
    pub(crate) sample_files: usize,
    pub(crate) deadline: Duration,
    pub(crate) commit: Option<String>,
    pub(crate) rehearse: bool,
}

impl Cli {
    /// Returns the plan with an absolute directory; `None` if there is nothing to measure.
    pub(crate) fn plan(&self) -> Result<Option<Plan>> {
        let (Some(dir), Some(out)) = (&self.dir, &self.out) else { return Ok(None) };
        let dir = dir.canonicalize().with_context(|| format!("cannot use {}", dir.display()))?;
        if !dir.is_dir() {
            bail!("{} is not a directory; --dir takes the directory of a file set", dir.display());
        }
        if self.drop_caches && !rustix::process::geteuid().is_root() {
            bail!("--drop-caches needs root; without it files are evicted with fadvise");
        }
        if self.touch_memory_mib.is_some() && self.condition == Condition::Warm {
            bail!("--touch-memory-mib applies to cold runs only");
        }
        let touch_memory_bytes =
            self.touch_memory_mib.map_or(0, |mib| (mib.get() as usize).saturating_mul(1 << 20));
        let peer = match &self.peer {
            Some(peer) => peer.clone(),
            None => {
                std::env::current_exe().context("cannot find this program")?.with_file_name("peer")
            }
        };
        Ok(Some(Plan {
            dir,
            out: out.clone(),
            condition: self.condition,
            drop_caches: self.drop_caches,
            touch_memory_bytes,
            blocks: self.blocks.get(),
            ours: self.ours.clone(),
            ours_stdin: self.ours_stdin,
            ours_fields: Fields {
                elapsed: self.ours_elapsed_field.clone(),
                files: self.ours_files_field.clone(),
                bytes: self.ours_bytes_field.clone(),
                digest: self.ours_digest_field.clone(),
                peak: self.ours_peak_field.clone(),
            },
            ours_digest: self.ours_digest,
            peers: self.peers.clone(),
            peer,
            input: self.input,
            walker: self.walker,
            fio: self.fio.clone(),
            seed: self.seed,
            sample_files: self.sample_files.get() as usize,
            deadline: Duration::from_secs(self.deadline_s.get()),
            commit: self.commit.clone(),
            rehearse: !self.no_rehearsal,
        }))
    }
}
