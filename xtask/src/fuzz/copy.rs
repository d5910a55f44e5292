//! `fuzz-copy`: random trees, options and targets for the system's cp and ours.
//!
//! Both programs copy from equal sources over equal targets. The checker then compares the whole
//! working directory: the target, the source, and a directory outside that must not change.

use super::place::{Place, remove};
use super::program::{Ended, run};
use super::random::Random;
use super::snapshot::{Difference, Record, Snapshot, compare, take};
use super::tree::{Limits, PLAIN, Tree, What};
use anyhow::Context;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The differences that are not failures, with their reasons.
pub(super) const ACCEPTED: [&str; 13] = [
    "access times of sources and of directories: programs read them in different ways, and the \
     kernel updates them by its own rules",
    "layout of data without --sparse: GNU's makes holes of zeros in some files; ours keeps the \
     layout of the source. In either case, and with --sparse=always, ours can have less data than \
     GNU's. The contents are equal",
    "modification time of an existing directory, and access time of an existing file, if times are \
     not preserved: ours gives the name to a new file, which changes the directory, where GNU's \
     writes into the old file",
    "set-group-ID of a new directory in a directory that has it, with the mode preserved from a \
     source without it: GNU's keeps the inherited bit, ours has the mode of the source",
    "-L with a link that leads from the source to a directory that contains the target: both report \
     it, and what was copied before depends on the order of the directory",
    "set-id bits of an existing target whose mode is preserved from a source without them: GNU's \
     keeps them, ours has the mode of the source, so nothing gets more rights than either file had",
    "content of several names of one file at the target, written in place from different sources: \
     the last one wins, in the order of the directory for GNU's, in that of the threads for ours",
    "an access ACL of the three entries that the mode has, and a preserved mode on FUSE: GNU's sets \
     the mode by such an ACL, which fuse2fs stores but does not apply",
    "access times on FUSE: fuse2fs updates them at every read of a source, and the kernel caches them",
    "--remove-destination of a source that cannot be read: GNU's removes the target and then fails, \
     ours keeps the target",
    "--sparse=never where blocks are shared: GNU's keeps holes of the source, ours allocates all",
    "times called 'now': the programs run one after the other",
    "messages: compared by GNU's tests, not here",
];

/// A case.
#[derive(Debug, Clone)]
pub(super) struct Case {
    source: Tree,
    /// The target before the copy; `None` if it does not exist.
    target: Option<Tree>,
    options: Vec<String>,
    operands: Vec<PathBuf>,
    umask: u32,
    root: bool,
}

impl Case {
    /// Draws the case of a seed.
    pub(super) fn draw(seed: u64, root: bool) -> Self {
        let mut random = Random::new(seed);
        let limits = Limits { root, entries_max: 25, special: true, closed: !root };
        let source = Tree::draw(&mut random, b"source", limits);
        let existing = random.chance(55);
        let target = existing.then(|| {
            let limits = Limits { special: random.chance(15), closed: false, ..limits };
            source.draw_target(&mut random, b"source", limits)
        });
        let options = draw_options(&mut random);
        let operands = draw_operands(&mut random, &source, existing);
        let umask = [0o022, 0o077, 0o000, 0o027][random.index(4)];
        Self { source, target, options, operands, umask, root }
    }

    /// Runs both programs and returns the differences.
    pub(super) fn differences(
        &self,
        place: &Place,
        program: &Path,
        number: u64,
    ) -> anyhow::Result<Vec<String>> {
        let dir = place.fresh(number)?;
        let system = self.run(&dir.join("system"), &["cp".into()]);
        let own = [program.to_string_lossy().into_owned(), "cp".to_owned()];
        let ours = self.run(&dir.join("ours"), &own);
        remove(&dir)?;
        Ok(self.judge(&system?, &ours?, place.name == "fuse"))
    }

    /// Creates the start in `dir`, runs a program there, and takes a snapshot.
    fn run(&self, dir: &Path, program: &[String]) -> anyhow::Result<(Ended, Snapshot)> {
        std::fs::create_dir(dir).context("create a working directory")?;
        std::fs::create_dir(dir.join("outside")).context("create a directory")?;
        std::fs::write(dir.join("outside/kept"), "kept").context("write a file")?;
        self.source.create(dir)?;
        std::fs::create_dir(dir.join("t")).context("create a directory")?;
        if let Some(target) = &self.target {
            target.create(&dir.join("t"))?;
        }
        if rustix::process::getuid().is_root() && !self.root {
            for owned in ["", "t", "outside", "outside/kept"] {
                std::os::unix::fs::chown(dir.join(owned), Some(PLAIN), Some(PLAIN))
                    .context("give a directory to the plain user")?;
            }
        }
        // The time of a coarse clock can be before that of a fine one.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = i64::try_from(now.as_secs()).unwrap_or(i64::MAX) - 3600;
        let script = format!("umask {:o}; exec \"$0\" \"$@\"", self.umask);
        let mut words = vec!["sh".to_owned(), "-c".to_owned(), script];
        words.extend(program.iter().cloned());
        words.extend(self.options.iter().cloned());
        words.push("--".to_owned());
        let operands: Vec<&OsStr> = self.operands.iter().map(|path| path.as_os_str()).collect();
        let ended = run(&words, &operands, dir, self.root, &[("LC_ALL", "C")])?;
        Ok((ended, take(dir, since)?))
    }

