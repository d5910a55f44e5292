//! `du --shard` and `du --queue`: scan the subtrees of a shard, and write what they use as its part.
//!
//! An inode with links in several subtrees of a shard counts once in its part. The part lists all inodes with
//! several links, so the merge can subtract those that other shards have counted, too.

use super::args::DuArgs;
use super::input::print_problems;
use crate::exit::{Ended, Exit, Failure};
use crate::interrupt::stop_flag;
use crate::sharding::{absolute, check_kind, enter, failure, now_ns, place, runner};
use crate::{out, stderr};
use ioloom_du::scan::{ScanOptions, ScanProgress, Scanner};
use ioloom_du::{Scan, Tally};
use ioloom_failure::quoted;
use ioloom_model::units::{format_counted, format_ns, format_size};
use ioloom_shard::part::{Claim, Claimed, Committed, Found, PartHeader, Work};
use ioloom_shard::plan::{Entry, Plan};
use ioloom_shard::usage::{self, Link, Usage};
use ioloom_sys::clock::process_cpu_ns;
use ioloom_sys::dir;
use ioloom_walk::Fields;
use serde_json::json;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The flag that a plan keeps and a scan obeys.
const ONE_FILE_SYSTEM: &str = "--one-file-system";
/// The end of the name of a directory that is scanned without the directories in it.
pub(crate) const ALONE: &str = "/.";

/// What became of a shard.
enum Ran {
    /// It has this part.
    Part {
        part: Box<PartHeader>,
        /// Whether this run wrote it.
        own: bool,
    },
    /// The user stopped it; it has no part.
    Interrupted,
}

/// Runs the shard, or the shards of the queue, that the flags name.
pub(super) fn run(args: &DuArgs) -> Ended {
    let sharding = &args.sharding;
    let (Some(plan), Some(dir)) = (sharding.manifest.clone(), sharding.part.clone()) else {
        return Err(Failure::usage("--shard and --queue need --manifest and --part"));
    };
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let (plan, dir) = (Plan::read(&absolute(plan)?).map_err(failure)?, absolute(dir)?);
    check_kind(&plan, true)?;
    if let Some(url) = &sharding.queue {
        return by_queue(args, &plan, &dir, url);
    }
    let Some(number) = sharding.shard else { return Err(Failure::usage("--part needs --shard")) };
    let entry = plan.entry(number.shard, number.of).map_err(failure)?;
    enter(&plan)?;
    let stop = stop_flag();
    match one(args, &plan, &entry, &dir, &stop)? {
        Ran::Interrupted => {
            stderr::message("interrupted: the shard has no part");
            Ok(Exit::Interrupted)
        }
        Ran::Part { part, own } => {
            print(args, &plan, &part, own)?;
            Ok(if part.found.errors > 0 { Exit::Failed } else { Exit::Ok })
        }
    }
}

#[cfg(feature = "queue")]
fn by_queue(args: &DuArgs, plan: &Plan, dir: &Path, url: &str) -> Ended {
    use crate::queue_worker::{self, Joining, Step};
    // Before the directory changes: credentials are files.
    let queue = crate::queueing::connect(url)?;
    enter(plan)?;
    let stop = stop_flag();
    let joining = Joining {
        command: "du",
        by: runner(args.sharding.worker.clone()),
        work: work(plan).words(),
        stop: stop.clone(),
        json: args.json,
        quiet: false,
    };
    queue_worker::run(&queue, plan, joining, |entry| {
        Ok(match one(args, plan, entry, dir, &stop)? {
            Ran::Interrupted => Step::Interrupted,
            Ran::Part { part, .. } => Step::Part(part),
        })
    })
}

#[cfg(not(feature = "queue"))]
fn by_queue(_: &DuArgs, _: &Plan, _: &Path, _: &str) -> Ended {
    Err(crate::sharding::no_queues())
}

