//! Flags of `du`. Flags that GNU du also has behave the same way; the module `gnu` reads those whose
//! order matters.

use super::gnu::Choices;
use super::shard_args::Apart;
use super::size::Spelling;
use crate::subtrees::ShardingWith;
use crate::values::{self, Choice};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, value_parser};
use ioloom_du::Measure;
use ioloom_du::scan::{Detail, ScanOptions};
use ioloom_walk::{Method, Threads};
use std::ffi::OsString;
use std::path::PathBuf;

/// Show disk usage, with a tree view, interactive browser and saved snapshots
///
/// Accepts the flags of GNU du, also abbreviated. On a terminal it draws the largest directories as a
/// tree with bars; otherwise, or with --lines, it prints lines in the format of GNU du.
///
/// A hard-linked file counts once, in the directory whose path sorts first. Files that disappear during
/// the scan are not errors. Pseudo file systems such as /proc are skipped unless given as arguments.
///
/// Of several flags for the unit, or for following links, the last one counts. The default unit is in
/// DU_BLOCK_SIZE, BLOCK_SIZE or BLOCKSIZE, or is 512 bytes if POSIXLY_CORRECT is set; flags then end at
/// the first argument.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, args_override_self = true)]
#[command(after_long_help = "\
Examples:
  ioloom du ~                          show the largest directories
  ioloom du -sh *                      print one total per argument
  ioloom du -i /srv                    browse, sort and remove
  ioloom du --save monday.json ~       save a scan
  ioloom du --diff monday.json ~       show changes since that scan
  ioloom du --export-ncdu x.json /srv  export for ncdu -f x.json
  ioloom shard plan --subtrees /srv    split a scan among hosts (docs/scale.md)

Exit codes: 0 ok, 1 error, 128+N ended by signal N.")]
pub(crate) struct DuArgs {
    /// Directories or files [default: the current directory]
    // Not a path: clap refuses empty ones, and GNU du reports them and goes on.
    #[arg(value_parser = value_parser!(OsString), value_hint = clap::ValueHint::AnyPath)]
    pub(crate) paths: Vec<OsString>,

    #[arg(skip)]
    pub(crate) choices: Choices,

    /// Show files, not only directories
    #[arg(short, long)]
    pub(crate) all: bool,

    /// Show only a total for each argument
    ///
    /// Same as --max-depth=0. Uses the least memory, because directories need not be stored.
    #[arg(short, long)]
    pub(crate) summarize: bool,

    /// Do not include the size of subdirectories
    #[arg(short = 'S', long, conflicts_with_all = ["tree", "json", "interactive", "diff"])]
    pub(crate) separate_dirs: bool,

    /// Show directories down to this depth
    ///
    /// Default: all depths. Deeper directories are still counted. Memory usage grows with the number of
    /// directories shown.
    #[arg(short = 'd', long, value_name = "N")]
    pub(crate) max_depth: Option<OsString>,

    /// Print sizes like 1.5K, 234M, 2.1G
    ///
    /// Units are powers of 1024 and sizes are rounded up, as in GNU du.
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,

    /// Like -h, in powers of 1000
    #[arg(long)]
    pub(crate) si: bool,

    /// Print apparent sizes in bytes
    ///
    /// Same as --apparent-size --block-size=1.
    #[arg(short, long)]
    pub(crate) bytes: bool,

    /// Print apparent sizes rather than disk usage
    ///
    /// The apparent size is the file length. Disk usage, the default, is the space of the allocated
    /// blocks: less for sparse and compressed files, more for many small files. With --inodes it has no
    /// effect.
    #[arg(short = 'A', long)]
    pub(crate) apparent_size: bool,

    /// Count entries instead of bytes
    #[arg(long)]
    pub(crate) inodes: bool,

    /// Unit of the lines [default: 1KiB]
    ///
    /// Sizes are rounded up to whole units. K or KiB is 1024 bytes, KB is 1000; likewise M, G, T, P and E.
    /// If SIZE is only a unit, it is appended to each size. human-readable is -h, and si is --si.
    #[arg(short = 'B', long, value_name = "SIZE")]
    pub(crate) block_size: Option<OsString>,

    /// Same as --block-size=1KiB
    #[arg(short)]
    pub(crate) kib: bool,

    /// Same as --block-size=1MiB
    #[arg(short)]
    pub(crate) mib: bool,

