//! `ioloom each`: runs work over files, and is a fast parallel checksum tool on the way.
//!
//! Work that is a hash or a sum streams: files are read in chunks, so their size does not matter.
//! Mapped plans run in a child process, because a file that is cut while it is mapped ends the
//! process that reads it; the parent turns that end into one error.

mod args;
mod check;
mod digest;
mod exec;
mod input;
mod isolate;
mod output;
mod work;

pub(crate) use args::EachArgs;

use crate::exit::{Ended, Exit, Failure};
use crate::tell;
use ioloom::engine::{self, Options};
use ioloom::{Cancel, Plan, TraceFile, TraceWanted};
use ioloom_model::{Compute, Measured, Method, table};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Bytes of one chunk when files are streamed.
const CHUNK_BYTES: u64 = 256 << 10;

pub(crate) fn run(args: &EachArgs) -> Ended {
    if args.explain {
        return output::explain(args);
    }
    if let Some(list) = &args.check {
        return check::run(args, list);
    }
    let mut job = Job::read(args)?;
    if job.plan.method.is_mmap() && !args.mapped_here {
        return isolate::run(args);
    }
    let input = input::read(args)?;
    if let Some(list) = input.files.as_ref().filter(|list| !list.is_empty()) {
        job.plan = args.settled(job.plan, list.path(0));
    }
    for line in input.warnings.iter().filter(|_| !args.quiet) {
        tell(&output::one_line(line));
    }
    let stop = if args.mapped_here { drain_flag() } else { stop_flag() };
    let result = job.run(args, input, &stop)?;
    output::print(args, &job, &result)?;
    Ok(result.exit(&stop))
}

/// What is to be done, checked.
pub(crate) struct Job {
    pub(crate) plan: Plan,
    pub(crate) compute: Compute,
    pub(crate) exec: Option<exec::Exec>,
}

impl Job {
    fn read(args: &EachArgs) -> Result<Self, Failure> {
        let exec =
            args.exec.as_deref().map(|text| exec::Exec::read(text, args.json)).transpose()?;
        let compute: Compute = args.compute.parse().map_err(Failure::usage)?;
        let hashes = matches!(compute, Compute::Xxh3 | Compute::Blake3 | Compute::Md5);
        if args.per_file && !hashes {
            return Err(Failure::usage(format!(
                "--per-file prints hashes and {compute} gives none: use --compute xxh3, blake3 or \
                 md5"
            )));
        }
        let mut plan = args.plan()?;
        if args.per_file && plan.method == Method::Null {
            return Err(Failure::usage("--per-file needs the bytes and null reads none"));
        }
        if let Some(exec) = &exec {
            if exec.takes_path && args.method_given() && plan.method != Method::Null {
                return Err(Failure::usage(
                    "a command with {} reads the file itself: give --method null or none, or leave \
                     {} out to have the bytes on its standard input",
                ));
            }
            if exec.takes_path {
                plan.method = Method::Null;
            }
        }
        let streams = exec.is_none() && !matches!(compute, Compute::Touch);
        let may_chunk = plan.schedule.name() != "roles"
            && !plan.method.is_mmap()
            && plan.method != Method::Null;
        if streams && may_chunk && plan.chunk_bytes.is_none() {
            plan.chunk_bytes = Some(CHUNK_BYTES.min(plan.memory_bytes / 64).max(4096));
        }
        table::check(&plan).map_err(Failure::refused)?;
        Ok(Self { plan, compute, exec })
    }

    /// What is done with the bytes, in a word.
    pub(crate) fn work_name(&self) -> String {
        if self.exec.is_some() { "exec".to_owned() } else { self.compute.to_string() }
    }

    fn run(
        &self,
        args: &EachArgs,
        input: input::Input,
        stop: &Arc<AtomicBool>,
    ) -> Result<Outcome, Failure> {
        let _ = ioloom_sys::proc::raise_open_files_limit();
        if self.plan.method.is_mmap() {
            ioloom_sys::map::on_bus_error().map_err(Failure::failed)?;
        }
        let wanted = args.trace_wanted()?;
        let trace_file = wanted.as_ref().map(|w| TraceFile::create(&w.path)).transpose();
        let trace_file = trace_file.map_err(Failure::failed)?;
        let bar = output::Bar::new(args, input.files.as_ref().map(|f| f.len() as u64));
        let tell = |files, bytes, _| bar.tell(files, bytes);
        let options = Options {
            cancel: Cancel::from_flag(stop.clone()),
            progress: Some(&tell),
            mmap: true,
            tracing: wanted.as_ref().map(TraceWanted::tracing),
            ..Options::default()
        };
        let work = work::EachWork::new(self, work::Lines::of(args), input.files.is_some());
        if input.files.is_none() && input.stream.is_none() {
            return Err(Failure::usage("give a path, or - for a list on stdin"));
        }
        let executed = ioloom::keeping_trace(trace_file, |failed| {
            let options = Options { trace_of_failure: Some(failed), ..options };
            match (&input.files, input.stream) {
                (Some(list), _) => engine::run(list, None, self.plan, &options, &work),
                (None, stream) => {
                    let stream = stream.into_iter().flatten();
                    engine::run_stream(stream, self.plan, &options, &work)
                }
            }
        });
        bar.finish();
        let cores = ioloom::usable_cores();
        match executed {
            Ok(mut executed) => {
                let measured = executed.measured(cores, cores);
                let mut outcome =
                    work.outcome(executed.locals, measured, (input.files.as_ref(), &input.roots))?;
                outcome.cancelled = executed.cancelled;
                outcome.add_walk_errors(input.errors);
                outcome.add_first(input.cut.get());
                Ok(outcome)
            }
            Err(ioloom::Error::Refused(reason)) => Err(Failure::refused(reason)),
            Err(error) => Err(Failure::failed(error)),
        }
    }
}

/// What a run over files gave.
pub(crate) struct Outcome {
    pub(crate) measured: Measured,
    /// XXH3-64 over the sorted lines `HASH  PATH`; `None` when the work gives no hash.
    pub(crate) digest: Option<String>,
    pub(crate) errors: Vec<String>,
    pub(crate) cancelled: bool,
}

impl Outcome {
    /// Counts what could not be walked with what could not be read.
    fn add_walk_errors(&mut self, errors: Vec<String>) {
        self.measured.errors += errors.len() as u64;
        self.errors.extend(errors);
    }

    /// Counts why the list of paths ended too early, before all that happened to single files.
    fn add_first(&mut self, error: Option<&String>) {
        self.measured.errors += u64::from(error.is_some());
        self.errors.splice(..0, error.cloned());
    }

    fn exit(&self, stop: &AtomicBool) -> Exit {
        if self.cancelled || stop.load(std::sync::atomic::Ordering::Relaxed) {
            Exit::Interrupted
        } else if self.measured.errors > 0 {
            Exit::Failed
        } else {
            Exit::Ok
        }
    }
}

/// Raised by any interrupt, however often: for a child whose parent passes interrupts on, that may
/// have come to both.
fn drain_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    stop
}

/// Raised by the first interrupt; the second ends the program at once.
pub(crate) fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let _ = signal_hook::flag::register_conditional_shutdown(
            signal,
            Exit::Interrupted as i32,
            stop.clone(),
        );
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    stop
}
