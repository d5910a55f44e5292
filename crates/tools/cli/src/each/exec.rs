//! `each --exec`: runs a program for each file.
//!
//! The command is split at spaces, with the quotes of a shell. No shell runs and nothing is
//! expanded, so a file name can never become code. With `{}` the path is substituted and the
//! program reads the file itself; without it the contents arrive on its standard input. Output is
//! collected until the program ends and then printed at once, so that lines of two programs do not
//! mix. It is kept in memory up to 1 MiB, and beyond that in a file without a name. What programs in the
//! background print later than 100 ms after that is lost, with a warning. If the reader of the output
//! leaves, all commands still run.

use super::commands::Commands;
use super::spool::{Collector, Spool};
use crate::exit::Failure;
use crate::slow_reader;
use ioloom::FnError;
use ioloom_failure::reason;
use ioloom_model::units::format_counted;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Descriptors of the program itself: standard streams, signals, the walk.
const OWN_DESCRIPTORS: u64 = 10;

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
}

/// A program that is processing one file. When it is dropped early, because its file could not be
/// read to the end, the program is killed: it must not act on part of a file, nor outlive the run.
pub(crate) struct Running {
    name: String,
    to_stderr: bool,
    commands: Arc<Commands>,
    child: Option<Result<Child, std::io::Error>>,
    stdin: Option<ChildStdin>,
    printed: Option<Collector>,
    unread: Arc<AtomicBool>,
    left_open: Arc<AtomicU64>,
}

impl Exec {
    pub(super) fn read(text: &str, to_stderr: bool) -> Result<Self, Failure> {
        let words = shell_words::split(text).map_err(|_| {
            Failure::usage(format!("invalid value '{text}' for --exec: unclosed quote"))
        })?;
        let words: Vec<Vec<u8>> = words.into_iter().map(String::into_bytes).collect();
        if words.is_empty() {
            return Err(Failure::usage("--exec needs a command, for example --exec 'wc -c {}'"));
        }
        let takes_path = words.iter().any(|w| find(w).is_some());
        let (commands, unread, left_open) = (Arc::default(), Arc::default(), Arc::default());
        Ok(Self { words, to_stderr, takes_path, commands, unread, left_open })
    }

    /// Returns a warning if output of programs in the background may be lost since the last call.
    pub(super) fn lost_output(&self) -> Option<String> {
        let count = self.left_open.swap(0, Ordering::Relaxed);
        let commands = format_counted(count, "command", "commands");
        (count > 0).then(|| {
            format!(
                "{commands} ended while a background process kept the output open; later output is \
                 lost; use 'wait' in the command"
            )
        })
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
        let mut child = commands.start(&mut command);
        let (mut stdin, mut printed) = (None, None);
        if let Ok(started) = &mut child {
            stdin = started.stdin.take();
            match started.stdout.take().map(Collector::start).transpose() {
                Ok(thread) => printed = thread,
                Err(error) => {
                    commands.kill(started);
                    child = Err(error);
                }
            }
        }
        let (to_stderr, child) = (self.to_stderr, Some(child));
        let (unread, left_open) = (Arc::clone(&self.unread), Arc::clone(&self.left_open));
        Running { name, to_stderr, commands, child, stdin, printed, unread, left_open }
    }
}

impl Running {
    /// Writes bytes to the program's standard input. A program may stop reading early.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(), FnError> {
        let Some(stdin) = &mut self.stdin else { return Ok(()) };
        match stdin.write_all(bytes) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.stdin = None;
                Ok(())
            }
            other => {
                other.map_err(|e| format!("cannot write to {}: {}", self.name, reason(&e)).into())
            }
        }
    }

    /// Waits for the program and prints its output.
    pub(super) fn finish(mut self) -> Result<(), FnError> {
        drop(self.stdin.take());
        let name = &self.name;
        let child = match self.child.as_mut() {
            Some(Ok(child)) => child,
            Some(Err(e)) => return Err(format!("cannot run {name}: {}", reason(e)).into()),
            None => return Err(format!("{name} has already ended").into()),
        };
        let status = self.commands.wait(child);
        self.child = None;
        let status = status.map_err(|reason| format!("{name} {reason}"))?;
        if let Some(printed) = self.printed.take() {
            let printed = printed.finish();
            let printed = printed.map_err(|e| format!("cannot keep its output: {}", reason(&e)))?;
            self.left_open.fetch_add(u64::from(printed.is_open), Ordering::Relaxed);
            self.print(printed)?;
        }
        match (status.code(), status.signal()) {
            (Some(0), _) => Ok(()),
            (Some(code), _) => Err(format!("{name} exited with code {code}").into()),
            (None, signal) => {
                Err(format!("{name} was killed by signal {}", signal.unwrap_or(0)).into())
            }
        }
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
        let words = |text| Exec::read(text, false).map(|exec| exec.words);
        let expected = |list: &[&str]| -> Vec<Vec<u8>> {
            list.iter().map(|word| word.as_bytes().to_vec()).collect()
        };
        assert_eq!(words("wc -l {}").unwrap(), expected(&["wc", "-l", "{}"]));
        assert_eq!(
            words("a 'b c' \"d \\\" e\" f\\ g ''").unwrap(),
            expected(&["a", "b c", "d \" e", "f g", ""])
        );
        assert_eq!(words("sed \"s/a\\.b/c/\"").unwrap(), expected(&["sed", "s/a\\.b/c/"]));
        assert!(words("a 'b").is_err());
        assert_eq!(fill(b"x{}y{}", Path::new("p")), "xpyp");
    }
}
