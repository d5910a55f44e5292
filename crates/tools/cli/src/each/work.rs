//! The work on each file, and its output line.

use super::digest::Hashes;
use super::exec::{Exec, Running};
use super::input::{Roots, with_exclusion};
use super::job::Job;
use super::line::{Form, write_checked, write_line};
use super::outcome::Outcome;
use super::output::one_line;
use super::progress::Bar;
use super::sink::Sink;
use crate::exit::Failure;
use crate::{interrupt, out, remote, stderr};
use ioloom::{Chunk, FileError, Files, FnError, Run};
use ioloom_model::{Compute, Hash, Measured, Method};
use ioloom_shard::record::Record;
use ioloom_subjects::Kernel;
use ioloom_subjects::kernel::FileState;
use ioloom_walk::PathList;
use serde_json::json;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Errors whose text is kept.
const ERRORS_KEPT: usize = 1000;

/// Bytes of a mapping that are processed between two looks whether the run was interrupted.
const MAPPED_BYTES: usize = 1 << 20;

/// The library's advice for files that do not fit in memory, and that of this program. A size follows.
const LIBRARY_ADVICE: &str = "read it in chunks with .chunks(), or raise .memory()";
const OWN_ADVICE: &str = "read in chunks with the default method and schedule, or raise --memory";

/// What happens to the results of single files.
pub(super) enum Lines<'a> {
    /// They have no lines.
    None,
    /// Only errors are printed.
    Errors(&'a Bar),
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

/// What a line of a list expects.
pub(super) struct Expected {
    /// Position of its result among those of the list.
    pub(super) at: usize,
    /// The hash.
    pub(super) hash: Hash,
    /// Its digits.
    pub(super) hex: String,
    /// Whether only the number of digits shows the hash.
    pub(super) guessed: bool,
}

/// What a check expects and prints.
#[derive(Clone, Copy)]
pub(super) struct Comparison<'a> {
    /// What is expected of each file, by its position in the input.
    pub(super) expected: &'a [Expected],
    /// Pass over files that do not exist.
    pub(super) ignore_missing: bool,
    /// Print nothing for files that match.
    pub(super) quiet: bool,
    /// Print nothing for any file.
    pub(super) status: bool,
}

impl Comparison<'_> {
    /// Prints the result of a file whose hash is `hex`. Returns whether it is the expected one.
    pub(super) fn compare(
        &self,
        sink: &Sink<'_>,
        expected: &Expected,
        (name, hex): (&[u8], &str),
    ) -> bool {
        let right = expected.hex == hex;
        let mut line = Vec::new();
        if !(self.status || right && self.quiet) {
            write_checked(&mut line, name, if right { "OK" } else { "FAILED" });
        }
        sink.line(expected.at, &line);
        right
    }

    /// Returns the line of a file that cannot be read.
    pub(super) fn unreadable(&self, name: &[u8]) -> Vec<u8> {
        let mut line = Vec::new();
        if !self.status {
            write_checked(&mut line, name, "FAILED open or read");
        }
        line
    }
}

/// The work that the flags select.
pub(super) struct EachWork<'a> {
    kernels: Vec<(Hash, Kernel)>,
    exec: Option<&'a Exec>,
    lines: Lines<'a>,
    combined: bool,
    /// Paths given by name, to which --exclude does not apply; `None` if it applies to nothing.
    named: Option<&'a BTreeSet<PathBuf>>,
    errors: Mutex<Vec<String>>,
    /// All paths, if they are known before the run: results then need no copies.
    known: Option<Arc<PathList>>,
    /// Whether the result of each file is kept, for a part.
    recorded: bool,
    /// Whether files are mapped: each is one piece, however large it is.
    mapped: bool,
}

/// State of one file.
pub(super) enum State {
    /// Without its first piece.
    New,
    /// The XXH3-64 of a file in one piece, its position and its bytes.
    Whole(u64, usize, u64),
    /// The kernel's state, the position of the file, and the bytes so far.
    Kernel(FileState, usize, u64),
    /// The command, the position of the file, and the bytes so far.
    Exec(Box<Running>, usize, u64),
}

/// State of one thread.
#[derive(Default)]
pub(super) struct Local {
    hashes: Hashes,
    pub(super) counts: Counts,
    records: Vec<(usize, Record)>,
}

impl Local {
    /// Creates a state with the results of other files.
    pub(super) fn counting(counts: Counts) -> Self {
        Self { counts, ..Self::default() }
    }

