//! Adds up the parts of `cp`, and gives the directories that shards share their attributes.

use super::report::Shown;
use super::{report, text};
use crate::exit::{Ended, Exit, Failure};
use crate::sharding::{enter, failure, place};
use crate::subtrees::{Seen, meta, strangers, subtree};
use crate::{cp, out, stderr};
use ioloom_copy::{ERRORS_KEPT_MAX, Subtree, Watcher, finish_subtrees};
use ioloom_failure::{Operation, PathError};
use ioloom_model::units::{format_count, format_counted, format_ns, format_size};
use ioloom_shard::census::{Census, Unfinished};
use ioloom_shard::copied::{self, Copied, Link, Shared};
use ioloom_shard::part;
use ioloom_shard::plan::Plan;
use ioloom_shard::summary::Summary;
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::FileType;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The command in the work of these parts.
pub(super) const COMMAND: &str = "cp";

/// New directories that are named in the message about them.
const NEW_NAMED: usize = 3;

/// Files that mark shards as running that are named in the message about them.
const MARKERS_NAMED: usize = 3;

/// What all shards copied.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    copied: Copied,
    /// Files with names in several shards, which were copied in each.
    shared_files: u64,
    /// Bytes that were copied again for them.
    shared_bytes: u64,
    /// The directories that each shard copied without the directories in them.
    directories: BTreeMap<u64, Vec<Shared>>,
}

impl Sum {
    /// Adds a shard. `seen` holds the files with several names of the shards before.
    fn add(&mut self, part: &Copied, seen: &mut HashMap<(Option<u64>, u64), bool>) {
        self.copied.add(part);
        for &Link { device, inode, bytes } in &part.links {
            match seen.get_mut(&(device, inode)) {
                None => drop(seen.insert((device, inode), false)),
                Some(shared) => {
                    self.shared_files += u64::from(!*shared);
                    *shared = true;
                    self.shared_bytes = self.shared_bytes.saturating_add(bytes);
                }
            }
        }
    }
}

/// What the last step found.
#[derive(Debug, Default)]
struct Finished {
    /// Directories that got their attributes.
    directories: u64,
    /// The first errors.
    errors: Vec<String>,
    errors_count: u64,
    /// Directories that are in no shard, because they are newer than the plan.
    new: Vec<PathBuf>,
}

/// Adds up the parts of a complete census, completes the copy, and prints the sum.
pub(super) fn merge(plan: &Plan, census: &Census, shown: Shown<'_>) -> Ended {
    refuse_running(census)?;
    let summary = Summary::of(census);
    let mut sum = sum(plan, census)?;
    // Manifests are read first: the plan can have a relative path.
    let (names, seen) = manifests(plan, &sum)?;
    let failed_before = summary.errors.saturating_add(plan.header.errors_count);
    text::print_errors(&sum.copied.errors, failed_before);
    if let Some(shards) = text::with_errors(census) {
        stderr::message(&format!("not all was copied in {shards}"));
    }
    enter(plan)?;
    let finished = finish(plan, census, &names, &seen)?;
    text::print_errors(&finished.errors, finished.errors_count);
    sum.copied.errors.extend(finished.errors.iter().cloned());
    if !finished.new.is_empty() {
        stderr::message(&new_message(&finished.new));
    }
    let errors = failed_before.saturating_add(finished.errors_count);
    report::write(shown.report, plan, census, &summary, || report::Result {
        answer: report::amount(&summary),
        doubts: finished.new.first().map(|_| new_message(&finished.new)).into_iter().collect(),
        facts: vec![
            ("directories", format_count(sum.copied.directories)),
            ("not linked", format_count(sum.shared_files)),
        ],
        errors: sum.copied.errors.clone(),
        errors_count: errors,
    })?;
    let printed = match (shown.json, shown.quiet) {
        (true, _) => out::print_json(&document(plan, census, &summary, (&sum, &finished))),
        (false, true) => Ok(()),
        (false, false) => out::print(&words(&summary, &sum, &finished, errors)),
    };
    let complete = errors == 0 && finished.new.is_empty();
    out::then(printed, Ok(if complete { Exit::Ok } else { Exit::Failed }))
}

/// Refuses to complete a copy to which a worker may still write: one that lost its lease, or whose shard another one
/// completed before.
fn refuse_running(census: &Census) -> Result<(), Failure> {
    let Some(begun) = census.superseded.first() else { return Ok(()) };
    Err(Failure::failed(format!(
        "cannot complete the copy: process {} on '{}' may still write the files of shard {}, which another worker \
         has completed; wait until it ends, or remove {} if it was killed",
        begun.by.pid,
        out::readable(begun.by.host.as_bytes()),
        begun.shard,
        markers(&census.superseded)
    )))
}

fn markers(begun: &[Unfinished]) -> String {
    let named: Vec<String> =
        begun.iter().take(MARKERS_NAMED).map(|begun| place(&begun.marker)).collect();
    let more = match begun.len().saturating_sub(MARKERS_NAMED) as u64 {
        0 => String::new(),
        more => format!(", and {}", format_counted(more, "more such file", "more such files")),
    };
    named.join(", ") + &more
}