    /// Print a grand total
    #[arg(short = 'c', long)]
    pub(crate) total: bool,

    /// Count hard-linked files every time
    ///
    /// By default, a file with several links counts once.
    #[arg(short = 'l', long)]
    pub(crate) count_links: bool,

    /// Stay on the device of each argument
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    /// Stay on the mount of each argument
    ///
    /// Unlike -x, also skips bind mounts and other mounts of the same device.
    #[arg(long)]
    pub(crate) one_mount: bool,

    /// Descend into pseudo file systems
    ///
    /// By default, mounts such as /proc and /sys below an argument are reported and skipped.
    #[arg(long)]
    pub(crate) all_file_systems: bool,

    /// Follow all symbolic links
    ///
    /// A directory reachable by two paths counts once.
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,

    /// Follow symbolic links given as arguments
    #[arg(short = 'D', long, short_alias = 'H')]
    pub(crate) dereference_args: bool,

    /// Follow no symbolic links
    ///
    /// The default; cancels an earlier -L or -D.
    #[arg(short = 'P', long)]
    pub(crate) no_dereference: bool,

    /// Exclude entries that match a pattern
    ///
    /// Patterns work as in GNU du: '*.o' and 'cache' match names at any depth, and 'a/b' matches the
    /// end of a path. '?' matches a character in a UTF-8 locale, and a byte in others.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,

    /// Exclude entries that match any pattern in a file
    ///
    /// One pattern per line. Use - for standard input.
    #[arg(short = 'X', long, value_name = "FILE", value_parser = path_or_empty())]
    pub(crate) exclude_from: Vec<PathBuf>,

    /// Exclude entries smaller than SIZE
    ///
    /// If SIZE is negative, exclude larger entries instead. Excluded entries still count in totals.
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) threshold: Option<OsString>,

    /// Show the latest time of each directory and everything below it
    ///
    /// WORD is atime, access or use for the time of the last access, and ctime or status for the last
    /// change of the inode. Default: the last modification.
    #[arg(long, value_name = "WORD", num_args = 0..=1, require_equals = true,
          conflicts_with_all = ["tree", "json", "interactive", "diff", "import"])]
    pub(crate) time: Option<Option<OsString>>,

    /// Format of times: full-iso, long-iso, iso, or +FORMAT
    ///
    /// FORMAT is that of date(1), with English names. Default: TIME_STYLE, or long-iso.
    #[arg(long, value_name = "STYLE")]
    pub(crate) time_style: Option<OsString>,

    /// Show the N largest entries, largest first
    ///
    /// The tree view shows 20 by default.
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,

    /// End lines with NUL instead of newline
    #[arg(short = '0', long = "null")]
    pub(crate) zero: bool,

    /// Read NUL-separated arguments from a file
    ///
    /// Use - for standard input. Up to 65,536 names are read before the scan starts, or those before a
    /// pipe pauses.
    #[arg(long, value_name = "FILE", value_parser = path_or_empty())]
    pub(crate) files0_from: Option<PathBuf>,

    /// Number of threads, 1 to 256
    ///
    /// auto starts with the usable cores and follows the measured throughput.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = values::threads)]
    pub(crate) threads: Threads,

    /// How to stat files
    ///
    /// statx calls statx(2) relative to the open directory and is fastest on most machines. lstat
    /// uses the full path, as most programs do. uring submits statx through io_uring. sweep reads all
    /// names first and then stats in inode order, which reduces seeks on rotating disks but uses about
    /// 100 bytes of memory per file. inode-tables syncs the file system and reads sizes from the ext4
    /// inode tables on the device; it needs root and shows the state at the start of the scan.
    #[arg(long, value_name = "METHOD", default_value = "statx", value_parser = method_words(),
          hide_possible_values = true)]
    pub(crate) method: Method,

    #[command(flatten)]
    pub(crate) sharding: ShardingWith<Apart>,

    /// Draw the tree view
    ///
    /// The default on a terminal.
    #[arg(long, conflicts_with = "lines")]
    pub(crate) tree: bool,

    /// Print lines in the format of GNU du
    ///
    /// The default unless standard output is a terminal.
    #[arg(long)]
    pub(crate) lines: bool,

    /// Browse the scan interactively
    ///
    /// Navigate, sort, mark and remove entries. Removal must be confirmed by typing the word remove.
    /// Needs a terminal.
    #[arg(short = 'i', long, conflicts_with_all = ["json", "lines", "tree", "diff"])]
    pub(crate) interactive: bool,

    /// Print the result as JSON
    ///
    /// The format is described in docs/reference/json.md.
    #[arg(long, conflicts_with_all = ["lines", "tree"])]
    pub(crate) json: bool,

    /// Show an ncdu export instead of scanning
    ///
    /// Use - for standard input. Options of the scan such as -x are refused.
    /// Entries that the export records as excluded do not count.
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "paths", "files0_from", "count_links", "one_file_system", "one_mount", "all_file_systems",
        "dereference", "dereference_args", "no_dereference", "exclude", "exclude_from", "threads",
        "method",
    ])]
    pub(crate) import: Option<PathBuf>,

    /// Write an export for ncdu
    ///
    /// Use - for standard output. All entries are kept in memory.
    #[arg(long, value_name = "FILE")]
    pub(crate) export_ncdu: Option<PathBuf>,

    /// Save the scan for --diff
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    /// Show changes since a saved scan
    ///
    /// Compares OLD with a new scan, or with a second saved scan if the argument is one. The largest
    /// changes are printed first. Paths are compared as given: scan ./DIR again as ./DIR. Use - for
    /// standard input.
    #[arg(long, value_name = "OLD", conflicts_with_all = ["tree", "import", "export_ncdu", "svg"])]
    pub(crate) diff: Option<PathBuf>,

    /// Write a treemap as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Print this help
    #[arg(long, action = ArgAction::HelpLong)]
    pub(crate) help: Option<bool>,
}

