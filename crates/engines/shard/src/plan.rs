//! A plan: the list of all shards, and where it is stored.
//!
//! A plan is a directory with the file `plan` and one manifest per shard. It is written under
//! a temporary name and renamed, so a plan is complete or absent. The checksum of `plan`, which
//! contains those of all manifests, identifies the plan: every plan has a new one, because the
//! header contains when, where and by which process it was made.

use crate::durable;
use crate::envelope::{self, Kind};
use crate::error::{Invalid, ShardError};
use crate::manifest::{self, ManifestHeader};
use crate::raw::Raw;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::fault::call;
use ioloom_sys::proc::{boot_id, is_ending, pid_namespace};
use ioloom_walk::PathList;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Files per shard by default.
pub const FILES_PER_SHARD: u64 = 4096;
/// The most shards of a plan.
pub const SHARDS_MAX: u64 = 10_000_000;
/// The name of the list in the directory of a plan.
const LIST: &str = "plan";
const OTHER_LIST: &str = "its list of shards is not that of its header";
/// A header is read without the list if it is not longer; it names errors and arguments.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// What a plan says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanHeader {
    /// The number of shards.
    pub shards: u64,
    /// The number of files in all shards.
    pub files: u64,
    /// The directory in which the plan was made, to which relative paths refer.
    pub directory: Raw,
    /// The arguments: directories and files; empty for a list.
    pub roots: Vec<Raw>,
    /// The only argument if it is a directory; `each` omits it from the lines of the digest.
    pub tree: Option<Raw>,
    /// Flags that selected files of directories, as written on a command line.
    pub selection: Vec<Raw>,
    /// Whether the paths are directories for `du`, rather than files; a path that ends with `/.` is a
    /// directory without the directories in it.
    #[serde(default)]
    pub subtrees: bool,
    /// Arguments that were left out because others contain them.
    #[serde(default)]
    pub contained: u64,
    /// Arguments for `du` and `cp` that were directories with something in them.
    #[serde(default)]
    pub filled: Vec<Raw>,
    /// XXH3-128 of all paths in order, each followed by a zero byte.
    pub names: String,
    /// Whether each path was a regular file, and not a symbolic link.
    pub regular: bool,
    /// Messages of the first paths that could not be listed.
    pub errors: Vec<String>,
    /// The number of paths that could not be listed.
    pub errors_count: u64,
    /// The host that made the plan.
    pub host: String,
    /// The process that made the plan.
    pub pid: u32,
    /// The time at which it was made, in nanoseconds since 1970.
    pub created_ns: u64,
    /// The version of ioloom.
    pub version: String,
}

/// A shard in the list of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The number of the shard, from 1.
    pub shard: u64,
    /// The name of its manifest.
    pub manifest: String,
    /// The number of its files.
    pub files: u64,
    /// The checksum in the first line of the manifest.
    pub checksum: String,
}

/// A plan.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it says about itself. It names all arguments, so copies of a plan share it.
    pub header: Arc<PlanHeader>,
    /// The lines of all shards in order. A plan of millions of shards is held by every worker, so lines
    /// stay as they are in the file, and copies of a plan share them.
    list: Arc<List>,
    /// The checksum that identifies it.
    pub checksum: String,
    /// The file with the list.
    pub path: PathBuf,
}

/// The lines of a plan.
#[derive(Debug)]
struct List {
    bytes: Vec<u8>,
    /// Where each line starts.
    starts: Vec<usize>,
}

impl List {
    /// Takes the lines that begin at `body`, and checks that they are those of the header.
    fn read(bytes: Vec<u8>, body: usize, header: &PlanHeader) -> Result<Self, Invalid> {
        let mut list = Self { bytes, starts: Vec::new() };
        let (mut at, mut files) = (body, 0u64);
        while at < list.bytes.len() {
            let entry = list.line(at)?;
            if entry.shard != list.starts.len() as u64 + 1 {
                return Err(Invalid::Content(OTHER_LIST.to_owned()));
            }
            files = files.saturating_add(entry.files);
            list.starts.push(at);
            let rest = &list.bytes[at..];
            at += rest.iter().position(|b| *b == b'\n').map_or(rest.len(), |end| end + 1);
        }
        if list.starts.len() as u64 != header.shards || files != header.files {
            return Err(Invalid::Content(OTHER_LIST.to_owned()));
        }
        Ok(list)
    }

