//! Flags of `du`: those of GNU du where it has them, with the same meaning.

use crate::exit::Failure;
use clap::{ArgAction, Args};
use ioloom_du::Measure;
use ioloom_du::exclude::Exclude;
use ioloom_du::scan::{Detail, ScanOptions};
use ioloom_model::units::parse_size;
use ioloom_walk::{Follow, ListError, Method, Separator, Threads, read_list};
use std::ffi::OsString;
use std::io::BufRead;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Shows what takes the space: a fast du with a picture, a browser and a memory.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
On a terminal the largest directories are drawn, else lines as of GNU du.
A hard-linked file counts once, in the directory whose path comes first.
Names that vanish during the scan take no space and are no errors.
File systems of the kernel and of other computers are entered only by name.

Examples:
  ioloom du ~                          what takes the space
  ioloom du -sh *                      one line for each
  ioloom du -i /srv                    browse, sort, remove
  ioloom du --save monday.json ~       keep a scan, and later
  ioloom du --diff monday.json ~       see what has grown
  ioloom du --export-ncdu x.json /srv  for ncdu -f x.json")]
pub(crate) struct DuArgs {
    /// Directories or files [default: the current directory]
    pub(crate) paths: Vec<PathBuf>,

    /// Show files too, not only directories
    #[arg(short, long)]
    pub(crate) all: bool,

    /// Show only a total for each argument
    #[arg(short, long, conflicts_with = "all")]
    pub(crate) summarize: bool,

    /// Lines of directories without what their subdirectories hold
    #[arg(short = 'S', long, conflicts_with_all = ["tree", "json", "interactive", "diff"])]
    pub(crate) separate_dirs: bool,

    /// Show directories down to this depth
    #[arg(short = 'd', long, value_name = "N")]
    pub(crate) max_depth: Option<u32>,

    /// Sizes as 1.5K, 234M, 2.1G
    #[arg(short = 'h', long)]
    pub(crate) human_readable: bool,

    /// The same in powers of 1000
    #[arg(long, conflicts_with = "human_readable")]
    pub(crate) si: bool,

    /// Apparent sizes in bytes
    #[arg(short, long)]
    pub(crate) bytes: bool,

    /// Sizes as files tell them, not blocks taken
    #[arg(long)]
    pub(crate) apparent_size: bool,

    /// Count entries in place of bytes
    #[arg(long, conflicts_with_all = ["bytes", "apparent_size"])]
    pub(crate) inodes: bool,

    /// Unit of the lines [default: 1KiB]
    #[arg(short = 'B', long, value_name = "SIZE")]
    pub(crate) block_size: Option<String>,

    /// Lines in KiB
    #[arg(short, conflicts_with = "block_size")]
    pub(crate) kib: bool,

    /// Lines in MiB
    #[arg(short, conflicts_with_all = ["block_size", "kib"])]
    pub(crate) mib: bool,

    /// Add a grand total
    #[arg(short = 'c', long)]
    pub(crate) total: bool,

    /// Count a hard-linked file as often as it is met
    #[arg(short = 'l', long)]
    pub(crate) count_links: bool,

    /// Stay on the device of each argument
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    /// Stay on the mount of each argument, also where another one has the same device
    #[arg(long)]
    pub(crate) one_mount: bool,

    /// Enter file systems of the kernel and of other computers too
    #[arg(long)]
    pub(crate) all_file_systems: bool,

    /// Follow all symbolic links
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,

    /// Follow symbolic links that are arguments
    #[arg(short = 'D', long, visible_short_alias = 'H', conflicts_with = "dereference")]
    pub(crate) dereference_args: bool,

    /// Leave out what matches, as in GNU du: '*.o', 'cache', 'a/b'
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,

    /// Leave out what matches a line of this file
    #[arg(short = 'X', long, value_name = "FILE")]
    pub(crate) exclude_from: Vec<PathBuf>,

    /// Show only what has at least this size; with a minus at most
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) threshold: Option<String>,

    /// Show the N largest, the largest first
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,

    /// Lines end with a zero byte
    #[arg(short = '0', long = "null")]
    pub(crate) zero: bool,

    /// Arguments from a file, each ended by a zero byte (- for standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
    pub(crate) files0_from: Option<PathBuf>,

    /// Threads: 1 to 256, or auto
    #[arg(long, value_name = "N", default_value = "auto")]
    pub(crate) threads: String,

    /// How files are asked for: statx, lstat, uring or sweep; as root on ext4 also inode-tables,
    /// which syncs the file system, then reads sizes from its device
    #[arg(long, value_name = "METHOD", default_value = "statx")]
    pub(crate) method: String,

    /// Show the picture also when standard output is no terminal
    #[arg(long, conflicts_with = "lines")]
    pub(crate) tree: bool,

    /// Print lines also on a terminal
    #[arg(long)]
    pub(crate) lines: bool,

    /// Browse: move, sort, mark, remove
    #[arg(short = 'i', long, conflicts_with_all = ["json", "lines", "tree", "diff"])]
    pub(crate) interactive: bool,

    /// Print one JSON document
    #[arg(long, conflicts_with_all = ["lines", "tree"])]
    pub(crate) json: bool,

    /// Read an export of ncdu in place of a scan (- for standard input)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "files0_from"])]
    pub(crate) import: Option<PathBuf>,

    /// Write an export for ncdu (- for standard output)
    #[arg(long, value_name = "FILE")]
    pub(crate) export_ncdu: Option<PathBuf>,

    /// Keep the scan in a file, for --diff
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    /// Show what has changed since a kept scan; with a second kept scan as argument, between them
    #[arg(long, value_name = "OLD", conflicts_with_all = ["tree", "import", "export_ncdu"])]
    pub(crate) diff: Option<PathBuf>,

    /// Write a treemap
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Print help
    #[arg(long, action = ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