/// Parses a path that can be empty: the attempt to open it then fails, with the message of GNU du.
fn path_or_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

fn method_words() -> Choice<Method> {
    let lists_only = |method: &Method| *method == Method::NamesOnly;
    let listed = Method::ALL.into_iter().filter(|method| !lists_only(method));
    // Parsed here, but rejected by the scan because it provides no sizes.
    let hidden = Method::ALL.into_iter().filter(lists_only);
    values::choice(listed.map(|method| (method.word(), method)))
        .hidden(hidden.map(|method| (method.word(), method)))
}

impl DuArgs {
    /// Returns the displayed measure.
    pub(crate) fn measure(&self) -> Measure {
        if self.inodes {
            Measure::Inodes
        } else if self.choices.apparent {
            Measure::Apparent
        } else {
            Measure::Disk
        }
    }

    /// Returns the spelling of sizes that a unit flag gives.
    pub(super) fn unit(&self) -> Option<&Spelling> {
        Some(&self.choices.spelling).filter(|_| self.choices.spelling_given)
    }

    /// Returns whether to draw the tree view; `terminal` is true if standard output is a terminal.
    pub(crate) fn picture(&self, terminal: bool) -> bool {
        let lines = self.lines || self.zero || self.json || self.separate_dirs;
        let lines = lines || self.choices.time.is_some();
        self.tree || terminal && !lines
    }

    /// Returns the maximum depth of shown directories.
    pub(crate) fn depth_max(&self) -> u32 {
        self.choices.max_depth.map_or(u32::MAX, |depth| u32::try_from(depth).unwrap_or(u32::MAX))
    }

    /// Returns which nodes the scan retains.
    fn detail(&self) -> Detail {
        if self.interactive || self.export_ncdu.is_some() {
            return Detail::ALL;
        }
        // -S subtracts the sizes of subdirectories, so all of them must be known.
        let depth_max = if self.separate_dirs { u32::MAX } else { self.depth_max() };
        let mut detail = Detail { depth_max, files: self.all };
        if self.svg.is_some() {
            detail.depth_max = detail.depth_max.max(2);
            detail.files = true;
        }
        detail
    }

    /// Returns the scan options.
    pub(crate) fn options(&self) -> ScanOptions {
        ScanOptions {
            detail: self.detail(),
            count_links: self.count_links,
            // Like GNU du, by the number of words.
            each_once: self.files0_from.is_some() || self.paths.len() > 1,
            one_file_system: self.one_file_system,
            one_mount: self.one_mount,
            all_file_systems: self.all_file_systems,
            follow: self.choices.follow.0,
            exclude: self.choices.exclude.clone().unwrap_or_default(),
            time: self.choices.time.as_ref().map(|(time, _)| *time),
            method: self.method,
            threads: self.threads,
        }
    }
}
