//! Flags of `cp`. Flags that GNU cp also has behave the same way.

use crate::exit::Failure;
use crate::values::{self, Choice};
use clap::Args;
use ioloom_copy::{
    CopyOptions, Durable, Existing, Follow, HashKind, Mode, Preserve, Target, Tuning, Verify, When,
};
use ioloom_failure::{Operation, PathError};
use ioloom_walk::{Separator, Threads, read_list};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Copy files and trees, each completely or not at all
///
/// Accepts the flags of GNU cp. A target is never partially written: files are renamed to their final
/// name when complete, new directories when all their contents are. An existing file is replaced by a
/// new one created in the same directory. That directory must therefore be writable, and other hard
/// links to the old file keep the old content. Symbolic links below the target are replaced, never
/// followed.
///
/// After an error, the copy continues with the remaining files and exits with code 1.
///
/// Without --durable, cp returns as soon as the kernel has the data: a power failure can still lose it.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[command(after_long_help = "\
Examples:
  ioloom cp -a ~/photos /mnt/disk/          preserve owners, times, links, holes
  ioloom cp --durable full -a db /backup    sync to the device before returning
  ioloom cp --verify device big.img /mnt/x  read the copy back from the device
  ioloom cp -aT --resume src /mnt/x/src     continue an interrupted copy
  ioloom cp --explain -r src /mnt/x         explain the method without copying
  find . -name '*.jpg' -print0 | ioloom cp --files0-from - -t /mnt/x")]
pub(crate) struct CpArgs {
    /// Sources, then the target
    ///
    /// With -t, all are sources.
    pub(crate) paths: Vec<PathBuf>,

    /// Copy directories recursively
    #[arg(short, short_alias = 'R', long)]
    pub(crate) recursive: bool,

    /// Same as -r -d --preserve=all
    ///
    /// Keeps permissions, owners, times, hard links and extended attributes, and copies symbolic
    /// links as links.
    #[arg(short, long)]
    pub(crate) archive: bool,

    /// Do not overwrite existing files
    #[arg(short, long, overrides_with = "interactive")]
    pub(crate) no_clobber: bool,