    fn line(&self, at: usize) -> Result<Entry, Invalid> {
        let line = self.bytes[at..].split(|b| *b == b'\n').next().unwrap_or_default();
        serde_json::from_slice(line)
            .map_err(|e| Invalid::Content(format!("a line of its list: {e}")))
    }

    /// Returns the shard at an index. Every line was read before.
    fn get(&self, index: usize) -> Option<Entry> {
        self.line(*self.starts.get(index)?).ok()
    }
}

/// Returns the number of shards for a number of files.
pub fn shards_for(files: u64, per_shard: u64) -> u64 {
    files.div_ceil(per_shard.max(1)).clamp(1, SHARDS_MAX)
}

/// Returns the checksum of paths.
pub fn names_checksum<'a>(names: impl Iterator<Item = &'a [u8]>) -> String {
    let mut hasher = Xxh3::new();
    for name in names {
        hasher.update(name);
        hasher.update(&[0]);
    }
    format!("{:032x}", hasher.digest128())
}

impl Plan {
    /// Writes a plan of these paths to the new directory `dir`. The numbers of files and the
    /// checksum of names in `header` are set here.
    ///
    /// # Errors
    /// `dir` exists and is not empty, or a file cannot be written; then nothing remains.
    pub fn write(dir: &Path, header: PlanHeader, names: &PathList) -> Result<Self, ShardError> {
        Self::write_unless(&AtomicBool::new(false), dir, header, names)
    }

    /// Does the same until `stop` is raised. First removes what processes left that were killed while they wrote a plan
    /// to `dir`, on this host and since it was booted.
    ///
    /// # Errors
    /// As of [`Self::write`], or `stop` was raised; then nothing remains.
    pub fn write_unless(
        stop: &AtomicBool,
        dir: &Path,
        mut header: PlanHeader,
        names: &PathList,
    ) -> Result<Self, ShardError> {
        Self::check_absent(dir)?;
        header.files = names.len() as u64;
        header.names = names_checksum(names.iter());
        header.regular = (0..names.len()).all(|index| names.known_regular(index));
        // Without slashes at the end.
        let dir: &Path = &dir.components().collect::<PathBuf>();
        let mut temporary = dir.as_os_str().to_owned();
        temporary.push(".");
        // A process of another host, boot or PID namespace can have the same number.
        if let (Ok(boot), Some(namespace)) = (boot_id(), pid_namespace()) {
            let scope = xxh3_64(format!("{boot} {namespace}").as_bytes());
            temporary.push(format!("{scope:016x}."));
            remove_abandoned(Path::new(&temporary));
        }
        temporary.push(format!("{}.{}.tmp", header.pid, header.created_ns));
        let temporary = PathBuf::from(temporary);
        call("make-directory", || std::fs::create_dir(&temporary))
            .map_err(|error| not_created(dir, error))?;
        let filled = fill(stop, &temporary, &header, names);
        let written = filled.map_err(|error| of_final(dir, error)).and_then(|()| {
            match durable::rename(&temporary, dir) {
                // Another process has made a plan here since the check.
                Err(error) if error.source.kind() == ErrorKind::DirectoryNotEmpty => {
                    Err(ShardError::Exists(dir.to_owned()))
                }
                renamed => Ok(renamed?),
            }
        });
        written.inspect_err(|_| {
            let _ = std::fs::remove_dir_all(&temporary);
        })?;
        Self::read(dir)
    }

