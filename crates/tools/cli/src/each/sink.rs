//! Standard output of lines that files produce during the run.
//!
//! Lines are written when their files are done, or in input order. They are collected and written at
//! the latest after [`FLUSH`], or one by one where a person or a feedback loop waits for them. When
//! the reader has gone, the run is pointless and ends at once, unless its exit code still matters or its
//! trace is to be written. When the reader is slow, files wait for it; after an interrupt, what it does not
//! take is lost.

use super::early::Early;
use super::input::reads_all;
use super::progress::Bar;
use crate::exit::{Exit, Failure};
use crate::{interrupt, out, slow_reader};
use ioloom::{Files, Plan};
use ioloom_walk::PathList;
use std::io::{self, ErrorKind, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest time that a line waits in the buffer. The engine calls back ten times a second.
const FLUSH: Duration = Duration::from_millis(90);
/// Shortest time between two looks whether the reader is still there.
const LOOK: Duration = Duration::from_millis(1);
/// Bytes after which the buffer is written.
const BUFFER: usize = 64 << 10;
/// Files of a list whose lines may all wait. They cost less than taking the files one by one.
pub(super) const SHORT_LIST: usize = 65_536;

/// How lines are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Manner {
    /// In input order; a line waits for those before it.
    pub(super) ordered: bool,
    /// Each line at once.
    pub(super) each_line: bool,
    /// What the run does when the reader has gone.
    pub(super) without_reader: WithoutReader,
}

/// What a run does when its reader has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutReader {
    /// It exits at once.
    Exits,
    /// It is stopped, so that its trace is written, and then exits.
    Stops,
    /// It goes on without output.
    GoesOn,
}

impl Manner {
    /// Returns the manner for lines of a list that is `awaited`: its writer may wait for them.
    pub(super) fn of(ordered: bool, awaited: bool) -> Self {
        let each_line = awaited || io::stdout().is_terminal();
        Self { ordered, each_line, without_reader: WithoutReader::Exits }
    }
}

/// Standard output during a run.
pub(super) struct Sink<'a> {
    manner: Manner,
    bar: &'a Bar,
    stop: &'a (dyn Fn() + Sync),
    out: Mutex<Out>,
    /// Whether a failure was reported.
    reported: AtomicBool,
}

struct Out {
    buffer: Vec<u8>,
    /// In input order, the lines that wait for those before them.
    early: Early,
    /// Whether anything was written.
    begun: bool,
    flushed: Instant,
    looked: Instant,
    failed: Option<io::Error>,
    /// The exit code of a run that was stopped because its reader has gone.
    exit: Option<Exit>,
}

impl<'a> Sink<'a> {
    /// `stop` is called when output fails, to end the run.
    pub(super) fn new(manner: Manner, bar: &'a Bar, stop: &'a (dyn Fn() + Sync)) -> Self {
        let now = Instant::now();
        let out = Out {
            buffer: Vec::new(),
            early: Early::default(),
            begun: false,
            flushed: now,
            looked: now,
            failed: None,
            exit: None,
        };
        Self { manner, bar, stop, out: Mutex::new(out), reported: AtomicBool::new(false) }
    }

