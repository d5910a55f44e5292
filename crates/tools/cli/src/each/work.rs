//! The work on each file, and its output line.

use super::digest::Hashes;
use super::exec::{Exec, Running};
use super::input::{Roots, without_exclusion};
use super::job::Job;
use super::line::{Form, write_checked, write_line};
use super::outcome::Outcome;
use super::output::one_line;
use super::sink::Sink;
use crate::{out, stderr};
use ioloom::engine::{Piece, Work};
use ioloom::{FileError, FnError};
use ioloom_failure::{Operation, quoted};
use ioloom_model::{Compute, Hash, Measured, Method};
use ioloom_subjects::Kernel;
use ioloom_subjects::kernel::FileState;
use ioloom_walk::PathList;
use serde_json::json;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

/// Errors whose text is kept.
const ERRORS_KEPT: usize = 1000;

/// The library's advice for files that do not fit in memory, and that of this program.
const LIBRARY_ADVICE: &str = "read it in chunks with .chunks(), or raise .memory()";
const OWN_ADVICE: &str = "raise --memory, or read in chunks with the default method and schedule";

/// What happens to the results of single files.
pub(super) enum Lines<'a> {
    /// They have no lines.
    None,
    /// The hash of each file is printed.
    Print(&'a Sink<'a>, Shape),
    /// Hashes are compared with the expected ones, by position.
    Compare(&'a Sink<'a>, Comparison<'a>),
}

/// The shape of a printed line.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// As checksum programs print it.
    Text(Form),
    /// A JSON object.
    Json,
}

/// What a check expects and prints.
pub(super) struct Comparison<'a> {
    /// Hash and digits by position.
    pub(super) expected: &'a [(Hash, String)],
    /// Pass over files that do not exist.
    pub(super) ignore_missing: bool,
    /// Print nothing for files that match.
    pub(super) quiet: bool,
    /// Print nothing for any file.
    pub(super) status: bool,
}

/// The work that the flags select.
pub(super) struct EachWork<'a> {
    kernels: Vec<(Hash, Kernel)>,
    exec: Option<&'a Exec>,
    lines: Lines<'a>,
    combined: bool,
    /// Whether all paths are in a list that outlives the run.
    listed: bool,
    /// Whether --exclude applies to the files.
    excludable: bool,
    errors: Mutex<Vec<String>>,
}

/// State of one file.
pub(super) enum State {
    /// The kernel's state, and the bytes so far.
    Kernel(FileState, u64),
    Exec(Box<Running>),
}

/// State of one thread.
#[derive(Default)]
pub(super) struct Local {
    hashes: Hashes,
    counts: Counts,
}

/// Files by result.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Files whose hash was the expected one.
    pub(super) right: u64,
    /// Files with another hash.
    pub(super) wrong: u64,
    /// Files that failed.
    pub(super) failed: u64,
    /// Files whose command failed; also in `failed`.
    pub(super) commands: u64,
    /// Files that do not exist and need not.
    pub(super) missing: u64,
}

impl<'a> EachWork<'a> {
    /// Creates the work. With `listed`, indexes of files are positions in the list that
    /// [`Self::outcome`] receives. The digest over all files is computed if `combined`.
    pub(super) fn new(job: &'a Job, lines: Lines<'a>, listed: bool, combined: bool) -> Self {
        let combined = combined && job.exec.is_none() && job.plan.method != Method::Null;
        let kernel = |compute| {
            let kernel = Kernel::new(compute, None, 1);
            let kernel = if combined { kernel } else { kernel.without_proof() };
            if matches!(lines, Lines::None) { kernel } else { kernel.with_hex() }
        };
        let kernels = match &lines {
            Lines::Compare(..) => {
                Hash::ALL.map(|hash| (hash, kernel(Compute::Hash(hash)))).to_vec()
            }
            _ => {
                let hash = job.compute.hash().unwrap_or(Hash::Xxh3);
                vec![(hash, kernel(job.compute.clone()))]
            }
        };
        let errors = Mutex::new(Vec::new());
        Self {
            kernels,
            exec: job.exec.as_ref(),
            lines,
            combined,
            listed,
            excludable: false,
            errors,
        }
    }

    /// Advises to exclude files that cannot be read, if --exclude applies to them.
    pub(super) fn excludable(self, excludable: bool) -> Self {
        Self { excludable, ..self }
    }

    /// Combines the results of the threads.
    pub(super) fn outcome(
        &self,
        locals: Vec<Local>,
        mut measured: Measured,
        (list, roots): (Option<&PathList>, &Roots),
    ) -> (Outcome, Counts) {
        let (mut all, mut counts) = (Hashes::default(), Counts::default());
        for local in locals {
            all.append(local.hashes);
            counts.right += local.counts.right;
            counts.wrong += local.counts.wrong;
            counts.failed += local.counts.failed;
            counts.commands += local.counts.commands;
            counts.missing += local.counts.missing;
        }
        measured.errors += counts.failed + counts.wrong;
        let digest = self.combined.then(|| all.digest(list, |path| roots.shown(path)));
        measured.digest = digest.clone().unwrap_or_default();
        let mut errors = std::mem::take(&mut *lock(&self.errors));
        errors.sort();
        let shown = !matches!(self.lines, Lines::None);
        (Outcome::new(measured, digest, errors, shown), counts)
    }

