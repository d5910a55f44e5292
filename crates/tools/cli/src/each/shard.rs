//! `each --shard I/N`: processes the files of one shard of a plan, and writes its part.
//!
//! The run changes to the directory in which the plan was made, so that names, commands and messages
//! are those of one `each` there. The part is written when the run has ended; a run that was
//! interrupted writes none.

use super::args::EachArgs;
use super::input::Input;
use super::job::Job;
use super::outcome::Outcome;
use super::output;
use super::run::{run_job, stop_flag_of};
use crate::exit::{Ended, Exit, Failure};
use crate::sharding::{
    absolute, are_arguments, check_arguments, check_file, enter, failure, now_ns, place, runner,
    say_late,
};
use crate::subtrees::is_flat;
use crate::{out, sharding, stderr};
use ioloom_failure::quoted;
use ioloom_model::Method;
use ioloom_model::units::format_counted;
use ioloom_shard::part::{Claim, Claimed, Committed, Found, PartHeader, Work};
use ioloom_shard::plan::{Entry, Plan};
use ioloom_shard::record::{self, Record};
use ioloom_walk::PathList;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What became of a shard.
pub(super) enum Ran {
    /// It has this part. Of its own run, if there was one, the outcome is known.
    Part {
        part: Box<PartHeader>,
        /// What this run found; it counts unless another worker was first.
        outcome: Option<Box<Outcome>>,
        /// Whether the part is that of another worker, which was first.
        late: bool,
    },
    /// The user stopped it; it has no part.
    Interrupted(Box<Outcome>),
}

/// Runs the shard that the flags select.
pub(super) fn run(args: &EachArgs, job: &Job) -> Ended {
    let args = absolute_paths(args)?;
    let (Some(number), Some(plan)) = (args.sharding.shard, &args.sharding.manifest) else {
        return Err(Failure::usage("--shard needs --manifest"));
    };
    let mut plan = Plan::read(plan).map_err(failure)?;
    sharding::check_kind(&plan, false)?;
    let entry = plan.entry(number.shard, number.of).map_err(failure)?;
    // Before the directory changes: the plan can have a relative path.
    let names = plan.names(&entry).map_err(failure)?;
    let list = absolute(plan.path.clone())?;
    enter(&plan)?;
    plan.path = list;
    let stop = stop_flag_of(&args, job)?;
    if args.sharding.part.is_none() {
        let mut outcome = process(&args, job, &plan, names, &stop)?;
        outcome.shard = Some(document(&plan, &entry, None));
        return out::then(output::print(&args, job, &outcome), Ok(outcome.exit()));
    }
    match one(&args, job, &plan, (&entry, names), &stop)? {
        Ran::Part { part, outcome: Some(outcome), late: false } => {
            debug_assert_eq!(part.shard, entry.shard);
            out::then(output::print(&args, job, &outcome), Ok(outcome.exit()))
        }
        Ran::Part { part, outcome, late } => {
            let path = part_path(&args, &entry);
            match outcome {
                None => say_skipped(&args, &path, &part),
                Some(_) => say_late(&path, &part),
            }
            not_counted(&args, &path, &part, late)
        }
        Ran::Interrupted(outcome) => {
            out::then(output::print(&args, job, &outcome), Ok(outcome.exit()))
        }
    }
}

/// Returns the flags with paths that remain true when the directory changes. Refuses URLs.
pub(super) fn absolute_paths(args: &EachArgs) -> Result<EachArgs, Failure> {
    let mut args = args.clone();
    let files = args.sharding.manifest.iter().chain(&args.sharding.part);
    files.map(PathBuf::as_path).try_for_each(check_file)?;
    args.trace = args.trace.map(absolute).transpose()?;
    args.sharding.part = args.sharding.part.map(absolute).transpose()?;
    Ok(args)
}

fn part_path(args: &EachArgs, entry: &Entry) -> PathBuf {
    let dir = args.sharding.part.as_deref().unwrap_or(Path::new("."));
    dir.join(ioloom_shard::part::name(entry.shard))
}