    /// Adds the results of another thread.
    pub(super) fn append(&mut self, other: Self) {
        self.hashes.append(other.hashes);
        self.records.extend(other.records);
        let (all, more) = (&mut self.counts, other.counts);
        all.right += more.right;
        all.wrong += more.wrong;
        all.guessed += more.guessed;
        all.failed += more.failed;
        all.commands += more.commands;
        all.interrupted += more.interrupted;
        all.missing += more.missing;
    }
}

/// Files by result.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Files whose hash was the expected one.
    pub(super) right: u64,
    /// Files with another hash.
    pub(super) wrong: u64,
    /// Those whose expected hash is only known from its number of digits; also in `wrong`.
    pub(super) guessed: u64,
    /// Files that failed.
    pub(super) failed: u64,
    /// Files whose command failed; also in `failed`.
    pub(super) commands: u64,
    /// Commands and mapped files that an interrupt has ended, or may have. They are not failures.
    pub(super) interrupted: u64,
    /// Files that do not exist and need not.
    pub(super) missing: u64,
}

impl<'a> EachWork<'a> {
    /// Creates the work. The digest over all files is computed if `combined`.
    pub(super) fn new(job: &'a Job, lines: Lines<'a>, combined: bool) -> Self {
        // Work that does not process all bytes must not cost a hash of all bytes.
        let hashes = !matches!(job.compute, Compute::None | Compute::Touch);
        let reads = job.exec.is_none() && job.plan.method != Method::Null;
        let combined = combined && hashes && reads;
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
        let exec = job.exec.as_ref();
        let (named, known) = (None, None);
        let mapped = job.plan.method.is_mmap();
        Self { kernels, exec, lines, combined, named, errors, known, recorded: false, mapped }
    }

    /// Keeps the result of each file.
    pub(super) fn recorded(mut self, recorded: bool) -> Self {
        self.recorded = recorded;
        if recorded {
            let with_hex = |(hash, kernel): (Hash, Kernel)| (hash, kernel.with_hex());
            self.kernels = self.kernels.into_iter().map(with_hex).collect();
        }
        self
    }

    /// Learns all paths before the run, if that is possible.
    pub(super) fn knowing(self, files: &mut Files<'_>) -> Self {
        let known = if self.combined { files.known_paths() } else { None };
        Self { known: known.filter(|list| u32::try_from(list.len()).is_ok()), ..self }
    }

    /// Advises to exclude files that cannot be read, except those given by name.
    pub(super) fn walked(self, named: Option<&'a BTreeSet<PathBuf>>) -> Self {
        Self { named, ..self }
    }

    /// Returns the result of a run.
    pub(super) fn outcome(&self, run: Run<Local, FnError>, roots: &Roots) -> (Outcome, Counts) {
        self.outcome_of(run.value, (run.measured, run.cancelled), roots)
    }

    /// Returns the result of a run that had these measurements and may have been cancelled.
    pub(super) fn outcome_of(
        &self,
        value: Local,
        (mut measured, cancelled): (Measured, bool),
        roots: &Roots,
    ) -> (Outcome, Counts) {
        let Local { hashes, counts, records } = value;
        measured.errors = counts.failed + counts.wrong;
        let digest = self.combined.then(|| {
            let none = PathList::new();
            hashes.digest(self.known.as_deref().unwrap_or(&none), |path| roots.shown(path))
        });
        measured.digest = digest.clone().unwrap_or_default();
        let mut errors = std::mem::take(&mut *lock(&self.errors));
        errors.sort();
        let shown = !matches!(self.lines, Lines::None);
        let outcome = Outcome::new(measured, digest, errors, shown);
        let cancelled = cancelled || counts.interrupted > 0;
        (Outcome { cancelled, records, ..outcome }, counts)
    }

    /// Returns the kernel of a file and its hash.
    fn kernel(&self, index: usize) -> &(Hash, Kernel) {
        let wanted = match &self.lines {
            Lines::Compare(_, comparison) => comparison.expected.get(index).map(|e| e.hash),
            _ => None,
        };
        let found = wanted.and_then(|wanted| self.kernels.iter().find(|(hash, _)| *hash == wanted));
        found.unwrap_or(&self.kernels[0])
    }