/// Runs a shard and writes its part, unless it has one.
fn one(
    args: &DuArgs,
    plan: &Plan,
    entry: &Entry,
    dir: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<Ran, Failure> {
    let (by, redo) = (runner(args.sharding.worker.clone()), args.sharding.redo);
    let claim = match Claim::take(plan, entry, work(plan), by, dir, redo).map_err(failure)? {
        Claimed::Complete(part) => {
            return Ok(Ran::Part { part: Box::new(part.header), own: false });
        }
        Claimed::Run(claim) => claim,
    };
    if let Some(reason) = &claim.replaces {
        stderr::message(&format!("running again for {}: {reason}", place(claim.path())));
    }
    let names = plan.names(entry).map_err(failure)?;
    let paths: Vec<&[u8]> = names.iter().collect();
    let cpu_ns = || process_cpu_ns(std::process::id()).unwrap_or(0);
    let (started, cpu_before_ns) = (Instant::now(), cpu_ns());
    let (scan, usage) = scan(args, plan, &paths, stop)?;
    if scan.interrupted || stop.load(Ordering::Relaxed) {
        return Ok(Ran::Interrupted);
    }
    print_problems(&scan);
    if !paths.is_empty() && paths.iter().all(|path| is_gone(&subtree(path).0)) {
        return Err(Failure::failed(format!(
            "cannot complete the shard: none of its {} exists in {}; mount the tree of '{}' here, \
             or plan again if it was removed",
            format_counted(paths.len() as u64, "directory", "directories"),
            quoted(plan.header.directory.path()),
            plan.header.host
        )));
    }
    let found = Found {
        ended_ns: now_ns(),
        elapsed_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        cpu_ns: cpu_ns().saturating_sub(cpu_before_ns),
        files: usage.inodes,
        bytes: usage.disk_bytes,
        errors: scan.errors_count,
        method: args.method.word().to_owned(),
        limited_by: None,
        why: None,
    };
    let committed = claim.commit(found, &usage::encode(&usage), redo).map_err(failure)?;
    Ok(match committed {
        Committed::Counted(part) => Ran::Part { part, own: true },
        Committed::Late(part) => Ran::Part { part: Box::new(part.header), own: false },
    })
}

/// Scans subtrees as one scan, in which every inode counts once.
fn scan(
    args: &DuArgs,
    plan: &Plan,
    paths: &[&[u8]],
    stop: &Arc<AtomicBool>,
) -> Result<(Scan, Usage), Failure> {
    let options = ScanOptions {
        one_file_system: one_file_system(plan),
        method: args.method,
        threads: args.threads,
        ..ScanOptions::default()
    };
    let subtrees = paths.iter().map(|path| subtree(path));
    let subtrees: Vec<(PathBuf, bool)> = subtrees.collect();
    let progress = Arc::new(ScanProgress::default());
    // Without the roots: what is reached by two paths must not depend on the shards that they are in.
    let scanner = Scanner::new(options, &[], stop.clone(), progress);
    let mut scanner = scanner.map_err(Failure::refused)?;
    for (path, alone) in &subtrees {
        match standing(plan, path) {
            Standing::Same => {}
            Standing::OtherDevice => continue,
            Standing::Changed => {
                let now = "it was a directory when the plan was made";
                scanner.fail(format!("cannot scan {}: {now}; plan again", quoted(path)));
                continue;
            }
        }
        let scanned = match alone {
            true => scanner.root_alone(path),
            false => scanner.root(path),
        };
        scanned.map_err(Failure::refused)?;
        if scanner.stopped() {
            break;
        }
    }
    let own = plan.header.roots.first().and_then(|root| device_of(root.path()));
    let links = scanner.linked().into_iter().map(|(id, size, links)| Link {
        device: Some(id.device).filter(|device| Some(*device) != own),
        inode: id.inode,
        links,
        apparent_bytes: size.apparent_bytes,
        disk_bytes: size.disk_bytes,
    });
    let links = links.collect();
    let scan = scanner.finish();
    let Tally { apparent_bytes, disk_bytes, inodes, .. } = scan.total();
    let errors = scan.errors.clone();
    Ok((scan, Usage { apparent_bytes, disk_bytes, inodes, links, errors }))
}

/// How a subtree compares with the plan.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// It is scanned; an error is one of the scan.
    Same,
    /// It is not a directory any more, so the scan of the directory above counts it.
    Changed,
    /// It is on another device than its argument, which the plan excludes.
    OtherDevice,
}

fn standing(plan: &Plan, path: &Path) -> Standing {
    let of = |path: &Path| dir::meta(path.as_os_str().as_bytes(), false, Fields::IDENTITY);
    let mut roots = plan.header.roots.iter().map(|root| root.path());
    let root = roots.find(|root| path.starts_with(root));
    let (Some(root), Ok(meta)) = (root.filter(|root| *root != path), of(path)) else {
        return Standing::Same;
    };
    if meta.kind != dir::Kind::Directory {
        return Standing::Changed;
    }
    let crosses = of(root).is_ok_and(|root| root.device != meta.device);
    if crosses && one_file_system(plan) { Standing::OtherDevice } else { Standing::Same }
}

fn is_gone(path: &Path) -> bool {
    let found = dir::meta(path.as_os_str().as_bytes(), false, Fields::IDENTITY);
    found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Returns the directory that a path of a plan names, and whether it is scanned alone.
fn subtree(path: &[u8]) -> (PathBuf, bool) {
    let (path, alone) = match path.strip_suffix(ALONE.as_bytes()) {
        Some(dir) => (dir, true),
        None => (path, false),
    };
    (PathBuf::from(OsStr::from_bytes(path)), alone)
}

fn device_of(path: &Path) -> Option<u64> {
    let meta = dir::meta(path.as_os_str().as_bytes(), false, Fields::IDENTITY).ok()?;
    Some(ioloom_du::links::FileId::new(meta.device, meta.inode).device)
}

fn one_file_system(plan: &Plan) -> bool {
    plan.header.selection.iter().any(|word| word.0 == ONE_FILE_SYSTEM.as_bytes())
}

/// Returns what must be equal in all parts of a result.
fn work(plan: &Plan) -> Work {
    let option = one_file_system(plan).then(|| ("one-file-system".to_owned(), "yes".to_owned()));
    Work { command: "du".to_owned(), options: option.into_iter().collect() }
}

fn print(args: &DuArgs, plan: &Plan, part: &PartHeader, own: bool) -> Result<(), Failure> {
    let found = &part.found;
    if args.json {
        return out::print_json(&json!({
            "schema": 1,
            "command": "du",
            "inodes": found.files,
            "disk_bytes": found.bytes,
            "errors": found.errors,
            "shard": {
                "number": part.shard,
                "of": part.shards,
                "plan": plan.checksum,
                "written": own,
            },
        }));
    }
    let done = if own { "scanned" } else { "had a part" };
    out::print(&format!(
        "shard {}/{} {done}: {}, {}, {}\n",
        part.shard,
        part.shards,
        format_counted(found.files, "inode", "inodes"),
        format_size(found.bytes),
        format_ns(found.elapsed_ns as f64),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whether_directories_in_it_are_left_out() {
        let of = |path: &str| subtree(path.as_bytes());
        assert_eq!(of("/data/a"), (PathBuf::from("/data/a"), false));
        assert_eq!(of("/data/a/."), (PathBuf::from("/data/a"), true));
        assert_eq!(of("//."), (PathBuf::from("/"), true));
        assert_eq!(of("a/./"), (PathBuf::from("a/./"), false));
        assert_eq!(of("a.d"), (PathBuf::from("a.d"), false));
    }
}