    /// Returns the kernel of a file and its hash.
    fn kernel(&self, index: usize) -> &(Hash, Kernel) {
        let wanted = match &self.lines {
            Lines::Compare(_, comparison) => comparison.expected.get(index).map(|(hash, _)| *hash),
            _ => None,
        };
        let found = wanted.and_then(|wanted| self.kernels.iter().find(|(hash, _)| *hash == wanted));
        found.unwrap_or(&self.kernels[0])
    }

    fn line(&self, local: &mut Local, index: usize, path: &Path, (hex, bytes): (&str, u64)) {
        let name = path.as_os_str().as_bytes();
        let mut line = Vec::new();
        match &self.lines {
            Lines::None => {}
            Lines::Print(sink, shape) => {
                match shape {
                    Shape::Text(form) => {
                        write_line(&mut line, *form, self.kernel(index).0, hex, name);
                    }
                    Shape::Json => {
                        json_line(&mut line, path, &json!({"bytes": bytes, "hash": hex}))
                    }
                }
                sink.line(index, &line);
            }
            Lines::Compare(sink, comparison) => {
                let right = comparison.expected.get(index).is_some_and(|(_, e)| e == hex);
                *(if right { &mut local.counts.right } else { &mut local.counts.wrong }) += 1;
                if !(comparison.status || right && comparison.quiet) {
                    write_checked(&mut line, name, if right { "OK" } else { "FAILED" });
                }
                sink.line(index, &line);
            }
        }
    }

    /// Counts a failed file, prints its line and message, and keeps the message.
    fn fail(
        &self,
        local: &mut Local,
        (index, path): (usize, &Path),
        message: String,
        missing: bool,
    ) -> ControlFlow<()> {
        let mut line = Vec::new();
        let mut pass = false;
        let sink = match &self.lines {
            Lines::None => None,
            Lines::Print(sink, shape) => {
                if let Shape::Json = shape {
                    json_line(&mut line, path, &json!({"error": message}));
                }
                Some(sink)
            }
            Lines::Compare(sink, comparison) => {
                pass = missing && comparison.ignore_missing;
                if !(pass || comparison.status) {
                    write_checked(&mut line, path.as_os_str().as_bytes(), "FAILED open or read");
                }
                Some(sink)
            }
        };
        if let Some(sink) = sink {
            if !pass {
                sink.aside(|| stderr::message(&one_line(&message)));
            }
            sink.line(index, &line);
        }
        if pass {
            local.counts.missing += 1;
            return ControlFlow::Continue(());
        }
        local.counts.failed += 1;
        let mut errors = lock(&self.errors);
        if errors.len() < ERRORS_KEPT {
            errors.push(message);
        }
        ControlFlow::Continue(())
    }
}

/// Writes a JSON object about a file as one line.
fn json_line(line: &mut Vec<u8>, path: &Path, facts: &serde_json::Value) {
    let mut document = json!({"path": path.to_string_lossy()});
    if let Some(exact) = out::base64_unless_utf8(path) {
        document["path_base64"] = exact.into();
    }
    for (name, fact) in facts.as_object().into_iter().flatten() {
        document[name] = fact.clone();
    }
    line.extend_from_slice(document.to_string().as_bytes());
    line.push(b'\n');
}

impl Work for EachWork<'_> {
    type State = State;
    type Local = Local;
    type Error = FnError;

    fn local(&self) -> Local {
        Local::default()
    }

    fn begin(&self, index: usize, path: &Path) -> State {
        match self.exec {
            Some(exec) => State::Exec(Box::new(exec.start(path))),
            None => State::Kernel(self.kernel(index).1.begin(), 0),
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
            State::Kernel(state, bytes) => {
                let kernel = &self.kernel(piece.index).1;
                kernel.piece(state, piece.index, piece.offset, piece.last, piece.bytes);
                *bytes += piece.bytes.len() as u64;
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
            State::Kernel(state, bytes) => {
                let outcome = self.kernel(index).1.finish(state, index);
                if self.combined && self.listed {
                    local.hashes.push_listed(outcome.xxh3, index);
                } else if self.combined {
                    local.hashes.push_streamed(outcome.xxh3, path.as_os_str().as_bytes());
                }
                if let Some(hex) = outcome.hex {
                    self.line(local, index, path, (&hex, bytes));
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
        local.counts.commands += 1;
        let message = format!("cannot {} {}: {error}", Operation::Process, quoted(path));
        self.fail(local, (index, path), message, false)
    }

    fn failed(&self, local: &mut Local, error: FileError) -> ControlFlow<()> {
        let missing = error.io_error().is_some_and(|e| e.kind() == ErrorKind::NotFound);
        let message = error.to_string().replace(LIBRARY_ADVICE, OWN_ADVICE);
        let message = if self.excludable { message } else { without_exclusion(&message) };
        self.fail(local, (error.index, &error.path), message, missing)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
