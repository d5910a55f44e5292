//! What `--shard` of `each`, `du` and `cp` and `shard` have in common: errors, plans, this host and the time.

use crate::exit::{Exit, Failure};
use crate::{out, remote, stderr};
use ioloom_failure::{Operation, PathError, quoted, reason};
use ioloom_shard::part::{PartHeader, Runner};
use ioloom_shard::plan::Plan;
use ioloom_shard::{Invalid, ShardError};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the failure of a command: what was read or written is wrong (1), or what was given (2).
pub(crate) fn failure(error: ShardError) -> Failure {
    let exit = match &error {
        ShardError::Path(_)
        | ShardError::NoPlan(_)
        | ShardError::NoManifest { .. }
        | ShardError::NoParent(_) => Exit::Failed,
        ShardError::Exists(_) => Exit::Refused,
        ShardError::Interrupted(_) => Exit::Interrupted,
        ShardError::Invalid { .. } | ShardError::NoShard { .. } => Exit::Usage,
    };
    if let ShardError::Path(PathError { operation: Operation::CreateIn, path, source }) = &error
        && source.kind() == ErrorKind::NotFound
    {
        return unwritable(path, source);
    }
    let advice = match &error {
        ShardError::Invalid {
            reason: Invalid::OtherPlan(_) | Invalid::OtherWork { .. }, ..
        } => "; choose another --part directory",
        ShardError::Invalid { reason: Invalid::Kind("part"), .. } => {
            "; remove it or run the shard with --redo if it is a damaged part, or choose another --part directory"
        }
        _ => "",
    };
    // What others stored in a part can be part of it.
    let error = out::readable(error.to_string().as_bytes());
    Failure::new(exit, format!("{error}{advice}"))
}

/// Refuses the URL of an object store as a plan, a part or a list.
pub(crate) fn check_file(path: &Path) -> Result<(), Failure> {
    match remote::url_of(path).map(remote::shown) {
        None => Ok(()),
        Some(url) => Err(Failure::refused(format!(
            "cannot use {}: plans, parts and lists are files, not objects; write a local path of this \
             name as ./{url}",
            quoted(Path::new(&url))
        ))),
    }
}

/// Returns the failure of a worker that cannot write parts.
fn unwritable(dir: &Path, error: &std::io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::NotFound => "create the directory, which all workers share",
        _ => "choose another --part directory",
    };
    let (dir, why) = (quoted(dir), reason(error));
    Failure::failed(format!("cannot write parts to {dir}: {why}; {advice}"))
}

/// Refuses a directory for parts in which no file can be created, or that cannot be read and thus not synced: a
/// worker of a queue would fail each shard that it takes, and use up its tries.
#[cfg(feature = "queue")]
pub(crate) fn check_writable(dir: &Path) -> Result<(), Failure> {
    let (process, random) = (std::process::id(), ioloom_sys::make::random_number());
    let probe = dir.join(format!(".ioloom-{process}-{random:016x}"));
    std::fs::File::create_new(&probe).map_err(|error| unwritable(dir, &error))?;
    let _ = std::fs::remove_file(&probe);
    let opened = std::fs::File::open(dir).map_err(PathError::on(Operation::OpenDir, dir));
    opened.map(drop).map_err(Failure::failed)
}

/// Refuses a queue in a build that has none.
#[cfg(not(feature = "queue"))]
pub(crate) fn no_queues() -> Failure {
    Failure::refused("this build has no queues; rebuild with the cargo feature 'queue'")
}

/// Returns who runs here and now.
pub(crate) fn runner(worker: Option<String>) -> Runner {
    Runner {
        host: host(),
        pid: std::process::id(),
        worker,
        version: crate::version::VERSION.to_owned(),
        started_ns: now_ns(),
    }
}

/// Returns the name of this host.
pub(crate) fn host() -> String {
    let name = ioloom_sys::proc::read_text(Path::new("/proc/sys/kernel/hostname"));
    let name = name.unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}

/// Returns the time in nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a path for a message.
pub(crate) fn place(path: &Path) -> String {
    quoted(path).to_string()
}

/// Changes to the directory in which the plan was made, and checks that its arguments exist. A file that was removed
/// while other planned files in its directory remain is an error of its shard.
pub(crate) fn enter(plan: &Plan) -> Result<(), Failure> {
    let directory = plan.header.directory.path();
    let list = absolute(plan.path.clone())?;
    std::env::set_current_dir(directory)
        .map_err(PathError::on(Operation::OpenDir, directory))
        .map_err(|error| absent(plan, &error))?;
    check_arguments(plan, list)
}

/// Returns whether all these names are arguments of a plan. If none exists and [`check_arguments`] succeeds, they were
/// removed, which is an error of their shard; other names were not checked.
pub(crate) fn are_arguments<'n>(plan: &Plan, mut names: impl Iterator<Item = &'n [u8]>) -> bool {
    let roots: HashSet<&Path> = plan.header.roots.iter().map(|root| root.path()).collect();
    names.all(|name| roots.contains(Path::new(OsStr::from_bytes(name))))
}

