//! `each --queue`: takes shards from a queue until none is left.
//!
//! The part of a shard is written as with `--shard`, so of two results the first one counts. Then what it
//! found is committed to the queue, which then counts the shard as done. A worker that ends between
//! the two leaves a part that the next one finds.

use super::args::EachArgs;
use super::job::Job;
use super::output;
use super::run::stop_flag_of;
use super::shard::{self, Ran};
use crate::exit::{Ended, Exit, Failure};
use crate::queueing::{address, failure as queue_failure};
use crate::sharding::{failure, runner};
use crate::{out, stderr};
use ioloom_model::units::{format_count, format_counted, format_size};
use ioloom_queue::{Committed, Counts, Next, Queue, QueueError, Worker, WorkerReport};
use ioloom_shard::part::PartHeader;
use ioloom_shard::plan::Plan;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A worker ends after so many shards in a row that could not be run: the cause is probably its host, and
/// each failure is one of the few tries of a shard.
const UNRUN_MAX: usize = 5;

/// How a worker ended.
enum End {
    /// All shards are done or parked.
    Finished(Counts),
    /// The user stopped it.
    Stopped,
}

/// Runs shards of the queue that the flags name.
pub(super) fn run(args: &EachArgs, job: &Job) -> Ended {
    let mut args = shard::absolute_paths(args)?;
    let (Some(url), Some(plan)) = (args.sharding.queue.clone(), args.sharding.manifest.clone())
    else {
        return Err(Failure::usage("--queue needs --manifest and --part"));
    };
    let plan = Plan::read(&shard::absolute(plan)?).map_err(failure)?;
    // Before the directory changes: credentials are files.
    let queue = Queue::connect(&address(&url)?).map_err(queue_failure)?;
    shard::enter(&plan)?;
    let stop = stop_flag_of(&args, job)?;
    let by = runner(args.sharding.worker.clone());
    let report = WorkerReport {
        host: by.host,
        pid: by.pid,
        worker: by.worker,
        started_ns: by.started_ns,
        ..WorkerReport::default()
    };
    let work = shard::work(&args, job).words();
    let joined = queue.join(&plan.checksum, &work, report, stop.clone());
    let mut worker = joined.map_err(|e| interrupted(&stop, e))?;
    // Results of shards are not printed; a worker says at the end what it did.
    let quiet = std::mem::replace(&mut args.quiet, true);
    let ended = take_all(&args, job, &plan, &mut worker, &stop);
    args.quiet = quiet;
    let report = worker.report();
    worker.end();
    let ended = ended?;
    print(&args, &report, &ended)?;
    Ok(match ended {
        End::Stopped => Exit::Interrupted,
        End::Finished(counts) if counts.parked > 0 || report.errors > 0 => Exit::Failed,
        End::Finished(_) => Exit::Ok,
    })
}

/// Returns the failure of an operation on the queue, which is 130 if the user did not let it wait.
fn interrupted(stop: &AtomicBool, error: QueueError) -> Failure {
    let waits = matches!(error, QueueError::Server { .. }) && stop.load(Ordering::Relaxed);
    match waits {
        true => Failure::new(Exit::Interrupted, error.to_string()),
        false => queue_failure(error),
    }
}

fn take_all(
    args: &EachArgs,
    job: &Job,
    plan: &Plan,
    worker: &mut Worker,
    stop: &Arc<AtomicBool>,
) -> Result<End, Failure> {
    let mut unrun = BTreeSet::new();
    loop {
        let number = match worker.next().map_err(queue_failure)? {
            Next::Shard(number) => number,
            Next::Finished(counts) => return Ok(End::Finished(counts)),
            Next::Stopped => return Ok(give_back(worker)),
        };
        let entry = plan.entry(number, plan.header.shards).map_err(failure)?;
        let names = plan.names(&entry).map_err(failure);
        match names.and_then(|names| shard::one(args, job, plan, (&entry, names), stop)) {
            Ok(Ran::Interrupted(_)) => return Ok(give_back(worker)),
            Ok(Ran::Part { part, outcome, .. }) => {
                unrun.clear();
                if let Some(outcome) = &outcome {
                    output::print_errors(outcome);
                }
                commit(worker, &part).map_err(|e| interrupted(stop, e))?;
            }
            Err(error) => {
                unrun.insert(number);
                if unrun.len() >= UNRUN_MAX {
                    give_back(worker);
                    return Err(Failure::failed(format!(
                        "stopped after {UNRUN_MAX} shards in a row that could not be run here, the \
                         last of which was given back: {}",
                        error.message
                    )));
                }
                let parked = worker.fail(&error.message).map_err(|e| interrupted(stop, e))?;
                let then = if parked { "parked" } else { "to be tried again" };
                stderr::message(&format!("shard {number} is {then}: {}", error.message));
            }
        }
    }
}

/// Gives back what the worker holds. It is handed out again in any case, and the user does not want to wait.
fn give_back(worker: &mut Worker) -> End {
    if let Err(error) = worker.give_back() {
        stderr::message(&format!("{error}; its shard is handed out when the lease has run out"));
    }
    End::Stopped
}

fn commit(worker: &mut Worker, part: &PartHeader) -> Result<(), QueueError> {
    let found = &part.found;
    let document = json!({ "by": part.by, "found": found, "manifest": part.manifest });
    if worker.commit(&document, found.errors)? == Committed::Counted {
        worker.note(|report| {
            report.files += found.files;
            report.bytes += found.bytes;
            report.errors += found.errors;
            report.busy_ns += found.elapsed_ns;
            report.limited_by.clone_from(&found.limited_by);
        });
    }
    Ok(())
}

/// Prints what this worker did.
fn print(args: &EachArgs, report: &WorkerReport, ended: &End) -> Result<(), Failure> {
    let counts = match ended {
        End::Finished(counts) => Some(*counts),
        End::Stopped => None,
    };
    if args.json {
        return out::print_json(&json!({
            "schema": output::SCHEMA,
            "command": "each",
            "files": report.files,
            "bytes": report.bytes,
            "errors": report.errors,
            "queue": {
                "shards": report.shards,
                "late": report.late,
                "failed": report.failed,
                "finished": counts.is_some(),
                "done": counts.map(|counts| counts.done),
                "parked": counts.map(|counts| counts.parked),
            },
        }));
    }
    if args.quiet {
        return Ok(());
    }
    let mut text = format!(
        "{} with {}, {}",
        format_counted(report.shards, "shard", "shards"),
        format_counted(report.files, "file", "files"),
        format_size(report.bytes),
    );
    for (count, what) in
        [(report.late, "finished by others before"), (report.failed, "that could not be run")]
    {
        if count > 0 {
            text += &format!("; {} {what}", format_counted(count, "shard", "shards"));
        }
    }
    if report.errors > 0 {
        text += &format!("; {}", format_counted(report.errors, "file failed", "files failed"));
    }
    text += &match counts {
        None => "\nstopped before the queue was finished\n".to_owned(),
        Some(counts) if counts.parked > 0 => format!(
            "\nthe queue is finished, and {} parked: 'ioloom shard status --queue' names them\n",
            match counts.parked {
                1 => "1 shard is".to_owned(),
                many => format!("{} shards are", format_count(many)),
            }
        ),
        Some(_) => "\nthe queue is finished\n".to_owned(),
    };
    out::print(&text)
}
