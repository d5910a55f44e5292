//! What is done with each file, and where its line goes.

use super::args::EachArgs;
use super::digest::{Hashes, write_checked, write_line};
use super::exec::{Exec, Running};
use super::input::Roots;
use super::job::Job;
use super::outcome::Outcome;
use crate::exit::Failure;
use ioloom::engine::{Piece, Work};
use ioloom::{FileError, FnError};
use ioloom_model::{Measured, Method};
use ioloom_subjects::Kernel;
use ioloom_subjects::kernel::FileState;
use ioloom_walk::PathList;
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

/// Failures that are told in words.
const ERRORS_TOLD: usize = 1000;

/// Where lines of single files go.
pub(super) enum Lines {
    /// Nowhere.
    None,
    /// Printed in the order of the input at the end; `zero` ends each with a zero byte.
    Print { zero: bool },
    /// Compared: what each file should have, by its position.
    Compare {
        /// The hashes.
        expected: Vec<String>,
        /// Leave out the files that are right.
        quiet: bool,
    },
}

impl Lines {
    pub(super) fn of(args: &EachArgs) -> Self {
        if args.per_file { Self::Print { zero: args.zero } } else { Self::None }
    }
}

/// Work on files as the flags ask for.
pub(super) struct EachWork<'a> {
    kernel: Kernel,
    exec: Option<&'a Exec>,
    lines: Lines,
    combined: bool,
    /// All paths are in a list that outlives the run.
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
    /// `listed`: positions of files are those in a list that [`Self::outcome`] is given.
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

    /// Puts the threads' parts together and prints lines in the order of the input.
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
            // Whoever reads the lines of a check no more still wants to know how it ended.
            Err(e) if e.kind() == ErrorKind::BrokenPipe && self.compares() => {}
            other => other.map_err(stdout_gone)?,
        }
        // What was not written is not tried again.
        let _ = out.into_parts();
        let digest = self.combined.then(|| all.digest(list, |path| roots.told(path)));
        measured.digest = digest.clone().unwrap_or_default();
        let mut errors = std::mem::take(&mut *lock(&self.errors));
        errors.sort();
        Ok(Outcome { measured, digest, errors, cancelled: false })
    }

    fn compares(&self) -> bool {
        matches!(self.lines, Lines::Compare { .. })
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

    fn local(&self) -> Local {
        Local::default()
    }

    fn begin(&self, _: usize, path: &Path) -> State {
        match self.exec {
            Some(exec) => State::Exec(Box::new(exec.start(path))),
            None => State::Kernel(self.kernel.begin()),
        }
    }

    fn piece(&self, _: &mut Local, state: &mut State, piece: &Piece<'_>) -> Result<(), FnError> {
        match state {
            State::Exec(running) => running.feed(piece.bytes)?,
            State::Kernel(state) => {
                self.kernel.piece(state, piece.index, piece.offset, piece.last, piece.bytes);
            }
        }
        Ok(())
    }

    fn finish(
        &self,
        local: &mut Local,
        state: State,
        index: usize,
        path: &Path,
    ) -> Result<(), FnError> {
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
        Ok(())
    }

    fn failed(&self, local: &mut Local, error: FileError) -> ControlFlow<FileError> {
        local.failed += 1;
        if self.compares() {
            let mut line = Vec::new();
            write_checked(&mut line, error.path.as_os_str().as_bytes(), "FAILED open or read");
            local.lines.push((error.index, line));
        }
        let mut errors = lock(&self.errors);
        if errors.len() < ERRORS_TOLD {
            errors.push(error.to_string());
        }
        ControlFlow::Continue(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A reader that closed the pipe has seen enough; anything else is an error.
pub(super) fn stdout_gone(error: std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(crate::exit::Exit::Ok as i32);
    }
    Failure::failed(format!("cannot write to standard output: {error}"))
}