    /// Returns the files, of which none is taken while too many bytes of lines wait for an earlier file.
    /// A plan that reads all files ahead needs a list.
    pub(super) fn holding_back<'f>(&self, mut files: Files<'f>, plan: &Plan) -> Files<'f> {
        let is_short = |list: Arc<PathList>| list.len() <= SHORT_LIST;
        if !self.manner.ordered || reads_all(plan) || files.known_paths().is_some_and(is_short) {
            return files;
        }
        let room = self.lock().early.room();
        files.before_each(move |_| room.wait())
    }

    /// Writes the line of file `index`; empty if it has none. In input order every file needs a
    /// call.
    pub(super) fn line(&self, index: usize, line: &[u8]) {
        let mut out = match self.out.try_lock() {
            Ok(out) => out,
            // Another thread may be writing.
            Err(_) => ioloom::writing(|| self.lock()),
        };
        if !self.manner.ordered {
            out.buffer.extend_from_slice(line);
        } else {
            let Out { buffer, early, .. } = &mut *out;
            early.add(index, line, buffer);
        }
        let now = Instant::now();
        // The first line is written at once: a reader that wants no more soon closes.
        let at_once = self.manner.each_line || !out.begun || out.buffer.len() >= BUFFER;
        if at_once || now - out.flushed >= FLUSH {
            self.flush(&mut out, now);
        } else if now - out.looked >= LOOK {
            self.look(&mut out, now);
        }
    }

    /// Writes a line of no file, before those of files that are not yet written.
    pub(super) fn first(&self, line: &[u8]) {
        let mut out = self.lock();
        out.buffer.extend_from_slice(line);
        if self.manner.each_line {
            self.flush(&mut out, Instant::now());
        }
    }

    /// Writes lines that have waited; called at intervals.
    pub(super) fn tick(&self) {
        // A thread that is writing may wait for the reader. The caller has other things to do.
        let Ok(mut out) = self.out.try_lock() else { return };
        let now = Instant::now();
        self.look(&mut out, now);
        if now - out.flushed >= FLUSH {
            self.flush(&mut out, now);
        }
    }

    /// Writes everything. After an interrupt, lines are missing that others wait for. Returns false if
    /// others are missing, too, because the reader did not take them.
    pub(super) fn finish(&self) -> Result<bool, Failure> {
        let mut out = self.lock();
        let Out { buffer, early, .. } = &mut *out;
        early.finish(buffer);
        self.flush(&mut out, Instant::now());
        match out.failed.take() {
            Some(e) if slow_reader::is_given_up(&e) => Ok(false),
            Some(e) if e.kind() != ErrorKind::BrokenPipe => Err(out::unwritten(&e)),
            _ => Ok(true),
        }
    }

    /// Returns the exit code of a run that was stopped because its reader has gone.
    pub(super) fn exit(&self) -> Option<Exit> {
        self.lock().exit
    }

    /// Runs `f`, which reports a failure on standard error, while the progress bar is hidden.
    pub(super) fn report(&self, f: impl FnOnce()) {
        self.reported.store(true, Ordering::Relaxed);
        self.bar.hide_during(f);
    }

    fn look(&self, out: &mut Out, now: Instant) {
        out.looked = now;
        if out.failed.is_none() && ioloom_sys::pipe::reader_gone(io::stdout()) {
            self.fail(out, ErrorKind::BrokenPipe.into());
        }
    }

    fn flush(&self, out: &mut Out, now: Instant) {
        out.flushed = now;
        if out.failed.is_none() && !out.buffer.is_empty() {
            out.begun = true;
            let written =
                ioloom::writing(|| slow_reader::stdout(|stdout| stdout.write_all(&out.buffer)));
            if let Err(error) = written {
                self.fail(out, error);
            }
        }
        out.buffer.clear();
    }

    fn fail(&self, out: &mut Out, error: io::Error) {
        let is_gone = error.kind() == ErrorKind::BrokenPipe;
        match self.manner.without_reader {
            _ if !is_gone => (self.stop)(),
            WithoutReader::Exits => {
                self.bar.finish();
                std::process::exit(self.exit_without_reader() as i32);
            }
            WithoutReader::Stops => {
                // An interrupt raises the flag that stops the run, too.
                out.exit = Some(self.exit_without_reader());
                (self.stop)();
            }
            WithoutReader::GoesOn => {}
        }
        out.failed = Some(error);
    }

    /// Returns the exit code of a run that ends because its reader has gone.
    fn exit_without_reader(&self) -> Exit {
        if interrupt::is_raised() {
            Exit::Interrupted
        } else if self.reported.load(Ordering::Relaxed) {
            Exit::Failed
        } else {
            Exit::Ok
        }
    }

    fn lock(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
