//! Flags of `cache`.

use crate::exit::Failure;
use crate::standard_input;
use crate::values;
use clap::{Args, Subcommand};
use ioloom_cache::Action;
use ioloom_walk::Threads;
use std::path::PathBuf;

/// Show, evict or load the page cache contents of files
///
/// Reports how much of each tree or file is in memory. After an eviction or load, the page cache is
/// queried again to report the actual change.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom cache status ~/src              show how much of a tree is in memory
  ioloom cache status --map big.iso      show which parts of a file
  ioloom cache drop big.iso              evict a file
  ioloom cache warm /srv/data            load a tree
  find . -name '*.db' -print0 | ioloom cache status -0 -")]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(super) what: What,
}

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Show resident, dirty, writeback and recently evicted pages
    ///
    /// The kernel reports these pages only to the owner of a file and to users with write permission.
    /// For other files, non-blocking reads probe up to 256 pages: the number of resident pages is then
    /// exact or an estimate (~), dirty, writeback and evicted pages are unknown, and the probe can load
    /// pages that were not resident. Otherwise nothing changes.
    #[command(after_long_help = "\
Examples:
  ioloom cache status ~/src
  ioloom cache status --max-depth 1 --top 20 /var/lib
  ioloom cache status --map --svg map.svg big.iso
  ioloom cache status --json /srv | jq .total")]
    Status(PathArgs),
    /// Evict files from the page cache and report what remains
    ///
    /// Dirty data is written first, because dirty pages cannot be evicted. Pages remain if a process has
    /// mapped or locked them, or if the file system stores its data only in memory. Names and inodes
    /// are not evicted. Later reads of these files must wait for the device.
    ///
    /// --top shows the files that had the most resident pages before. The exit code is 1 if any pages
    /// remain.
    #[command(after_long_help = "\
Examples:
  ioloom cache drop big.iso
  ioloom cache drop --no-write ~/src     skip dirty pages")]
    Drop(DropArgs),
    /// Load files into the page cache and verify the result
    ///
    /// Reads every file once. The exit code is 1 if some of the data is not in memory afterwards, for
    /// example because it exceeds the available memory.
    #[command(after_long_help = "\
Examples:
  ioloom cache warm /srv/data
  ioloom cache warm --threads 4 ~/src")]
    Warm(PathArgs),
}

#[derive(Debug, Args)]
pub(super) struct DropArgs {
    /// Do not write dirty data; dirty pages remain
    #[arg(long)]
    no_write: bool,

    #[command(flatten)]
    paths: PathArgs,
}

#[derive(Debug, Args)]
pub(super) struct PathArgs {
    /// Directories, files or block devices, or - for a list
    ///
    /// With -, paths are read from standard input, one per line.
    #[arg(value_name = "PATH", required = true)]
    pub(super) paths: Vec<PathBuf>,

    /// Read a NUL-separated list
    #[arg(short = '0', long = "null")]
    pub(super) zero: bool,

    /// Print every file
    ///
    /// Files are printed as they are processed, in no particular order, before the totals.
    #[arg(short, long, conflicts_with = "json")]
    pub(super) all: bool,

    /// Show directories down to this depth
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0)]
    pub(super) max_depth: u32,

    /// Show the N files with the most pages
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) top: usize,

    /// Draw a map of the pages in each file
    ///
    /// Draws up to 40 of the --top files, each from its first to its last byte.
    #[arg(long)]
    pub(super) map: bool,

    /// Write the map as SVG
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,

    /// Number of threads, 1 to 256
    ///
    /// auto starts with the usable cores and follows the measured throughput.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = values::threads)]
    pub(super) threads: Threads,

    /// Print the result as JSON
    ///
    /// The format is described in docs/reference/json.md.
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
    /// Returns whether paths are read from standard input.
    pub(super) fn is_list(&self) -> Result<bool, Failure> {
        let dash = |path: &PathBuf| path.as_os_str() == "-";
        match self.paths.as_slice() {
            [only] if dash(only) => standard_input::required().map(|_| true),
            paths if paths.iter().any(dash) => {
                Err(Failure::usage("- cannot be combined with other paths"))
            }
            _ if self.zero => {
                Err(Failure::usage("-0 needs a list on standard input; use - as the path"))
            }
            _ => Ok(false),
        }
    }
}
