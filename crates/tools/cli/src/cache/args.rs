//! Flags of `cache`.

use crate::exit::Failure;
use crate::values;
use clap::{Args, Subcommand};
use ioloom_cache::Action;
use ioloom_walk::Threads;
use std::path::PathBuf;

/// Show, evict or load the page cache contents of files
///
/// Reports for each tree or file how much of it is in memory, and proves after an eviction or load
/// what changed by querying again.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom cache status ~/src              how much of a tree is in memory
  ioloom cache status --map big.iso      where in the file
  ioloom cache drop big.iso              evict it
  ioloom cache warm /srv/data            load it
  find . -name '*.db' -print0 | ioloom cache status -0 -")]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(super) what: What,
}

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Show resident, dirty, writeback and recently evicted pages
    ///
    /// Changes nothing. The kernel reports all four only to the owner of a file and to users who may
    /// write it. For other files at most 256 pages are probed by reads that do not wait: the resident
    /// pages are then exact or an estimate (~), pages that miss are loaded by the probe, and dirty,
    /// writeback and evicted pages are unknown.
    #[command(after_long_help = "\
Examples:
  ioloom cache status ~/src
  ioloom cache status --max-depth 1 --top 20 /var/lib
  ioloom cache status --map --svg map.svg big.iso
  ioloom cache status --json /srv | jq .total")]
    Status(PathArgs),
    /// Evict files from the page cache, and say what stays and why
    ///
    /// Dirty data is written first, because dirty pages cannot be evicted. Pages stay if a process has
    /// the file mapped or locked, or if the file system stores its data only in memory. Names and
    /// inodes stay in memory. Later reads of these files have to wait for the device.
    ///
    /// The exit code is 1 if anything stays.
    #[command(after_long_help = "\
Examples:
  ioloom cache drop big.iso
  ioloom cache drop --no-write ~/src     leave dirty data alone")]
    Drop(DropArgs),
    /// Load files into the page cache, and say whether they are there
    ///
    /// Reads every file once. The exit code is 1 if something that was read is not in memory
    /// afterwards, for example because there is more data than memory.
    #[command(after_long_help = "\
Examples:
  ioloom cache warm /srv/data
  ioloom cache warm --threads 4 ~/src")]
    Warm(PathArgs),
}

#[derive(Debug, Args)]
pub(super) struct DropArgs {
    /// Do not write dirty data; its pages stay
    #[arg(long)]
    no_write: bool,

    #[command(flatten)]
    paths: PathArgs,
}

#[derive(Debug, Args)]
pub(super) struct PathArgs {
    /// Directories, files or block devices, or - for a list
    ///
    /// With - the paths are read from standard input, one per line.
    #[arg(value_name = "PATH", required = true)]
    pub(super) paths: Vec<PathBuf>,

    /// The list is separated by NUL
    #[arg(short = '0', long = "null")]
    pub(super) zero: bool,

    /// Print every file when it is done
    ///
    /// Files are printed in no particular order, before the totals.
    #[arg(short, long, conflicts_with = "json")]
    pub(super) all: bool,

    /// Show directories down to this depth
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0)]
    pub(super) max_depth: u32,

    /// Show the N files with the most pages
    ///
    /// With drop, files are ordered by the pages that were resident before.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) top: usize,

    /// Draw where the pages of these files are
    ///
    /// Up to 40 of the top files are drawn, each from its first to its last byte.
    #[arg(long)]
    pub(super) map: bool,

    /// Write that drawing as SVG
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,

    /// Number of threads, 1 to 256
    ///
    /// auto starts with the usable cores and follows the measured throughput.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = values::threads)]
    pub(super) threads: Threads,

    /// Print the result as JSON
    ///
    /// The document is described in docs/json.md.
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
    /// Returns whether the paths come on standard input.
    pub(super) fn is_list(&self) -> Result<bool, Failure> {
        let dash = |path: &PathBuf| path.as_os_str() == "-";
        match self.paths.as_slice() {
            [only] if dash(only) => Ok(true),
            paths if paths.iter().any(dash) => {
                Err(Failure::usage("- cannot be combined with other paths"))
            }
            _ if self.zero => {
                Err(Failure::usage("-0 needs a list on standard input: give - as the path"))
            }
            _ => Ok(false),
        }
    }
}
