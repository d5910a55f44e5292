//! Shards of `du` and `cp`: a command processes the subtrees of a shard and writes its part.

mod args;
mod same;

pub(crate) use args::{Others, Sharding, ShardingWith};
pub(crate) use same::{Seen, identity, strangers};

use crate::exit::{Ended, Exit, Failure};
use crate::interrupt::StopSignals;
use crate::sharding::{
    absolute, are_arguments, check_arguments, check_file, check_kind, enter, failure, now_ns,
    place, runner, say_late,
};
use crate::{out, stderr};
use ioloom_failure::quoted;
use ioloom_model::units::format_counted;
use ioloom_shard::part::{Claim, Claimed, Committed, Found, PartHeader, Work};
use ioloom_shard::plan::{Entry, Plan};
use ioloom_sys::clock::process_cpu_ns;
use ioloom_sys::dir::{self, Meta};
use ioloom_walk::Fields;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::DirEntry;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The flag that a plan keeps and a command obeys.
const ONE_FILE_SYSTEM: &str = "--one-file-system";
/// The end of the name of a directory that is processed without the directories in it.
const ALONE: &str = "/.";

/// What a command does with subtrees.
pub(crate) trait SubtreeCommand {
    /// Its name.
    const NAME: &'static str;

    fn sharding(&self) -> &Sharding;

    /// Whether results are printed as JSON.
    #[cfg_attr(not(feature = "queue"), expect(dead_code, reason = "only workers of a queue ask"))]
    fn json(&self) -> bool;

    /// Returns what must be equal in all parts of a result.
    fn work(&self, plan: &Plan) -> Work;