/// Runs a shard and writes its part, unless it has one.
pub(super) fn one(
    args: &EachArgs,
    job: &Job,
    plan: &Plan,
    (entry, names): (&Entry, PathList),
    stop: &Arc<AtomicBool>,
) -> Result<Ran, Failure> {
    let path = part_path(args, entry);
    let dir = path.parent().unwrap_or(Path::new("."));
    let (by, redo) = (runner(args.sharding.worker.clone()), args.sharding.redo);
    let claim = match Claim::take(plan, entry, work(args, job), by, dir, redo).map_err(failure)? {
        Claimed::Complete(part) => {
            return Ok(Ran::Part { part: Box::new(part.header), outcome: None, late: false });
        }
        Claimed::Run(claim) => claim,
    };
    if let Some(reason) = &claim.replaces {
        let moved = claim.moved.as_deref().map(|new| format!("; it was moved to {}", place(new)));
        let moved = moved.unwrap_or_default();
        stderr::message(&format!("running again for {}: {reason}{moved}", place(claim.path())));
    }
    let mut outcome = Box::new(process(args, job, plan, names, stop)?);
    outcome.shard = Some(document(plan, entry, Some(&path)));
    if outcome.exit() == Exit::Interrupted {
        return Ok(Ran::Interrupted(outcome));
    }
    let records = records(&mut outcome, usize::try_from(entry.files).unwrap_or(usize::MAX))?;
    check_present(plan, entry, &records)?;
    let body = record::encode(records.iter());
    let found = found(job, &outcome);
    let (part, late) = match claim.commit(found, &body, redo).map_err(failure)? {
        Committed::Counted(part) => (part, false),
        Committed::Late(part) => (Box::new(part.header), true),
    };
    Ok(Ran::Part { part, outcome: Some(outcome), late })
}

fn process(
    args: &EachArgs,
    job: &Job,
    plan: &Plan,
    names: PathList,
    stop: &Arc<AtomicBool>,
) -> Result<Outcome, Failure> {
    let tree = plan.header.tree.as_ref().map(|tree| tree.path().to_owned());
    let named = plan.header.roots.iter().map(|root| root.path().to_owned()).collect();
    run_job(job, args, Input::shard(names, tree, named), stop)
}

/// Refuses the result of a shard of which no file exists, or none in an argument: a host on which the tree is not
/// mounted would complete its shards with errors, which later runs skip.
fn check_present(plan: &Plan, entry: &Entry, records: &[Record]) -> Result<(), Failure> {
    if !records.iter().any(is_gone) {
        return Ok(());
    }
    let header = &plan.header;
    if !records.iter().all(is_gone) {
        return not_mounted(plan, entry, records)?.map_or(Ok(()), |root| {
            Err(Failure::failed(format!(
                "cannot complete the shard: no planned file in {} exists; mount the tree of '{}' here, or \
                 plan again if they were removed",
                quoted(root),
                out::readable(header.host.as_bytes())
            )))
        });
    }
    if are_arguments(plan, plan.names(entry).map_err(failure)?.iter()) {
        return check_arguments(plan, plan.path.clone());
    }
    let files = format_counted(records.len() as u64, "file", "files");
    Err(Failure::failed(format!(
        "cannot complete the shard: none of its {files} exists in {}; mount the tree of '{}' here, or \
         plan again if the files were removed",
        quoted(header.directory.path()),
        out::readable(header.host.as_bytes())
    )))
}

/// Returns an argument that lacks files of the shard, is a directory without directories, and contains no planned file.
/// A mount point without its file system looks like this; it can contain a marker file. Reads the other manifests only
/// if such a directory has no file of this shard.
fn not_mounted<'p>(
    plan: &'p Plan,
    entry: &Entry,
    records: &[Record],
) -> Result<Option<&'p Path>, Failure> {
    let roots: HashSet<&Path> = plan.header.roots.iter().map(|root| root.path()).collect();
    let names = plan.names(entry).map_err(failure)?;
    let gone = names.iter().zip(records).filter(|(_, record)| is_gone(record));
    let above = gone.flat_map(|(name, _)| Path::new(OsStr::from_bytes(name)).ancestors().skip(1));
    let mut absent: HashSet<&Path> = above.filter_map(|above| roots.get(above).copied()).collect();
    // Most directories have a file, which takes one call; listing a directory can take long.
    remove_present(&mut absent, &names);
    absent.retain(|root| root.canonicalize().is_ok_and(|root| is_flat(&root)));
    for other in plan.entries() {
        if absent.is_empty() {
            break;
        }
        remove_present(&mut absent, &plan.names(&other).map_err(failure)?);
    }
    Ok(absent.into_iter().min())
}