    fn judge(
        &self,
        system: &(Ended, Snapshot),
        ours: &(Ended, Snapshot),
        on_fuse: bool,
    ) -> Vec<String> {
        let mut found = Vec::new();
        if system.0.code != ours.0.code {
            found.push(format!("exit code: cp {:?}, ours {:?}", system.0.code, ours.0.code));
        }
        let differences = compare(&system.1, &ours.1);
        let unlisted = |difference: &&Difference| {
            let is_listed = self.accepts(difference, &ours.1);
            let of_fuse = match difference.field {
                "mode" => self.preserves(),
                field => field == "atime",
            };
            !(is_listed || on_fuse && of_fuse)
        };
        for difference in differences.iter().filter(unlisted) {
            let Difference { path, field, theirs, ours } = difference;
            found.push(format!("{path:?} {field}: cp '{theirs}', ours '{ours}'"));
        }
        if !found.is_empty() {
            found.push(format!("cp said: {}", system.0.err.trim().escape_debug()));
            found.push(format!("ours said: {}", ours.0.err.trim().escape_debug()));
        }
        found
    }

    fn has(&self, starts: &[&str]) -> bool {
        self.options.iter().any(|word| starts.iter().any(|start| word.starts_with(start)))
    }

    fn preserves(&self) -> bool {
        self.has(&["-a", "-p", "-rp", "--pr", "--ar"])
    }

    /// Applies the list [`ACCEPTED`].
    fn accepts(&self, difference: &Difference, snapshot: &Snapshot) -> bool {
        let Difference { path, field, theirs, ours } = difference;
        let path = Path::new(path);
        let preserved = self.preserves();
        let times = self.preserves_times();
        match *field {
            "entry" => {
                let kept = theirs == "absent" && !self.root && self.has(&["--rem"]);
                kept || self.copies_itself(path)
            }
            "atime" => !path.starts_with("t") || theirs == "now" || ours == "now" && !times,
            "mtime" => {
                let directory = snapshot.get(path).is_some_and(|record| record.is("directory"));
                let renamed = ours == "now" && !times;
                let removed = theirs == "now" && !self.root && self.has(&["--rem"]);
                directory && path.starts_with("t") && self.target.is_some() && (renamed || removed)
            }
            "mode" => {
                let bits = |text: &str| u32::from_str_radix(text, 8).unwrap_or(0);
                let (theirs, ours) = (bits(theirs), bits(ours));
                let only_more = theirs & 0o777 == ours & 0o777 && theirs & ours == ours;
                let below = path.strip_prefix("t").unwrap_or(path);
                let old = self.target.as_ref().map_or(0, |target| target.special_bits(below));
                let is_new_dir =
                    old == 0 && snapshot.get(path).is_some_and(|record| record.is("directory"));
                let inherited = if is_new_dir { 0o2000 } else { 0 };
                only_more && preserved && theirs & !ours & !old & !inherited == 0
            }
            "bytes" | "contents" | "extents" if self.shares_target(path) => {
                let named = |record: &Record| record.fields.get(*field) == Some(ours);
                snapshot.iter().any(|(path, record)| path.starts_with("source") && named(record))
            }
            "extents" => {
                let value = |record: &Record, name| record.fields.get(name).cloned();
                let contents = snapshot.get(path).and_then(|record| value(record, "contents"));
                let mut sources = snapshot.iter().filter(|(path, _)| path.starts_with("source"));
                let same = sources.any(|(_, record)| {
                    value(record, "contents") == contents
                        && value(record, "extents").is_some_and(|own| own == *ours)
                });
                let less = data_bytes(ours) <= data_bytes(theirs);
                match self.has(&["--sparse"]) {
                    true if self.has(&["--sparse=never"]) => !less,
                    true => self.has(&["--sparse=always"]) && less,
                    false => same || less,
                }
            }
            _ => false,
        }
    }

    fn preserves_times(&self) -> bool {
        let words = ["-a", "-rp", "-p", "--ar", "--preserve=all", "--preserve=timestamps"];
        self.has(&words) || self.options.iter().any(|word| word == "--preserve")
    }

    /// Returns true if followed links lead from the source to a directory above it.
    fn copies_itself(&self, path: &Path) -> bool {
        let leads_up = |what: &What| match what {
            What::Symlink(to) => Path::new(OsStr::from_bytes(to)).starts_with(".."),
            _ => false,
        };
        path.starts_with("t")
            && self.has(&["-rL", "-L"])
            && self.source.entries.iter().any(|entry| leads_up(&entry.what))
    }

