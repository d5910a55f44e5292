//! The result of one shard.
//!
//! A worker claims a shard: it creates a file that marks the shard as running, so a directory that is
//! missing or not writable fails before the work. The file is complete when it gets its usual name.
//! When the work is done, the part is written under a name that nothing counts, synced and renamed,
//! which fails if the part exists. A claim is not a lock: two workers with the same shard both run it,
//! and the first part remains.

use crate::durable;
use crate::envelope::{self, Kind};
use crate::error::{Invalid, ShardError};
use crate::plan::{Entry, Plan};
use ioloom_failure::{Operation, PathError};
use ioloom_sys::fault::call;
use ioloom_sys::proc::{boot_id, is_ending, pid_namespace, start_ticks};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a commit tries to take a name that exists but holds no part.
const ATTEMPTS: usize = 8;
/// Largest number in the name of a file that was moved because it may not be a part.
const MOVED_MAX: u32 = 1000;
/// Age after which an incomplete marker is taken for that of a process that was killed while it wrote it.
const UNWRITTEN: Duration = Duration::from_secs(60);

/// The work of a part: what must be equal in all parts of a result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Work {
    /// The command, such as `each`.
    pub command: String,
    /// The options that change its result.
    pub options: BTreeMap<String, String>,
}

impl Work {
    /// Returns the work in words.
    pub fn words(&self) -> String {
        let options = self.options.iter().map(|(name, value)| format!(" {name}={value}"));
        self.command.clone() + &options.collect::<String>()
    }
}

/// Who runs a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runner {
    /// The name of the host.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The name that the user gave this worker.
    pub worker: Option<String>,
    /// The version of ioloom.
    pub version: String,
    /// When it started, in nanoseconds since 1970.
    pub started_ns: u64,
}

/// What a run found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// When it ended, in nanoseconds since 1970.
    pub ended_ns: u64,
    /// Duration of the run in nanoseconds.
    pub elapsed_ns: u64,
    /// Processor time in nanoseconds.
    pub cpu_ns: u64,
    /// Files that were processed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that failed.
    pub errors: u64,
    /// How the files were read.
    pub method: String,
    /// What limited the run, in a word.
    pub limited_by: Option<String>,
    /// The same in a sentence.
    pub why: Option<String>,
}

/// What a part says about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartHeader {
    /// The checksum of the plan.
    pub plan: String,
    /// The number of the shard, from 1.
    pub shard: u64,
    /// The number of shards of the plan.
    pub shards: u64,
    /// The checksum of the manifest.
    pub manifest: String,
    /// The work.
    pub work: Work,
    /// Who ran it.
    pub by: Runner,
    /// What the run found.
    pub found: Found,
}

/// A part as stored.
#[derive(Debug, Clone)]
pub struct Part {
    /// What it says about itself.
    pub header: PartHeader,
    /// The results in the form of its command.
    pub body: Vec<u8>,
    /// The checksum in its first line.
    pub checksum: String,
}

/// Returns the name of the part of a shard.
pub fn name(shard: u64) -> String {
    format!("part-{shard:06}")
}

/// Reads a part.
pub fn read(path: &Path) -> Result<Part, ShardError> {
    let bytes = durable::read(path)?;
    let invalid = |reason| ShardError::Invalid { path: path.to_owned(), reason };
    let opened = envelope::open::<PartHeader>(Kind::Part, &bytes).map_err(invalid)?;
    let body = opened.body.to_vec();
    Ok(Part { header: opened.header, body, checksum: opened.checksum })
}

/// Returns why a part does not belong to a plan.
pub(crate) fn foreign(part: &PartHeader, plan: &Plan) -> Option<Invalid> {
    if part.plan != plan.checksum {
        return Some(Invalid::OtherPlan(plan.path.clone()));
    }
    let same = |entry: Entry| entry.checksum == part.manifest;
    match plan.entry(part.shard, part.shards).is_ok_and(same) {
        true => None,
        false => Some(Invalid::Content("its shard is not in the plan".to_owned())),
    }
}

/// The result of claiming a shard.
#[derive(Debug)]
pub enum Claimed {
    /// Its part exists and is valid.
    Complete(Box<Part>),
    /// The shard is to be run.
    Run(Box<Claim>),
}

/// What became of the result of a run.
#[derive(Debug)]
pub enum Committed {
    /// It is the part of its shard.
    Counted(Box<PartHeader>),
    /// Another worker had written this part, which counts instead.
    Late(Box<Part>),
}