/// Checks that the arguments of a plan exist, in whose directory this process is. `list` is the absolute path of the
/// plan.
pub(crate) fn check_arguments(plan: &Plan, list: PathBuf) -> Result<(), Failure> {
    let stat = |path: &Path| {
        let found = std::fs::symlink_metadata(path);
        found.map_err(PathError::on(Operation::Stat, path)).err()
    };
    let missing: Vec<PathError> =
        plan.header.roots.iter().filter_map(|root| stat(root.path())).collect();
    not_mounted(plan, list, missing)?.map_or(Ok(()), |error| Err(absent(plan, &error)))
}

fn absent(plan: &Plan, error: &PathError) -> Failure {
    Failure::failed(format!(
        "{error}; the plan {} was made on '{}' in {}: mount the files at the same place, or plan again if they \
         were removed",
        quoted(&plan.path),
        out::readable(plan.header.host.as_bytes()),
        quoted(plan.header.directory.path())
    ))
}

/// Returns an argument that is absent but was probably not removed, because its file system can be the one that is
/// absent: it was a directory, or nothing that was planned is left in its directory. `list` is the absolute path of the
/// plan.
fn not_mounted(
    plan: &Plan,
    list: PathBuf,
    mut missing: Vec<PathError>,
) -> Result<Option<PathError>, Failure> {
    let are_all = missing.len() == plan.header.roots.len();
    let is_lasting = |error: &PathError| are_all || error.source.kind() != ErrorKind::NotFound;
    if let Some(at) = missing.iter().position(is_lasting) {
        return Ok(Some(missing.swap_remove(at)));
    }
    if missing.is_empty() {
        return Ok(None);
    }
    let absent: HashSet<PathBuf> = missing.iter().map(|error| error.path.clone()).collect();
    let mut deserted = deserted(plan, &absent);
    let mut plan = plan.clone();
    plan.path = list;
    for entry in plan.entries() {
        let names = plan.names(&entry).map_err(failure)?;
        for name in names.iter() {
            let path = Path::new(OsStr::from_bytes(name));
            if let Some(root) = path.ancestors().skip(1).find(|above| absent.contains(*above)) {
                return Ok(missing.into_iter().find(|error| error.path == root));
            }
            if deserted.is_empty() {
                continue;
            }
            let full = plan.header.directory.path().join(path);
            if above(&full).any(|directory| deserted.contains(directory))
                && full.symlink_metadata().is_ok()
            {
                for directory in above(&full) {
                    deserted.remove(directory);
                }
            }
        }
    }
    let is_deserted = |error: &PathError| deserted.contains(&directory_of(&plan, &error.path));
    Ok(missing.into_iter().find(is_deserted))
}

/// Returns the directories of arguments that contain none that exists, at any depth. From a directory with a single
/// argument, this one can have been removed if something else is left.
fn deserted(plan: &Plan, absent: &HashSet<PathBuf>) -> HashSet<PathBuf> {
    let mut directories: HashMap<PathBuf, u64> = HashMap::new();
    let roots = || plan.header.roots.iter().map(|root| root.path());
    for path in roots() {
        *directories.entry(directory_of(plan, path)).or_default() += 1;
    }
    for path in roots().filter(|path| !absent.contains(*path)) {
        for directory in above(&plan.header.directory.path().join(path)) {
            directories.remove(directory);
        }
    }
    let is_empty = |directory: &Path| match std::fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    let all = directories
        .into_iter()
        .filter(|(directory, arguments)| *arguments > 1 || is_empty(directory));
    all.map(|(directory, _)| directory).collect()
}

/// Returns the directories that contain an absolute path. Ends after `..`, because the path before it is not that of a
/// directory above.
fn above(path: &Path) -> impl Iterator<Item = &Path> {
    let mut is_last = path.ends_with("..");
    let directories = path.ancestors().skip(1);
    directories.take_while(move |above| !std::mem::replace(&mut is_last, above.ends_with("..")))
}

/// Returns the directory that has a path of a plan.
fn directory_of(plan: &Plan, path: &Path) -> PathBuf {
    let path = plan.header.directory.path().join(path);
    path.parent().unwrap_or(&path).to_owned()
}

/// Reports a result that does not count because another worker wrote the part during the run.
pub(crate) fn say_late(path: &Path, part: &PartHeader) {
    stderr::message(&format!(
        "this run of shard {}/{} does not count: process {} on '{}' wrote {} first",
        part.shard,
        part.shards,
        part.by.pid,
        out::readable(part.by.host.as_bytes()),
        quoted(path)
    ));
}

pub(crate) fn absolute(path: PathBuf) -> Result<PathBuf, Failure> {
    std::path::absolute(&path)
        .map_err(PathError::on(Operation::Resolve, &path))
        .map_err(Failure::failed)
}

/// Refuses a plan of files for `du` and `cp`, and one of directories for `each`.
pub(crate) fn check_kind(plan: &Plan, subtrees: bool) -> Result<(), Failure> {
    if plan.header.subtrees == subtrees {
        return Ok(());
    }
    let (lists, make) = match subtrees {
        true => ("files for 'ioloom each'", "with --subtrees"),
        false => ("directories for 'ioloom du' and 'ioloom cp'", "without --subtrees"),
    };
    Err(Failure::usage(format!(
        "cannot use the plan {}: it lists {lists}; plan again {make}",
        quoted(&plan.path)
    )))
}