    /// Replace only older files
    ///
    /// WHICH is older (same as -u alone), all (replace every file; the default without -u) or none
    /// (same as -n).
    #[arg(short, long, value_name = "WHICH", num_args = 0..=1, require_equals = true,
          default_missing_value = "older", value_parser = update_words(),
          hide_possible_values = true)]
    pub(crate) update: Option<Update>,

    /// Ask before replacing a file
    ///
    /// Reads answers from standard input. y replaces the file; any other answer skips it.
    #[arg(short, long, overrides_with = "no_clobber")]
    pub(crate) interactive: bool,

    /// Print each copied file
    ///
    /// Prints 'SOURCE' -> 'TARGET' for each entry and, at the end, how many bytes a power failure could
    /// still lose.
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Ignored, for compatibility with cp
    ///
    /// Not needed, because existing files are always replaced by new ones.
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Copy all sources into this directory
    #[arg(short, long, value_name = "DIR", conflicts_with = "no_target_directory")]
    pub(crate) target_directory: Option<PathBuf>,

    /// Treat the target as a file name
    ///
    /// Without it, copying to an existing directory copies the source into that directory.
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,

    /// Same as --preserve=mode,ownership,timestamps
    #[arg(short)]
    pub(crate) p: bool,

    /// Same as -P --preserve=links
    #[arg(short)]
    pub(crate) d: bool,

    /// Copy symbolic links as links
    ///
    /// The default with -r.
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "dereference_args"])]
    pub(crate) no_dereference: bool,

    /// Follow all symbolic links
    ///
    /// The default without -r.
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "dereference_args"])]
    pub(crate) dereference: bool,

    /// Follow symbolic links given as arguments
    #[arg(short = 'H', overrides_with_all = ["no_dereference", "dereference"])]
    pub(crate) dereference_args: bool,

    /// Preserve these attributes
    ///
    /// LIST is a comma-separated list of mode, ownership, timestamps, links, xattr and all (default:
    /// mode,ownership,timestamps). Attributes that the target file system cannot store are reported
    /// once at the end.
    #[arg(long, value_name = "LIST", num_args = 0..=1, require_equals = true,
          default_missing_value = "mode,ownership,timestamps", value_delimiter = ',',
          value_parser = attribute_words(), hide_possible_values = true)]
    pub(crate) preserve: Vec<Attribute>,

    /// Do not preserve these attributes
    ///
    /// Overrides part of -a or --preserve. If mode is not preserved, new files get default permissions
    /// regardless of the source.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = attribute_words(),
          hide_possible_values = true)]
    pub(crate) no_preserve: Vec<Attribute>,

    /// Stay on the file system of each source
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    /// Share blocks with the source
    ///
    /// auto shares blocks if the file system supports it (Btrfs, XFS) and the data need not be read for
    /// a hash; a shared copy takes almost no time and no space until one side changes. always (same as
    /// the flag alone) fails if blocks cannot be shared. never creates an independent copy.
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_value = "auto", default_missing_value = "always", value_parser = when_words(),
          hide_possible_values = true)]
    pub(crate) reflink: When,

    /// Treatment of holes
    ///
    /// auto preserves the holes of the source. always also converts blocks of zeros to holes, which
    /// requires reading every byte. never writes holes as zeros, so the copy occupies its full size.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = when_words(),
          hide_possible_values = true)]
    pub(crate) sparse: When,

    /// What to sync before returning
    ///
    /// none leaves writeback to the kernel. file syncs the content of every file before renaming it to
    /// its final name. full also syncs the metadata of the target file system: directories, links,
    /// owners and times. Syncing waits until the device has written the copy.
    #[arg(long, value_name = "LEVEL", default_value = "none", value_parser = durable_words(),
          hide_possible_values = true)]
    pub(crate) durable: Durable,

    /// Force a copy method; fail if it is unsupported
    ///
    /// By default the method is chosen for each file; --explain prints the choice and its reasons.
    /// reflink shares blocks. range copies inside the kernel (copy_file_range). buffered reads and
    /// writes through the page cache. uncached does the same, but drops pages once they are written.
    /// direct bypasses the page cache with many requests in flight; use it for files larger than
    /// memory.
    #[arg(long, value_name = "MODE", value_parser = mode_words(), hide_possible_values = true)]
    pub(crate) mode: Option<Mode>,

    /// Verify the copy
    ///
    /// in-flight hashes data while copying and does not read the copy. cache reads the copy back,
    /// mostly from memory. device evicts the copy from memory and reads it back from the device before
    /// the file gets its final name, which costs a full read of the copy.
    #[arg(long, value_name = "HOW", value_parser = verify_words(), hide_possible_values = true)]
    pub(crate) verify: Option<Verify>,

    /// Hash function for --verify
    ///
    /// Use md5 only to compare with existing checksum lists: it detects accidental changes, not
    /// attacks.
    #[arg(long, value_name = "HASH", default_value = "blake3", value_parser = hash_words(),
          hide_possible_values = true)]
    pub(crate) hash: HashKind,

    /// Continue an interrupted copy
    ///
    /// If interrupted, complete files are kept under a hidden name, and running the same command again
    /// continues from there. Needs a single source.
    #[arg(long)]
    pub(crate) resume: bool,

    /// Read NUL-separated sources from a file
    ///
    /// Use - for standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) files0_from: Option<PathBuf>,

    /// Number of threads, 1 to 256
    ///
    /// auto starts with the usable cores and follows the measured throughput.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = values::threads)]
    pub(crate) threads: Threads,

    /// Explain the copy without copying
    ///
    /// Prints the properties of both file systems and the method for each class of files, with reasons.
    #[arg(long)]
    pub(crate) explain: bool,

    /// Print the result as JSON
    ///
    /// The format is described in docs/json.md.
    #[arg(long, conflicts_with = "verbose")]
    pub(crate) json: bool,
}

/// Which existing files are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Update {
    Older,
    All,
    None,
}

/// An attribute of --preserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attribute {
    Mode,
    Ownership,
    Timestamps,
    Links,
    Xattr,
    All,
}

fn update_words() -> Choice<Update> {
    values::choice([("older", Update::Older), ("all", Update::All), ("none", Update::None)])
}

fn attribute_words() -> Choice<Attribute> {
    values::choice([
        ("mode", Attribute::Mode),
        ("ownership", Attribute::Ownership),
        ("timestamps", Attribute::Timestamps),
        ("links", Attribute::Links),
        ("xattr", Attribute::Xattr),
        ("all", Attribute::All),
    ])
    // Security labels are extended attributes.
    .hidden([("context", Attribute::Xattr)])
}

fn when_words() -> Choice<When> {
    values::choice([("auto", When::Auto), ("always", When::Always), ("never", When::Never)])
}

fn durable_words() -> Choice<Durable> {
    values::choice([("none", Durable::None), ("file", Durable::File), ("full", Durable::Full)])
}

fn mode_words() -> Choice<Mode> {
    let measured_only = |mode: &Mode| *mode == Mode::Mmap;
    let listed = Mode::ALL.into_iter().filter(|mode| !measured_only(mode));
    values::choice(listed.map(|mode| (mode.word(), mode)))
        .hidden(Mode::ALL.into_iter().filter(measured_only).map(|mode| (mode.word(), mode)))
}

fn verify_words() -> Choice<Verify> {
    values::choice([
        ("in-flight", Verify::InFlight),
        ("cache", Verify::Cache),
        ("device", Verify::Device),
    ])
    .hidden([("none", Verify::None)])
}

