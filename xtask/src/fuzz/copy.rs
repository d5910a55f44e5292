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
pub(super) const ACCEPTED: [&str; 16] = [
    "access times of sources and of directories: programs read them in different ways, and the \
     kernel updates them by its own rules",
    "layout of data without --sparse=always: GNU's makes holes of zeros in some files; ours keeps \
     the layout of the source. In any case ours can have less data than GNU's. The contents are equal",
    "modification time of an existing directory whose times are not preserved, and access time of an \
     existing file: ours gives the name to a new file, which changes the directory, where GNU's \
     writes into the old file",
    "set-id bits of an existing file whose mode is preserved from a source without them: GNU's keeps \
     them, ours has the mode of the source, so nothing gets more rights than either file had",
    "what depends on the order in which names are found: the first name of a file with several, the \
     last source written into one file, links at the target to other targets, -L into the target. \
     Ours must have what GNU's has for a tree whose entries were created in another order; a name of \
     a file with several that GNU's fails to write can be a link in ours",
    "modes on FUSE: GNU's sets some by ACLs that fuse2fs stores but does not apply. Ours must have the \
     mode that GNU's has on tmpfs, or the preserved one of the source",
    "access times on FUSE: fuse2fs updates them at every read of a source, and the kernel caches them",
    "--remove-destination of a source that cannot be read, and -s where no link can be made: GNU's \
     removes the target and then fails, ours keeps the target",
    "-u without links preserved: GNU's replaces a newer target by a link to the target of another name \
     of the source, ours keeps it",
    "--sparse=never where blocks are shared: GNU's keeps holes of the source, ours allocates all",
    "--backup=simple into a directory: GNU cp 9.1 looks for the old file in the working directory, \
     and leaves it without a backup or renames another one (fixed in 9.2)",
    "attributes of a directory that is reached through a followed link: GNU's reads those of the link",
    "attributes of a directory whose owner or times a plain user cannot change: GNU's gives up, ours \
     sets the others",
    "a directory that is a source, and in another one: GNU's refuses to copy it again, ours copies it",
    "times called 'now': the programs run one after the other",
    "messages: compared by GNU's tests, not here",
];

