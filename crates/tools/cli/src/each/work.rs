//! The work on each file, and its output line.

use super::args::EachArgs;
use super::digest::{Hashes, write_checked, write_line};
use super::exec::{Exec, Running};
use super::input::Roots;
use super::job::Job;
use super::outcome::Outcome;
use crate::exit::Failure;
use ioloom::engine::{Piece, Work};
use ioloom::{FileError, FnError};
use ioloom_failure::{Operation, quoted, reason};
use ioloom_model::{Measured, Method};
use ioloom_subjects::Kernel;
use ioloom_subjects::kernel::FileState;
use ioloom_walk::PathList;
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

/// Errors whose text is kept.
const ERRORS_KEPT: usize = 1000;

/// What happens to the lines of single files.
pub(super) enum Lines {
    /// There are none.
    None,
    /// They are printed in input order at the end; with `zero` each ends with NUL.
    Print { zero: bool },
    /// Hashes are compared with the expected ones, by position.
    Compare {
        /// The expected hashes.
        expected: Vec<String>,
        /// Whether to omit files that match.
        quiet: bool,
    },
}

impl Lines {
    pub(super) fn of(args: &EachArgs) -> Self {
        if args.per_file { Self::Print { zero: args.zero } } else { Self::None }
    }
}

/// The work that the flags select.
pub(super) struct EachWork<'a> {
    kernel: Kernel,
    exec: Option<&'a Exec>,
    lines: Lines,
    combined: bool,
    /// Whether all paths are in a list that outlives the run.
    listed: bool,
    errors: Mutex<Vec<String>>,
}

/// State of one file.
pub(super) enum State {
    Kernel(FileState),
    Exec(Box<Running>),
}

/// State of one thread.
#[derive(Default)]
pub(super) struct Local {
    hashes: Hashes,
    lines: Vec<(usize, Vec<u8>)>,
    wrong: u64,
    failed: u64,
}

impl<'a> EachWork<'a> {
    /// Creates the work. With `listed`, indexes of files are positions in the list that
    /// [`Self::outcome`] receives.
    pub(super) fn new(job: &'a Job, lines: Lines, listed: bool) -> Self {
        let kernel = Kernel::new(job.compute.clone(), None, 1);
        let wanted = !matches!(lines, Lines::None);
        Self {
            kernel: if wanted { kernel.with_hex() } else { kernel },
            exec: job.exec.as_ref(),
            lines,
            combined: job.exec.is_none() && job.plan.method != Method::Null,
            listed,
            errors: Mutex::new(Vec::new()),
        }
    }

    /// Combines the results of the threads and prints lines in input order.
    pub(super) fn outcome(
        &self,
        locals: Vec<Local>,
        mut measured: Measured,
        (list, roots): (Option<&PathList>, &Roots),
    ) -> Result<Outcome, Failure> {
        let mut all = Hashes::default();
        let mut lines = Vec::new();
        for local in locals {
            all.append(local.hashes);
            lines.extend(local.lines);
            measured.errors += local.failed + local.wrong;
        }
        lines.sort_unstable_by_key(|(index, _)| *index);
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        let written = lines.iter().try_for_each(|(_, line)| out.write_all(line));
        match written.and_then(|()| out.flush()) {
            // The exit code of a check still matters when nothing reads its lines.
            Err(e) if e.kind() == ErrorKind::BrokenPipe && self.compares() => {}
            other => other.map_err(stdout_gone)?,
        }
        // Discard what was not written, so that dropping the buffer does not write it again.
        let _ = out.into_parts();
        let digest = self.combined.then(|| all.digest(list, |path| roots.shown(path)));
        measured.digest = digest.clone().unwrap_or_default();
        let mut errors = std::mem::take(&mut *lock(&self.errors));
        errors.sort();
        Ok(Outcome { measured, digest, errors, cancelled: false })
    }

    fn compares(&self) -> bool {
        matches!(self.lines, Lines::Compare { .. })
    }

    /// Counts a failed file and keeps its message.
    fn fail(
        &self,
        local: &mut Local,
        index: usize,
        path: &Path,
        message: String,
    ) -> ControlFlow<()> {
        local.failed += 1;
        if self.compares() {
            let mut line = Vec::new();
            write_checked(&mut line, path.as_os_str().as_bytes(), "FAILED open or read");
            local.lines.push((index, line));
        }
        let mut errors = lock(&self.errors);
        if errors.len() < ERRORS_KEPT {
            errors.push(message);
        }
        ControlFlow::Continue(())
    }

    fn line(&self, local: &mut Local, index: usize, path: &Path, hex: &str) {
        let name = path.as_os_str().as_bytes();
        let mut line = Vec::new();
        match &self.lines {
            Lines::None => return,
            Lines::Print { zero } => write_line(&mut line, hex, name, *zero),
            Lines::Compare { expected, quiet } => {
                let right = expected.get(index).is_some_and(|e| e == hex);
                if right && *quiet {
                    return;
                }
                local.wrong += u64::from(!right);
                write_checked(&mut line, name, if right { "OK" } else { "FAILED" });
            }
        }
        local.lines.push((index, line));
    }
}

impl Work for EachWork<'_> {
    type State = State;
    type Local = Local;
    type Error = FnError;

    fn local(&self) -> Local {
        Local::default()
    }

    fn begin(&self, _: usize, path: &Path) -> State {
        match self.exec {
            Some(exec) => State::Exec(Box::new(exec.start(path))),
            None => State::Kernel(self.kernel.begin()),
        }
    }

    fn piece(
        &self,
        _: &mut Local,
        state: &mut State,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, FnError> {
        match state {
            State::Exec(running) => running.feed(piece.bytes)?,
            State::Kernel(state) => {
                self.kernel.piece(state, piece.index, piece.offset, piece.last, piece.bytes);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn finish(
        &self,
        local: &mut Local,
        state: State,
        index: usize,
        path: &Path,
    ) -> Result<ControlFlow<()>, FnError> {
        match state {
            State::Exec(running) => running.finish()?,
            State::Kernel(state) => {
                let outcome = self.kernel.finish(state, index);
                if self.combined {
                    match self.listed {
                        true => local.hashes.push_listed(outcome.xxh3, index),
                        false => {
                            local.hashes.push_streamed(outcome.xxh3, path.as_os_str().as_bytes());
                        }
                    }
                    if let Some(hex) = outcome.hex {
                        self.line(local, index, path, &hex);
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn function_failed(
        &self,
        local: &mut Local,
        index: usize,
        path: &Path,
        error: FnError,
    ) -> ControlFlow<()> {
        let message = format!("cannot {} {}: {error}", Operation::Process, quoted(path));
        self.fail(local, index, path, message)
    }

    fn failed(&self, local: &mut Local, error: FileError) -> ControlFlow<()> {
        self.fail(local, error.index, &error.path, error.to_string())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Exits quietly if the reader closed the pipe; other errors are failures.
pub(super) fn stdout_gone(error: std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(crate::exit::Exit::Ok as i32);
    }
    Failure::failed(format!("cannot write to standard output: {}", reason(&error)))
}
