//! `each --exec`: runs a program for each file.
//!
//! The command is split at spaces, with the quotes of a shell. No shell runs and nothing is
//! expanded, so a file name cannot become code, unless the command is a shell and its code contains
//! `{}`: a warning names the safe form. With `{}` the path is substituted and the
//! program reads the file itself; without it the contents arrive on its standard input. Output is
//! collected until the program ends and then printed at once, so that lines of two programs do not
//! mix. It is kept in memory up to 1 MiB, and beyond that in a file without a name. What programs in the
//! background print later than 100 ms after that is lost, with a warning. If the reader of the output
//! leaves, all commands still run. A command gets contents until it ends; if a program in the
//! background keeps its input open, the rest is lost, with a warning.

use super::commands::{Commands, WANTS_TERMINAL, is_out_of_processes};
use super::spool::{Collector, Spool};
use crate::exit::Failure;
use crate::slow_reader;
use ioloom::FnError;
use ioloom_failure::reason;
use ioloom_model::units::format_counted;
use ioloom_observe::{child_was_ready, waiting_for_child};
use ioloom_sys::proc::{Waited, ended_by_now};
use ioloom_sys::stream::{self, Ready};
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Descriptors of the program itself: standard streams, signals, the walk.
const OWN_DESCRIPTORS: u64 = 10;

/// Time between two looks whether a command that reads nothing has ended.
const LOOK: Duration = Duration::from_millis(50);

/// What to do if no command can be started although no other one runs.
const FEWER_PROCESSES: &str =
    "run fewer commands at once with -j, or raise the limit on processes (ulimit -u)";

/// Shells, whose option `-c` takes code.
const SHELLS: [&[u8]; 10] =
    [b"sh", b"bash", b"dash", b"zsh", b"ksh", b"mksh", b"ash", b"fish", b"csh", b"tcsh"];

/// The command line that is run for each file.
#[derive(Debug)]
pub(crate) struct Exec {
    words: Vec<Vec<u8>>,
    /// Print on standard error, because standard output carries the JSON document.
    to_stderr: bool,
    /// Whether a word contains `{}`.
    pub(crate) takes_path: bool,
    /// The commands that are running.
    pub(super) commands: Arc<Commands>,
    /// Whether the reader of the output has left.
    unread: Arc<AtomicBool>,
    /// Commands whose output stayed open after their end.
    left_open: Arc<AtomicU64>,
    /// Commands that ended while others still read their contents.
    cut_off: Arc<AtomicU64>,
}

/// A program that is processing one file. When it is dropped early, because its file could not be
/// read to the end, the program is killed: it must not act on part of a file, nor outlive the run.
pub(crate) struct Running {
    name: String,
    to_stderr: bool,
    commands: Arc<Commands>,
    child: Option<Result<Child, io::Error>>,
    stdin: Option<ChildStdin>,
    printed: Option<Collector>,
    unread: Arc<AtomicBool>,
    left_open: Arc<AtomicU64>,
    cut_off: Arc<AtomicU64>,
}

impl Exec {
    pub(super) fn read(text: &OsStr, to_stderr: bool) -> Result<Self, Failure> {
        let words = split(text.as_bytes()).ok_or_else(|| {
            let text = text.to_string_lossy();
            Failure::usage(format!("invalid value '{text}' for --exec: unclosed quote"))
        })?;
        if words.first().is_none_or(Vec::is_empty) {
            return Err(Failure::usage("--exec needs a command, for example --exec 'wc -c {}'"));
        }
        let takes_path = words.iter().any(|w| find(w).is_some());
        let (commands, unread) = (Arc::default(), Arc::default());
        let (left_open, cut_off) = (Arc::default(), Arc::default());
        Ok(Self { words, to_stderr, takes_path, commands, unread, left_open, cut_off })
    }

