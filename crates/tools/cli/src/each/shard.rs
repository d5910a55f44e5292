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
use crate::sharding::{failure, now_ns, place, runner};
use crate::stderr;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::Method;
use ioloom_model::units::format_counted;
use ioloom_shard::part::{Claim, Claimed, Committed, Found, PartHeader, Work};
use ioloom_shard::plan::{Entry, Plan};
use ioloom_shard::record::{self, Record};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Runs the shard that the flags select.
pub(super) fn run(args: &EachArgs, job: &Job) -> Ended {
    let mut args = args.clone();
    args.trace = args.trace.map(absolute).transpose()?;
    args.sharding.part = args.sharding.part.map(absolute).transpose()?;
    let (Some(number), Some(plan)) = (args.sharding.shard, &args.sharding.manifest) else {
        return Err(Failure::usage("--shard needs --manifest"));
    };
    let plan = Plan::read(plan).map_err(failure)?;
    let entry = plan.entry(number.shard, number.of).map_err(failure)?;
    let names = plan.names(entry).map_err(failure)?;
    enter(&plan)?;
    let stop = stop_flag_of(&args, job)?;
    let claim = match &args.sharding.part {
        None => None,
        Some(dir) => {
            let by = runner(args.sharding.worker.clone());
            let claimed = Claim::take(&plan, entry, work(&args, job), by, dir, args.sharding.redo);
            match claimed.map_err(failure)? {
                Claimed::Complete(part) => {
                    let path = dir.join(ioloom_shard::part::name(part.header.shard));
                    say_skipped(&args, &path, &part.header);
                    return not_counted(&args, &path, &part.header, false);
                }
                Claimed::Run(claim) => Some(claim),
            }
        }
    };
    if let Some((claim, reason)) = claim.as_ref().and_then(|c| Some((c, c.replaces.as_ref()?))) {
        stderr::message(&format!("running again for {}: {reason}", place(claim.path())));
    }
    let tree = plan.header.tree.as_ref().map(|tree| tree.path().to_owned());
    let named = plan.header.roots.iter().map(|root| root.path().to_owned()).collect();
    let files = names.len();
    let mut outcome = run_job(job, &args, Input::shard(names, tree, named), &stop)?;
    let path = claim.as_ref().map(|claim| claim.path().to_owned());
    outcome.shard = Some(document(&plan, entry, path.as_deref()));
    if let Some(claim) = claim.filter(|_| outcome.exit(&stop) != Exit::Interrupted) {
        let records = records(&mut outcome, files)?;
        check_present(&plan, &records)?;
        let body = record::encode(records.iter());
        let found = found(job, &outcome);
        let path = claim.path().to_owned();
        if let Committed::Late(part) =
            claim.commit(found, &body, args.sharding.redo).map_err(failure)?
        {
            say_late(&path, &part.header);
            return not_counted(&args, &path, &part.header, true);
        }
    }
    output::print(&args, job, &outcome)?;
    Ok(outcome.exit(&stop))
}

/// Changes to the directory in which the plan was made, and checks that its arguments exist.
fn enter(plan: &Plan) -> Result<(), Failure> {
    let header = &plan.header;
    let advice = |error: PathError| {
        Failure::failed(format!(
            "{error}; the plan {} was made on '{}' in {}: mount the files at the same place",
            quoted(&plan.path),
            header.host,
            quoted(header.directory.path())
        ))
    };
    let directory = header.directory.path();
    std::env::set_current_dir(directory)
        .map_err(PathError::on(Operation::OpenDir, directory))
        .map_err(advice)?;
    for root in &header.roots {
        ioloom_sys::file::kind_of(root.path())
            .map_err(PathError::on(Operation::Stat, root.path()))
            .map_err(advice)?;
    }
    Ok(())
}

/// Refuses the result of a shard of which no file exists: a host on which the tree is not mounted would
/// complete its shards with errors, which later runs skip.
fn check_present(plan: &Plan, records: &[Record]) -> Result<(), Failure> {
    let is_gone = |record: &Record| matches!(record, Record::Failed { gone: true, .. });
    if records.is_empty() || !records.iter().all(is_gone) {
        return Ok(());
    }
    let header = &plan.header;
    let files = format_counted(records.len() as u64, "file", "files");
    Err(Failure::failed(format!(
        "cannot complete the shard: none of its {files} exists in {}; mount the tree of '{}' here, or \
         plan again if the files were removed",
        quoted(header.directory.path()),
        header.host
    )))
}

fn absolute(path: PathBuf) -> Result<PathBuf, Failure> {
    std::path::absolute(&path)
        .map_err(PathError::on(Operation::Resolve, &path))
        .map_err(Failure::failed)
}

/// Returns what must be equal in all parts of a result.
fn work(args: &EachArgs, job: &Job) -> Work {
    let mut options = std::collections::BTreeMap::new();
    match &args.exec {
        Some(command) => options.insert("exec".to_owned(), command.clone()),
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

/// Reports a result that does not count because another worker wrote the part during the run.
fn say_late(path: &Path, part: &PartHeader) {
    stderr::message(&format!(
        "this run of shard {}/{} does not count: process {} on '{}' wrote {} first",
        part.shard,
        part.shards,
        part.by.pid,
        part.by.host,
        quoted(path)
    ));
}

/// Ends a command whose shard counts by the part of another one: prints the counts of that part and
/// returns the exit code of its run. `late` means that this command ran the shard, too.
fn not_counted(args: &EachArgs, path: &Path, part: &PartHeader, late: bool) -> Ended {
    let found = &part.found;
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
        crate::out::print_json(&document)?;
    }
    Ok(if found.errors > 0 { Exit::Failed } else { Exit::Ok })
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