    /// Processes the subtrees of a shard. Returns `None` if the user stopped it.
    fn run(
        &self,
        plan: &Plan,
        paths: &[&[u8]],
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<Outcome>, Failure>;

    /// Prints the part of a shard, which this run wrote if it is its `own`.
    fn print(&self, plan: &Plan, part: &PartHeader, own: bool) -> Result<(), Failure>;
}

/// What a command found in a shard.
pub(crate) struct Outcome {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    /// How the files were processed.
    pub(crate) method: String,
    /// The rest of the part.
    pub(crate) body: Vec<u8>,
}

/// What became of a shard.
enum Ran {
    /// It has this part.
    Part {
        part: Box<PartHeader>,
        /// Whether this run wrote it.
        own: bool,
        /// Errors of this run if another worker was first.
        late_errors: u64,
    },
    /// The user stopped it; it has no part.
    Interrupted,
}

/// Runs the shard, or the shards of the queue, that the flags name.
pub(crate) fn run<C: SubtreeCommand>(command: &C) -> Ended {
    let sharding = command.sharding();
    let (Some(plan), Some(dir)) = (sharding.manifest.clone(), sharding.part.clone()) else {
        return Err(Failure::usage("--shard and --queue need --manifest and --part"));
    };
    check_file(&plan)?;
    check_file(&dir)?;
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let (plan, dir) = (Plan::read(&absolute(plan)?).map_err(failure)?, absolute(dir)?);
    check_kind(&plan, true)?;
    if let Some(url) = &sharding.queue {
        return by_queue(command, &plan, &dir, url);
    }
    let Some(number) = sharding.shard else { return Err(Failure::usage("--part needs --shard")) };
    let entry = plan.entry(number.shard, number.of).map_err(failure)?;
    enter(&plan)?;
    check_outside(&plan, &dir)?;
    let signals = StopSignals::catch();
    signals.share();
    match one(command, &plan, &entry, &dir, &signals.flag)? {
        Ran::Interrupted => {
            stderr::message("interrupted: the shard has no part");
            Ok(signals.exit())
        }
        Ran::Part { part, own, late_errors } => {
            let failed = part.found.errors > 0 || late_errors > 0;
            let exit = if failed { Exit::Failed } else { Exit::Ok };
            out::then(command.print(&plan, &part, own), Ok(exit))
        }
    }
}

/// Refuses parts in a directory that is processed: they would be part of the result.
fn check_outside(plan: &Plan, dir: &Path) -> Result<(), Failure> {
    // If it does not exist, writing the part reports it.
    let Ok(real) = dir.canonicalize() else { return Ok(()) };
    let contains = |root: &&Path| root.canonicalize().is_ok_and(|root| real.starts_with(root));
    match plan.header.roots.iter().map(|root| root.path()).find(contains) {
        None => Ok(()),
        Some(root) => Err(Failure::refused(format!(
            "cannot write parts to {} below {}, which the shards process; choose another --part \
             directory",
            quoted(dir),
            quoted(root)
        ))),
    }
}

#[cfg(feature = "queue")]
fn by_queue<C: SubtreeCommand>(command: &C, plan: &Plan, dir: &Path, url: &str) -> Ended {
    use crate::queue_worker::{self, Joining, Step};
    // Before the directory changes: credentials are files.
    let queue = crate::queueing::connect(url)?;
    enter(plan)?;
    check_outside(plan, dir)?;
    crate::sharding::check_writable(dir)?;
    let signals = StopSignals::catch();
    signals.share();
    let stop = signals.flag.clone();
    let joining = Joining {
        command: C::NAME,
        by: runner(command.sharding().worker.clone()),
        work: command.work(plan).words(),
        stop: stop.clone(),
        json: command.json(),
        quiet: false,
    };
    let mut failed_late = false;
    let ended = queue_worker::run(&queue, plan, joining, |entry| {
        Ok(match one(command, plan, entry, dir, &stop)? {
            Ran::Interrupted => Step::Interrupted,
            Ran::Part { part, late_errors, .. } => {
                failed_late |= late_errors > 0;
                Step::Part(part)
            }
        })
    });
    // A worker knows only that it was stopped.
    let exit = |exit| if exit == Exit::Interrupted { signals.exit() } else { exit };
    match ended {
        Ok(Exit::Ok) if failed_late => Ok(Exit::Failed),
        Ok(ended) => Ok(exit(ended)),
        Err(failure) => Err(Failure { exit: exit(failure.exit), ..failure }),
    }
}

#[cfg(not(feature = "queue"))]
fn by_queue<C: SubtreeCommand>(_: &C, _: &Plan, _: &Path, _: &str) -> Ended {
    Err(crate::sharding::no_queues())
}

/// Runs a shard and writes its part, unless it has one.
fn one<C: SubtreeCommand>(
    command: &C,
    plan: &Plan,
    entry: &Entry,
    dir: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<Ran, Failure> {
    let (by, redo) = (runner(command.sharding().worker.clone()), command.sharding().redo);
    let work = command.work(plan);
    let claim = match Claim::take(plan, entry, work, by, dir, redo).map_err(failure)? {
        Claimed::Complete(part) => {
            return Ok(Ran::Part { part: Box::new(part.header), own: false, late_errors: 0 });
        }
        Claimed::Run(claim) => claim,
    };
    if let Some(reason) = &claim.replaces {
        let moved = claim.moved.as_deref().map(|new| format!("; it was moved to {}", place(new)));
        let moved = moved.unwrap_or_default();
        stderr::message(&format!("running again for {}: {reason}{moved}", place(claim.path())));
    }
    let names = plan.names(entry).map_err(failure)?;
    let paths: Vec<&[u8]> = names.iter().collect();
    let cpu_ns = || process_cpu_ns(std::process::id()).unwrap_or(0);
    let (started, cpu_before_ns) = (Instant::now(), cpu_ns());
    let Some(outcome) = command.run(plan, &paths, stop)? else { return Ok(Ran::Interrupted) };
    if stop.load(Ordering::Relaxed) {
        return Ok(Ran::Interrupted);
    }
    if !paths.is_empty() && paths.iter().all(|path| is_gone(&subtree(path).0)) {
        if !are_arguments(plan, paths.iter().copied()) {
            return Err(all_gone(plan, paths.len()));
        }
        check_arguments(plan, plan.path.clone())?;
    }
    if let Some(root) = not_mounted(plan, &paths)? {
        return Err(Failure::failed(looks_empty(plan, "shard", &root)));
    }
    if let Some(root) = emptied(plan, paths.iter().map(|name| subtree(name).0)) {
        return Err(Failure::failed(is_now_empty(plan, "shard", root)));
    }
    let found = Found {
        ended_ns: now_ns(),
        elapsed_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        cpu_ns: cpu_ns().saturating_sub(cpu_before_ns),
        files: outcome.files,
        bytes: outcome.bytes,
        errors: outcome.errors,
        method: outcome.method,
        limited_by: None,
        why: None,
    };
    let (path, errors) = (claim.path().to_owned(), outcome.errors);
    Ok(match claim.commit(found, &outcome.body, redo).map_err(failure)? {
        Committed::Counted(part) => Ran::Part { part, own: true, late_errors: 0 },
        Committed::Late(part) => {
            say_late(&path, &part.header);
            Ran::Part { part: Box::new(part.header), own: false, late_errors: errors }
        }
    })
}

/// Returns a directory of a shard that is processed alone and contains no directory, though the plan has some in it,
/// of which none exists. A mount point without its file system looks like this; it can contain a marker file. Reads the
/// manifests only if a directory without directories was found.
fn not_mounted(plan: &Plan, paths: &[&[u8]]) -> Result<Option<PathBuf>, Failure> {
    let alone = paths.iter().map(|name| subtree(name)).filter(|(_, alone)| *alone);
    let mut flat = Flat::of(alone.map(|(path, _)| path));
    if flat.0.is_empty() {
        return Ok(None);
    }
    for entry in plan.entries() {
        let names = plan.names(&entry).map_err(failure)?;
        names.iter().for_each(|name| flat.note(&subtree(name).0));
    }
    Ok(flat.planned().min())
}

/// Directories that are processed alone and contain no directory, and whether the plan has directories in them. Those of
/// which a planned directory exists are removed.
struct Flat(HashMap<PathBuf, bool>);

impl Flat {
    fn of(alone: impl Iterator<Item = PathBuf>) -> Self {
        Self(alone.filter(|path| is_flat(path)).map(|path| (path, false)).collect())
    }

    /// Notes a directory of the plan.
    fn note(&mut self, path: &Path) {
        let above = || path.ancestors().skip(1);
        if !above().any(|above| self.0.contains_key(above)) {
            return;
        }
        let exists = !is_gone(path);
        for above in above() {
            if exists {
                self.0.remove(above);
            } else if let Some(is_planned) = self.0.get_mut(above) {
                *is_planned = true;
            }
        }
    }

    /// Returns those with planned directories, of which none exists.
    fn planned(self) -> impl Iterator<Item = PathBuf> {
        self.0.into_iter().filter(|(_, is_planned)| *is_planned).map(|(path, _)| path)
    }
}

/// Returns an argument that is empty, was not empty when the plan was made, and has one of these directories.
fn emptied(plan: &Plan, paths: impl Iterator<Item = PathBuf>) -> Option<&Path> {
    let filled: HashSet<&Path> = plan.header.filled.iter().map(|root| root.path()).collect();
    let argument = |path: PathBuf| path.ancestors().find_map(|above| filled.get(above).copied());
    let arguments: HashSet<&Path> = paths.filter_map(argument).collect();
    arguments.into_iter().filter(|root| entries(root) == Some(0)).min()
}

/// Returns whether it is a directory, not a link to one, and contains something.
pub(crate) fn is_filled(path: &Path) -> bool {
    entries(path) == Some(1)
}

/// Returns the number of entries of a directory, at most one, or nothing of anything else.
fn entries(path: &Path) -> Option<usize> {
    let found = meta(path).ok().filter(|found| found.kind == dir::Kind::Directory);
    found.and_then(|_| std::fs::read_dir(path).ok()).map(|entries| entries.take(1).count())
}

/// Returns whether it is a directory, not a link to one, and contains no directory.
pub(crate) fn is_flat(path: &Path) -> bool {
    let is_file = |entry: io::Result<DirEntry>| {
        entry.and_then(|entry| entry.file_type()).is_ok_and(|kind| !kind.is_dir())
    };
    meta(path).is_ok_and(|found| found.kind == dir::Kind::Directory)
        && std::fs::read_dir(path).is_ok_and(|mut entries| entries.all(is_file))
}

fn is_now_empty(plan: &Plan, what: &str, root: &Path) -> String {
    format!(
        "cannot complete the {what}: the directory {} is empty, and was not when the plan was made; mount the \
         tree of '{}' here, or plan again if its files were removed",
        quoted(root),
        out::readable(plan.header.host.as_bytes())
    )
}

fn looks_empty(plan: &Plan, what: &str, root: &Path) -> String {
    format!(
        "cannot complete the {what}: no planned directory in {} exists; mount the tree of '{}' here, or plan \
         again if they were removed",
        quoted(root),
        out::readable(plan.header.host.as_bytes())
    )
}

fn all_gone(plan: &Plan, paths: usize) -> Failure {
    Failure::failed(format!(
        "cannot complete the shard: none of its {} exists in {}; mount the tree of '{}' here, or \
         plan again if it was removed",
        format_counted(paths as u64, "directory", "directories"),
        quoted(plan.header.directory.path()),
        plan.header.host
    ))
}

/// How a subtree compares with the plan.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is processed; an error is one of the command.
    Same,
    /// This directory, which is the subtree or above it, is not a directory any more.
    Changed(PathBuf),
    /// Such a directory was returned for an earlier subtree.
    Reported,
    /// It is on another device than its argument, which the plan excludes.
    OtherDevice,
}

/// The error of a directory that is not a directory any more.
pub(crate) fn changed(verb: &str, path: &Path) -> String {
    let path = quoted(path);
    format!("cannot {verb} {path}: it was a directory when the plan was made; plan again")
}

/// Compares the subtrees of a shard with the plan.
pub(crate) struct Comparison<'p> {
    roots: HashSet<&'p Path>,
    one_file_system: bool,
    /// Directories that are still directories.
    same: HashSet<PathBuf>,
    /// Those that are not any more.
    changed: HashSet<PathBuf>,
}