impl DuArgs {
    /// Which sum is looked at.
    pub(crate) fn measure(&self) -> Measure {
        if self.inodes {
            Measure::Inodes
        } else if self.bytes || self.apparent_size {
            Measure::Apparent
        } else {
            Measure::Disk
        }
    }

    /// Whether the picture is wanted; `terminal` says whether standard output is one.
    pub(crate) fn picture(&self, terminal: bool) -> bool {
        let lines = self.lines || self.zero || self.json || self.separate_dirs;
        self.tree || terminal && !lines
    }

    /// Depth down to which directories are shown.
    pub(crate) fn depth_max(&self) -> u32 {
        if self.summarize { 0 } else { self.max_depth.unwrap_or(u32::MAX) }
    }

    /// What of the trees is to be kept.
    fn detail(&self) -> Detail {
        if self.interactive || self.export_ncdu.is_some() {
            return Detail::ALL;
        }
        // What lies deeper than the lines go is not to be added to them.
        let depth_max = if self.separate_dirs { u32::MAX } else { self.depth_max() };
        let mut detail = Detail { depth_max, files: self.all };
        if self.svg.is_some() {
            detail.depth_max = detail.depth_max.max(2);
            detail.files = true;
        }
        detail
    }

    /// How to scan.
    pub(crate) fn options(&self) -> Result<ScanOptions, Failure> {
        if self.summarize && self.max_depth.is_some_and(|depth| depth > 0) {
            return Err(Failure::usage("--summarize shows no depth: leave it or --max-depth out"));
        }
        let mut exclude = Exclude::new();
        for pattern in &self.exclude {
            exclude.add(pattern.as_bytes());
        }
        for file in &self.exclude_from {
            let bytes = std::fs::read(file).map_err(|e| {
                Failure::usage(format!("read patterns {}: {e}; check the path", file.display()))
            })?;
            bytes
                .split(|b| *b == b'\n')
                .filter(|line| !line.is_empty())
                .for_each(|l| exclude.add(l));
        }
        let follow = match (self.dereference, self.dereference_args) {
            (true, _) => Follow::Always,
            (false, true) => Follow::Roots,
            (false, false) => Follow::Never,
        };
        Ok(ScanOptions {
            detail: self.detail(),
            count_links: self.count_links,
            one_file_system: self.one_file_system,
            one_mount: self.one_mount,
            all_file_systems: self.all_file_systems,
            follow,
            exclude,
            method: self.method.parse::<Method>().map_err(Failure::usage)?,
            threads: self.threads.parse::<Threads>().map_err(Failure::usage)?,
        })
    }

    /// The arguments, from the command line or a file.
    pub(crate) fn roots(&self) -> Result<Vec<PathBuf>, Failure> {
        let Some(file) = &self.files0_from else {
            let here = || vec![PathBuf::from(".")];
            return Ok(if self.paths.is_empty() { here() } else { self.paths.clone() });
        };
        let reader: Box<dyn BufRead> = if file.as_os_str() == "-" {
            Box::new(std::io::stdin().lock())
        } else {
            let file = std::fs::File::open(file).map_err(|e| {
                Failure::usage(format!("open {}: {e}; check the path", file.display()))
            })?;
            Box::new(std::io::BufReader::new(file))
        };
        let list: Result<Vec<PathBuf>, ListError> = read_list(reader, Separator::Nul).collect();
        list.map_err(Failure::usage)
    }

    /// Least or largest size that is shown.
    pub(crate) fn threshold(&self) -> Result<Threshold, Failure> {
        let Some(text) = &self.threshold else { return Ok(Threshold::None) };
        let (least, digits) = match text.strip_prefix('-') {
            Some(digits) => (false, digits),
            None => (true, text.strip_prefix('+').unwrap_or(text)),
        };
        let size = parse_size(digits).map_err(Failure::usage)?;
        match (least, size) {
            (true, size) => Ok(Threshold::AtLeast(size)),
            (false, 0) => Err(Failure::usage("--threshold '-0' shows nothing: give a size")),
            (false, size) => Ok(Threshold::AtMost(size)),
        }
    }
}

/// Which sizes are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threshold {
    None,
    AtLeast(u64),
    AtMost(u64),
}

impl Threshold {
    pub(crate) fn shows(self, value: u64) -> bool {
        match self {
            Self::None => true,
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}