/// A shard that is being run. Dropping it removes its temporary files.
#[derive(Debug)]
pub struct Claim {
    plan: Plan,
    entry: Entry,
    work: Work,
    by: Runner,
    path: PathBuf,
    /// The beginning of the names of its hidden files: the usual name of a marker.
    hidden: PathBuf,
    /// The file that marks the shard as running, which this run created.
    marker: Option<PathBuf>,
    /// Why the part that was there is written again.
    pub replaces: Option<Invalid>,
    /// The new path of a file that was there and may not be a part.
    pub moved: Option<PathBuf>,
}

/// The content of the file that marks a shard as running.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Running {
    pub(crate) shard: u64,
    pub(crate) by: Runner,
    /// The boot of its host.
    #[serde(default)]
    boot: Option<String>,
    /// The PID namespace in which the number of the process is valid.
    #[serde(default)]
    namespace: Option<String>,
    /// When the process started, in ticks since boot.
    #[serde(default)]
    start_ticks: Option<u64>,
}

impl Running {
    fn now(shard: u64, by: Runner) -> Self {
        let (boot, namespace) = (boot_id().ok(), pid_namespace());
        let start_ticks = start_ticks(by.pid);
        Self { shard, by, boot, namespace, start_ticks }
    }

    /// Returns whether the process is known to have ended: it was one of this host and of this PID namespace. In
    /// another namespace its number is that of another process.
    pub(crate) fn has_ended(&self, host: &str) -> bool {
        if self.by.host != host {
            return false;
        }
        // Of a version that did not record it.
        let Some(namespace) = &self.namespace else { return is_ending(self.by.pid) };
        if pid_namespace().as_ref() != Some(namespace) {
            return false;
        }
        let was_before_boot =
            self.boot.as_ref().is_some_and(|boot| boot_id().is_ok_and(|now| now != *boot));
        let is_another = self.start_ticks.is_some() && start_ticks(self.by.pid) != self.start_ticks;
        was_before_boot || is_another || is_ending(self.by.pid)
    }
}

impl Claim {
    /// Claims a shard of a plan for a run that writes its part to `dir`. Damaged parts are replaced,
    /// and with `redo` also valid ones. With `redo`, a file without the beginning of a part is moved.
    ///
    /// # Errors
    /// `dir` is missing or not writable, or the part in it is of another plan or of other work.
    pub fn take(
        plan: &Plan,
        entry: &Entry,
        work: Work,
        by: Runner,
        dir: &Path,
        redo: bool,
    ) -> Result<Claimed, ShardError> {
        let path = dir.join(name(entry.shard));
        let (mut replaces, mut moved) = (None, None);
        match existing(&path, plan, entry, &work) {
            Ok(Some(part)) if !redo => {
                remove_dead(&hidden(dir, entry.shard, &by.host), &by);
                return Ok(Claimed::Complete(Box::new(part)));
            }
            Ok(_) => {}
            Err(ShardError::Invalid { reason, .. }) if is_damage(&reason) => {
                replaces = Some(reason)
            }
            Err(ShardError::Invalid { reason: reason @ Invalid::Kind(_), .. }) if redo => {
                moved = move_damaged(&path)?;
                replaces = Some(reason);
            }
            Err(error) => return Err(error),
        }
        let hidden = hidden(dir, entry.shard, &by.host);
        remove_dead(&hidden, &by);
        let running = Running::now(entry.shard, by.clone());
        let line = serde_json::to_vec(&running).unwrap_or_default();
        let marker = begin(&hidden, &by, &line)?;
        let (plan, entry) = (plan.clone(), entry.clone());
        let claim = Self { plan, entry, work, by, path, hidden, marker, replaces, moved };
        Ok(Claimed::Run(Box::new(claim)))
    }

    /// Returns the path of the part.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the part. If another worker has written it since, theirs remains and this result is
    /// discarded, unless `redo` asks to replace it.
    ///
    /// # Errors
    /// The part cannot be written, or the one that is there is of another plan or of other work.
    pub fn commit(self, found: Found, body: &[u8], redo: bool) -> Result<Committed, ShardError> {
        let header = PartHeader {
            plan: self.plan.checksum.clone(),
            shard: self.entry.shard,
            shards: self.plan.header.shards,
            manifest: self.entry.checksum.clone(),
            work: self.work.clone(),
            by: self.by.clone(),
            found,
        };
        if redo {
            self.existing_or_damaged()?;
        }
        let (bytes, checksum) = envelope::seal(Kind::Part, &header, body);
        let new = new_file(&self.hidden, &self.by);
        durable::create(&new, &bytes).map_err(|error| of_part(&self.path, error))?;
        if redo {
            durable::rename(&new, &self.path)?;
            return Ok(Committed::Counted(Box::new(header)));
        }
        for _ in 0..ATTEMPTS {
            if durable::rename_new(&new, &self.path)? {
                return Ok(Committed::Counted(Box::new(header)));
            }
            match self.existing_or_damaged()? {
                Existing::Part(part) => {
                    durable::sync_dir(durable::parent(&self.path))?;
                    // A request that the network repeats finds its own result.
                    return Ok(match part.checksum == checksum {
                        true => Committed::Counted(Box::new(header)),
                        false => Committed::Late(part),
                    });
                }
                Existing::Damaged => self.remove_damaged()?,
                Existing::None => {}
            }
        }
        let taken = std::io::Error::from(ErrorKind::AlreadyExists);
        Err(PathError::new(Operation::Publish, &self.path, taken).into())
    }