    /// Returns true if a target had several names before the copy.
    fn shares_target(&self, path: &Path) -> bool {
        let Some(target) = &self.target else { return false };
        let below = path.strip_prefix("t").unwrap_or(path);
        target.link_groups().iter().any(|group| group.len() > 1 && group.iter().any(|p| p == below))
    }

    /// Returns simpler cases.
    pub(super) fn simpler(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for index in 0..self.options.len() {
            let mut case = self.clone();
            case.options.remove(index);
            all.push(case);
        }
        for index in (1..self.source.entries.len()).rev() {
            let path = self.source.path(index);
            let used = self.operands.iter().any(|operand| operand.starts_with(&path));
            if let Some(source) = self.source.without(index).filter(|_| !used) {
                all.push(Self { source, ..self.clone() });
            }
        }
        if let Some(target) = &self.target {
            for index in (1..target.entries.len()).rev() {
                if let Some(target) = target.without(index) {
                    all.push(Self { target: Some(target), ..self.clone() });
                }
            }
        }
        all
    }

    /// Describes the case: the command and the trees.
    pub(super) fn describe(&self) -> String {
        let (options, operands) = (&self.options, &self.operands);
        let user = if self.root { "root" } else { "plain user" };
        let source = self.source.describe();
        let target = self.target.as_ref().map_or("  absent\n".to_owned(), Tree::describe);
        format!(
            "{user}, umask {:03o}: cp {options:?} {operands:?}\n{source}in 't' before:\n{target}",
            self.umask
        )
    }
}

/// Returns the sum of the ranges of data.
fn data_bytes(extents: &str) -> u64 {
    let range = |text: &str| {
        let (start, end) = text.split_once('-')?;
        Some(end.parse::<u64>().ok()?.saturating_sub(start.parse().ok()?))
    };
    extents.split_whitespace().filter_map(range).sum()
}

fn draw_options(random: &mut Random) -> Vec<String> {
    let mut options = Vec::new();
    let mut add = |random: &mut Random, percent: u64, choices: &[&str]| {
        if random.chance(percent) {
            options.push((*random.pick(choices)).to_owned());
        }
    };
    // Pipes of the source are copied as contents without -R, which would wait for a writer.
    add(
        random,
        100,
        &["-a", "-r", "-R", "-dR", "-rp", "-a", "--recursive", "--archive", "-rL", "-rH", "-rP"],
    );
    let preserve = [
        "-p",
        "--preserve",
        "--preserve=all",
        "--preserve=mode",
        "--preserve=timestamps",
        "--preserve=ownership",
        "--preserve=links",
        "--preserve=xattr",
        "--preserve=mode,xattr",
        "--no-preserve=mode",
        "--no-preserve=timestamps",
        "--no-preserve=all",
        "--no-preserve=ownership,links",
        "--no-pres=xattr",
        "--pre=mode,ownership",
    ];
    add(random, 40, &preserve);
    add(random, 15, &preserve);
    add(random, 12, &["--sparse=always", "--sparse=never", "--sparse=auto"]);
    add(random, 8, &["--reflink=auto", "--reflink=never"]);
    add(random, 10, &["-u", "-n", "--no-clobber", "--update"]);
    add(random, 12, &["-f", "--force", "--remove-destination", "--rem"]);
    add(
        random,
        10,
        &["-b", "--backup=numbered", "--backup=simple", "-S.old", "--backup=t", "--backup"],
    );
    add(random, 8, &["-l", "-s", "--link"]);
    add(random, 6, &["--attributes-only"]);
    add(random, 8, &["-x", "--one-file-system"]);
    add(random, 15, &["-T", "--no-target-directory"]);
    add(random, 8, &["-v", "-P", "-L", "-H", "-d", "--no-dereference"]);
    options
}

/// Draws the operands: the whole source or parts of it, to a path that exists or not.
fn draw_operands(random: &mut Random, source: &Tree, existing: bool) -> Vec<PathBuf> {
    let any = |random: &mut Random| source.path(random.index(source.entries.len()));
    match random.below(10) {
        0..4 => vec!["source".into(), "t".into()],
        4 => vec!["source".into(), "t/source".into()],
        5 if !existing => vec!["source".into(), "t/new".into()],
        6 => vec!["source/.".into(), if existing { "t/source".into() } else { "t".into() }],
        7 => vec![any(random), any(random), "t".into()],
        8 => vec![any(random), "t".into()],
        _ => {
            // A file with the same name in the target.
            let files: Vec<usize> = (1..source.entries.len())
                .filter(|index| source.entries[*index].what != What::Directory)
                .collect();
            let Some(index) = files.get(random.index(files.len().max(1))) else {
                return vec!["source".into(), "t".into()];
            };
            let path = source.path(*index);
            let target = if existing { PathBuf::from("t").join(&path) } else { "t/new".into() };
            let slash = |path: PathBuf| {
                let mut path = OsString::from(path);
                path.push("/");
                PathBuf::from(path)
            };
            let target = if random.chance(5) { slash(target) } else { target };
            vec![path, target]
        }
    }
}