    /// Returns a warning if file names can become code.
    pub(super) fn names_in_code(&self) -> Option<&'static str> {
        puts_names_into_code(&self.words).then_some(
            "{} is part of the code of a shell, so a file name can run commands; use sh -c 'CODE' sh {}, \
             with \"$1\" for the path in CODE",
        )
    }

    /// Returns warnings of what programs in the background may have lost since the last call.
    pub(super) fn lost(&self) -> Vec<String> {
        let taken = |count: &AtomicU64| {
            let count = count.swap(0, Ordering::Relaxed);
            (count > 0).then(|| format_counted(count, "command", "commands"))
        };
        let output = taken(&self.left_open).map(|commands| {
            format!(
                "{commands} ended while a background process kept the output open; later output is \
                 lost; use 'wait' in the command"
            )
        });
        let input = taken(&self.cut_off).map(|commands| {
            format!(
                "{commands} ended while a background process kept the input open; the rest of the \
                 contents was not passed; use 'wait' in the command"
            )
        });
        output.into_iter().chain(input).collect()
    }

    /// Returns how many commands can run at once with a limit on open files.
    pub(super) fn most_at_once(&self, limit: u64) -> u64 {
        limit.saturating_sub(OWN_DESCRIPTORS) / self.descriptors_each()
    }

    /// Returns the limit on open files that a number of commands needs.
    pub(super) fn descriptors(&self, commands: u32) -> u64 {
        OWN_DESCRIPTORS + u64::from(commands) * self.descriptors_each()
    }

    /// Returns the descriptors of a command: the pipe of its output, the statistics of its thread, and
    /// what is open while it starts. Contents need a file and a pipe, too.
    fn descriptors_each(&self) -> u64 {
        if self.takes_path { 3 } else { 6 }
    }

    pub(super) fn start(&self, path: &Path) -> Running {
        let mut words = self.words.iter().map(|word| fill(word, path));
        let program = words.next().unwrap_or_default();
        let name = program.to_string_lossy().into_owned();
        let stdin = if self.takes_path { Stdio::null() } else { Stdio::piped() };
        let mut command = Command::new(program);
        command.args(words).stdin(stdin).stdout(Stdio::piped());
        let commands = Arc::clone(&self.commands);
        let (mut stdin, mut printed) = (None, None);
        let mut child = commands.start(&mut command).map(|(child, collector)| {
            printed = Some(collector);
            child
        });
        if let Ok(started) = &mut child {
            stdin = started.stdin.take();
            if let Err(error) = stdin.as_ref().map_or(Ok(()), stream::never_block) {
                commands.kill(started);
                child = Err(error);
            }
        }
        let (to_stderr, child) = (self.to_stderr, Some(child));
        let (unread, left_open) = (Arc::clone(&self.unread), Arc::clone(&self.left_open));
        let cut_off = Arc::clone(&self.cut_off);
        Running { name, to_stderr, commands, child, stdin, printed, unread, left_open, cut_off }
    }
}

impl Running {
    /// Writes bytes to the program's standard input. A program may stop reading early.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), FnError> {
        let (Some(stdin), Some(Ok(child))) = (&self.stdin, &self.child) else { return Ok(()) };
        let last_start = || self.commands.last_start();
        let taken = waiting_for_child(|| pass(bytes, stdin, child, last_start));
        let taken = taken.map_err(|e| format!("cannot write to {}: {}", self.name, reason(&e)))?;
        if taken == Passed::CutOff {
            self.cut_off.fetch_add(1, Ordering::Relaxed);
        }
        if taken != Passed::All {
            self.stdin = None;
        }
        Ok(())
    }

    /// Waits for the program and prints its output.
    pub(super) fn finish(mut self) -> Result<(), FnError> {
        drop(self.stdin.take());
        let name = &self.name;
        let child = match self.child.as_mut() {
            Some(Ok(child)) => child,
            Some(Err(e)) if is_out_of_processes(e) => {
                let text = format!("cannot run {name}: {}; {FEWER_PROCESSES}", reason(e));
                return Err(text.into());
            }
            Some(Err(e)) => return Err(format!("cannot run {name}: {}", reason(e)).into()),
            None => return Err(format!("{name} has already ended").into()),
        };
        let (status, ready_ns) = waiting_for_child(|| self.commands.wait(child));
        child_was_ready(ready_ns);
        self.child = None;
        let status = status.map_err(|reason| format!("{name} {reason}"))?;
        let mut problems = Vec::from_iter(failure_of(name, status));
        if let Some(printed) = self.printed.take() {
            let printed = waiting_for_child(|| printed.finish());
            let printed = printed.map_err(|e| format!("cannot read its output: {}", reason(&e)))?;
            self.left_open.fetch_add(u64::from(printed.is_open), Ordering::Relaxed);
            problems.extend(printed.lost());
            problems.extend(self.print(printed).err().map(|e| e.to_string()));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ").into()) }
    }
}

impl Running {
    fn print(&self, printed: Spool) -> Result<(), FnError> {
        if self.unread.load(Ordering::Relaxed) {
            return Ok(());
        }
        let written = ioloom::writing(|| match self.to_stderr {
            true => slow_reader::stderr(|err| printed.write_to(err)),
            false => slow_reader::stdout(|out| printed.write_to(out)),
        });
        match written {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.unread.store(true, Ordering::Relaxed);
                Ok(())
            }
            // Only after an interrupt, so it is not an error.
            Err(e) if slow_reader::is_given_up(&e) => Err("its output was not read".into()),
            other => {
                other.map_err(|e| format!("its output cannot be written: {}", reason(&e)).into())
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(Ok(child)) = &mut self.child {
            self.commands.kill(child);
        }
        self.printed.iter().for_each(Collector::abandon);
    }
}

/// Returns why a program has failed, if it has.
fn failure_of(name: &str, status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("{name} exited with code {code}")),
        (None, signal) => Some(format!("{name} was killed by signal {}", signal.unwrap_or(0))),
    }
}

/// What became of bytes for a program.
#[derive(PartialEq, Eq)]
enum Passed {
    All,
    /// The program, and all that it started, read no more.
    Unwanted,
    /// The program has ended, while a program in the background keeps its input open.
    CutOff,
}