    /// Prints the line of a file. Returns whether its hash is the expected one, in a comparison.
    fn line(&self, index: usize, path: &Path, (hex, bytes): (&str, u64)) -> Option<bool> {
        let name = path.as_os_str().as_bytes();
        let mut line = Vec::new();
        match &self.lines {
            Lines::None | Lines::Errors(_) => None,
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
                None
            }
            Lines::Compare(sink, comparison) => {
                let expected = comparison.expected.get(index)?;
                Some(comparison.compare(sink, expected, (name, hex)))
            }
        }
    }

    /// Counts a failed file, prints its line and message, and keeps the message.
    pub(super) fn fail(
        &self,
        local: &mut Local,
        (index, path): (Option<usize>, &Path),
        message: String,
        missing: bool,
    ) {
        let mut line = Vec::new();
        let mut pass = false;
        let mut at = index;
        let sink = match &self.lines {
            Lines::None => None,
            Lines::Errors(bar) => {
                bar.hide_during(|| stderr::message(&one_line(&message)));
                None
            }
            Lines::Print(sink, shape) => {
                if let Shape::Json = shape {
                    json_line(&mut line, path, &json!({"error": message}));
                }
                Some(sink)
            }
            Lines::Compare(sink, comparison) => {
                pass = missing && comparison.ignore_missing;
                if !pass {
                    line = comparison.unreadable(path.as_os_str().as_bytes());
                }
                at = index.and_then(|index| comparison.expected.get(index)).map(|e| e.at);
                Some(sink)
            }
        };
        if let Some(sink) = sink {
            if !pass {
                sink.report(|| stderr::message(&one_line(&message)));
            }
            match at {
                Some(at) => sink.line(at, &line),
                None => sink.first(&line),
            }
        }
        if pass {
            local.counts.missing += 1;
            return;
        }
        local.counts.failed += 1;
        let mut errors = lock(&self.errors);
        if errors.len() < ERRORS_KEPT {
            errors.push(message);
        }
    }
}

