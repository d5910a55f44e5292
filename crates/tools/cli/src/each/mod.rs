//! `ioloom each`: runs a hash, checksum or command on every file.
//!
//! Hashes and sums stream: files are read in chunks, so their size does not matter. Mapped plans
//! run in a child process, because truncating a mapped file kills the process that reads it; the
//! parent reports that as one error.

mod args;
mod check;
mod commands;
mod course;
mod digest;
mod exec;
mod input;
mod isolate;
mod job;
mod line;
mod outcome;
mod output;
mod progress;
mod selection;
mod sink;
mod work;

pub(crate) use args::EachArgs;

use crate::exit::{Ended, Exit, Failure};
use crate::{interrupt, stderr};
use ioloom::{Cancel, Files};
use ioloom_model::Method;
use job::Job;
use outcome::Outcome;
use selection::SkippedCounts;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use work::{Lines, Shape};

pub(crate) fn run(args: &EachArgs) -> Ended {
    if args.explain {
        return output::explain(args);
    }
    if let Some(list) = &args.check {
        return check::run(args, list);
    }
    let job = Job::read(args)?;
    if job.plan.method.is_mmap() && !args.mapped_here && cfg!(feature = "lab") {
        return isolate::run(args);
    }
    let stop = stop_flag_of(args, &job)?;
    let (wanted, plan) = (args.clone(), job.plan);
    let input = match interrupt::unless_raised(&stop, move || input::read(&wanted, &plan)) {
        Some(input) => input?,
        None => interrupted_early(args, &job, &stop),
    };
    for line in input.warnings.iter().filter(|_| !args.quiet) {
        stderr::message(&output::one_line(line));
    }
    let result = run_job(&job, args, input, &stop)?;
    output::print(args, &job, &result)?;
    Ok(result.exit(&stop))
}

/// Installs the handlers of interrupts and returns the flag that they raise.
fn stop_flag_of(args: &EachArgs, job: &Job) -> Result<Arc<AtomicBool>, Failure> {
    match &job.exec {
        Some(exec) => exec.commands.forward_interrupts(args.mapped_here),
        None if args.mapped_here => Ok(interrupt::drain_flag()),
        None => Ok(interrupt::stop_flag()),
    }
}

/// Prints the result of a run that was interrupted while its files were listed, and exits: the
/// thread that lists them may be blocked in the kernel.
fn interrupted_early(args: &EachArgs, job: &Job, stop: &Arc<AtomicBool>) -> ! {
    let printed = run_job(job, args, input::Input::none(), stop).and_then(|mut outcome| {
        outcome.cancelled = true;
        output::print(args, job, &outcome)
    });
    if let Err(failure) = printed {
        stderr::message(&failure.message);
    }
    std::process::exit(Exit::Interrupted as i32)
}

/// Returns the shape of the lines that the flags select.
fn shape(args: &EachArgs) -> Shape {
    match args.json {
        true => Shape::Json,
        false => Shape::Text(line::Form { tag: args.tag, zero: args.zero }),
    }
}

/// Runs the job over the input.
fn run_job(
    job: &Job,
    args: &EachArgs,
    input: input::Input,
    stop: &Arc<AtomicBool>,
) -> Result<Outcome, Failure> {
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let bar = progress::Bar::new(args);
    let give_up = || stop.store(true, Ordering::Relaxed);
    let manner = sink::Manner::of(args.ordered, input.awaited);
    let sink = args.per_file.then(|| sink::Sink::new(manner, &bar, &give_up));
    let lines = sink.as_ref().map_or(Lines::None, |sink| Lines::Print(sink, shape(args)));
    let work = work::EachWork::new(job, lines, !args.quiet).walked(input.named.as_ref());
    let mut files = input.files;
    let work = work.knowing(&mut files);
    let files = files
        .pin(job.plan)
        // Without reads, nothing shows that files wait for a thread.
        .start_on_demand(!args.is_pinned() && job.plan.method != Method::Null)
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
    sink.as_ref().map_or(Ok(()), sink::Sink::finish)?;
    let run = run.map_err(work::failure)?;
    let walked = run.walked.as_ref().map(SkippedCounts::of);
    let (mut outcome, counts) = work.outcome(run, &input.roots);
    outcome.add_failed_commands(counts.commands);
    outcome.skipped = input.skipped;
    if let (Some(all), Some(walked)) = (&mut outcome.skipped, walked) {
        all.add(walked);
        outcome.warnings.extend(walked.sentence(input.roots.one()));
    }
    outcome.add_first(input.cut.get());
    Ok(outcome)
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
