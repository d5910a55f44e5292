//! A server in a child process, which the parent queries through two pipes.
//!
//! The parent writes one word per line to the standard input of the child; the child answers each
//! with one line, which begins with [`MARK`] because the test harness prints to the same output. The
//! end of the input, which also comes if the parent is killed, ends the child.

use crate::counters::Counters;
use crate::options::Options;
use crate::session::Session;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard};

const MARK: &str = "delayfs: ";
const MOUNTED: &str = "mounted";
const COUNTERS: &str = "counters";
const RESET: &str = "reset";

/// Environment variables: where to mount, and the arguments of [`Options::parse`].
const DIR: &str = "IOLOOM_DELAYFS_DIR";
const ARGS: &str = "IOLOOM_DELAYFS_ARGS";

/// The parent's side.
#[derive(Debug)]
pub(crate) struct Child {
    process: process::Child,
    pipes: Mutex<Pipes>,
}

#[derive(Debug)]
struct Pipes {
    /// `None` after the drop began.
    to: Option<ChildStdin>,
    from: Lines<BufReader<ChildStdout>>,
}

impl Child {
    pub(crate) fn start(dir: &Path, options: &Options, test: &str) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([test, "--exact", "--ignored", "--nocapture"]);
        command.env(DIR, dir).env(ARGS, options.to_args().join(" "));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let from = process.stdout.take().ok_or_else(|| io::Error::other("a pipe is missing"))?;
        let pipes = Pipes { to: process.stdin.take(), from: BufReader::new(from).lines() };
        let child = Self { process, pipes: Mutex::new(pipes) };
        let answer = child.pipes().answer()?;
        match answer {
            Some(text) if text == MOUNTED => Ok(child),
            Some(error) => Err(io::Error::other(error)),
            None => Err(io::Error::other(format!("the test '{test}' serves no file system"))),
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.query(COUNTERS).parse().expect("the child prints its counters")
    }

    pub(crate) fn reset(&self) {
        self.query(RESET);
    }

    fn query(&self, word: &str) -> String {
        let mut pipes = self.pipes();
        let to = pipes.to.as_mut().expect("the pipe is open until the drop");
        writeln!(to, "{word}").expect("the child runs");
        pipes.answer().expect("the child runs").expect("the child answers")
    }

    fn pipes(&self) -> MutexGuard<'_, Pipes> {
        self.pipes.lock().expect("no holder panics")
    }
}

impl Pipes {
    /// Returns the next line that is not from the test harness.
    fn answer(&mut self) -> io::Result<Option<String>> {
        for line in self.from.by_ref() {
            if let Some(answer) = line?.strip_prefix(MARK) {
                return Ok(Some(answer.to_owned()));
            }
        }
        Ok(None)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Ok(pipes) = self.pipes.get_mut() {
            pipes.to = None;
        }
        drop(self.process.wait());
    }
}

/// Serves the file system that [`mount_in_child`](crate::DelayFs::mount_in_child) describes until
/// the parent drops it or ends, then exits. Returns at once in a process that it did not start.
///
/// # Panics
/// The environment was not set by [`mount_in_child`](crate::DelayFs::mount_in_child).
pub fn serve_for_parent() {
    let (Some(dir), Ok(args)) = (std::env::var_os(DIR), std::env::var(ARGS)) else { return };
    let options = Options::parse(args.split(' ')).expect("the parent passes valid options");
    let session = match Session::start(Path::new(&dir), options) {
        Ok(session) => session,
        Err(error) => return answer(&error.to_string()),
    };
    answer(MOUNTED);
    for line in io::stdin().lines().map_while(Result::ok) {
        match line.as_str() {
            COUNTERS => answer(&session.counters().to_string()),
            RESET => {
                session.reset();
                answer(RESET);
            }
            other => panic!("unknown request '{other}'"),
        }
    }
    drop(session);
    // The harness would print its summary, to a pipe that the parent may have closed.
    process::exit(0);
}

/// Writes a line of its own: the harness may have printed the beginning of one.
fn answer(text: &str) {
    // Not by a macro, whose output the harness could capture. The parent may have ended.
    drop(writeln!(io::stdout(), "\n{MARK}{text}"));
}