/// Writes bytes to the input of a program, a pipe that never blocks. `last_start` waits until the commands
/// that are being started have started.
fn pass(
    mut bytes: &[u8],
    stdin: &ChildStdin,
    child: &Child,
    last_start: impl Fn() -> Option<Instant>,
) -> io::Result<Passed> {
    let mut looks = 0;
    while !bytes.is_empty() {
        match stream::write(stdin, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(Passed::Unwanted),
            Err(e) if stream::would_block(&e) && looks == 2 => return Ok(Passed::CutOff),
            Err(e) if stream::would_block(&e) => match ended_by_now(child.id())? {
                // The pipe may have been closed since. A command that is just being started holds it open, too.
                Some(Waited::Ended) => {
                    if looks == 1 {
                        last_start();
                    }
                    looks += 1;
                    stream::wait(stdin, Ready::Write, LOOK)?;
                }
                Some(Waited::WantsTerminal) => return Err(io::Error::other(WANTS_TERMINAL)),
                None => {
                    stream::wait(stdin, Ready::Write, LOOK)?;
                }
            },
            Err(e) => return Err(e),
        }
    }
    Ok(Passed::All)
}

/// Returns whether `{}` is part of the code that a shell runs, which another command may start.
fn puts_names_into_code(words: &[Vec<u8>]) -> bool {
    (0..words.len()).any(|at| is_shell_with_name_in_code(&words[at..]))
}

fn is_shell_with_name_in_code(words: &[Vec<u8>]) -> bool {
    let Some((program, mut rest)) = words.split_first() else { return false };
    let name = program.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let mut takes_code = false;
    while let Some((word, after)) = rest.split_first().filter(|_| SHELLS.contains(&name)) {
        let [b'-' | b'+', flags @ ..] = &word[..] else {
            return takes_code && find(word).is_some();
        };
        let is_long = flags.starts_with(b"-");
        takes_code |= !is_long && flags.contains(&b'c');
        // The name of an option follows.
        let has_value = !is_long && flags.ends_with(b"o");
        rest = if has_value { after.get(1..).unwrap_or_default() } else { after };
    }
    false
}

/// Splits a command at spaces outside quotes, or returns `None` if a quote is unclosed.
fn split(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    // One character for each byte, because the text need not be UTF-8. What separates words is ASCII.
    let text: String = text.iter().map(|byte| char::from(*byte)).collect();
    let words = shell_words::split(&text).ok()?;
    let bytes =
        |word: String| -> Vec<u8> { word.chars().filter_map(|c| u8::try_from(c).ok()).collect() };
    Some(words.into_iter().map(bytes).collect())
}

fn find(word: &[u8]) -> Option<usize> {
    word.windows(2).position(|w| w == b"{}")
}

fn fill(word: &[u8], path: &Path) -> OsString {
    let (mut out, mut rest) = (Vec::new(), word);
    while let Some(at) = find(rest) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(path.as_os_str().as_bytes());
        rest = &rest[at + 2..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_split_as_in_a_shell() {
        let words = |text: &str| Exec::read(text.as_ref(), false).map(|exec| exec.words);
        let expected = |list: &[&str]| -> Vec<Vec<u8>> {
            list.iter().map(|word| word.as_bytes().to_vec()).collect()
        };
        assert_eq!(words("wc -l {}").unwrap(), expected(&["wc", "-l", "{}"]));
        assert_eq!(
            words("a 'b c' \"d \\\" e\" f\\ g ''").unwrap(),
            expected(&["a", "b c", "d \" e", "f g", ""])
        );
        assert_eq!(words("sed \"s/a\\.b/c/\"").unwrap(), expected(&["sed", "s/a\\.b/c/"]));
        let exec =
            Exec::read(OsStr::from_bytes(b"cp {} '\xff \xa0' \xed\x8c\x8c\x85"), false).unwrap();
        let expected: [&[u8]; 4] = [b"cp", b"{}", b"\xff \xa0", b"\xed\x8c\x8c\x85"];
        assert_eq!(exec.words, expected);
        for refused in ["a 'b", "", "'' {}"] {
            assert!(words(refused).is_err(), "{refused}");
        }
        assert_eq!(fill(b"x{}y{}", Path::new("p")), "xpyp");
    }

    #[test]
    fn names_in_the_code_of_a_shell_are_found() {
        for (command, is_found) in [
            ("sh -c 'cat {} | wc'", true),
            ("/bin/bash -o pipefail -ec 'cat \"{}\"' x", true),
            ("zsh --no-rcs -c -- {}", true),
            ("fish -c 'cat {}'", true),
            ("busybox ash -c 'cat {}'", true),
            ("sh -c 'cat \"$1\" | wc' sh {}", false),
            ("sh script -c {}", false),
            ("bash --norc {}", false),
            ("grep -c {}", false),
            ("sh -c", false),
        ] {
            let exec = Exec::read(command.as_ref(), false).unwrap();
            assert_eq!(exec.names_in_code().is_some(), is_found, "{command}");
        }
    }
}