fn hash_words() -> Choice<HashKind> {
    values::choice([("blake3", HashKind::Blake3), ("md5", HashKind::Md5)])
}

impl CpArgs {
    /// Returns the sources and the target.
    pub(crate) fn sources_and_target(&self) -> Result<(Vec<PathBuf>, Target), Failure> {
        const USAGE: &str = "usage: ioloom cp SOURCE… TARGET";
        let mut sources = self.paths.clone();
        let target = match &self.target_directory {
            Some(dir) => Target::Into(dir.clone()),
            None => {
                let Some(last) = sources.pop() else {
                    return Err(Failure::usage(format!("missing operand; {USAGE}")));
                };
                if self.no_target_directory { Target::As(last) } else { Target::Auto(last) }
            }
        };
        if let Some(list) = &self.files0_from {
            if !sources.is_empty() {
                let why = "--files0-from cannot be combined with sources on the command line";
                return Err(Failure::usage(why));
            }
            sources = read_sources(list)?;
        } else if sources.is_empty() {
            return Err(Failure::usage(format!("missing source operand; {USAGE}")));
        }
        Ok((sources, target))
    }

    /// Returns the options of the copy.
    pub(crate) fn options(&self, cancel: Arc<AtomicBool>) -> Result<CopyOptions, Failure> {
        let recursive = self.recursive || self.archive;
        let follow = if self.dereference {
            Follow::Always
        } else if self.dereference_args {
            Follow::Roots
        } else if self.no_dereference || self.d || recursive {
            Follow::Never
        } else {
            Follow::Always
        };
        let (preserve, plain_mode) = self.preserved();
        let mode = self.mode()?;
        if let (Some(mode), When::Always) =
            (mode.filter(|mode| *mode != Mode::Reflink), self.reflink)
        {
            let why = format!("--mode {mode} cannot be combined with --reflink=always; omit one");
            return Err(Failure::usage(why));
        }
        Ok(CopyOptions {
            recursive,
            follow,
            preserve,
            plain_mode,
            existing: self.existing(),
            durable: self.durable,
            reflink: self.reflink,
            sparse: self.sparse,
            mode,
            tuning: Tuning::default(),
            verify: self.verify.unwrap_or_default(),
            hash: self.hash,
            one_file_system: self.one_file_system,
            resume: self.resume,
            threads: match self.threads {
                Threads::Auto => None,
                Threads::Count(count) => Some(count),
            },
            cancel,
        })
    }

    /// As with GNU cp, -n takes precedence over -u, and -i asks only about files selected by -u.
    fn existing(&self) -> Existing {
        match (self.update, self.interactive) {
            _ if self.no_clobber => Existing::Keep,
            (Some(Update::None), _) => Existing::Keep,
            (Some(Update::Older), true) => Existing::UpdateAsk,
            (Some(Update::Older), false) => Existing::Update,
            (None | Some(Update::All), true) => Existing::Ask,
            (None | Some(Update::All), false) => Existing::Replace,
        }
    }

    fn mode(&self) -> Result<Option<Mode>, Failure> {
        if self.mode == Some(Mode::Mmap) {
            return Err(Failure::refused(
                "--mode mmap is for measurements only: truncating a mapped source would kill the \
                 program; use another mode",
            ));
        }
        Ok(self.mode)
    }

    /// Returns the attributes to preserve, and whether preserving permissions was explicitly disabled.
    fn preserved(&self) -> (Preserve, bool) {
        let mut preserve = if self.archive { Preserve::ALL } else { Preserve::default() };
        if self.p {
            preserve = Preserve { mode: true, owner: true, times: true, ..preserve };
        }
        preserve.links |= self.d;
        let mut plain_mode = false;
        for (attributes, value) in [(&self.preserve, true), (&self.no_preserve, false)] {
            for attribute in attributes {
                plain_mode |= !value && matches!(attribute, Attribute::Mode | Attribute::All);
                match attribute {
                    Attribute::Mode => preserve.mode = value,
                    Attribute::Ownership => preserve.owner = value,
                    Attribute::Timestamps => preserve.times = value,
                    Attribute::Links => preserve.links = value,
                    Attribute::Xattr => preserve.xattrs = value,
                    Attribute::All => {
                        preserve = if value { Preserve::ALL } else { Preserve::default() }
                    }
                }
            }
        }
        (preserve, plain_mode)
    }
}

fn read_sources(list: &Path) -> Result<Vec<PathBuf>, Failure> {
    let reader: Box<dyn BufRead> = if list.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let file = std::fs::File::open(list)
            .map_err(PathError::on(Operation::Open, list))
            .map_err(Failure::failed)?;
        Box::new(std::io::BufReader::new(file))
    };
    let paths: Result<Vec<_>, _> = read_list(reader, Separator::Nul).collect();
    paths.map_err(Failure::failed)
}
