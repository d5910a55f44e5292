//! Flags of `cp`. Flags that GNU cp also has behave the same way.

use super::apart::Apart;
use super::backup;
use super::choices::{
    Update, any_path, durable_words, hash_words, mode_words, reflink_words, sparse_words,
    update_words, verify_words,
};
use super::order::{self, Attribute, Step};
use crate::du::plain;
use crate::exit::Failure;
use crate::standard_input;
use crate::subtrees::ShardingWith;
use crate::usage::with_hint;
use crate::values;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use ioloom_copy::{
    Attributes, Backup, CopyOptions, Durable, Existing, HashKind, Make, Mode, Overwrite, Target,
    Tuning, Verify, When,
};
use ioloom_failure::{Operation, PathError};
use ioloom_walk::{Separator, Threads, read_list};
use std::ffi::{OsStr, OsString};
use std::io::BufRead;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Copy files and trees, each completely or not at all
///
/// Accepts the flags of GNU cp, with the same messages and exit codes. New files get their name when
/// they are complete, new directories when all their contents are. An existing regular file is
/// replaced atomically by a new one with the same owner, permissions and extended attributes. A file
/// that cannot be replaced without changing more than its content is written in place, as GNU cp does:
/// a file with several hard links, the target of a symbolic link, a mount point, a device or pipe,
/// another user's file, and a file in a directory where no file can be created.
///
/// Symbolic links at the target of a file are followed, unless this copy created them. Links at the
/// target of a directory are an error.
///
/// After an error, the copy continues with the remaining files and exits with code 1. Interrupted by a
/// signal, it cleans up and exits with code 128 plus the number of the signal.
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
  find . -name '*.jpg' -print0 | ioloom cp --files0-from - -t /mnt/x
  ioloom cp -a --shard 3/64 --manifest src.shards --part parts /mnt/x")]