    fn existing_or_damaged(&self) -> Result<Existing, ShardError> {
        match existing(&self.path, &self.plan, &self.entry, &self.work) {
            Ok(Some(part)) => Ok(Existing::Part(Box::new(part))),
            Ok(None) => Ok(Existing::None),
            Err(ShardError::Invalid { reason, .. }) if is_damage(&reason) => Ok(Existing::Damaged),
            Err(error) => Err(error),
        }
    }

    /// Removes a damaged part. Another worker can have replaced it since it was read, so it is moved
    /// before it is read again, and put back if it is valid.
    fn remove_damaged(&self) -> Result<(), ShardError> {
        let aside = aside(&self.hidden, &self.by);
        let moved = call("rename", || std::fs::rename(&self.path, &aside));
        match moved {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            moved => moved.map_err(PathError::on(Operation::Rename, &self.path))?,
        }
        match read(&aside) {
            Err(ShardError::Invalid { reason, .. }) if is_damage(&reason) => {}
            _ => {
                // A third worker can have written its part meanwhile, which then counts.
                durable::rename_new(&aside, &self.path)?;
            }
        }
        let removed = call("unlink", || std::fs::remove_file(&aside));
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let dir = durable::parent(&self.path);
                Err(PathError::new(Operation::RemoveFrom, dir, error).into())
            }
            _ => Ok(()),
        }
    }
}

/// Moves a file to a name that nothing counts and that was free. Returns its new path, or `None` if another worker has
/// moved it.
fn move_damaged(path: &Path) -> Result<Option<PathBuf>, ShardError> {
    for number in 1..=MOVED_MAX {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{number}"));
        let new = PathBuf::from(name);
        match durable::rename_new(path, &new) {
            Ok(true) => return Ok(Some(new)),
            Ok(false) => {}
            Err(error) if error.source.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.operation == Operation::OpenDir => return Err(error.into()),
            Err(error) => return Err(PathError::new(Operation::Rename, path, error.source).into()),
        }
    }
    let taken = std::io::Error::from(ErrorKind::AlreadyExists);
    Err(PathError::new(Operation::Rename, path, taken).into())
}

/// What is at the place of a part.
enum Existing {
    None,
    Part(Box<Part>),
    Damaged,
}

impl Drop for Claim {
    fn drop(&mut self) {
        remove_files(&self.hidden, &self.by);
        let Some(marker) = &self.marker else { return };
        // Another process can have put it back under the second name, and a third one have taken the first: see
        // `put_back`.
        for marker in [marker, &own_marker(&self.hidden, &self.by)] {
            if read_marker(marker).is_none_or(|running| running.by == self.by) {
                let _ = std::fs::remove_file(marker);
            }
        }
    }
}

/// Returns the usual name of the file that marks a shard as running on a host. It contains no process,
/// so what a killed process left is found without listing a directory of many parts.
fn hidden(dir: &Path, shard: u64, host: &str) -> PathBuf {
    let host: String = host.chars().map(|c| if c == '/' { '_' } else { c }).collect();
    dir.join(format!(".{}.{host}", name(shard)))
}

/// Returns the name of the marker of a process while it is written, and while another one of its host has the usual
/// name.
fn own_marker(hidden: &Path, by: &Runner) -> PathBuf {
    let mut name = hidden.as_os_str().to_owned();
    name.push(format!(".{}.{}", by.pid, by.started_ns));
    PathBuf::from(name)
}

/// Returns the name under which a part is written.
fn new_file(marker: &Path, by: &Runner) -> PathBuf {
    let mut name = marker.as_os_str().to_owned();
    name.push(format!(".{}.{}.new", by.pid, by.started_ns));
    PathBuf::from(name)
}

/// Returns the name to which a damaged part is moved.
fn aside(marker: &Path, by: &Runner) -> PathBuf {
    let mut name = marker.as_os_str().to_owned();
    name.push(format!(".{}.{}.old", by.pid, by.started_ns));
    PathBuf::from(name)
}

