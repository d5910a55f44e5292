//! Flags of `cache`.

use crate::exit::Failure;
use clap::{Args, Subcommand};
use ioloom_cache::Action;
use ioloom_walk::Threads;
use std::path::PathBuf;

/// Shows what of files lies in the page cache, puts it out, or brings it in.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ioloom cache status ~/src              how much of a tree is in memory
  ioloom cache status --map big.iso      where in the file
  ioloom cache drop big.iso              put it out, proved by asking again
  ioloom cache warm /srv/data            read it in, proved by asking again
  find . -name '*.db' -print0 | ioloom cache status -0 -")]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(super) what: What,
}

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Shows what is resident, dirty, under writeback and recently evicted
    #[command(after_help = "\
The kernel tells all four only to owners of a file and those who may write it. For others at most
256 pages are asked by reads that do not wait: what is resident is then exact or an estimate (~),
pages that miss are brought in by the question, and the rest is unknown.

Examples:
  ioloom cache status ~/src
  ioloom cache status --max-depth 1 --top 20 /var/lib
  ioloom cache status --map --svg map.svg big.iso
  ioloom cache status --json /srv | jq .total")]
    Status(PathArgs),
    /// Puts files out of the page cache, and says what stays and why
    #[command(after_help = "\
Changed data is written first, so that its pages can go. Pages stay if a process has the file mapped
or locked, or if the file system keeps its data in memory alone. Names and inodes stay in memory.
Exit code 1 if anything stays.

Examples:
  ioloom cache drop big.iso
  ioloom cache drop --no-write ~/src     leave changed data alone")]
    Drop(DropArgs),
    /// Reads files into the page cache, and says whether they are there
    #[command(after_help = "\
Exit code 1 if something that was read is not in memory afterwards, as when there is more data than
memory.

Examples:
  ioloom cache warm /srv/data
  ioloom cache warm --threads 4 ~/src")]
    Warm(PathArgs),
}

#[derive(Debug, Args)]
pub(super) struct DropArgs {
    /// Leave changed data unwritten: its pages stay
    #[arg(long)]
    no_write: bool,

    #[command(flatten)]
    paths: PathArgs,
}

#[derive(Debug, Args)]
pub(super) struct PathArgs {
    /// Directories, files or block devices; - reads a list of files from standard input
    #[arg(value_name = "PATH", required = true)]
    pub(super) paths: Vec<PathBuf>,

    /// The list is separated by zero bytes, not by line ends
    #[arg(short = '0', long = "null")]
    pub(super) zero: bool,

    /// Print every file as it is found, in no order
    #[arg(short, long, conflicts_with = "json")]
    pub(super) all: bool,

    /// Show directories down to this depth
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0)]
    pub(super) max_depth: u32,

    /// Show the N files with the most resident pages
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) top: usize,

    /// Draw where in these files the pages lie
    #[arg(long)]
    pub(super) map: bool,

    /// Write that drawing as a picture
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,

    /// Threads: 1 to 256, or auto
    #[arg(long, value_name = "N", default_value = "auto")]
    threads: String,

    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

impl What {
    pub(super) fn act(&self) -> Action {
        match self {
            Self::Status(_) => Action::Status,
            Self::Drop(args) => Action::Drop { write: !args.no_write },
            Self::Warm(_) => Action::Warm,
        }
    }

    pub(super) fn paths(&self) -> &PathArgs {
        match self {
            Self::Status(args) | Self::Warm(args) => args,
            Self::Drop(args) => &args.paths,
        }
    }
}

impl PathArgs {
    pub(super) fn threads(&self) -> Result<Threads, Failure> {
        self.threads.parse().map_err(Failure::usage)
    }

    /// Whether the paths come on standard input.
    pub(super) fn is_list(&self) -> Result<bool, Failure> {
        let dash = |path: &PathBuf| path.as_os_str() == "-";
        match self.paths.as_slice() {
            [only] if dash(only) => Ok(true),
            paths if paths.iter().any(dash) => {
                Err(Failure::usage("- reads all paths from standard input and stands alone"))
            }
            _ if self.zero => Err(Failure::usage("-0 is for a list: give - as the only path")),
            _ => Ok(false),
        }
    }
}
