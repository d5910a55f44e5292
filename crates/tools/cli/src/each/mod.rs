//! `ioloom each`: runs a hash, checksum or command on every file.
//!
//! Hashes and sums stream: files are read in chunks, so their size does not matter. Mapped plans
//! run in a child process, because truncating a mapped file kills the process that reads it; the
//! parent reports that as one error.

mod args;
mod check;
mod commands;
mod course;
pub(crate) mod digest;
mod early;
mod exec;
pub(crate) mod input;
mod isolate;
mod job;
pub(crate) mod line;
#[cfg(feature = "objects")]
mod objects;
mod outcome;
pub(crate) mod output;
mod progress;
#[cfg(feature = "queue")]
mod queue;
mod run;
pub(crate) mod selection;
mod shard;
mod shard_args;
mod sink;
mod spool;
pub(crate) mod work;

pub(crate) use args::EachArgs;
pub(crate) use shard_args::{Number, number};

use crate::exit::{Ended, Exit};
use crate::sharding::check_file;
use crate::{atomic_file, evidence, interrupt, out, remote, stderr};
use job::Job;
use run::{run_job, stop_flag_of};
use signal_hook::consts::SIGXFSZ;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) fn run(args: &EachArgs) -> Ended {
    args.check_list_flags()?;
    if !interrupt::ignores(SIGXFSZ) {
        // A write beyond the limit on file sizes then fails. Commands start with the default action.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
    if let Some(url) = args.paths.iter().find_map(|path| remote::url_of(path)) {
        #[cfg(feature = "objects")]
        return objects::run(args, url);
        #[cfg(not(feature = "objects"))]
        return Err(remote::unsupported(url));
    }
    atomic_file::refuse_dash("--trace", args.trace.as_deref())?;
    if args.explain {
        return output::explain(args);
    }
    if args.evidence.is_none() && (args.trace.is_some() || run::is_traced_by_variable()) {
        evidence::check_variable()?;
    }
    if let Some(list) = &args.check {
        check_file(list)?;
        return check::run(args, list);
    }
    let job = Job::read(args)?;
    if job.plan.method.is_mmap() && !args.mapped_here && cfg!(feature = "lab") {
        // In place of a closed standard input, the child would read /dev/null.
        input::check_stdin(args)?;
        return isolate::run(args);
    }
    if args.sharding.queue.is_some() {
        #[cfg(feature = "queue")]
        return queue::run(args, &job);
        #[cfg(not(feature = "queue"))]
        return Err(crate::sharding::no_queues());
    }
    if args.sharding.shard.is_some() {
        return shard::run(args, &job);
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
    out::then(output::print(args, &job, &result), Ok(result.exit()))
}

/// Prints the result of a run that was interrupted while its files were listed, and exits: the
/// thread that lists them may be blocked in the kernel.
fn interrupted_early(args: &EachArgs, job: &Job, stop: &Arc<AtomicBool>) -> ! {
    let printed = run_job(job, args, input::Input::none(), stop).and_then(|mut outcome| {
        outcome.cancelled = true;
        output::print(args, job, &outcome)
    });
    if let Some(failure) = printed.err().filter(|failure| !failure.message.is_empty()) {
        stderr::message(&failure.message);
    }
    std::process::exit(Exit::Interrupted as i32)
}