fn sum(plan: &Plan, census: &Census) -> Result<Sum, Failure> {
    let (mut sum, mut seen) = (Sum::default(), HashMap::new());
    sum.copied.errors.clone_from(&plan.header.errors);
    for complete in census.complete() {
        let changed = |why: &str| {
            let path = place(&complete.path);
            Failure::failed(format!("cannot use {path}: {why}; remove it and run its shard again"))
        };
        let part = part::read(&complete.path).map_err(failure)?;
        if part.checksum != complete.checksum {
            return Err(changed("it changed during the merge"));
        }
        let found = copied::decode(&part.body).ok_or_else(|| changed("it holds no copy"))?;
        sum.add(&found, &mut seen);
        sum.directories.insert(complete.header.shard, found.shared);
    }
    Ok(sum)
}

/// Returns all directories of a plan, and what identified those that shards share when they were copied.
fn manifests(plan: &Plan, sum: &Sum) -> Result<(Vec<(PathBuf, bool)>, Seen), Failure> {
    let (mut names, mut seen) = (Vec::new(), Seen::new());
    for entry in plan.entries() {
        let of_shard: Vec<(PathBuf, bool)> =
            plan.names(&entry).map_err(failure)?.iter().map(subtree).collect();
        for directory in sum.directories.get(&entry.shard).into_iter().flatten() {
            let index = usize::try_from(directory.index).ok();
            if let Some((path, _)) = index.and_then(|index| of_shard.get(index)) {
                seen.insert(path.clone(), (entry.shard, *directory));
            }
        }
        names.extend(of_shard);
    }
    Ok((names, seen))
}

/// Prints notes. Errors are printed when all are known.
struct Notes;

impl Watcher for Notes {
    fn note(&self, text: &str) {
        stderr::message(text);
    }
}

/// Gives directories their attributes, and looks for new ones in them. Leaves out those that are not the ones of the
/// shards, which have an error each, and directories in them.
fn finish(
    plan: &Plan,
    census: &Census,
    names: &[(PathBuf, bool)],
    seen: &Seen,
) -> Result<Finished, Failure> {
    let work = census.work.as_ref().and_then(cp::options_of);
    let Some((target, options)) = work else {
        return Err(Failure::failed(
            "the parts name no target; they were written by another version of ioloom",
        ));
    };
    let copies = cp::copies(plan, &target)?;
    let copy_of = |path: &Path| cp::part_of(&copies, path, true).map(|dir| dir.target());
    let strangers = strangers(plan, names, seen, copy_of);
    let is_same = |path: &Path| !path.ancestors().any(|above| strangers.contains_key(above));
    let alone = names.iter().filter(|(path, alone)| *alone && is_same(path));
    let shared = alone.filter_map(|(path, alone)| cp::part_of(&copies, path, *alone));
    let shared: Vec<Subtree> = shared.collect();
    let mut absences = BTreeMap::new();
    for dir in &shared {
        absences.entry(dir.copy.as_path()).or_insert_with(|| absent(&dir.copy));
    }
    let is_there = |dir: &&Subtree| absences.get(dir.copy.as_path()).is_none_or(Option::is_none);
    let present: Vec<Subtree> = shared.iter().filter(is_there).cloned().collect();
    let gone = absences.values().flatten();
    let mut errors: Vec<String> = strangers.values().chain(gone).cloned().collect();
    let (failed, failed_count) = finish_subtrees(&present, &options, &Notes);
    let directories = (present.len() as u64).saturating_sub(failed_count);
    let errors_count = failed_count.saturating_add(errors.len() as u64);
    errors.extend(failed.iter().map(|error| stderr::without_errno(&error.to_string())));
    errors.truncate(ERRORS_KEPT_MAX);
    let known: HashSet<&Path> = names.iter().map(|(path, _)| path.as_path()).collect();
    let new = shared.iter().flat_map(|dir| new_directories(&dir.source(), &known)).collect();
    Ok(Finished { directories, errors, errors_count, new })
}

/// Returns the error of the copy of an argument that does not exist: one for all directories in it.
fn absent(copy: &Path) -> Option<String> {
    let error = copy.symlink_metadata().err()?;
    let is_absent = error.kind() == ErrorKind::NotFound;
    is_absent.then(|| {
        let error = PathError::new(Operation::Stat, copy, error);
        format!(
            "{error}; mount the target here, or run the shards again with --redo if it was removed"
        )
    })
}

/// Returns the directories in a directory that no shard contains. Mount points are left out: the plan decided
/// about them.
fn new_directories(path: &Path, known: &HashSet<&Path>) -> Vec<PathBuf> {
    let device = |path: &Path| meta(path).map(|found| found.device).ok();
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let is_new = |path: &PathBuf| !known.contains(path.as_path());
    let directories = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().as_ref().is_ok_and(FileType::is_dir))
        .map(|entry| entry.path());
    directories.filter(is_new).filter(|new| device(new) == device(path)).collect()
}