    /// Refuses a directory that a new plan cannot have: it exists and is not empty, or cannot be examined.
    pub fn check_absent(dir: &Path) -> Result<(), ShardError> {
        match std::fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(ShardError::Exists(dir.to_owned())),
            Err(_) => match std::fs::symlink_metadata(dir) {
                Ok(_) => Err(ShardError::Exists(dir.to_owned())),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(PathError::new(Operation::Stat, dir, error).into()),
            },
        }
    }

    /// Reads a plan from its directory or its list.
    pub fn read(path: &Path) -> Result<Self, ShardError> {
        let path = if path.is_dir() { path.join(LIST) } else { path.to_owned() };
        let bytes = durable::read(&path).map_err(unread_plan)?;
        let invalid = |reason| invalid_plan(&path, reason);
        let opened = envelope::open::<PlanHeader>(Kind::Plan, &bytes).map_err(invalid)?;
        let (header, checksum) = (opened.header, opened.checksum);
        let body = bytes.len() - opened.body.len();
        let list = List::read(bytes, body, &header).map_err(invalid)?;
        Ok(Self { header: Arc::new(header), list: Arc::new(list), checksum, path })
    }

    /// Reads what a plan says about itself and its checksum, without its list, which is not verified
    /// except for its length.
    pub fn glance(path: &Path) -> Result<(PlanHeader, String), ShardError> {
        let path = if path.is_dir() { path.join(LIST) } else { path.to_owned() };
        let (bytes, size) =
            durable::read_beginning(&path, HEADER_BYTES_MAX).map_err(unread_plan)?;
        match envelope::open_header(Kind::Plan, &bytes, size) {
            Some(header) => header.map_err(|reason| invalid_plan(&path, reason)),
            None => {
                Self::read(&path).map(|plan| (Arc::unwrap_or_clone(plan.header), plan.checksum))
            }
        }
    }

    /// Returns all shards in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.list.starts.len()).filter_map(|index| self.list.get(index))
    }

    /// Returns shard `shard`, which the caller expects to be one of `of`.
    pub fn entry(&self, shard: u64, of: u64) -> Result<Entry, ShardError> {
        let shards = self.header.shards;
        let index = shard.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let found = index.filter(|_| of == shards).and_then(|index| self.list.get(index));
        found.ok_or(ShardError::NoShard { shard, of, shards })
    }

    /// Reads the paths of a shard from its manifest.
    ///
    /// # Errors
    /// The manifest cannot be read, is damaged, or is not the one of this plan.
    pub fn names(&self, entry: &Entry) -> Result<PathList, ShardError> {
        let path = durable::parent(&self.path).join(&entry.manifest);
        let other = || Invalid::OtherManifest(self.path.clone());
        let (header, names, checksum) = manifest::read(&path).map_err(|error| match error {
            ShardError::Invalid { path, reason: Invalid::Kind(_) } => {
                ShardError::Invalid { path, reason: other() }
            }
            ShardError::Invalid { path, reason } => invalid_plan(&path, reason),
            ShardError::Path(error) if error.source.kind() == ErrorKind::NotFound => {
                ShardError::NoManifest { error, plan: self.path.clone() }
            }
            other => other,
        })?;
        if checksum != entry.checksum || header.shard != entry.shard {
            return Err(ShardError::Invalid { path, reason: other() });
        }
        Ok(names)
    }
}

/// Returns the error for the list of a plan that cannot be read.
fn unread_plan(error: PathError) -> ShardError {
    match error.source.kind() {
        ErrorKind::NotFound => ShardError::NoPlan(error),
        _ => error.into(),
    }
}

/// Returns the error for the directory `dir` of a plan, which was not created under its temporary name.
fn not_created(dir: &Path, error: io::Error) -> ShardError {
    let error = PathError::new(Operation::CreateDir, dir, error);
    match error.source.kind() {
        ErrorKind::NotFound => ShardError::NoParent(error),
        _ => error.into(),
    }
}

/// Returns the error for what could not be written to a plan under its temporary name, with the final one, `dir`.
fn of_final(dir: &Path, error: ShardError) -> ShardError {
    match error {
        ShardError::Path(error) => PathError { path: dir.to_owned(), ..error }.into(),
        ShardError::Interrupted(_) => ShardError::Interrupted(dir.to_owned()),
        other => other,
    }
}

/// Returns the error for a plan or a manifest, which cannot be made again like a part.
fn invalid_plan(path: &Path, reason: Invalid) -> ShardError {
    let reason = match reason {
        Invalid::Checksum => Invalid::Plan,
        other => other,
    };
    ShardError::Invalid { path: path.to_owned(), reason }
}