/// Removes the directories that contain one of these files.
fn remove_present(absent: &mut HashSet<&Path>, names: &PathList) {
    for name in names.iter() {
        let path = Path::new(OsStr::from_bytes(name));
        let is_below = path.ancestors().skip(1).any(|above| absent.contains(above));
        if is_below && path.symlink_metadata().is_ok() {
            absent.retain(|root| !path.starts_with(root));
        }
    }
}

fn is_gone(record: &Record) -> bool {
    matches!(record, Record::Failed { gone: true, .. })
}

/// Returns what must be equal in all parts of a result.
pub(super) fn work(args: &EachArgs, job: &Job) -> Work {
    let mut options = std::collections::BTreeMap::new();
    match &args.exec {
        Some(command) => match out::base64_unless_utf8(Path::new(command)) {
            Some(exact) => options.insert("exec_base64".to_owned(), exact),
            None => options.insert("exec".to_owned(), command.to_string_lossy().into_owned()),
        },
        None => options.insert("compute".to_owned(), job.compute.to_string()),
    };
    if job.plan.method == Method::Null && job.exec.is_none() {
        options.insert("method".to_owned(), "null".to_owned());
    }
    Work { command: "each".to_owned(), options }
}

/// Returns the results of all files in order.
fn records(outcome: &mut Outcome, files: usize) -> Result<Vec<Record>, Failure> {
    let mut records = std::mem::take(&mut outcome.records);
    records.sort_by_key(|(index, _)| *index);
    let in_order = records.iter().enumerate().all(|(at, (index, _))| at == *index);
    if records.len() != files || !in_order {
        let found = format_counted(records.len() as u64, "result", "results");
        return Err(Failure::failed(format!(
            "cannot write the part: {found} for {files} files; this is an error in ioloom"
        )));
    }
    Ok(records.into_iter().map(|(_, record)| record).collect())
}

fn found(job: &Job, outcome: &Outcome) -> Found {
    let m = &outcome.measured;
    Found {
        ended_ns: now_ns(),
        elapsed_ns: m.elapsed_ns,
        cpu_ns: m.cpu_user_ns + m.cpu_kernel_ns,
        files: m.files,
        bytes: m.bytes,
        errors: m.errors,
        method: job.plan.to_string(),
        limited_by: m.bottleneck.as_ref().map(|why| why.word.clone()),
        why: m.bottleneck.as_ref().map(|why| why.sentence.clone()),
    }
}

/// Reports a shard that was not run because its part exists. If files failed, so does this command,
/// which says why also with --quiet.
fn say_skipped(args: &EachArgs, path: &Path, part: &PartHeader) {
    let found = &part.found;
    if args.quiet && found.errors == 0 {
        return;
    }
    let files = format_counted(found.files, "file", "files");
    let errors = format_counted(found.errors, "error", "errors");
    let advice = if found.errors > 0 { "; --redo runs it again" } else { "" };
    stderr::message(&format!(
        "shard {}/{} is complete in {}: skipped ({files}, {errors}){advice}",
        part.shard,
        part.shards,
        quoted(path)
    ));
}

/// Ends a command whose shard counts by the part of another one: prints the counts of that part and
/// returns the exit code of its run. `late` means that this command ran the shard, too.
fn not_counted(args: &EachArgs, path: &Path, part: &PartHeader, late: bool) -> Ended {
    let found = &part.found;
    let exit = if found.errors > 0 { Exit::Failed } else { Exit::Ok };
    if args.json {
        let document = json!({
            "schema": output::SCHEMA,
            "command": "each",
            "files": found.files,
            "bytes": found.bytes,
            "errors": found.errors,
            "shard": {
                "number": part.shard,
                "of": part.shards,
                "plan": part.plan,
                "part": path.to_string_lossy(),
                "skipped": !late,
                "late": late,
            },
        });
        return out::then(out::print_json(&document), Ok(exit));
    }
    Ok(exit)
}

fn document(plan: &Plan, entry: &Entry, part: Option<&Path>) -> Value {
    json!({
        "number": entry.shard,
        "of": plan.header.shards,
        "plan": plan.checksum,
        "part": part.map(|path| path.to_string_lossy()),
        "skipped": false,
        "late": false,
    })
}