/// Writes a JSON object about a file as one line.
pub(crate) fn json_line(line: &mut Vec<u8>, path: &Path, facts: &serde_json::Value) {
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

/// Longest path that needs no allocation on its way to the digest, bytes.
const PATH_INLINE: usize = 112;

/// What a processed file left.
pub(super) struct Done {
    /// Its position in the input.
    index: usize,
    /// Its path, if the combined digest needs a copy.
    path: Option<SmallVec<[u8; PATH_INLINE]>>,
    xxh3: u64,
    /// Whether its hash was the expected one.
    right: Option<bool>,
    /// Its result, if it is kept.
    record: Option<Box<Record>>,
}

impl EachWork<'_> {
    /// Runs the work over files. Returns the results of all threads, added to those in `early`.
    pub(super) fn run(
        &self,
        files: Files<'_>,
        early: Local,
    ) -> Result<Run<Local, FnError>, ioloom::Error<FnError>> {
        let mut run = files
            .pieces()
            .try_fold_file(
                |path| self.begin(path),
                |state, chunk| self.piece(state, chunk),
                |state, path| self.finish(state, path),
            )
            .fold_results(
                Local::default,
                |local, mut result| match &mut result {
                    Ok(done) => self.done(local, done),
                    Err(error) => self.failed(local, error),
                },
                Local::append,
            )?;
        run.value.append(early);
        Ok(run)
    }

    /// Reports failures from before the run.
    pub(super) fn failed_early(&self, errors: Vec<(PathBuf, String)>) -> Local {
        let mut local = Local::default();
        for (path, message) in errors {
            self.fail(&mut local, (None, &path), message, false);
        }
        local
    }

    pub(super) fn begin(&self, path: &Path) -> State {
        match self.exec {
            Some(exec) => State::Exec(Box::new(exec.start(path)), 0, 0),
            None => State::New,
        }
    }

    fn piece(&self, state: &mut State, chunk: &Chunk<'_>) -> Result<(), FnError> {
        let (at, bytes) = (chunk.index(), chunk.bytes());
        if !self.mapped || bytes.len() <= MAPPED_BYTES {
            return self.bytes(state, at, bytes, (chunk.offset(), chunk.is_last()));
        }
        let (mut offset, mut parts) = (chunk.offset(), bytes.chunks(MAPPED_BYTES).peekable());
        while let Some(part) = parts.next() {
            if interrupt::is_raised() {
                return Err("interrupted".into());
            }
            let is_last = chunk.is_last() && parts.peek().is_none();
            self.bytes(state, at, part, (offset, is_last))?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Processes bytes of file `at` that begin at an offset and may be its last ones.
    pub(super) fn bytes(
        &self,
        state: &mut State,
        at: usize,
        piece: &[u8],
        (offset, is_last): (u64, bool),
    ) -> Result<(), FnError> {
        if let State::New = state {
            let kernel = &self.kernel(at).1;
            if offset == 0
                && is_last
                && let Some(xxh3) = kernel.hash_whole(piece)
            {
                *state = State::Whole(xxh3, at, piece.len() as u64);
                return Ok(());
            }
            *state = State::Kernel(kernel.begin(), at, 0);
        }
        match state {
            State::New | State::Whole(..) => {}
            State::Exec(running, index, bytes) => {
                (*index, *bytes) = (at, *bytes + piece.len() as u64);
                running.feed(piece)?;
            }
            State::Kernel(state, _, bytes) => {
                let kernel = &self.kernel(at).1;
                kernel.piece(state, at, offset, is_last, piece);
                *bytes += piece.len() as u64;
            }
        }
        Ok(())
    }

    pub(super) fn finish(&self, state: State, path: &Path) -> Result<Done, FnError> {
        let (index, bytes, xxh3, hex) = match state {
            State::New => return Err("the file has no piece".into()),
            State::Exec(running, index, bytes) => {
                running.finish()?;
                let record = self.record(bytes, None, None);
                return Ok(Done { index, path: None, xxh3: 0, right: None, record });
            }
            State::Whole(xxh3, index, bytes) => {
                (index, bytes, xxh3, self.kernel(index).1.digits(xxh3))
            }
            State::Kernel(state, index, bytes) => {
                let outcome = self.kernel(index).1.finish(state, index);
                (index, bytes, outcome.xxh3, outcome.hex)
            }
        };
        let right = hex.as_deref().and_then(|hex| self.line(index, path, (hex, bytes)));
        let copied = self.combined && self.known.is_none();
        let path = copied.then(|| SmallVec::from_slice(path.as_os_str().as_bytes()));
        let record = self.record(bytes, self.combined.then_some(xxh3), hex);
        Ok(Done { index, path, xxh3, right, record })
    }

    /// Returns the result of a processed file, if results are kept.
    fn record(&self, bytes: u64, xxh3: Option<u64>, hash: Option<String>) -> Option<Box<Record>> {
        self.recorded.then(|| Box::new(Record::Done { bytes, xxh3, hash }))
    }

    /// Adds what a file left. It is not moved, because a path makes it large.
    pub(super) fn done(&self, local: &mut Local, done: &mut Done) {
        if let Some(path) = &done.path {
            local.hashes.push(done.xxh3, path);
        } else if self.known.is_some() && self.exec.is_none() {
            local.hashes.push_known(done.xxh3, done.index as u32);
        }
        if let Some(record) = done.record.take() {
            local.records.push((done.index, *record));
        }
        match done.right {
            Some(true) => local.counts.right += 1,
            Some(false) => {
                local.counts.wrong += 1;
                local.counts.guessed += u64::from(self.is_guessed(done.index));
            }
            None => {}
        }
    }

    /// Returns whether only the number of digits shows the expected hash of a file.
    fn is_guessed(&self, index: usize) -> bool {
        let Lines::Compare(_, comparison) = &self.lines else { return false };
        comparison.expected.get(index).is_some_and(|expected| expected.guessed)
    }

    /// Counts a command or a mapped file that has failed during an interrupt, which may be why. Returns
    /// whether it is one.
    pub(super) fn is_interrupted(&self, local: &mut Local) -> bool {
        let interrupted = match self.exec {
            Some(exec) => exec.commands.are_interrupted(),
            None => self.mapped && interrupt::is_raised(),
        };
        local.counts.interrupted += u64::from(interrupted);
        interrupted
    }

    fn failed(&self, local: &mut Local, error: &FileError<FnError>) {
        if error.function_error().is_some() && self.is_interrupted(local) {
            return;
        }
        let missing = error.io_error().is_some_and(|e| e.kind() == ErrorKind::NotFound);
        local.counts.commands += u64::from(error.function_error().is_some());
        let message = error.to_string().replace(LIBRARY_ADVICE, OWN_ADVICE);
        let excludable = self.named.is_some_and(|named| !named.contains(&error.path));
        let message = if excludable { with_exclusion(message) } else { message };
        let is_object = missing && remote::url_of(&error.path).is_some();
        let message = if is_object { message + "; objects cannot be in a list" } else { message };
        if self.recorded {
            let record = Record::Failed { gone: missing, message: message.clone() };
            local.records.push((error.index, record));
        }
        self.fail(local, (Some(error.index), &error.path), message, missing);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns why a run has no result.
pub(super) fn failure(error: ioloom::Error<FnError>) -> Failure {
    match error {
        ioloom::Error::Refused(reason) => Failure::refused(reason),
        other => Failure::failed(other),
    }
}