impl<'p> Comparison<'p> {
    pub(crate) fn new(plan: &'p Plan) -> Self {
        let roots = distinct(plan.header.roots.iter().map(|root| root.path()).collect());
        let (same, changed) = (HashSet::new(), HashSet::new());
        Self { roots, one_file_system: one_file_system(plan), same, changed }
    }

    /// Compares a subtree, and the directories between its argument and it: a link in the place of one leads out of the
    /// tree. An argument that is processed as a whole can be anything. With `-x` an argument can be a mount inside
    /// another one: then the inner one counts.
    pub(crate) fn standing(&mut self, path: &Path, alone: bool) -> Standing {
        // As it was given: a slash at its end can mean what a link leads to.
        let root = path.ancestors().find_map(|above| self.roots.get(above).copied());
        let Some(root) = root.filter(|root| alone || *root != path) else {
            return Standing::Same;
        };
        let below = path.ancestors().take_while(|above| *above != root);
        let downwards: Vec<&Path> = below.chain([root]).collect();
        for directory in downwards.into_iter().rev() {
            if self.changed.contains(directory) {
                return Standing::Reported;
            }
            if self.same.contains(directory) {
                continue;
            }
            // The command reports what cannot be queried.
            let Ok(found) = meta(directory) else { return Standing::Same };
            if found.kind != dir::Kind::Directory {
                self.changed.insert(directory.to_owned());
                return Standing::Changed(directory.to_owned());
            }
            self.same.insert(directory.to_owned());
        }
        if !self.one_file_system {
            return Standing::Same;
        }
        let device = |path: &Path| meta(path).map(|found| found.device);
        match (device(root), device(path)) {
            (Ok(from), Ok(to)) if from != to => Standing::OtherDevice,
            _ => Standing::Same,
        }
    }
}