pub(crate) struct CpFlags {
    /// Sources, then the target
    ///
    /// With -t, all are sources.
    #[arg(value_parser = any_path(), value_hint = clap::ValueHint::AnyPath)]
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
    /// (same as -n). GNU cp accepts WHICH since version 9.3.
    #[arg(short, long, value_name = "WHICH", num_args = 0..=1, require_equals = true,
          default_missing_value = "older", value_parser = update_words(),
          hide_possible_values = true)]
    pub(crate) update: Option<Update>,

    /// Ask before overwriting a file
    ///
    /// Reads answers from standard input. y overwrites the file; any other answer skips it.
    #[arg(short, long, overrides_with = "no_clobber")]
    pub(crate) interactive: bool,

    /// Print each copied file
    ///
    /// Prints 'SOURCE' -> 'TARGET' for each entry that was copied. GNU cp prints it before the copy.
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Remove files that cannot be opened for writing
    ///
    /// Applies to read-only files and to links that form a loop, which are errors otherwise. A dangling
    /// link remains an error; --remove-destination replaces it.
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Remove each existing file first
    ///
    /// The new file takes nothing over from the old one.
    #[arg(long)]
    pub(crate) remove_destination: bool,

    /// Always replace existing files atomically
    ///
    /// Also files that are written in place by default: with several hard links, another owner if it
    /// can be kept, or flags of chattr, a project or security attributes that a new file would lack. A
    /// symbolic link is replaced, not its target. Fails where replacing is impossible, as for a mount
    /// point. Copies from or to a pipe or device are still written in place.
    #[arg(long, overrides_with = "in_place")]
    pub(crate) replace: bool,

    /// Always write existing files in place
    ///
    /// As GNU cp does: an interrupted copy leaves a partial file. Needs no space for both files.
    #[arg(long, overrides_with = "replace")]
    pub(crate) in_place: bool,

    /// Keep a backup of each overwritten file
    ///
    /// CONTROL is none or off, numbered or t, existing or nil (numbered if numbered backups exist) or
    /// simple or never. The default is $VERSION_CONTROL or existing. Same as -b.
    #[arg(long, value_name = "CONTROL", num_args = 0..=1, require_equals = true,
          default_missing_value = "", action = clap::ArgAction::Append)]
    pub(crate) backup: Vec<String>,

    /// Same as --backup without a value
    #[arg(short)]
    pub(crate) b: bool,

    /// Suffix of simple backups; implies --backup
    ///
    /// The default is $SIMPLE_BACKUP_SUFFIX or ~.
    #[arg(short = 'S', long, value_name = "SUFFIX")]
    pub(crate) suffix: Option<OsString>,

    /// Make hard links instead of copies
    #[arg(short, long)]
    pub(crate) link: bool,

    /// Make symbolic links instead of copies
    #[arg(short, long)]
    pub(crate) symbolic_link: bool,

    /// Copy only attributes, not the content
    #[arg(long)]
    pub(crate) attributes_only: bool,

    /// Read devices and pipes in a tree
    ///
    /// Without -r they are always read. With -r, cp creates a device or pipe unless this flag is given.
    #[arg(long)]
    pub(crate) copy_contents: bool,

    /// Copy with the whole source path
    ///
    /// Creates the directories of the path below the target, which must be a directory.
    #[arg(long, alias = "path")]
    pub(crate) parents: bool,

    /// Remove trailing slashes from sources
    #[arg(long)]
    pub(crate) strip_trailing_slashes: bool,

    /// Do not copy a source that changes
    ///
    /// By default, a file that is still changing after three attempts, such as a log, is copied up to
    /// the size that it had when it was opened, with a warning and exit code 1.
    #[arg(long)]
    pub(crate) strict_source: bool,

    /// Print how each file is copied; implies -v
    #[arg(long)]
    pub(crate) debug: bool,

    /// Set the default SELinux context
    ///
    /// Ignored without SELinux.
    #[arg(short = 'Z')]
    pub(crate) z: bool,

    /// Like -Z, or set this context
    ///
    /// Ignored without SELinux, with a warning if CTX is given.
    #[arg(long, value_name = "CTX", num_args = 0..=1, require_equals = true,
          default_missing_value = "")]
    pub(crate) context: Option<String>,

    /// Copy all sources into this directory
    #[arg(short, long, value_name = "DIR", value_parser = any_path(),
          value_hint = clap::ValueHint::DirPath)]
    pub(crate) target_directory: Vec<PathBuf>,

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
    #[arg(short = 'P', long)]
    pub(crate) no_dereference: bool,

    /// Follow all symbolic links
    ///
    /// The default without -r.
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,

    /// Follow symbolic links given as arguments
    #[arg(short = 'H')]
    pub(crate) dereference_args: bool,

    /// Preserve these attributes
    ///
    /// LIST is a comma-separated list of mode, ownership, timestamps, links, xattr, context and all
    /// (default: mode,ownership,timestamps). context is the SELinux label. Attributes that the target
    /// file system cannot store are reported once at the end.
    #[arg(long, value_name = "LIST", num_args = 0..=1, require_equals = true,
          default_missing_value = "mode,ownership,timestamps", value_delimiter = ',',
          value_parser = order::attribute_words("--preserve"), hide_possible_values = true)]
    pub(crate) preserve: Vec<Attribute>,

    /// Do not preserve these attributes
    ///
    /// Overrides part of -a or --preserve. If mode is not preserved, new files get default permissions
    /// regardless of the source.
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = order::attribute_words("--no-preserve"), hide_possible_values = true)]
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
          default_value = "auto", default_missing_value = "always",
          value_parser = reflink_words(),
          hide_possible_values = true)]
    pub(crate) reflink: When,

    /// Treatment of holes
    ///
    /// auto preserves the holes of the source. always also converts blocks of zeros to holes, which
    /// requires reading every byte. never writes holes as zeros, so the copy occupies its full size.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = sparse_words(),
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
    /// auto starts with the usable cores and follows the measured throughput. With -i, it is 1.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = values::threads)]
    pub(crate) threads: Threads,

    /// Explain the copy without copying
    ///
    /// Prints the properties of both file systems and the method for each class of files, with reasons.
    #[arg(long)]
    pub(crate) explain: bool,

    /// Print the result as JSON
    ///
    /// The format is described in docs/reference/json.md.
    #[arg(long, conflicts_with = "verbose")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) sharding: ShardingWith<Apart>,
}

/// The flags, and the order of those whose order matters.
#[derive(Debug)]
pub(crate) struct CpArgs {
    pub(crate) flags: CpFlags,
    steps: Vec<Step>,
}

impl Args for CpArgs {
    fn augment_args(command: Command) -> Command {
        CpFlags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        CpFlags::augment_args_for_update(command)
    }
}

