//! Which parts exist, and whether each shard has exactly one.

use crate::durable;
use crate::envelope::{self, Kind};
use crate::error::{Invalid, ShardError};
use crate::part::{self, PartHeader, Runner, Work};
use crate::plan::Plan;
use ioloom_failure::{Operation, PathError};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Bytes of a part that are read for its header. A longer header needs the whole part.
const BEGINNING: u64 = 16 << 10;

/// A valid part of a shard.
#[derive(Debug, Clone)]
pub struct Complete {
    /// Where it is.
    pub path: PathBuf,
    /// What it says about itself.
    pub header: PartHeader,
    /// The checksum in its first line.
    pub checksum: String,
}

/// A shard that was begun.
#[derive(Debug, Clone)]
pub struct Unfinished {
    /// The number of the shard.
    pub shard: u64,
    /// Who began it.
    pub by: Runner,
    /// Whether the process is known to have ended: it was one of this host and its PID namespace.
    pub ended: bool,
    /// The file that marks the shard as running.
    pub marker: PathBuf,
}

/// All parts of a plan.
#[derive(Debug, Default)]
pub struct Census {
    /// The parts by shard, at position `shard - 1`; `None` if the shard has no part or several.
    pub parts: Vec<Option<Complete>>,
    /// Shards without a part.
    pub missing: Vec<u64>,
    /// Shards with several parts.
    pub double: Vec<(u64, Vec<PathBuf>)>,
    /// Files that are no part of this plan, and why.
    pub foreign: Vec<(PathBuf, Invalid)>,
    /// Files that are damaged, and how.
    pub damaged: Vec<(PathBuf, Invalid)>,
    /// Shards that were begun and have no part.
    pub unfinished: Vec<Unfinished>,
    /// Shards that have a part of one worker, and another worker that may still run them.
    pub superseded: Vec<Unfinished>,
    /// The work of the parts.
    pub work: Option<Work>,
}

impl Census {
    /// Returns whether each shard has exactly one part, and nothing else was found.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
            && self.double.is_empty()
            && self.foreign.is_empty()
            && self.damaged.is_empty()
    }

    /// Returns the shards whose part has files that failed.
    pub fn with_errors(&self) -> Vec<u64> {
        let failed = self.complete().filter(|part| part.header.found.errors > 0);
        failed.map(|part| part.header.shard).collect()
    }

    /// Iterates over the valid parts by shard.
    pub fn complete(&self) -> impl Iterator<Item = &Complete> {
        self.parts.iter().flatten()
    }
}

/// Finds the parts of a plan in `places`: directories with parts, or parts. `host` is the name of this
/// host, on which ended processes are recognised.
///
/// # Errors
/// A place, or a part, cannot be read.
pub fn census(plan: &Plan, places: &[PathBuf], host: &str) -> Result<Census, ShardError> {
    census_of(plan, places, host, whole)
}

/// Does the same without reading the results in the parts: only their length is verified.
///
/// # Errors
/// A place, or a part, cannot be read.
pub fn glance(plan: &Plan, places: &[PathBuf], host: &str) -> Result<Census, ShardError> {
    census_of(plan, places, host, beginning)
}

/// The header and the checksum of a part, or what is wrong with it.
type Opened = Result<(PartHeader, String), Invalid>;

fn whole(path: &Path) -> Result<Opened, PathError> {
    let bytes = durable::read(path)?;
    let opened = envelope::open::<PartHeader>(Kind::Part, &bytes);
    Ok(opened.map(|opened| (opened.header, opened.checksum)))
}

fn beginning(path: &Path) -> Result<Opened, PathError> {
    let (bytes, size) = durable::read_beginning(path, BEGINNING)?;
    match envelope::open_header(Kind::Part, &bytes, size) {
        Some(opened) => Ok(opened),
        None => whole(path),
    }
}