/// Orders of creation that are tried for a difference that can depend on the order.
const ORDERS: usize = 12;

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

    /// Runs both programs and returns the differences. `reference` is a tmpfs.
    pub(super) fn differences(
        &self,
        place: &Place,
        reference: &Place,
        program: &Path,
        number: u64,
    ) -> anyhow::Result<Vec<String>> {
        let dir = place.fresh(number)?;
        let given: Vec<usize> = (0..self.source.entries.len()).collect();
        let system = self.run(&dir.join("system"), &["cp".into()], &given);
        let own = [program.to_string_lossy().into_owned(), "cp".to_owned()];
        let ours = self.run(&dir.join("ours"), &own, &given);
        remove(&dir)?;
        let (system, ours) = (system?, ours?);
        let on_fuse = place.name == "fuse";
        let differences = self.unlisted(&system, &ours, on_fuse);
        let same_code = system.0.code == ours.0.code;
        if differences.is_empty() && same_code {
            return Ok(Vec::new());
        }
        let references = self.references(reference, number, on_fuse)?;
        let found = self.unexplained(&differences, same_code, &ours, &references);
        Ok(self.describe_all(&found, &system, &ours))
    }

    /// Runs the system's cp on tmpfs, with the entries of the source created in several orders.
    fn references(
        &self,
        place: &Place,
        number: u64,
        on_fuse: bool,
    ) -> anyhow::Result<Vec<(Ended, Snapshot)>> {
        let mut random = Random::new(number);
        let mut orders = vec![(0..self.source.entries.len()).collect::<Vec<usize>>()];
        match self.depends_on_order() {
            true => {
                orders.push(self.source.order(|length| length - 1));
                orders.extend((2..ORDERS).map(|_| self.source.order(|n| random.index(n))));
            }
            false if !on_fuse => return Ok(Vec::new()),
            false => {}
        }
        let dir = place.fresh(number)?;
        let mut all = Vec::new();
        for (index, order) in orders.iter().enumerate() {
            all.push(self.run(&dir.join(index.to_string()), &["cp".into()], order)?);
        }
        remove(&dir)?;
        Ok(all)
    }

    /// Returns true if the result can depend on the order in which names are found.
    fn depends_on_order(&self) -> bool {
        let has_links =
            |tree: &Tree| tree.entries.iter().any(|entry| matches!(entry.what, What::Link(_)));
        let leads =
            |tree: &Tree| tree.entries.iter().any(|entry| matches!(entry.what, What::Symlink(_)));
        let follows = self.has(&["-rL", "-L", "-l", "--link", "-rH", "-H"]);
        has_links(&self.source)
            || follows && leads(&self.source)
            || self.target.as_ref().is_some_and(|target| has_links(target) || leads(target))
    }

    /// Creates the start in `dir`, runs a program there, and takes a snapshot.
    fn run(
        &self,
        dir: &Path,
        program: &[String],
        order: &[usize],
    ) -> anyhow::Result<(Ended, Snapshot)> {
        std::fs::create_dir(dir).context("create a working directory")?;
        std::fs::create_dir(dir.join("outside")).context("create a directory")?;
        std::fs::write(dir.join("outside/kept"), "kept").context("write a file")?;
        self.source.create_in(dir, order)?;
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

    /// Returns the differences that the list does not accept by themselves.
    fn unlisted(
        &self,
        system: &(Ended, Snapshot),
        ours: &(Ended, Snapshot),
        on_fuse: bool,
    ) -> Vec<Difference> {
        let repeated = system.0.err.contains("will not create hard link");
        let enters_itself = [system, ours].iter().all(|run| run.0.err.contains("into itself"));
        let mut differences = compare(&system.1, &ours.1);
        let is_newer = |difference: &&Difference| {
            self.has(&["-u", "--update"])
                && difference.field == "links"
                && difference.ours.is_empty()
        };
        let relinked: Vec<OsString> =
            differences.iter().filter(is_newer).map(|newer| newer.path.clone()).collect();
        differences.retain(|difference| {
            let of_fuse = match difference.field {
                "mode" => self.preserves() && is_of_source(difference, &ours.1),
                field => field == "atime",
            };
            let by_entry = difference.theirs == "absent" && repeated || enters_itself;
            let gave_up = system.0.err.contains("preserving") && difference.field == "attributes";
            let is_listed = self.accepts(difference, &ours.1)
                || ["entry", "links"].contains(&difference.field) && by_entry
                || gave_up && is_of_source(difference, &ours.1);
            !(is_listed || relinked.contains(&difference.path) || on_fuse && of_fuse)
        });
        differences
    }

    /// Returns the differences that no order of names explains, nor the modes of FUSE.
    fn unexplained(
        &self,
        differences: &[Difference],
        same_code: bool,
        ours: &(Ended, Snapshot),
        references: &[(Ended, Snapshot)],
    ) -> Vec<String> {
        let by_order = self.depends_on_order();
        let has_all = |path: &OsStr, reference: &Snapshot| {
            let there = reference.get(Path::new(path));
            let value = |field: &str| there.and_then(|record| record.fields.get(field));
            differences.iter().filter(|other| other.path == path).all(|other| match other.field {
                "entry" => there.map_or("absent", Record::word) == other.ours,
                "extents" => value("contents") == ours.1[Path::new(path)].fields.get("contents"),
                field => value(field).map_or("", String::as_str) == other.ours,
            })
        };
        let explained = |difference: &&Difference| {
            let mode = |reference: &Snapshot| {
                let record = reference.get(Path::new(&difference.path));
                record.and_then(|record| record.fields.get("mode")) == Some(&difference.ours)
            };
            let first = references.first().filter(|_| difference.field == "mode");
            let is_mode = first.is_some_and(|(_, reference)| mode(reference));
            let mut all = references.iter().filter(|_| by_order);
            is_mode || all.any(|(_, reference)| has_all(&difference.path, reference))
        };
        let mut found: Vec<String> = Vec::new();
        for difference in differences.iter().filter(|difference| !explained(difference)) {
            let Difference { path, field, theirs, ours } = difference;
            found.push(format!("{path:?} {field}: cp '{theirs}', ours '{ours}'"));
        }
        let mut all = references.iter().filter(|_| by_order);
        let is_repeated = ours.0.code == Some(0) && self.repeats_directory();
        if !same_code && !is_repeated && !all.any(|(ended, _)| ended.code == ours.0.code) {
            found.push(format!("exit code: ours {:?}", ours.0.code));
        }
        found
    }

    /// Returns true if one source is a directory below another one.
    fn repeats_directory(&self) -> bool {
        let sources = self.operands.split_last().map_or(&[][..], |(_, sources)| sources);
        sources.iter().enumerate().any(|(at, source)| {
            sources.iter().enumerate().any(|(other, above)| {
                at != other && source.starts_with(above) && self.is_directory(source)
            })
        })
    }

    fn is_directory(&self, path: &Path) -> bool {
        let entry = self.source.index_of(path).map(|at| &self.source.entries[at].what);
        entry == Some(&What::Directory)
    }

    fn describe_all(
        &self,
        found: &[String],
        system: &(Ended, Snapshot),
        ours: &(Ended, Snapshot),
    ) -> Vec<String> {
        let mut all = found.to_vec();
        if !found.is_empty() {
            all.push(format!("exit codes: cp {:?}, ours {:?}", system.0.code, ours.0.code));
            all.push(format!("cp said: {}", system.0.err.trim().escape_debug()));
            all.push(format!("ours said: {}", ours.0.err.trim().escape_debug()));
        }
        all
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
                let name = path.file_name().unwrap_or_default();
                let kept = theirs == "absent" && !self.root && self.has(&["--rem"]);
                let was_there = || {
                    let below = path.strip_prefix("t").unwrap_or(path);
                    self.target.as_ref().is_some_and(|target| target.index_of(below).is_some())
                };
                let link = theirs == "absent" && self.has(&["-s"]) && was_there();
                let backup = self.has(&["--backup=simple"]) && name.as_bytes().ends_with(b"~");
                backup || link || kept && was_there() && self.source.has_closed(name)
            }
            "atime" => !path.starts_with("t") || theirs == "now" || ours == "now" && !times,
            "mtime" => {
                let directory = snapshot.get(path).is_some_and(|record| record.is("directory"));
                let removed = theirs == "now" && !self.root && self.has(&["--rem"]);
                let backup = theirs == "now" && self.has(&["--backup=simple", "-s"]);
                let renamed = ours == "now" && (!times || self.is_above_target(path));
                let existing = path.starts_with("t") && self.target.is_some();
                directory && (backup || existing && (renamed || removed))
            }
            "mode" => {
                let bits = |text: &str| u32::from_str_radix(text, 8).unwrap_or(0);
                let (theirs, ours) = (bits(theirs), bits(ours));
                let only_more = theirs & 0o777 == ours & 0o777 && theirs & ours == ours;
                let below = path.strip_prefix("t").unwrap_or(path);
                let old = self.target.as_ref().map_or(0, |target| target.special_bits(below));
                let directory = snapshot.get(path).is_some_and(|record| record.is("directory"));
                only_more && preserved && !directory && theirs & !ours & !old == 0
            }
            "attributes" => {
                let is_dir = snapshot.get(path).is_some_and(|record| record.is("directory"));
                let is_real = |record: &Record| record.fields.get("attributes") == Some(ours);
                let of_source = |path: &PathBuf| path.starts_with("source");
                let named = |what: &What| matches!(what, What::Symlink(_));
                is_dir
                    && self.has(&["-rL", "-L", "-l", "--link", "-rH", "-H"])
                    && self.source.entries.iter().any(|entry| named(&entry.what))
                    && snapshot.iter().any(|(path, record)| of_source(path) && is_real(record))
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
                match () {
                    () if self.has(&["--sparse=never"]) => !less,
                    () if self.has(&["--sparse=always"]) => less,
                    () => same || less,
                }
            }
            _ => false,
        }
    }

    fn preserves_times(&self) -> bool {
        let words = ["-a", "-rp", "-p", "--ar", "--preserve=all", "--preserve=timestamps"];
        let stays = self.has(&["--no-preserve=timestamps", "--no-preserve=all"]);
        !stays && (self.has(&words) || self.options.iter().any(|word| word == "--preserve"))
    }

    /// Returns true if a directory contains the target of a source that is not one itself, and so
    /// is not copied.
    fn is_above_target(&self, path: &Path) -> bool {
        let Some((target, sources)) = self.operands.split_last() else { return false };
        let has_files = sources.iter().any(|source| !self.is_directory(source));
        has_files && (path == target || target.parent() == Some(path))
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

/// Returns true if a source of the same type has the value of our copy.
fn is_of_source(difference: &Difference, snapshot: &Snapshot) -> bool {
    let copy = snapshot.get(Path::new(&difference.path)).map(Record::word);
    snapshot.iter().any(|(path, record)| {
        path.starts_with("source")
            && Some(record.word()) == copy
            && record.fields.get(difference.field) == Some(&difference.ours)
    })
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
