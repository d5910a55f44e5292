//! `ioloom watch`: observes another program from outside, along with system counters.
//!
//! The child process is paused before exec, so nothing is missed. Its streams are passed through. As
//! with `time`, the result is printed on standard error at the end, and the exit code is that of the
//! command.

mod foreground;
mod live;
mod outputs;
mod table;

use crate::exit::{Exit, Failure};
use crate::{interrupt, out, stderr, trace};
use clap::Args;
use foreground::is_in_foreground;
use ioloom_failure::{Explained, Operation, quoted, reason};
use ioloom_observe::collect::{TraceOptions, Watch};
use ioloom_observe::counters::{self, Sampler};
use ioloom_sys_trace::perf::paused::PausedChild;
use ioloom_trace::Trace;
use outputs::Outputs;
use signal_hook::consts::{SIGHUP, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Interval for checking whether the command has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Exit code used by shells for a command that does not exist.
const NOT_FOUND: u8 = 127;
/// Exit code used by shells for a command that cannot be run.
const NOT_RUN: u8 = 126;
/// Shells add the number of the signal that killed a command to this value.
const SIGNALLED: i32 = 128;

/// Run a command and show where its time goes
///
/// Follows all threads and child processes. Without privileges it samples /proc. With perf events
/// (kernel.perf_event_paranoid <= 2) it records every context switch, and as root or after `ioloom
/// trace grant` also wakeups and device requests. The report lists what could not be observed.
///
/// It also samples system counters: the columns of sar -r, -B and -d -p, dirty pages and their limits,
/// and pressure, for all processes together, and the I/O of the command. On a terminal the last rows
/// show them while the command runs; a table is printed at the end. Used memory (kbmemused) is total
/// minus available, as in sysstat 12.7.8 and later; the value of older versions is shown too.
///
/// The exit code is that of the command, 126 or 127 if it cannot be started, 3 if the evidence level
/// is not available, and 1 if the command succeeds but an output cannot be written.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom watch -- make -j8
  ioloom watch --html build.html -o build.ioloom -- make
  ioloom watch --counters 1000 -- dd if=/dev/zero of=x bs=1M count=1000
  ioloom watch --evidence 0 -- sh -c 'sleep 1; ls'")]
pub(crate) struct WatchArgs {
    /// Evidence level: 0, 1 or 2
    ///
    /// 0 samples /proc, 1 records every context switch, and 2 also records wakeups and device requests.
    /// Default: the highest available level; `ioloom machine --doctor` shows it. Fails if the requested
    /// level is not available.
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=2))]
    evidence: Option<u8>,

    /// Counter samples per second
    ///
    /// 0 disables system counters. At the default rate, the sampler uses at most 0.5 % of one processor;
    /// higher rates use more.
    #[arg(long, value_name = "HZ", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(0..=2000))]
    counters: u32,

    /// Do not show live counters
    ///
    /// Needed for full-screen programs: live counters occupy the last rows of the terminal.
    #[arg(long)]
    no_live: bool,

    /// Write the trace to this file
    ///
    /// Read it with `ioloom trace show` or `ioloom trace export`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write the timeline as an HTML page
    ///
    /// One self-contained file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write one JSON document
    ///
    /// Use - for standard output, where it follows the output of the command.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Width of the output
    ///
    /// Default: the width of the terminal, from 40 to 100 columns.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..=1000))]
    width: Option<u16>,

    /// Command and its arguments
    ///
    /// Its standard streams and exit code are passed through.
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Exits with the exit code of the command.
pub(crate) fn run(args: &WatchArgs) -> ExitCode {
    match watch(args) {
        Ok(Done { status, written: false }) if code(status) == 0 => Exit::Failed.into(),
        Ok(Done { status, .. }) => ExitCode::from(code(status)),
        Err(Stop::Start(code)) => ExitCode::from(code),
        Err(Stop::Failure(failure)) => {
            stderr::message(&failure.message);
            failure.exit.into()
        }
    }
}

/// The end of an observation.
struct Done {
    status: ExitStatus,
    /// Whether all outputs were written. Errors were printed.
    written: bool,
}

