//! Flags of `cp`: those of GNU cp where it has them, with the same meaning.

use crate::exit::Failure;
use clap::Args;
use ioloom_copy::{
    CopyOptions, Durable, Existing, Follow, HashKind, Mode, Preserve, Target, Tuning, Verify, When,
};
use ioloom_walk::{Separator, read_list};
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Copies files and trees: whole or not at all, fast, and says what it did.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
#[command(after_help = "\
A target is at any moment absent, the old one, or complete: files appear when they are whole, new
directories when everything in them is. A file that is replaced is replaced at once, by a new one
made beside it, so its directory must be writable; its other hard links keep the old content. A
symbolic link below the target is replaced, never written through.
What fails is told line by line, the rest is copied, and the exit code is 1.

Without --durable the copy is done when the kernel has it: a power cut may still lose it. With
`file` every file is on the device before it gets its name, with `full` all else too.

Examples:
  ioloom cp -a ~/photos /mnt/disk/          all that belongs to the files: owners, times, links, holes
  ioloom cp --durable full -a db /backup    done means: on the device
  ioloom cp --verify device big.img /mnt/x  read again from the device before it gets its name
  ioloom cp -aT --resume src /mnt/x/src     goes on where an earlier one ended
  ioloom cp --explain -r src /mnt/x         how it would be copied, and why
  find . -name '*.jpg' -print0 | ioloom cp --files0-from - -t /mnt/x")]
pub(crate) struct CpArgs {
    /// What to copy, and last where to
    pub(crate) paths: Vec<PathBuf>,

    /// Copy directories with all that is in them
    #[arg(short, short_alias = 'R', long)]
    pub(crate) recursive: bool,

    /// All that belongs to a file: -r -d --preserve=all
    #[arg(short, long)]
    pub(crate) archive: bool,

    /// Leave files that are there as they are
    #[arg(short, long, overrides_with = "interactive")]
    pub(crate) no_clobber: bool,

    /// Replace only files that are older than their source; or all, or none
    #[arg(short, long, value_name = "WHICH", num_args = 0..=1, require_equals = true,
          default_missing_value = "older")]
    pub(crate) update: Option<String>,

    /// Ask before a file is replaced
    #[arg(short, long, overrides_with = "no_clobber")]
    pub(crate) interactive: bool,

    /// Print each name when it is copied
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// For scripts written for cp: files are always replaced, not written over
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Copy into this directory
    #[arg(short, long, value_name = "DIR", conflicts_with = "no_target_directory")]
    pub(crate) target_directory: Option<PathBuf>,

    /// Copy to exactly the target, also if it is a directory
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,

    /// The same as --preserve=mode,ownership,timestamps
    #[arg(short)]
    pub(crate) p: bool,

    /// The same as -P --preserve=links
    #[arg(short)]
    pub(crate) d: bool,

    /// Copy symbolic links as links [default with -r]
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "dereference_args"])]
    pub(crate) no_dereference: bool,

    /// Follow all symbolic links [default without -r]
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "dereference_args"])]
    pub(crate) dereference: bool,

    /// Follow symbolic links that are arguments
    #[arg(short = 'H', overrides_with_all = ["no_dereference", "dereference"])]
    pub(crate) dereference_args: bool,

    /// Keep of each file: mode, ownership, timestamps, links, xattr, all
    #[arg(long, value_name = "LIST", num_args = 0..=1, require_equals = true,
          default_missing_value = "mode,ownership,timestamps")]
    pub(crate) preserve: Vec<String>,

    /// Do not keep these; without mode, new files get the permissions of any new file
    #[arg(long, value_name = "LIST")]
    pub(crate) no_preserve: Vec<String>,

    /// Stay on the file system of each source
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    /// Share blocks: auto, always (or fail), never
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_value = "auto", default_missing_value = "always")]
    pub(crate) reflink: String,

    /// Holes: auto (stay holes), always (zeros become holes), never (are filled)
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) sparse: String,

    /// What is on the device when the copy is done: none, file, full
    #[arg(long, value_name = "LEVEL", default_value = "none")]
    pub(crate) durable: String,

    /// Pin how bytes go: reflink, range, buffered, uncached, direct; refused where that cannot be
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,

    /// Read the copy again: in-flight (hash only), cache, device
    #[arg(long, value_name = "HOW")]
    pub(crate) verify: Option<String>,

    /// Hash for --verify: blake3 or md5
    #[arg(long, value_name = "HASH", default_value = "blake3")]
    pub(crate) hash: String,

    /// Keep what is whole when interrupted, and go on where an earlier copy ended (one source)
    #[arg(long)]
    pub(crate) resume: bool,

    /// Sources from a file, each ended by a zero byte (- for standard input)
    #[arg(long, value_name = "FILE")]
    pub(crate) files0_from: Option<PathBuf>,

    /// Threads: 1 to 256, or auto
    #[arg(long, value_name = "N", default_value = "auto")]
    pub(crate) threads: String,

    /// Tell how it would be copied and why; copies nothing
    #[arg(long)]
    pub(crate) explain: bool,

    /// Print one JSON document
    #[arg(long, conflicts_with = "verbose")]
    pub(crate) json: bool,
}