impl FromArgMatches for CpArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { flags: CpFlags::from_arg_matches(matches)?, steps: order::steps(matches) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.steps = order::steps(matches);
        self.flags.update_from_arg_matches(matches)
    }
}

impl CpArgs {
    /// Returns the sources, the target, and a message for each empty name in a list of sources.
    pub(crate) fn sources_and_target(
        &self,
    ) -> Result<(Vec<PathBuf>, Target, Vec<String>), Failure> {
        let mut invalid = Vec::new();
        let flags = &self.flags;
        let mut sources = flags.paths.clone();
        if flags.target_directory.len() > 1 {
            return Err(Failure::usage("multiple target directories specified"));
        }
        let target = match flags.target_directory.first() {
            Some(_) if flags.no_target_directory => {
                let why = "cannot combine --target-directory (-t) and --no-target-directory (-T)";
                return Err(Failure::usage(why));
            }
            Some(dir) => Target::Into(dir.clone()),
            None => match sources.pop() {
                None => return Err(tried("missing file operand")),
                Some(last) if sources.is_empty() && flags.files0_from.is_none() => {
                    let quoted = ioloom_failure::quoted(&last);
                    return Err(tried(&format!("missing destination file operand after {quoted}")));
                }
                Some(_) if flags.no_target_directory && sources.len() > 1 => {
                    let quoted = ioloom_failure::quoted(&flags.paths[2]);
                    return Err(tried(&format!("extra operand {quoted}")));
                }
                Some(last) if flags.no_target_directory => Target::As(last),
                Some(last) => Target::Auto(last),
            },
        };
        if let Some(list) = &flags.files0_from {
            if !sources.is_empty() {
                let why = "--files0-from cannot be combined with sources on the command line";
                return Err(Failure::usage(why));
            }
            let asks = matches!(self.existing(), Existing::Ask | Existing::UpdateAsk);
            if asks && list.as_os_str() == "-" {
                let why = "--files0-from - cannot be combined with -i, which reads answers from standard \
                           input; write the list to a file";
                return Err(Failure::usage(why));
            }
            (sources, invalid) = read_sources(list)?;
        } else if sources.is_empty() {
            return Err(tried("missing file operand"));
        }
        let is_dir = match &target {
            Target::Into(_) => true,
            Target::As(_) => false,
            Target::Auto(path) => path.is_dir(),
        };
        // As in GNU cp, only if the sources are copied into a directory.
        if flags.strip_trailing_slashes && is_dir {
            sources = sources.iter().map(|source| without_slashes(source)).collect();
        }
        if flags.parents && !is_dir {
            return Err(tried("with --parents, the destination must be a directory"));
        }
        Ok((sources, target, invalid))
    }

    /// Returns the options of the copy.
    pub(crate) fn options(&self, cancel: Arc<AtomicBool>) -> Result<CopyOptions, Failure> {
        let flags = &self.flags;
        let recursive = flags.recursive || flags.archive;
        let preserved = order::preserved(&self.steps);
        self.check()?;
        Ok(CopyOptions {
            recursive,
            follow: order::follow(&self.steps, recursive && !flags.link),
            preserve: preserved.preserve,
            plain_mode: preserved.plain_mode,
            attributes: match preserved.needs_xattrs {
                true => Attributes::Required,
                false => Attributes::Possible,
            },
            context: match preserved.needs_context {
                true => Attributes::Required,
                false => Attributes::Possible,
            },
            existing: self.existing(),
            overwrite: match (flags.replace, flags.in_place) {
                (true, _) => Overwrite::Replace,
                (_, true) => Overwrite::InPlace,
                _ => Overwrite::Auto,
            },
            force: flags.force,
            remove_destination: flags.remove_destination,
            backup: self.backup()?,
            make: match (flags.link, flags.symbolic_link) {
                (true, _) => Make::HardLink,
                (_, true) => Make::Symlink,
                _ => Make::Copy,
            },
            attributes_only: flags.attributes_only,
            contents: flags.copy_contents,
            through_dangling: std::env::var_os("POSIXLY_CORRECT").is_some(),
            parents: flags.parents,
            strict_source: flags.strict_source,
            durable: flags.durable,
            reflink: flags.reflink,
            sparse: flags.sparse,
            mode: flags.mode,
            tuning: Tuning::default(),
            verify: flags.verify.unwrap_or_default(),
            hash: flags.hash,
            one_file_system: flags.one_file_system,
            resume: flags.resume,
            threads: match flags.threads {
                Threads::Auto => None,
                Threads::Count(count) => Some(count),
            },
            cancel,
        })
    }

