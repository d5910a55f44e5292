//! The wrapper that GNU's tests run as `cp` and `du`.
//!
//! It is a copy of this executable under one of these names. It runs `ioloom cp` or `ioloom du`
//! and changes only standard error: the name of the program, and the advice after `; `, because
//! the tests compare messages with GNU's. Everything else is the program's: arguments, standard
//! input and output, the exit code and the death by a signal; signals are passed on. Each run is
//! recorded in a file, which proves that a test ran our program.

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::io::{PipeReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The environment variable with the path of the program to run.
pub(super) const PROGRAM: &str = "IOLOOM_GNU_PROGRAM";
/// The environment variable with the path of the file that records the runs.
pub(super) const CALLS: &str = "IOLOOM_GNU_CALLS";
/// A prompt has no newline: it is written after this time without more output.
const PROMPT_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// What every message of the program starts with.
const PREFIX: &[u8] = b"ioloom: ";

/// Returns the exit code if this process was started as a wrapper.
pub(crate) fn run_if_called() -> Option<ExitCode> {
    let program = std::env::var_os(PROGRAM)?;
    let mut args = std::env::args_os();
    let called = args.next()?;
    let name = Path::new(&called).file_name()?.to_str()?.to_owned();
    if name != "cp" && name != "du" {
        return None;
    }
    let args: Vec<OsString> = args.collect();
    Some(run(&program, &name, &args).unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "wrapper: {error:#}");
        ExitCode::from(99)
    }))
}

fn run(program: &OsStr, name: &str, args: &[OsString]) -> anyhow::Result<ExitCode> {
    record(name, args);
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    let mut command = Command::new(program);
    command.arg(name).args(args);
    // With 2>&1 both go through one pipe, so their order is kept.
    if outputs_are_one() {
        command.stdout(Stdio::from(writer.try_clone().context("share a pipe")?));
    }
    let mut child = command.stderr(writer).spawn().context("start the program")?;
    drop(command);
    let pid = Pid::from_child(&child);
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1])
        .context("receive signals")?;
    std::thread::spawn(move || {
        for number in signals.forever() {
            if let Some(signal) = Signal::from_named_raw(number) {
                let _ = kill_process(pid, signal);
            }
        }
    });
    copy_messages(reader, name)?;
    let status = child.wait().context("wait for the program")?;
    if let Some(signal) = status.signal() {
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
    Ok(ExitCode::from(status.code().map_or(99, |code| code as u8)))
}

/// Appends one line to the record of runs. A missing record shows as a test without runs.
fn record(name: &str, args: &[OsString]) {
    let Some(file) = std::env::var_os(CALLS) else { return };
    let mut line = name.as_bytes().to_vec();
    for arg in args {
        line.push(b' ');
        line.extend(arg.as_bytes().iter().map(|b| if *b == b'\n' { b' ' } else { *b }));
    }
    line.push(b'\n');
    let opened = std::fs::OpenOptions::new().append(true).open(file);
    let _ = opened.and_then(|mut file| file.write_all(&line));
}

/// Reports whether standard output and standard error are the same file.
fn outputs_are_one() -> bool {
    let of = |fd: std::io::Result<std::os::fd::OwnedFd>| {
        fd.ok().and_then(|fd| rustix::fs::fstat(&fd).ok()).map(|stat| (stat.st_dev, stat.st_ino))
    };
    use std::os::fd::AsFd;
    let out = of(std::io::stdout().as_fd().try_clone_to_owned());
    let err = of(std::io::stderr().as_fd().try_clone_to_owned());
    out.is_some() && out == err
}

/// Copies the messages of the program to standard error until it closes the pipe.
fn copy_messages(mut reader: PipeReader, name: &str) -> anyhow::Result<()> {
    let mut stderr = std::io::stderr();
    let mut pending: Vec<u8> = Vec::new();
    // Whether the start of the pending line was already written.
    let mut started = false;
    let mut buffer = vec![0; 1 << 16];
    loop {
        // A long message can also pause.
        if pending.ends_with(b"? ") {
            let mut polled = [PollFd::new(&reader, PollFlags::IN)];
            if poll(&mut polled, Some(&PROMPT_AFTER)).is_ok_and(|ready| ready == 0) {
                let text = if started { pending.clone() } else { renamed(&pending, name) };
                let _ = stderr.write_all(&text);
                pending.clear();
                started = true;
                continue;
            }
        }
        let count = match reader.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read.context("read messages")?,
        };
        pending.extend_from_slice(&buffer[..count]);
        while let Some(end) = pending.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let text = if started { line } else { message(&line, name) };
            started = false;
            let _ = stderr.write_all(&text);
        }
        if count == 0 {
            let text = if started { pending } else { message(&pending, name) };
            let _ = stderr.write_all(&text);
            return Ok(());
        }
    }
}

/// What follows a semicolon in messages of GNU cp itself.
const OF_GNU: [&[u8]; 4] =
    [b"; omitting directory ", b" not copied", b"; possibilities: ", b"; it requires an SELinux"];

/// Returns a whole line with the name replaced and without advice.
fn message(line: &[u8], name: &str) -> Vec<u8> {
    let mut text = renamed(line, name);
    if line.starts_with(PREFIX)
        && let Some(at) = text.windows(2).rposition(|two| two == b"; ")
        && !OF_GNU.iter().any(|own| text[at..].windows(own.len()).any(|found| found == *own))
    {
        let newline = text.ends_with(b"\n");
        text.truncate(at);
        text.extend(newline.then_some(b'\n'));
    }
    text
}

/// Replaces the name of the program at the start of a message, and in the hint at its help.
fn renamed(line: &[u8], name: &str) -> Vec<u8> {
    let hint = format!("Try 'ioloom {name} --help'");
    if let Some(rest) = line.strip_prefix(PREFIX) {
        [name.as_bytes(), b": ", rest].concat()
    } else if let Some(rest) = line.strip_prefix(hint.as_bytes()) {
        [b"Try '", name.as_bytes(), b" --help'", rest].concat()
    } else {
        line.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_and_the_advice_are_changed() {
        for (line, expected) in [
            (
                "ioloom: cannot stat 'a': No such file or directory\n",
                "cp: cannot stat 'a': No such file or directory\n",
            ),
            (
                "ioloom: cannot open 'a; b': Permission denied; use root\n",
                "cp: cannot open 'a; b': Permission denied\n",
            ),
            (
                "Try 'ioloom cp --help' for more information.\n",
                "Try 'cp --help' for more information.\n",
            ),
            ("'a; b' -> 'c'\n", "'a; b' -> 'c'\n"),
            ("cannot ioloom: x; y\n", "cannot ioloom: x; y\n"),
            ("ioloom: overwrite 'x'? ", "cp: overwrite 'x'? "),
        ] {
            assert_eq!(String::from_utf8_lossy(&message(line.as_bytes(), "cp")), expected);
        }
    }
}