/// Reasons why the command has no exit code.
enum Stop {
    Failure(Failure),
    /// The command could not be started; the error was printed.
    Start(u8),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

fn watch(args: &WatchArgs) -> Result<Done, Stop> {
    let outputs =
        Outputs::create(args.output.as_deref(), args.json.as_deref(), args.html.as_deref())?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    let held = PausedChild::start(command).map_err(|e| cannot_start(args, &e))?;
    // The command has the former limit; each of its threads needs descriptors here.
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let level = args.evidence.and_then(crate::evidence::level);
    let watch =
        Watch::start(level, held.pid(), TraceOptions::default()).map_err(Failure::refused)?;
    let sampler = sampler(args.counters, held.pid())?;
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // From now on a signal stops the command, and the observations so far are reported.
    let quit = [SIGQUIT].into_iter().filter(|signal| !interrupt::ignores(*signal));
    let quit = interrupt::stopping_signals().chain(quit);
    let mut signals = Signals::new(quit).map_err(|e| {
        let why = Explained::new(Operation::Open, &e);
        Failure::failed(format!("cannot install signal handlers: {why}"))
    })?;
    let child = held.release().map_err(|e| cannot_start(args, &e))?;
    let wanted = sampler.as_ref().filter(|_| !args.no_live);
    let (status, restore) = live::with_status(wanted, || {
        let status = wait(child, &mut signals, sampler.as_ref());
        end_by(signals);
        status
    });
    let status =
        status.map_err(|e| Failure::failed(format!("cannot wait for the command: {e}")))?;
    let start_ns = watch.started_ns();
    let counters = sampler.map(Sampler::stop);
    let mut trace = ioloom_trace::classify(watch.stop());
    if let Some(counters) = &counters {
        add(counters, start_ns, &mut trace);
    }
    trace.title = title(&args.command);
    trace.started_unix_ms = started.as_millis() as u64;
    let width = args.width.map_or_else(out::columns_of_stderr, usize::from);
    let text = trace::text(&trace, width);
    let machine = counters.map_or_else(String::new, |counters| table::text(&counters, width));
    let report = format!("{restore}\n{text}{machine}\n{}", ended(status));
    Ok(Done { status, written: outputs.write(&trace, || stderr::line(&report)) })
}

fn sampler(hz: u32, pid: u32) -> Result<Option<Sampler>, Failure> {
    if hz == 0 {
        return Ok(None);
    }
    let period = Duration::from_secs(1) / hz;
    let options = counters::SamplerOptions {
        period,
        process: Some(pid),
        ..counters::SamplerOptions::default()
    };
    let failed = |e| Failure::failed(format!("cannot start the sampling thread: {e}"));
    Sampler::start(&options).map(Some).map_err(failed)
}

/// Adds the counters to the trace as curves.
fn add(record: &counters::Record, start_ns: u64, trace: &mut Trace) {
    trace.series.extend(record.series(start_ns));
    record.add_to(&mut trace.evidence);
    let missing = record.missing.iter();
    trace.evidence.notes.extend(missing.map(|what| format!("counters: {what}")));
}

/// Waits for the command and forwards signals. A terminal sends SIGINT and SIGQUIT to both processes. Not
/// distinguished: one that a process sends to this process in the foreground, which is lost, and SIGTERM or SIGHUP
/// to the whole group, as from `timeout`, which the command receives twice.
fn wait(
    mut child: Child,
    signals: &mut Signals,
    sampler: Option<&Sampler>,
) -> io::Result<ExitStatus> {
    loop {
        if ioloom_sys::proc::has_ended(&child)? {
            // The I/O counters of the process disappear with it.
            sampler.inspect(|sampler| sampler.sample());
            return child.wait();
        }
        for signal in signals.pending() {
            if matches!(signal, SIGTERM | SIGHUP) || !is_in_foreground() {
                let _ = ioloom_sys::proc::signal_child(&child, signal);
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Lets a signal after the end of the command end the wait for a stalled reader, and a later one this process.
/// What follows within 200 ms is the same request: `timeout` signals the process and its group.
fn end_by(mut signals: Signals) {
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::share(&stop);
    let noticed = move || {
        let mut first = None;
        for _ in signals.forever() {
            stop.store(true, Ordering::Relaxed);
            if interrupt::is_repeated(&mut first, Instant::now()) {
                signal_hook::low_level::exit(Exit::Interrupted as i32);
            }
        }
    };
    // Without the thread, only SIGKILL ends a wait.
    let _ = std::thread::Builder::new().name("watch-signals".to_owned()).spawn(noticed);
}

fn cannot_start(args: &WatchArgs, error: &io::Error) -> Stop {
    let program = PathBuf::from(&args.command[0]);
    stderr::message(&format!("cannot start {}: {}", quoted(&program), reason(error)));
    let missing = error.kind() == io::ErrorKind::NotFound;
    Stop::Start(if missing { NOT_FOUND } else { NOT_RUN })
}

fn title(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// Returns the exit code that a shell would report.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::Failed as u8)
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("The command exited with code {code}."),
        (None, Some(signal)) => format!("The command was killed by signal {signal}."),
        (None, None) => "The command exited.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_and_dropped_counter_samples_are_not_lost_events() {
        let mut trace = Trace::default();
        let record = counters::Record { late: 1, thinned: 4096, ..counters::Record::default() };
        add(&record, 0, &mut trace);
        assert_eq!(trace.evidence.sources[0].lost, 0);
        let text = trace::text(&trace, 80);
        assert!(!text.to_lowercase().contains("events were lost"), "{text}");
        let note = "counters: 4097 samples were late or dropped, so curves are coarser";
        assert_eq!(trace.evidence.notes, [note]);
    }
}