    /// Returns true if attributes that the target cannot store are worth a note.
    pub(crate) fn wants_all_attributes(&self) -> bool {
        self.steps.contains(&Step::Preserve(Attribute::All, true)) && !self.flags.archive
    }

    /// Returns true if names are printed.
    pub(crate) fn is_verbose(&self) -> bool {
        self.flags.verbose || self.flags.debug
    }

    /// As with GNU cp, -n takes precedence over -u, and -i asks only about files selected by -u.
    fn existing(&self) -> Existing {
        let flags = &self.flags;
        match (flags.update, flags.interactive) {
            _ if flags.no_clobber => Existing::Keep,
            (Some(Update::None), _) => Existing::Keep,
            (Some(Update::Older), true) => Existing::UpdateAsk,
            (Some(Update::Older), false) => Existing::Update,
            (None | Some(Update::All), true) => Existing::Ask,
            (None | Some(Update::All), false) => Existing::Replace,
        }
    }

    fn backup(&self) -> Result<Option<Backup>, Failure> {
        let flags = &self.flags;
        // As in GNU cp, one without a value does not replace an earlier value.
        let values = || flags.backup.iter().rev().map(String::as_str);
        let control = values().find(|value| !value.is_empty()).or_else(|| values().next());
        let control = control.or(flags.b.then_some(""));
        backup::wanted(control, flags.suffix.as_ref(), self.existing() == Existing::Keep)
    }

    /// Refuses combinations of flags.
    fn check(&self) -> Result<(), Failure> {
        let flags = &self.flags;
        if flags.mode == Some(Mode::Mmap) {
            return Err(Failure::refused(
                "--mode mmap is for measurements only: truncating a mapped source would kill the \
                 program; use another mode",
            ));
        }
        let other = flags.mode.filter(|mode| *mode != Mode::Reflink);
        if let (Some(mode), When::Always) = (other, flags.reflink) {
            let why = format!("--mode {mode} cannot be combined with --reflink=always; omit one");
            return Err(Failure::usage(why));
        }
        if flags.reflink == When::Always && flags.sparse != When::Auto {
            return Err(tried("--reflink can be used only with --sparse=auto"));
        }
        if flags.link && flags.symbolic_link {
            return Err(tried("cannot make both hard and symbolic links"));
        }
        let is_selinux = || Path::new("/sys/fs/selinux/enforce").exists();
        if self.steps.contains(&Step::Preserve(Attribute::Context, true)) && !is_selinux() {
            let why = "cannot preserve security context without an SELinux-enabled kernel";
            return Err(Failure::failed(why));
        }
        let sets_context = flags.z || flags.context.is_some();
        if sets_context && is_selinux() {
            return Err(Failure::refused("cannot set security contexts; omit -Z and --context"));
        }
        if flags.context.as_ref().is_some_and(|context| !context.is_empty()) {
            let text = "warning: ignoring --context; it requires an SELinux-enabled kernel";
            crate::stderr::message(text);
        }
        Ok(())
    }
}

/// An invalid command line, with the advice of GNU cp.
fn tried(message: &str) -> Failure {
    Failure::usage(with_hint(message, "cp"))
}

fn without_slashes(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(bytes.len().min(1), |at| at + 1);
    PathBuf::from(OsStr::from_bytes(&bytes[..end]))
}

/// Returns the paths of a list, and a message for each empty one.
fn read_sources(list: &Path) -> Result<(Vec<PathBuf>, Vec<String>), Failure> {
    let reader: Box<dyn BufRead> = if list.as_os_str() == "-" {
        Box::new(standard_input::required()?.lock())
    } else {
        let file = std::fs::File::open(list)
            .map_err(PathError::on(Operation::Open, list))
            .map_err(Failure::failed)?;
        Box::new(std::io::BufReader::new(file))
    };
    let (mut sources, mut invalid) = (Vec::new(), Vec::new());
    for (path, number) in read_list(reader, Separator::Nul).with_empty().zip(1_u64..) {
        let path = path.map_err(Failure::failed)?;
        if path.as_os_str().is_empty() {
            invalid.push(format!("{}:{number}: invalid zero-length file name", plain(list)));
        } else {
            sources.push(path);
        }
    }
    Ok((sources, invalid))
}