fn census_of(
    plan: &Plan,
    places: &[PathBuf],
    host: &str,
    open: impl Fn(&Path) -> Result<Opened, PathError>,
) -> Result<Census, ShardError> {
    let mut census = Census::default();
    let mut found: BTreeMap<u64, Vec<Complete>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for path in files(places)? {
        // The same file by two arguments counts once.
        if !seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
            continue;
        }
        match open(&path)? {
            Err(reason @ Invalid::Checksum) => census.damaged.push((path, reason)),
            // A part without its first bytes, rather than a file that was named by mistake.
            Err(reason @ Invalid::Kind(_)) if path.file_name().is_some_and(is_part) => {
                census.damaged.push((path, reason));
            }
            Err(reason) => census.foreign.push((path, reason)),
            Ok((header, checksum)) => match part::foreign(&header, plan) {
                Some(reason) => census.foreign.push((path, reason)),
                None => {
                    let parts = found.entry(header.shard).or_default();
                    parts.push(Complete { path, header, checksum });
                }
            },
        }
    }
    census.work = usual_work(&found);
    for shard in 1..=plan.header.shards {
        let mut parts = found.remove(&shard).unwrap_or_default();
        if let Some(wanted) = &census.work {
            let other = |part: &mut Complete| part.header.work != *wanted;
            for part in parts.extract_if(.., other) {
                let (found, wanted) = (part.header.work.words(), wanted.words());
                census.foreign.push((part.path, Invalid::OtherWork { found, wanted }));
            }
        }
        match parts.len() {
            0 => census.missing.push(shard),
            1 => {}
            _ => census.double.push((shard, parts.drain(..).map(|part| part.path).collect())),
        }
        census.parts.push(parts.pop());
    }
    let is_missing = |begun: &Unfinished| census.missing.binary_search(&begun.shard).is_ok();
    let (unfinished, others): (Vec<_>, Vec<_>) =
        begun(places, host).into_iter().partition(is_missing);
    let superseded = others.into_iter().filter(|begun| !is_over(begun, &census.parts)).collect();
    (census.unfinished, census.superseded) = (unfinished, superseded);
    Ok(census)
}

/// Returns whether a run of a shard with a part has ended: its process has, or the part is its own.
fn is_over(begun: &Unfinished, parts: &[Option<Complete>]) -> bool {
    let at = begun.shard.checked_sub(1).and_then(|at| usize::try_from(at).ok());
    let part = at.and_then(|at| parts.get(at)).and_then(Option::as_ref);
    begun.ended || part.is_some_and(|part| part.header.by == begun.by)
}

/// Returns the work of most parts.
fn usual_work(found: &BTreeMap<u64, Vec<Complete>>) -> Option<Work> {
    let mut counts: BTreeMap<&Work, u64> = BTreeMap::new();
    for part in found.values().flatten() {
        *counts.entry(&part.header.work).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(work, _)| work.clone())
}

/// Returns the parts in directories, and the other places.
fn files(places: &[PathBuf]) -> Result<Vec<PathBuf>, ShardError> {
    let mut files = Vec::new();
    for place in places {
        let entries = match std::fs::read_dir(place) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                files.push(place.clone());
                continue;
            }
            Err(error) => return Err(PathError::new(Operation::OpenDir, place, error).into()),
        };
        for entry in entries {
            let entry = entry.map_err(PathError::on(Operation::ReadDir, place))?;
            if is_part(&entry.file_name()) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_part(name: &OsStr) -> bool {
    let digits = name.to_str().and_then(|name| name.strip_prefix("part-"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the shards that were begun, in order. Their markers are in the directories of parts.
fn begun(places: &[PathBuf], host: &str) -> Vec<Unfinished> {
    let mut seen = BTreeSet::new();
    let mut begun: Vec<Unfinished> = places
        .iter()
        .map(|place| if place.is_dir() { place.as_path() } else { durable::parent(place) })
        .filter(|dir| seen.insert(dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf())))
        .flat_map(part::running)
        .map(|(marker, running)| Unfinished {
            shard: running.shard,
            ended: running.has_ended(host),
            by: running.by,
            marker,
        })
        .collect();
    begun.sort_by_key(|begun| (begun.shard, begun.by.started_ns));
    begun
}