/// Returns each path once. A link and the same with a slash or a dot at its end are equal as paths, and only the link
/// alone is not the directory to which it leads, so another one remains.
fn distinct(mut paths: Vec<&Path>) -> HashSet<&Path> {
    let follows = |path: &Path| {
        let bytes = path.as_os_str().as_bytes();
        bytes.ends_with(b"/") || bytes.ends_with(ALONE.as_bytes())
    };
    paths.sort_by_key(|path| !follows(path));
    paths.into_iter().collect()
}

fn is_gone(path: &Path) -> bool {
    meta(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

pub(crate) fn meta(path: &Path) -> io::Result<Meta> {
    dir::meta(path.as_os_str().as_bytes(), false, Fields::IDENTITY)
}

/// Returns the name in a plan of a directory, which is processed alone or with the directories in it.
pub(crate) fn name(path: &Path, alone: bool) -> Vec<u8> {
    let mut name = path.as_os_str().as_bytes().to_vec();
    match alone {
        true => name.extend_from_slice(ALONE.as_bytes()),
        // It would look like one that is processed alone.
        false if name.ends_with(ALONE.as_bytes()) => name.push(b'/'),
        false => {}
    }
    name
}

/// Returns the directory that a name in a plan means, and whether it is processed alone.
pub(crate) fn subtree(name: &[u8]) -> (PathBuf, bool) {
    let (path, alone) = match name.strip_suffix(ALONE.as_bytes()) {
        Some(dir) => (dir, true),
        None => (name, false),
    };
    (PathBuf::from(OsStr::from_bytes(path)), alone)
}

pub(crate) fn one_file_system(plan: &Plan) -> bool {
    plan.header.selection.iter().any(|word| word.0 == ONE_FILE_SYSTEM.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_arguments_the_one_with_a_slash_remains() {
        for (given, left) in [
            (["link", "link/"], "link/"),
            (["link/", "link"], "link/"),
            (["link", "link/."], "link/."),
        ] {
            let paths = distinct(given.map(Path::new).to_vec());
            let found: Vec<&[u8]> = paths.iter().map(|path| path.as_os_str().as_bytes()).collect();
            assert_eq!(found, [left.as_bytes()], "{given:?}");
        }
    }

    #[test]
    fn a_name_says_whether_directories_in_it_are_left_out() {
        let of = |path: &str| subtree(path.as_bytes());
        assert_eq!(of("/data/a"), (PathBuf::from("/data/a"), false));
        assert_eq!(of("/data/a/."), (PathBuf::from("/data/a"), true));
        assert_eq!(of("//."), (PathBuf::from("/"), true));
        assert_eq!(of("a/./"), (PathBuf::from("a/./"), false));
        assert_eq!(of("a.d"), (PathBuf::from("a.d"), false));
        for path in ["/", "/data", "a/.", "a/./", "a.d", "/b/"] {
            for alone in [false, true] {
                let (found, is_alone) = subtree(&name(Path::new(path), alone));
                assert_eq!((found.as_path(), is_alone), (Path::new(path), alone));
            }
        }
    }
}