fn remove_files(marker: &Path, by: &Runner) {
    let _ = std::fs::remove_file(new_file(marker, by));
    let _ = std::fs::remove_file(aside(marker, by));
}

/// Names a part or its directory in an error about the hidden name under which it was written.
fn of_part(part: &Path, error: PathError) -> PathError {
    let (operation, path) = match error.operation {
        Operation::Create => (Operation::CreateIn, durable::parent(part)),
        other => (other, part),
    };
    PathError::new(operation, path, error.source)
}

/// Creates the file that marks a shard as running. It is written under the name of this process and renamed, so a file
/// with the usual name is complete; if another process has the usual name, it keeps its own. Returns its path, or
/// `None` if the name of this process is taken. Errors name the directory.
fn begin(hidden: &Path, by: &Runner, line: &[u8]) -> Result<Option<PathBuf>, PathError> {
    let own = own_marker(hidden, by);
    let failed = PathError::on(Operation::CreateIn, durable::parent(hidden));
    let created = call("create", || OpenOptions::new().write(true).create_new(true).open(&own));
    let mut file = match created {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let written = call("write", || file.write_all(line)).map_err(&failed);
    match written.and_then(|()| durable::take_name(&own, hidden)) {
        Ok(true) => Ok(Some(hidden.to_owned())),
        Ok(false) => Ok(Some(own)),
        Err(error) => {
            let _ = std::fs::remove_file(&own);
            Err(if error.operation == Operation::OpenDir { error } else { failed(error.source) })
        }
    }
}

/// Removes what a process of this host left when it was killed. A marker that cannot be read remains.
fn remove_dead(marker: &Path, by: &Runner) {
    let Ok(line) = durable::read(marker) else { return };
    match serde_json::from_slice::<Running>(&line) {
        Ok(running) if running.has_ended(&by.host) => remove_files(marker, &running.by),
        Ok(_) => return,
        Err(_) if !is_old(marker) => return,
        Err(_) => {}
    }
    // Since it was read, another process can have removed it, and a third one taken its name: it is moved before it is
    // read again, and put back if it is that of the third.
    let aside = aside(marker, by);
    if call("rename", || std::fs::rename(marker, &aside)).is_err() {
        return;
    }
    match durable::read(&aside) {
        Ok(moved) if moved == line => drop(std::fs::remove_file(&aside)),
        _ => put_back(&aside, marker),
    }
}

/// Gives a marker that was moved its usual name again, or that of its process if another one has taken the usual name.
fn put_back(aside: &Path, marker: &Path) {
    if matches!(durable::take_name(aside, marker), Ok(false))
        && let Some(running) = read_marker(aside)
    {
        let _ = durable::take_name(aside, &own_marker(marker, &running.by));
    }
}

/// Returns whether a marker was not written for so long that its process does not write it any more.
fn is_old(marker: &Path) -> bool {
    let modified = std::fs::symlink_metadata(marker).and_then(|found| found.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > UNWRITTEN))
}

fn read_marker(marker: &Path) -> Option<Running> {
    serde_json::from_slice(&durable::read(marker).ok()?).ok()
}

/// Returns whether a part with this fault may be replaced: it holds no result.
fn is_damage(reason: &Invalid) -> bool {
    matches!(reason, Invalid::Checksum)
}

/// Reads the part that is at `path`, if there is one.
fn existing(
    path: &Path,
    plan: &Plan,
    entry: &Entry,
    work: &Work,
) -> Result<Option<Part>, ShardError> {
    let part = match read(path) {
        Ok(part) => part,
        Err(ShardError::Path(e)) if e.source.kind() == ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let invalid = |reason| ShardError::Invalid { path: path.to_owned(), reason };
    if let Some(reason) = foreign(&part.header, plan) {
        return Err(invalid(reason));
    }
    if part.header.shard != entry.shard {
        let shard = part.header.shard;
        return Err(invalid(Invalid::OtherShard { shard, name: name(shard) }));
    }
    if part.header.work != *work {
        let (found, wanted) = (part.header.work.words(), work.words());
        return Err(invalid(Invalid::OtherWork { found, wanted }));
    }
    Ok(Some(part))
}

/// Returns the markers in a directory of parts, and what they say.
pub(crate) fn running(dir: &Path) -> Vec<(PathBuf, Running)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let hidden = entries.filter(|e| e.file_name().to_string_lossy().starts_with(".part-"));
    let read = |path: PathBuf| read_marker(&path).map(|running| (path, running));
    hidden.filter_map(|entry| read(entry.path())).collect()
}
