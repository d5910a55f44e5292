//! `each s3://BUCKET/PREFIX` and the other schemes of stores: the same work on the objects of a store.

use super::args::EachArgs;
use super::exec::Exec;
use super::input::Roots;
use super::job::Job;
use super::outcome::{Outcome, Remote};
use super::run::{shape, stop_flag_of};
use super::work::{EachWork, Lines, Local, State};
use super::{output, progress, sink};
use crate::exit::{Ended, Failure};
use crate::remote;
use clap::{Args, FromArgMatches};
use ioloom_failure::quoted;
use ioloom_model::Schedule;
use ioloom_objects::{Kind, ObjectError, Options, Piece, Run, Store, Work, WorkError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the work that the flags select on the objects of a URL.
pub(super) fn run(args: &EachArgs, url: &str) -> Ended {
    check(args)?;
    let job = Job::read(args)?;
    if job.exec.as_ref().is_some_and(|exec| exec.takes_path) {
        return Err(Failure::usage(
            "an object has no path that a command could read: leave {} out of --exec to get the \
             contents on standard input",
        ));
    }
    let store = remote::open(url)?;
    let stop = stop_flag_of(args, &job)?;
    let outcome = run_job(&job, args, &store, &stop)?;
    crate::out::then(output::print(args, &job, &outcome), Ok(outcome.exit()))
}

/// Refuses flags that have no effect on objects.
fn check(args: &EachArgs) -> Result<(), Failure> {
    if args.paths.len() > 1 {
        return Err(Failure::usage("a URL cannot be combined with other paths or URLs"));
    }
    let plain = defaults()?;
    let given = [
        (args.method.is_some(), "--method"),
        (args.plan.is_some(), "--plan"),
        (args.chunk.is_some(), "--chunk"),
        (args.buffers != plain.buffers, "--buffers"),
        (args.read_order != plain.read_order, "--read-order"),
        (args.check.is_some(), "--check"),
        (args.trace.is_some(), "--trace"),
        (args.explain, "--explain"),
        (args.null, "-0"),
        (args.sharding.shard.is_some(), "--shard"),
        (args.selection.is_given(), "-L, -x, --exclude, --ignore or --skip-hidden"),
    ];
    if let Some((_, flag)) = given.into_iter().find(|(given, _)| *given) {
        return Err(Failure::usage(format!("{flag} cannot be used with objects")));
    }
    if !matches!(args.schedule, None | Some(Schedule::Window { .. })) {
        return Err(Failure::usage("objects need a schedule of the form window:l=L,p=P"));
    }
    // The flags that have an effect. Whatever else differs from the default is refused.
    let plain = EachArgs {
        paths: args.paths.clone(),
        compute: args.compute.clone(),
        exec: args.exec.clone(),
        jobs: args.jobs,
        threads: args.threads,
        schedule: args.schedule,
        polite: args.polite,
        memory: args.memory,
        per_file: args.per_file,
        ordered: args.ordered,
        tag: args.tag,
        zero: args.zero,
        json: args.json,
        quiet: args.quiet,
        progress_lines: args.progress_lines,
        ..plain
    };
    if format!("{plain:?}") == format!("{args:?}") {
        return Ok(());
    }
    Err(Failure::usage("a flag that concerns only files cannot be used with objects"))
}

/// Returns the arguments of a call without flags.
fn defaults() -> Result<EachArgs, Failure> {
    let matches = EachArgs::augment_args(clap::Command::new("each")).try_get_matches_from(["each"]);
    matches.and_then(|found| EachArgs::from_arg_matches(&found)).map_err(Failure::usage)
}

/// Returns the limits of the run, and how threads share the work, in words.
fn options(args: &EachArgs, stop: &Arc<AtomicBool>) -> (Options<'static>, String) {
    let cores = ioloom::usable_cores();
    let (window, permits) = match args.schedule {
        Some(Schedule::Window { window, permits }) => (Some(window), permits),
        _ => (None, None),
    };
    let threads = permits.or(args.threads).or(args.jobs).unwrap_or(cores);
    let options = Options {
        memory: args.memory_bytes(),
        threads,
        window,
        polite: args.polite,
        stop: stop.clone(),
        ..Options::default()
    };
    let window = window.map_or_else(|| "auto".to_owned(), |window| window.to_string());
    (options, format!("window:l={window},p={threads}"))
}

fn run_job(
    job: &Job,
    args: &EachArgs,
    store: &Store,
    stop: &Arc<AtomicBool>,
) -> Result<Outcome, Failure> {
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let bar = progress::Bar::new(args);
    let give_up = || stop.store(true, Ordering::Relaxed);
    let manner = sink::Manner::of(args.ordered, false);
    let sink = args.per_file.then(|| sink::Sink::new(manner, &bar, &give_up));
    let lines = match &sink {
        Some(sink) => Lines::Print(sink, shape(args)),
        None if args.exec.is_some() => Lines::Errors(&bar),
        None => Lines::None,
    };
    let work = EachWork::new(job, lines, !args.quiet);
    let (options, schedule) = options(args, stop);
    let report = |now: &ioloom_objects::Progress| {
        sink.as_ref().inspect(|sink| sink.tick());
        bar.count(now);
    };
    let options = Options { progress: &report, ..options };
    // Each object that was begun has a running command.
    let begun_max = if job.exec.is_some() { options.threads as usize } else { usize::MAX };
    let on_objects = OnObjects { work: &work, begun_max };
    let run = ioloom_objects::run(store, &options, &on_objects);
    bar.finish();
    for lost in job.exec.iter().flat_map(Exec::lost) {
        crate::stderr::message(&lost);
    }
    let is_whole = sink.as_ref().map_or(Ok(true), sink::Sink::finish)?;
    let Run { locals, cancelled, requests, measured, .. } =
        run.map_err(|error| remote::failure(&error))?;
    let mut all = Local::default();
    locals.into_iter().for_each(|local| all.append(local));
    let root = store.location().url();
    let roots = Roots::new(Some(PathBuf::from(root.trim_end_matches('/'))));
    let (mut outcome, counts) = work.outcome_of(all, (measured, cancelled), &roots);
    outcome.cancelled |= !is_whole;
    outcome.add_failed_commands(counts.commands);
    outcome.remote = Some(Remote {
        schedule,
        sent: requests.sent,
        refused: requests.refused,
        repeated: requests.repeated,
    });
    Ok(outcome)
}

/// The work on files, applied to objects.
struct OnObjects<'w, 'a> {
    work: &'w EachWork<'a>,
    begun_max: usize,
}

impl Work for OnObjects<'_, '_> {
    type State = State;
    type Local = Local;

    fn local(&self) -> Local {
        Local::default()
    }

    fn begun_max(&self) -> usize {
        self.begun_max
    }

    fn begin(&self, _: usize, url: &str) -> State {
        self.work.begin(Path::new(url))
    }

    fn piece(&self, state: &mut State, piece: Piece<'_>) -> Result<(), WorkError> {
        self.work.bytes(state, piece.index, piece.bytes, (piece.offset, piece.is_last))
    }

    fn finish(
        &self,
        local: &mut Local,
        state: State,
        _: usize,
        url: &str,
    ) -> Result<(), WorkError> {
        let mut done = self.work.finish(state, Path::new(url))?;
        self.work.done(local, &mut done);
        Ok(())
    }

    fn function_failed(&self, local: &mut Local, index: usize, url: &str, error: WorkError) {
        if self.work.is_interrupted(local) {
            return;
        }
        local.counts.commands += 1;
        let path = Path::new(url);
        let message = format!("cannot process {}: {error}", quoted(path));
        self.work.fail(local, (Some(index), path), message, false);
    }

    fn failed(&self, local: &mut Local, index: Option<usize>, error: &ObjectError) {
        let missing = error.kind == Kind::Missing;
        let message = match error.kind {
            Kind::Memory => format!("{error} (--memory)"),
            _ => error.to_string(),
        };
        self.work.fail(local, (index, Path::new(&error.url)), message, missing);
    }
}
