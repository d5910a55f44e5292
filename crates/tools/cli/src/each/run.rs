//! Runs a job over its input.

use super::args::EachArgs;
use super::exec::Exec;
use super::input::Input;
use super::job::Job;
use super::outcome::Outcome;
use super::selection::SkippedCounts;
use super::work::{EachWork, Lines, Shape, failure};
use super::{isolate, line, progress, sink};
use crate::exit::Failure;
use crate::{interrupt, stderr};
use ioloom::{Cancel, Files, FnError};
use ioloom_model::Method;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Installs the handlers of interrupts and returns the flag that they raise.
pub(super) fn stop_flag_of(args: &EachArgs, job: &Job) -> Result<Arc<AtomicBool>, Failure> {
    match &job.exec {
        Some(exec) => exec.commands.forward_interrupts(),
        None if args.mapped_here => Ok(interrupt::drain_flag()),
        None => Ok(interrupt::stop_flag()),
    }
}

/// Returns the shape of the lines that the flags select.
pub(super) fn shape(args: &EachArgs) -> Shape {
    match args.json {
        true => Shape::Json,
        false => Shape::Text(line::Form { tag: args.tag, zero: args.zero }),
    }
}

/// Runs the job over the input.
pub(super) fn run_job(
    job: &Job,
    args: &EachArgs,
    input: Input,
    stop: &Arc<AtomicBool>,
) -> Result<Outcome, Failure> {
    let bar = progress::Bar::new(args);
    let give_up = || stop.store(true, Ordering::Relaxed);
    let mut manner = sink::Manner::of(args.ordered, input.awaited);
    manner.without_reader = without_reader(args);
    let sink = args.per_file.then(|| sink::Sink::new(manner, &bar, &give_up));
    let lines = match &sink {
        Some(sink) => Lines::Print(sink, shape(args)),
        // What a command did is known when it ends, which can be long before the run does.
        None if args.exec.is_some() => Lines::Errors(&bar),
        None => Lines::None,
    };
    let work = EachWork::new(job, lines, !args.quiet || args.sharding.part.is_some())
        .recorded(args.sharding.part.is_some())
        .walked(input.named.as_ref());
    let mut files = input.files;
    let work = work.knowing(&mut files);
    let files = match &sink {
        Some(sink) => sink.holding_back(files, &job.plan),
        None => files,
    };
    let files = files
        .pin(job.plan)
        // Without reads, nothing shows that files wait for a thread.
        .start_on_demand(args.may_be_fitted() && job.plan.method != Method::Null)
        .accept_fewer_threads(!args.has_schedule())
        .cancel(&Cancel::from_flag(stop.clone()))
        .partial(true)
        .progress(|progress| {
            sink.as_ref().inspect(|sink| sink.tick());
            bar.update(&progress);
        });
    let files = isolate::allow(traced(files, args), &job.plan)?;
    let early = work.failed_early(input.errors);
    let run = work.run(files, early);
    bar.finish();
    // It is a loss, so --quiet does not hide it, and workers of a queue print it too.
    for lost in job.exec.iter().flat_map(Exec::lost) {
        stderr::message(&lost);
    }
    let is_whole = sink.as_ref().map_or(Ok(true), sink::Sink::finish)?;
    if let Some(exit) = sink.as_ref().and_then(sink::Sink::exit)
        && run.as_ref().err().is_none_or(is_unread)
    {
        std::process::exit(exit as i32);
    }
    let run = run.map_err(failure)?;
    let walked = run.walked.as_ref().map(SkippedCounts::of);
    let (mut outcome, counts) = work.outcome(run, &input.roots);
    outcome.cancelled |= !is_whole;
    outcome.add_failed_commands(counts.commands);
    outcome.skipped = input.skipped;
    if let (Some(all), Some(walked)) = (&mut outcome.skipped, walked) {
        all.add(walked);
        outcome.warnings.extend(walked.sentence(input.roots.one()));
    }
    outcome.add_first(input.cut.get());
    Ok(outcome)
}

/// Reports whether the environment requests a trace.
pub(super) fn is_traced_by_variable() -> bool {
    std::env::var_os(ioloom::TRACE_VARIABLE).is_some_and(|path| !path.is_empty())
}

/// Returns what the run does when the reader of its lines has gone. A part and a trace are written
/// nevertheless.
fn without_reader(args: &EachArgs) -> sink::WithoutReader {
    if args.sharding.part.is_some() {
        sink::WithoutReader::GoesOn
    } else if args.trace.is_some() || is_traced_by_variable() {
        sink::WithoutReader::Stops
    } else {
        sink::WithoutReader::Exits
    }
}

/// Reports whether a run ended because the reader of its trace has gone, which may be that of the lines.
fn is_unread(error: &ioloom::Error<FnError>) -> bool {
    matches!(error, ioloom::Error::Trace { source, .. } if source.kind() == ErrorKind::BrokenPipe)
}

/// Requests the trace that the flags select.
fn traced<'a>(files: Files<'a>, args: &EachArgs) -> Files<'a> {
    let Some(path) = &args.trace else { return files };
    let files = files.trace(path);
    match args.evidence.and_then(crate::evidence::level) {
        Some(level) => files.trace_level(level),
        None => files,
    }
}
