//! A worker that takes shards from a queue until none is left, whatever it does with them.

use crate::exit::{Ended, Exit, Failure};
use crate::queueing::{failure as queue_failure, text};
use crate::sharding::failure;
use crate::{out, stderr};
use ioloom_model::units::{format_count, format_counted, format_size};
use ioloom_queue::{Counts, Next, Queue, QueueError, Worker, WorkerReport};
use ioloom_shard::part::{PartHeader, Runner};
use ioloom_shard::plan::{Entry, Plan};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A worker ends after so many failures in a row, of at least two shards: the cause is probably its host, and each failure is
/// one of the few tries of a shard.
const UNRUN_MAX: usize = 5;

/// How a command joins a queue.
pub(crate) struct Joining {
    /// Its name.
    pub(crate) command: &'static str,
    /// Who runs it.
    pub(crate) by: Runner,
    /// What it does with shards, in words.
    pub(crate) work: String,
    /// Raised by the first interrupt.
    pub(crate) stop: Arc<AtomicBool>,
    /// Print what it did as JSON.
    pub(crate) json: bool,
    /// Print only errors.
    pub(crate) quiet: bool,
}

/// What became of a shard.
pub(crate) enum Step {
    /// It has this part.
    Part(Box<PartHeader>),
    /// The user stopped it; it has no part.
    Interrupted,
}

/// How a worker ended.
enum End {
    /// All shards are done or parked.
    Finished(Counts),
    /// The user stopped it.
    Stopped,
}

/// Takes shards of a plan from its queue, runs them, and prints at the end what it did.
pub(crate) fn run(
    queue: &Queue,
    plan: &Plan,
    joining: Joining,
    run: impl FnMut(&Entry) -> Result<Step, Failure>,
) -> Ended {
    let (by, stop) = (&joining.by, &joining.stop);
    let report = WorkerReport {
        host: by.host.clone(),
        pid: by.pid,
        worker: by.worker.clone(),
        started_ns: by.started_ns,
        ..WorkerReport::default()
    };
    let joined = queue.join(&plan.checksum, &joining.work, report, stop.clone());
    let mut worker = joined.map_err(|e| interrupted(stop, e))?;
    let ended = take_all(plan, &mut worker, stop, run);
    let (report, error) = worker.end();
    let ended = ended?;
    if let Some(error) = error {
        return Err(interrupted(stop, error));
    }
    let exit = match ended {
        End::Stopped => Exit::Interrupted,
        End::Finished(counts) if counts.parked > 0 || report.errors > 0 => Exit::Failed,
        End::Finished(_) => Exit::Ok,
    };
    out::then(print(&joining, &report, &ended), Ok(exit))
}

/// Returns the failure of an operation on the queue, which is 130 if the user did not let it wait.
fn interrupted(stop: &AtomicBool, error: QueueError) -> Failure {
    let waits = matches!(error, QueueError::Server { .. }) && stop.load(Ordering::Relaxed);
    match waits {
        true => Failure::new(Exit::Interrupted, text(&error)),
        false => queue_failure(error),
    }
}

fn take_all(
    plan: &Plan,
    worker: &mut Worker,
    stop: &AtomicBool,
    mut run: impl FnMut(&Entry) -> Result<Step, Failure>,
) -> Result<End, Failure> {
    let mut unrun = Vec::new();
    loop {
        let next = worker.next_shard().map_err(|e| interrupted(stop, e))?;
        let number = match next {
            Next::Shard(number) => number,
            Next::Finished(counts) => return Ok(End::Finished(counts)),
            Next::Stopped => return Ok(give_back(worker)),
        };
        let entry = plan.entry(number, plan.header.shards).map_err(failure)?;
        match run(&entry) {
            Ok(Step::Interrupted) => return Ok(give_back(worker)),
            Ok(Step::Part(part)) => {
                unrun.clear();
                commit(worker, &part).map_err(|e| interrupted(stop, e))?;
            }
            Err(error) => {
                unrun.push(number);
                // If it is one shard only, that is parked with its error.
                let are_several = unrun.iter().any(|other| *other != number);
                if unrun.len() >= UNRUN_MAX && are_several {
                    give_back(worker);
                    return Err(Failure::failed(format!(
                        "stopped after {} failed runs of shards in a row, the last of which was given \
                         back: {}",
                        unrun.len(),
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
        stderr::message(&format!(
            "{}; another worker can take its shard when the lease expires",
            text(&error)
        ));
    }
    End::Stopped
}

/// Commits the result of a shard while the next one runs. Fails if the commit before has failed.
fn commit(worker: &mut Worker, part: &PartHeader) -> Result<(), QueueError> {
    let found = part.found.clone();
    let document = json!({ "by": part.by, "found": found, "manifest": part.manifest });
    let errors = found.errors;
    worker.begin_commit(&document, errors, move |report| {
        report.files += found.files;
        report.bytes += found.bytes;
        report.errors += found.errors;
        report.busy_ns += found.elapsed_ns;
        report.limited_by.clone_from(&found.limited_by);
    })
}

/// Prints what this worker did.
fn print(joining: &Joining, report: &WorkerReport, ended: &End) -> Result<(), Failure> {
    let counts = match ended {
        End::Finished(counts) => Some(*counts),
        End::Stopped => None,
    };
    if joining.json {
        return out::print_json(&json!({
            "schema": 1,
            "command": joining.command,
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
    if joining.quiet {
        return Ok(());
    }
    let mut text = format!(
        "{} with {}, {}",
        format_counted(report.shards, "shard", "shards"),
        format_counted(report.files, "file", "files"),
        format_size(report.bytes),
    );
    if report.late > 0 {
        let late = format_counted(report.late, "shard", "shards");
        text += &format!("; {late} finished by others before");
    }
    // A shard can have several.
    if report.failed > 0 {
        text += &format!("; {}", format_counted(report.failed, "failed try", "failed tries"));
    }
    if report.errors > 0 {
        text += &format!("; {}", format_counted(report.errors, "file failed", "files failed"));
    }
    text += &match counts {
        None => "\nstopped before the queue was finished\n".to_owned(),
        Some(counts) if counts.parked > 0 => format!(
            "\nthe queue is finished, and {} parked: 'ioloom shard status --queue URL' lists them\n",
            match counts.parked {
                1 => "1 shard is".to_owned(),
                many => format!("{} shards are", format_count(many)),
            }
        ),
        Some(_) => "\nthe queue is finished\n".to_owned(),
    };
    out::print(&text)
}
