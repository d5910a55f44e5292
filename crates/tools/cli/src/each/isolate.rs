//! Runs mapped plans in a child process.
//!
//! The parent draws the progress that the child prints, and prints its result after that if both go to a
//! terminal. It forwards interrupts: a signal from the terminal reaches both processes, a signal sent to
//! the parent only the parent. The first interrupt lets the child finish cleanly, however many copies of it
//! arrive; one at least 200 ms later kills it. If the parent is killed, so is the child.

use super::args::EachArgs;
use super::input;
use super::progress::Bar;
use crate::exit::{Ended, Exit, Failure};
use crate::{interrupt, out, stderr};
use ioloom::{Files, Plan};
use ioloom_failure::{quoted, reason};
use ioloom_sys::map::BUS_EXIT_CODE;
use ioloom_sys::proc::{ending_with_parent, with_first_limit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Allows a plan that maps files, in this process.
#[cfg(feature = "lab")]
pub(super) fn allow<'a>(files: Files<'a>, plan: &Plan) -> Result<Files<'a>, Failure> {
    if !plan.method.is_mmap() {
        return Ok(files);
    }
    ioloom_sys::map::on_bus_error().map_err(Failure::failed)?;
    Ok(files.lab(ioloom::LabOptions { mmap: true, ..ioloom::LabOptions::default() }))
}

/// Refuses a plan that maps files: the library does not offer it to others.
#[cfg(not(feature = "lab"))]
pub(super) fn allow<'a>(files: Files<'a>, plan: &Plan) -> Result<Files<'a>, Failure> {
    if plan.method.is_mmap() {
        return Err(Failure::refused(format!(
            "{plan}: this build cannot map files; rebuild with the cargo feature 'lab'"
        )));
    }
    Ok(files)
}

/// Runs the same command line in a child, and turns its death by SIGBUS into one error.
pub(super) fn run(args: &EachArgs) -> Ended {
    let program = std::env::current_exe()
        .map_err(|e| Failure::failed(format!("cannot find the program file: {}", reason(&e))))?;
    // From here on signals are collected for the child and no longer end this process.
    let signals = Signals::new(interrupt::stopping_signals())
        .map_err(|e| Failure::failed(format!("cannot handle signals: {}", reason(&e))))?;
    let mut command = Command::new(program);
    let draws = Bar::wanted(args);
    command.args(arguments(std::env::args_os().skip(1), draws)).stderr(Stdio::piped());
    if draws && std::io::stdout().is_terminal() {
        // Otherwise, the result gets into the line of the bar. The child cannot query the width of a pipe.
        command.stdout(Stdio::piped()).env("COLUMNS", out::columns().to_string());
    }
    // It raises the limit itself.
    let command = with_first_limit(ending_with_parent(&mut command));
    let mut child = command
        .spawn()
        .map_err(|e| Failure::failed(format!("cannot start a child process: {}", reason(&e))))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let forward = Forward::start(child, signals)
        .map_err(|e| Failure::failed(format!("cannot start a thread: {}", reason(&e))))?;
    let result = stdout.map(Collected::start).transpose();
    let faulted = stderr.and_then(listen);
    let printed = result
        .map_err(|e| Failure::failed(format!("cannot start a thread: {}", reason(&e))))
        .and_then(|result| result.map_or(Ok(()), Collected::print));
    let (status, interrupted) = forward.end().map_err(|e| {
        Failure::failed(format!("cannot wait for the child process: {}", reason(&e)))
    })?;
    out::then(printed, ended(args, faulted, (status, interrupted)))
}

/// Returns how the command ends after its child.
fn ended(
    args: &EachArgs,
    faulted: Option<usize>,
    (status, interrupted): (ExitStatus, bool),
) -> Ended {
    match status.code() {
        Some(0) => Ok(Exit::Ok),
        Some(BUS_EXIT_CODE) => Err(Failure::failed(cut_short(args, faulted))),
        Some(1) => Ok(Exit::Failed),
        Some(2) => Ok(Exit::Usage),
        Some(3) => Ok(Exit::Refused),
        Some(130) => Ok(Exit::Interrupted),
        // The interrupt arrived before the child had installed its handler.
        None if interrupted && matches!(status.signal(), Some(SIGHUP | SIGINT | SIGTERM)) => {
            Ok(Exit::Interrupted)
        }
        _ => {
            stderr::message(&format!("the child process of the mapped plan ended with {status}"));
            Ok(Exit::Failed)
        }
    }
}