fn new_message(new: &[PathBuf]) -> String {
    let named: Vec<String> = new.iter().take(NEW_NAMED).map(|path| place(path)).collect();
    let more = if new.len() > NEW_NAMED { ", …" } else { "" };
    let directories = format_counted(new.len() as u64, "directory is", "directories are");
    format!(
        "{directories} newer than the plan and not copied ({}{more}); copy with 'ioloom cp', or plan again",
        named.join(", ")
    )
}

fn words(summary: &Summary, sum: &Sum, finished: &Finished, errors: u64) -> String {
    let partial = match errors {
        0 => String::new(),
        errors => format!("  (partial: {})", format_counted(errors, "error", "errors")),
    };
    let copied = &sum.copied;
    let files = format_counted(copied.files, "file", "files");
    let mut text = format!("copied      {files}, {}{partial}\n", format_size(copied.bytes));
    for (count, one, many) in [
        (copied.directories, "directory", "directories"),
        (copied.symlinks, "symbolic link", "symbolic links"),
        (copied.hard_links, "hard link", "hard links"),
        (copied.specials, "special file", "special files"),
        (copied.skipped, "existing file was kept", "existing files were kept"),
    ] {
        if count > 0 {
            text += &format!("            {}\n", format_counted(count, one, many));
        }
    }
    if sum.shared_files > 0 {
        text += &format!(
            "not linked  {} with names in several shards, copied in each ({} more)\n",
            format_counted(sum.shared_files, "file", "files"),
            format_size(sum.shared_bytes),
        );
    }
    text += &format!(
        "completed   {} that several shards filled\n",
        format_counted(finished.directories, "directory", "directories")
    );
    text += &format!(
        "time        {} ({} of work on {})\n",
        format_ns(summary.elapsed_ns as f64),
        format_ns(summary.busy_ns as f64),
        format_counted(summary.timeline.len() as u64, "worker", "workers"),
    );
    text + &text::hosts(summary)
}

fn document(
    plan: &Plan,
    census: &Census,
    summary: &Summary,
    (sum, finished): (&Sum, &Finished),
) -> serde_json::Value {
    let copied = &sum.copied;
    let errors = summary.errors.saturating_add(plan.header.errors_count);
    let errors = errors.saturating_add(finished.errors_count);
    json!({
        "schema": 1,
        "command": "shard merge",
        "plan": plan.checksum,
        "shards": plan.header.shards,
        "complete": true,
        "work": census.work,
        "files": copied.files,
        "hard_links": copied.hard_links,
        "directories": copied.directories,
        "symlinks": copied.symlinks,
        "specials": copied.specials,
        "skipped": copied.skipped,
        "bytes": copied.bytes,
        "shared_files": sum.shared_files,
        "shared_bytes": sum.shared_bytes,
        "completed_directories": finished.directories,
        "new_directories": finished.new.len(),
        "errors": errors,
        "error_samples": copied.errors.iter().take(crate::each::output::ERRORS_PRINTED).collect::<Vec<_>>(),
        "started_ns": summary.started_ns,
        "elapsed_ns": summary.elapsed_ns,
        "busy_ns": summary.busy_ns,
        "cpu_ns": summary.cpu_ns,
        "median_ns": summary.median_ns,
        "hosts": summary.hosts,
        "slowest": text::slowest(summary),
        "timeline": summary.timeline,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_shard::part::Runner;

    #[test]
    fn a_file_in_three_shards_is_reported_once() {
        let link = |device, inode| Link { device, inode, bytes: 10 };
        let part = |links: Vec<Link>| Copied { files: 2, links, ..Copied::default() };
        let (mut sum, mut seen) = (Sum::default(), HashMap::new());
        for _ in 0..3 {
            sum.add(&part(vec![link(None, 7)]), &mut seen);
        }
        // The same number on another device is another file.
        sum.add(&part(vec![link(Some(1), 7)]), &mut seen);
        assert_eq!((sum.copied.files, sum.shared_files, sum.shared_bytes), (8, 1, 20));
    }

    #[test]
    fn markers_are_named_but_not_all() {
        let begun = |shard| Unfinished {
            shard,
            by: Runner {
                host: "other".to_owned(),
                pid: 1,
                worker: None,
                version: String::new(),
                started_ns: 1,
            },
            ended: false,
            marker: PathBuf::from(format!("m{shard}")),
        };
        let all: Vec<Unfinished> = (1..=5).map(begun).collect();
        assert_eq!(markers(&all[..2]), "'m1', 'm2'");
        assert_eq!(markers(&all), "'m1', 'm2', 'm3', and 2 more such files");
    }

    #[test]
    fn new_directories_are_named_but_not_all() {
        let new = |count| (0..count).map(|at| PathBuf::from(format!("d{at}"))).collect::<Vec<_>>();
        assert!(new_message(&new(1)).starts_with("1 directory is newer than the plan"));
        let many = new_message(&new(9));
        assert!(many.contains("('d0', 'd1', 'd2', …)"), "{many}");
    }
}