impl CpArgs {
    /// Sources and target.
    pub(crate) fn ways(&self) -> Result<(Vec<PathBuf>, Target), Failure> {
        let mut sources = self.paths.clone();
        let target = match &self.target_directory {
            Some(dir) => Target::Into(dir.clone()),
            None => {
                let Some(last) = sources.pop() else {
                    return Err(Failure::usage(
                        "give what to copy and where to: ioloom cp SOURCE… TARGET",
                    ));
                };
                if self.no_target_directory { Target::As(last) } else { Target::Auto(last) }
            }
        };
        if let Some(list) = &self.files0_from {
            if !sources.is_empty() {
                let why = "sources come from --files0-from or from arguments, not from both";
                return Err(Failure::usage(why));
            }
            sources = read_sources(list)?;
        } else if sources.is_empty() {
            return Err(Failure::usage("give a source before the target, or --files0-from"));
        }
        Ok((sources, target))
    }

    /// How to copy.
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
        let verify = match self.verify.as_deref() {
            None | Some("none") => Verify::None,
            Some("in-flight") => Verify::InFlight,
            Some("cache") => Verify::Cache,
            Some("device") => Verify::Device,
            Some(other) => return Err(no_word("--verify", other, "in-flight, cache or device")),
        };
        let (preserve, plain_mode) = self.keep()?;
        let (mode, reflink) = (self.mode()?, when("--reflink", &self.reflink)?);
        if let (Some(mode), When::Always) = (mode.filter(|mode| *mode != Mode::Reflink), reflink) {
            let why = format!("--mode {mode} and --reflink=always exclude each other; give one");
            return Err(Failure::usage(why));
        }
        Ok(CopyOptions {
            recursive,
            follow,
            preserve,
            plain_mode,
            existing: self.existing()?,
            durable: match self.durable.as_str() {
                "none" => Durable::None,
                "file" => Durable::File,
                "full" => Durable::Full,
                other => return Err(no_word("--durable", other, "none, file or full")),
            },
            reflink,
            sparse: when("--sparse", &self.sparse)?,
            mode,
            tuning: Tuning::default(),
            verify,
            hash: match self.hash.as_str() {
                "blake3" => HashKind::Blake3,
                "md5" => HashKind::Md5,
                other => return Err(no_word("--hash", other, "blake3 or md5")),
            },
            one_file_system: self.one_file_system,
            resume: self.resume,
            threads: self.threads()?,
            cancel,
        })
    }

    /// As with cp, -n takes the place of -u, and -i asks about what -u leaves.
    fn existing(&self) -> Result<Existing, Failure> {
        Ok(match (self.update.as_deref(), self.interactive) {
            _ if self.no_clobber => Existing::Keep,
            (Some("none"), _) => Existing::Keep,
            (Some("older"), true) => Existing::UpdateAsk,
            (Some("older"), false) => Existing::Update,
            (None | Some("all"), true) => Existing::Ask,
            (None | Some("all"), false) => Existing::Replace,
            (Some(other), _) => return Err(no_word("--update", other, "older, all or none")),
        })
    }

    fn mode(&self) -> Result<Option<Mode>, Failure> {
        let mode = self.mode.as_deref().map(str::parse).transpose().map_err(Failure::usage)?;
        if mode == Some(Mode::Mmap) {
            return Err(Failure::refused(
                "mmap is for measurements only: a source that is cut while it is mapped would end \
                 the program; use another mode",
            ));
        }
        Ok(mode)
    }

    fn threads(&self) -> Result<Option<usize>, Failure> {
        if self.threads == "auto" {
            return Ok(None);
        }
        let count =
            self.threads.parse().ok().filter(|n| (1..=ioloom_walk::THREADS_MAX).contains(n));
        count.map(Some).ok_or_else(|| no_word("--threads", &self.threads, "1 to 256, or auto"))
    }

    /// What is kept, and whether permissions were said not to be.
    fn keep(&self) -> Result<(Preserve, bool), Failure> {
        let mut preserve = if self.archive { Preserve::ALL } else { Preserve::default() };
        if self.p {
            Preserve { mode: true, owner: true, times: true, ..preserve }.clone_into(&mut preserve);
        }
        preserve.links |= self.d;
        let mut plain_mode = false;
        for (flag, lists, value) in
            [("--preserve", &self.preserve, true), ("--no-preserve", &self.no_preserve, false)]
        {
            for word in lists.iter().flat_map(|list| list.split(',')) {
                plain_mode |= !value && matches!(word, "mode" | "all");
                match word {
                    "mode" => preserve.mode = value,
                    "ownership" => preserve.owner = value,
                    "timestamps" => preserve.times = value,
                    "links" => preserve.links = value,
                    // Labels of security modules are attributes.
                    "xattr" | "context" => preserve.xattrs = value,
                    "all" => preserve = if value { Preserve::ALL } else { Preserve::default() },
                    other => {
                        let words = "mode, ownership, timestamps, links, xattr or all";
                        return Err(no_word(flag, other, words));
                    }
                }
            }
        }
        Ok((preserve, plain_mode))
    }
}

fn when(flag: &str, text: &str) -> Result<When, Failure> {
    match text {
        "auto" => Ok(When::Auto),
        "always" => Ok(When::Always),
        "never" => Ok(When::Never),
        other => Err(no_word(flag, other, "auto, always or never")),
    }
}

fn no_word(flag: &str, word: &str, words: &str) -> Failure {
    Failure::usage(format!("'{word}' is no value of {flag}: use {words}"))
}

fn read_sources(list: &std::path::Path) -> Result<Vec<PathBuf>, Failure> {
    let reader: Box<dyn BufRead> = if list.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let file = std::fs::File::open(list).map_err(|e| {
            Failure::failed(format!("open {}: {e}; check the path", list.display()))
        })?;
        Box::new(std::io::BufReader::new(file))
    };
    let paths: Result<Vec<_>, _> = read_list(reader, Separator::Nul).collect();
    paths.map_err(Failure::failed)
}
