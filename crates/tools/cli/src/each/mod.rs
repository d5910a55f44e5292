//! `ioloom each`: runs a hash, checksum or command on every file.
//!
//! Hashes and sums stream: files are read in chunks, so their size does not matter. Mapped plans
//! run in a child process, because truncating a mapped file kills the process that reads it; the
//! parent reports that as one error.

mod args;
mod check;
mod commands;
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
use ioloom::engine::{self, RunOptions};
use ioloom::{Cancel, TraceFile, TraceWanted};
use ioloom_model::Method;
use job::Job;
use outcome::Outcome;
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
    if job.plan.method.is_mmap() && !args.mapped_here {
        return isolate::run(args);
    }
    let stop = stop_flag_of(args, &job)?;
    let wanted = args.clone();
    let input = match interrupt::unless_raised(&stop, move || input::read(&wanted)) {
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
    if job.plan.method.is_mmap() {
        ioloom_sys::map::on_bus_error().map_err(Failure::failed)?;
    }
    let wanted = args.trace_wanted()?;
    let trace_file = wanted.as_ref().map(|w| TraceFile::create(&w.path)).transpose();
    let trace_file = trace_file.map_err(Failure::failed)?;
    let bar = progress::Bar::new(args, input.files.as_ref().map(|f| f.len() as u64));
    let give_up = || stop.store(true, Ordering::Relaxed);
    let sink = args.per_file.then(|| {
        let awaited = input.stream.is_some();
        sink::Sink::new(sink::Manner::of(args.ordered, awaited), &bar, &give_up)
    });
    let on_progress = |files, bytes, _| {
        sink.as_ref().inspect(|sink| sink.tick());
        bar.update(files, bytes);
    };
    let options = RunOptions {
        cancel: Cancel::from_flag(stop.clone()),
        progress: Some(&on_progress),
        // Without reads, nothing shows that files wait for a thread.
        on_demand: !args.is_pinned() && job.plan.method != Method::Null,
        mmap: true,
        tracing: wanted.as_ref().map(TraceWanted::tracing),
        ..RunOptions::default()
    };
    let lines = sink.as_ref().map_or(Lines::None, |sink| Lines::Print(sink, shape(args)));
    let work = work::EachWork::new(job, lines, input.files.is_some(), !args.quiet)
        .excludable(input.walked);
    if input.files.is_none() && input.stream.is_none() {
        return Err(Failure::usage(
            "missing operand: name files, or - for a list on standard input",
        ));
    }
    let executed = ioloom::keeping_trace(trace_file, |failed| {
        let options = RunOptions { trace_of_failure: Some(failed), ..options };
        match (&input.files, input.stream) {
            (Some(list), _) => engine::run(list, None, job.plan, &options, &work),
            (None, stream) => {
                let stream = stream.into_iter().flatten();
                engine::run_stream(stream, job.plan, &options, &work)
            }
        }
    });
    bar.finish();
    sink.as_ref().map_or(Ok(()), sink::Sink::finish)?;
    let cores = ioloom::usable_cores();
    match executed {
        Ok(mut executed) => {
            let measured = executed.measured(cores, cores);
            let (mut outcome, counts) =
                work.outcome(executed.locals, measured, (input.files.as_ref(), &input.roots));
            outcome.cancelled = executed.cancelled;
            outcome.add_failed_commands(counts.commands);
            outcome.skipped = input.skipped;
            outcome.add_walk_errors(input.errors);
            outcome.add_first(input.cut.get());
            Ok(outcome)
        }
        Err(ioloom::Error::Refused(reason)) => Err(Failure::refused(reason)),
        Err(error) => Err(Failure::failed(error)),
    }
}