/// Removes the directories whose names begin like this path and end with the number of a process that has ended,
/// a time and `.tmp`.
fn remove_abandoned(beginning: &Path) {
    let Some(name) = beginning.file_name() else { return };
    let is_abandoned = |found: &OsStr| {
        let rest = found.as_bytes().strip_prefix(name.as_bytes());
        let rest = rest.and_then(|rest| std::str::from_utf8(rest).ok()?.strip_suffix(".tmp"));
        let process = rest.and_then(|rest| rest.split_once('.'));
        process.is_some_and(|(process, _)| process.parse::<u32>().is_ok_and(is_ending))
    };
    for entry in std::fs::read_dir(durable::parent(beginning)).into_iter().flatten().flatten() {
        if is_abandoned(&entry.file_name()) {
            // What cannot be removed does not prevent another plan.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn fill(
    stop: &AtomicBool,
    dir: &Path,
    header: &PlanHeader,
    names: &PathList,
) -> Result<(), ShardError> {
    let (files, shards) = (names.len() as u128, u128::from(header.shards));
    let mut list = Vec::new();
    for shard in 1..=header.shards {
        if stop.load(Ordering::Relaxed) {
            return Err(ShardError::Interrupted(dir.to_owned()));
        }
        // Shards differ by one file at most.
        let edge = |shard: u64| (files * u128::from(shard) / shards) as usize;
        let range = edge(shard - 1)..edge(shard);
        let about = ManifestHeader {
            shard,
            shards: header.shards,
            directory: header.directory.clone(),
            files: range.len() as u64,
            regular: header.regular,
        };
        let (bytes, checksum) = manifest::encode(&about, names, range);
        let manifest = format!("shard-{shard:06}");
        durable::create(&dir.join(&manifest), &bytes)?;
        let entry = Entry { shard, manifest, files: about.files, checksum };
        // Text and numbers always serialise.
        serde_json::to_writer(&mut list, &entry).unwrap_or_default();
        list.push(b'\n');
    }
    let (bytes, _) = envelope::seal(Kind::Plan, header, &list);
    durable::create(&dir.join(LIST), &bytes)?;
    Ok(durable::sync_dir(dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_examined_is_not_one_that_exists() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(Plan::check_absent(&file), Err(ShardError::Exists(_))));
        assert!(Plan::check_absent(&dir.path().join("new")).is_ok());
        let error = Plan::check_absent(&file.join("plan")).unwrap_err().to_string();
        assert!(error.contains("Not a directory") && !error.contains("it exists"), "{error}");
    }

    #[test]
    fn an_absent_plan_is_one_error_with_advice() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        assert!(matches!(Plan::read(&gone), Err(ShardError::NoPlan(_))));
        assert!(matches!(Plan::glance(&gone), Err(ShardError::NoPlan(_))));
    }

    #[test]
    fn manifests_do_not_repeat_the_arguments_of_the_plan() {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let names: Vec<String> = (0..1000).map(|i| format!("{i:030}")).collect();
        let header = serde_json::json!({
            "shards": 1000, "files": 0, "directory": "/data", "roots": names, "tree": null,
            "selection": [], "names": "", "regular": false, "errors": [], "errors_count": 0,
            "host": "this", "pid": 1, "created_ns": 1, "version": "1",
        });
        let mut list = PathList::new();
        names.iter().for_each(|name| list.push(name.as_bytes()));
        let at = dir.path().join("plan");
        Plan::write(&at, serde_json::from_value(header).unwrap(), &list).unwrap();
        let manifest = |number: u64| at.join(format!("shard-{number:06}"));
        let bytes: u64 = (1..=1000).map(|number| manifest(number).metadata().unwrap().len()).sum();
        assert!(bytes < 2_000_000, "{bytes}");
    }

    #[test]
    fn only_what_ended_processes_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (ended, alive) = (child.id(), std::process::id());
        let kept = [format!("p.0.{alive}.1.tmp"), format!("q.0.{ended}.1.tmp"), "p.0.x".to_owned()];
        let left = format!("p.0.{ended}.1.tmp");
        for name in kept.iter().chain([&left]) {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join(&left).join("shard-000001"), "x").unwrap();
        remove_abandoned(&dir.path().join("p.0."));
        assert!(kept.iter().all(|name| dir.path().join(name).exists()));
        assert!(!dir.path().join(left).exists());
    }
}
