//! Flags of `cp`: those of GNU cp where it has them, with the same meaning.

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

/// Copy files and trees, each whole or not at all
///
/// Takes the flags of GNU cp. A target is at any moment absent, the old one, or complete: files get
/// their name when they are complete, new directories when everything in them is. An existing file is
/// replaced by a new one made in the same directory, so that directory must be writable, and other
/// hard links of the old file keep the old content. A symbolic link below the target is replaced,
/// never written through.
///
/// Errors are reported one per line, everything else is copied, and the exit code is 1.
///
/// Without --durable the command ends when the kernel has the data: a power failure may still lose it.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[command(after_long_help = "\
Examples:
  ioloom cp -a ~/photos /mnt/disk/          keep owners, times, links and holes
  ioloom cp --durable full -a db /backup    return when it is on the device
  ioloom cp --verify device big.img /mnt/x  compare with what the device returns
  ioloom cp -aT --resume src /mnt/x/src     continue an interrupted copy
  ioloom cp --explain -r src /mnt/x         print how it would copy, and why
  find . -name '*.jpg' -print0 | ioloom cp --files0-from - -t /mnt/x")]
pub(crate) struct CpArgs {
    /// Sources, then the target
    ///
    /// With -t all of them are sources.
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
    /// WHICH is older (same as -u alone), all (the default: replace every file) or none (same as -n).
    #[arg(short, long, value_name = "WHICH", num_args = 0..=1, require_equals = true,
          default_missing_value = "older", value_parser = update_words(),
          hide_possible_values = true)]
    pub(crate) update: Option<Update>,

    /// Ask before replacing a file
    ///
    /// Reads the answer from standard input; y replaces, anything else does not.
    #[arg(short, long, overrides_with = "no_clobber")]
    pub(crate) interactive: bool,

    /// Print each name when it is copied
    ///
    /// Prints 'SOURCE' -> 'TARGET' for each entry, and at the end how many bytes a power failure
    /// may still lose.
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Ignored, for compatibility with cp
    ///
    /// Existing files are always replaced by new ones, so there is nothing to force.
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Copy all sources into this directory
    #[arg(short, long, value_name = "DIR", conflicts_with = "no_target_directory")]
    pub(crate) target_directory: Option<PathBuf>,

    /// Copy to exactly the target
    ///
    /// Without it, a target that is an existing directory receives the source under its own name.
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
    /// LIST is a comma-separated list of mode, ownership, timestamps, links, xattr and all; without
    /// a list mode,ownership,timestamps. Attributes that the target file system cannot store are
    /// named once at the end.
    #[arg(long, value_name = "LIST", num_args = 0..=1, require_equals = true,
          default_missing_value = "mode,ownership,timestamps", value_delimiter = ',',
          value_parser = attribute_words(), hide_possible_values = true)]
    pub(crate) preserve: Vec<Attribute>,

    /// Do not preserve these attributes
    ///
    /// Undoes a part of -a or --preserve. Without mode, new files get the permissions of any new
    /// file, independent of the source.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = attribute_words(),
          hide_possible_values = true)]
    pub(crate) no_preserve: Vec<Attribute>,

    /// Stay on the file system of each source
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    /// Share blocks with the source
    ///
    /// auto shares blocks where the file system can (Btrfs, XFS) and no byte has to be seen for a
    /// hash; a shared copy costs almost no time and no space until one side changes. always (same
    /// as the flag alone) fails where blocks cannot be shared. never makes an independent copy.
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_value = "auto", default_missing_value = "always", value_parser = when_words(),
          hide_possible_values = true)]
    pub(crate) reflink: When,

    /// Treatment of holes
    ///
    /// auto keeps the holes of the source. always also turns blocks of zeros into holes, which means
    /// reading every byte. never fills holes, so the copy takes its full size on the device.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = when_words(),
          hide_possible_values = true)]
    pub(crate) sparse: When,

    /// How much to sync at the end
    ///
    /// none leaves writing to the kernel. file syncs the content of every file before it gets its
    /// name. full also syncs directories, links, owners and times of the target file system. Syncing
    /// takes at least as long as the device needs to write the copy.
    #[arg(long, value_name = "LEVEL", default_value = "none", value_parser = durable_words(),
          hide_possible_values = true)]
    pub(crate) durable: Durable,

    /// Force a copy method; fail if it is unsupported
    ///
    /// The default is chosen for each file from facts that --explain prints. reflink shares blocks.
    /// range copies inside the kernel (copy_file_range). buffered reads and writes through the page
    /// cache. uncached does the same, but drops pages when they are written. direct bypasses the
    /// page cache with many requests in flight, which suits files larger than memory.
    #[arg(long, value_name = "MODE", value_parser = mode_words(), hide_possible_values = true)]
    pub(crate) mode: Option<Mode>,

    /// Verify the copy
    ///
    /// in-flight hashes the bytes while they are copied and does not read the copy. cache reads the
    /// copy again, mostly from memory. device evicts the copy from memory and reads it from the
    /// device, before the file gets its name; it costs a second read of everything.
    #[arg(long, value_name = "HOW", value_parser = verify_words(), hide_possible_values = true)]
    pub(crate) verify: Option<Verify>,

    /// Hash function for --verify
    ///
    /// md5 is for comparison with existing lists; it detects accidents, not attacks.
    #[arg(long, value_name = "HASH", default_value = "blake3", value_parser = hash_words(),
          hide_possible_values = true)]
    pub(crate) hash: HashKind,

    /// Continue an interrupted copy
    ///
    /// Keeps complete files under a hidden name when interrupted, and continues from there when the
    /// same command runs again. Takes one source.
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
    /// Prints what was found out about both file systems, and the method for each class of files
    /// with its reason.
    #[arg(long)]
    pub(crate) explain: bool,

    /// Print the result as JSON
    ///
    /// The document is described in docs/json.md.
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
    // Labels of security modules are extended attributes.
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
            let why = format!("--mode {mode} and --reflink=always exclude each other; give one");
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

    /// As with GNU cp, -n takes precedence over -u, and -i asks about the files that -u selects.
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
                "--mode mmap is for measurements only: a source that is truncated while it is \
                 mapped would end the program; use another mode",
            ));
        }
        Ok(self.mode)
    }

    /// Returns what is kept, and whether permissions were explicitly not to be kept.
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