/// Returns the arguments of the child: those of this process, with flags for the child right after the
/// name of the command. At the end they could follow `--`, and would be paths.
fn arguments(own: impl Iterator<Item = OsString>, progress: bool) -> Vec<OsString> {
    let mut all: Vec<OsString> = own.collect();
    let command = all.iter().position(|argument| argument == "each");
    let at = command.map_or(all.len(), |at| at + 1);
    let flags = ["--mapped-here"].into_iter().chain(progress.then_some("--progress-lines"));
    all.splice(at..at, flags.map(OsString::from));
    all
}

/// Forwards the messages of the child until it ends. Returns the index of the file whose mapping
/// failed.
fn listen(stderr: ChildStderr) -> Option<usize> {
    let (mut faulted, mut bar) = (None, Bar::None);
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        if let Some(index) = line.strip_prefix(b"ioloom-sigbus ") {
            faulted = String::from_utf8_lossy(index).trim().parse::<usize>().ok();
        } else if !bar.show_line(&line) {
            bar.hide_during(|| stderr::bytes(&[&line[..], b"\n"].concat()));
        }
    }
    bar.finish();
    faulted
}

/// A thread that reads the result of the child, which is short.
struct Collected(JoinHandle<std::io::Result<Vec<u8>>>);

impl Collected {
    fn start(mut stdout: ChildStdout) -> std::io::Result<Self> {
        let read = move || {
            let mut text = Vec::new();
            stdout.read_to_end(&mut text).map(|_| text)
        };
        std::thread::Builder::new().spawn(read).map(Self)
    }

    /// Prints the result when the child has ended.
    fn print(self) -> Result<(), Failure> {
        let text = self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let text = text.map_err(|e| {
            Failure::failed(format!("cannot read the result of the child process: {}", reason(&e)))
        })?;
        out::print_bytes_to_slow_reader(&text)
    }
}

/// A thread that forwards interrupts to the child.
struct Forward {
    child: Arc<Mutex<Child>>,
    handle: Handle,
    thread: JoinHandle<()>,
    interrupted: Arc<AtomicBool>,
}

impl Forward {
    /// Starts the thread, or kills the child.
    fn start(child: Child, mut signals: Signals) -> std::io::Result<Self> {
        let (child, handle) = (Arc::new(Mutex::new(child)), signals.handle());
        let interrupted = Arc::new(AtomicBool::new(false));
        // Messages of the child also wait for a reader.
        interrupt::share(&interrupted);
        let (forwarded, raised) = (child.clone(), interrupted.clone());
        let thread = std::thread::Builder::new().spawn(move || {
            let mut first = None;
            for signal in signals.forever() {
                let mut child = forwarded.lock().unwrap_or_else(PoisonError::into_inner);
                raised.store(true, Ordering::Relaxed);
                if interrupt::is_repeated(&mut first, Instant::now()) {
                    let _ = child.kill();
                    std::process::exit(Exit::Interrupted as i32);
                }
                let _ = ioloom_sys::proc::signal_child(&child, signal);
            }
        });
        if thread.is_err() {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = child.kill().and_then(|()| child.wait());
        }
        Ok(Self { child, handle, thread: thread?, interrupted })
    }

    /// Waits for the child, which has closed its standard error. Returns whether it was
    /// interrupted. No signal is forwarded from here on, because the process id may be reused.
    fn end(self) -> std::io::Result<(ExitStatus, bool)> {
        self.handle.close();
        let _ = self.thread.join();
        let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait()?;
        Ok((status, self.interrupted.load(Ordering::Relaxed)))
    }
}

/// Returns the error for a file that was truncated while it was mapped.
fn cut_short(args: &EachArgs, index: Option<usize>) -> String {
    let listed = (args.paths.as_slice() != [std::path::PathBuf::from("-")])
        .then(|| index.and_then(|index| input::path_of(args, index)))
        .flatten();
    let name = match (index, listed) {
        (_, Some(path)) => quoted(&path).to_string(),
        (Some(index), None) => format!("file {} of the list", index + 1),
        (None, None) => "a file".to_owned(),
    };
    format!(
        "cannot map {name}: the file was truncated while it was read; run again with a --method that \
         does not map files"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_for_the_child_precede_a_double_dash() {
        let own = ["each", "--method", "mmap:plain", "--", "t"].map(OsString::from);
        let child = arguments(own.into_iter(), true);
        let wanted =
            ["each", "--mapped-here", "--progress-lines", "--method", "mmap:plain", "--", "t"];
        assert_eq!(child, wanted.map(OsString::from));
    }
}
