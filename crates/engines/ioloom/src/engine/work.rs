//! The work on files, and the thread that runs it.

use super::traced::{Seen, Traced, Tracing, see};
use crate::arena::{Arena, RetainedBytes};
use crate::cancel::Cancel;
use crate::error::FileError;
use crate::loaded::{Data, Loaded};
use crate::shared::Shared;
use ioloom_model::layout::Role;
use ioloom_model::{CallKind, Plan, State, Tuned};
use ioloom_observe::collect::Recorder;
use ioloom_observe::{Detail, Meter, ThreadReport, UsageDelta, finishing};
use ioloom_sys::clock::monotonic_ns;
use ioloom_trace::Trace;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Work on the pieces of files. In whole-file form each file is one piece. In chunk form the pieces
/// of a file come in the order of their offsets, one at a time, with the state of that file.
///
/// `Break` from any of the methods ends the run: it takes no new files and drains what is in
/// flight. The work remembers why.
pub trait Work: Sync {
    /// State of one file between its pieces.
    type State: Send;
    /// State of one thread.
    type Local: Send;
    /// The error of the function, which only [`Work::function_failed`] sees.
    type Error;

    /// Creates the state of a thread.
    fn local(&self) -> Self::Local;
    /// Creates the state of a file.
    fn begin(&self, index: usize, path: &Path) -> Self::State;
    /// Processes one piece of a file. After `Break` the file has no more pieces.
    fn piece(
        &self,
        local: &mut Self::Local,
        state: &mut Self::State,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, Self::Error>;
    /// Ends a file whose pieces were all processed.
    fn finish(
        &self,
        local: &mut Self::Local,
        state: Self::State,
        index: usize,
        path: &Path,
    ) -> Result<ControlFlow<()>, Self::Error>;
    /// Handles a file whose function failed.
    fn function_failed(
        &self,
        local: &mut Self::Local,
        index: usize,
        path: &Path,
        error: Self::Error,
    ) -> ControlFlow<()>;
    /// Handles a file that could not be read.
    fn failed(&self, local: &mut Self::Local, error: FileError) -> ControlFlow<()>;
    /// Describes the failure that ended the run, if one did, for the trace of the run.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// A piece of a file, borrowed for one call.
pub struct Piece<'a> {
    /// Position of the file in the input.
    pub index: usize,
    /// Path of the file as given.
    pub path: &'a Path,
    /// Offset of the piece, bytes.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Whether this is the last piece of the file.
    pub last: bool,
    pub(crate) data: &'a Data,
    pub(crate) arena: &'a Arc<Arena>,
    /// Reservations of the function that runs on this piece.
    pub(crate) reservations: AtomicU32,
}

impl Piece<'_> {
    /// Retains the bytes beyond the call, counted against the memory budget.
    pub(crate) fn keep(&self) -> RetainedBytes {
        match self.data {
            Data::Buffer(lease) => lease.keep(self.bytes.len()),
            Data::Map(_) | Data::Empty => RetainedBytes::copy(self.bytes, self.arena),
        }
    }
}

/// What a run has done so far.
#[derive(Debug, Clone, Copy)]
pub struct ProgressNow {
    /// Files whose function returned a value.
    pub files: u64,
    /// Files that failed, and entries that could not be listed.
    pub failed: u64,
    /// Bytes that the function saw.
    pub bytes: u64,
    /// Number of files, if known.
    pub total: Option<u64>,
}

/// Options of a run besides its plan.
pub struct RunOptions<'a> {
    /// Cancels the run.
    pub cancel: Cancel,
    /// Called about ten times a second.
    pub progress: Option<&'a (dyn Fn(ProgressNow) + Sync)>,
    /// How closely threads measure themselves.
    pub detail: Detail,
    /// Whether to sample the requests in flight.
    pub sample: bool,
    /// Block device whose busy time is measured.
    pub block_device: Option<&'a str>,
    /// Traces the run.
    pub tracing: Option<Tracing>,
    /// Receives the trace of a run that fails; a run that succeeds returns it in
    /// [`Executed::trace`].
    pub trace_of_failure: Option<&'a Mutex<Option<Box<Trace>>>>,
    /// State that a wait inside the function counts as, if known: work that sleeps, for instance.
    pub function_waits: Option<State>,
    /// Begin with one worker, and start one per permit when paths wait for it.
    pub on_demand: bool,
    /// Go on with the threads that run if the system refuses another one. Implied by `on_demand`.
    pub fewer_threads: bool,
    /// Begin files by a ring, if the controller of the plan chooses the method. Tests need it.
    pub ring_first: bool,
    /// Allow mappings, which may end the process with SIGBUS.
    pub mmap: bool,
}

impl Default for RunOptions<'_> {
    fn default() -> Self {
        Self {
            cancel: Cancel::new(),
            progress: None,
            detail: Detail::Totals,
            sample: false,
            block_device: None,
            tracing: None,
            trace_of_failure: None,
            function_waits: None,
            on_demand: false,
            fewer_threads: false,
            ring_first: false,
            mmap: false,
        }
    }
}

/// The result of a run.
pub struct Executed<L> {
    /// The plan that ran.
    pub plan: Plan,
    /// The states of the threads.
    pub locals: Vec<L>,
    /// From the start to the end of the last thread, nanoseconds.
    pub elapsed_ns: u64,
    /// Files whose function returned a value.
    pub files: u64,
    /// Bytes that the function saw.
    pub bytes: u64,
    /// The report of each thread.
    pub reports: Vec<ThreadReport>,
    /// Resources that the process used.
    pub usage: UsageDelta,
    /// Requests in flight over time.
    pub in_flight: Vec<(u64, u32)>,
    /// Peak use of the memory budget, bytes.
    pub budget_peak_bytes: u64,
    /// Whether the run was cancelled.
    pub cancelled: bool,
    /// Whether the work ended the run before all files were done.
    pub stopped: bool,
    /// The trace, if the run was traced.
    pub trace: Option<Box<Trace>>,
    /// What the controller did, if the plan has one.
    pub tuned: Option<Tuned>,
    /// See [`RunOptions::function_waits`].
    pub(crate) function_waits: Option<State>,
}

impl<L> Executed<L> {
    /// Maps the states of the threads.
    pub(crate) fn map<T>(self, f: impl FnMut(L) -> T) -> Executed<T> {
        Executed {
            plan: self.plan,
            locals: self.locals.into_iter().map(f).collect(),
            elapsed_ns: self.elapsed_ns,
            files: self.files,
            bytes: self.bytes,
            reports: self.reports,
            usage: self.usage,
            in_flight: self.in_flight,
            budget_peak_bytes: self.budget_peak_bytes,
            cancelled: self.cancelled,
            stopped: self.stopped,
            trace: self.trace,
            function_waits: self.function_waits,
            tuned: self.tuned,
        }
    }
}

/// One thread of a run.
pub(crate) struct Worker<'e, W: Work> {
    pub(crate) shared: &'e Shared<'e>,
    pub(crate) meter: Meter,
    pub(crate) number: usize,
    pub(crate) work: &'e W,
    pub(crate) local: W::Local,
    /// Processed files, if a trace wants them.
    seen: Option<Seen>,
}

impl<'e, W: Work> Worker<'e, W> {
    pub(crate) fn new(shared: &'e Shared<'e>, number: usize, work: &'e W, meter: Meter) -> Self {
        Self { shared, meter, number, work, local: work.local(), seen: None }
    }

    /// Starts tracing this thread.
    pub(super) fn trace(&mut self, recorder: Recorder, traced: &Traced) {
        self.meter.trace(recorder);
        self.seen = traced.wants_files().then(Seen::new);
    }

    pub(super) fn end(
        mut self,
        name: String,
        role: Role,
        traced: Option<&Traced>,
    ) -> (ThreadReport, W::Local, u64) {
        let ended = monotonic_ns();
        if let (Some(traced), Some(seen)) = (traced, self.seen.take()) {
            traced.saw(seen);
        }
        (self.meter.finish(name, role.name()), self.local, ended)
    }

    /// Publishes how many requests of this thread are in flight.
    #[inline]
    pub(crate) fn in_flight(&mut self, count: usize) {
        self.meter.in_flight(count as u32);
        self.shared.gauges.set(self.number, count as u32);
    }

    /// Runs the function on a loaded piece. Returns true if the file has more pieces to read.
    pub(crate) fn compute(&mut self, loaded: &mut Loaded<'e, W::State>) -> bool {
        self.meter.compute_starts();
        let path = loaded.item.path.as_path();
        let index = loaded.item.index;
        let bytes = loaded.data.bytes(loaded.len);
        if matches!(loaded.data, Data::Map(_)) {
            ioloom_sys::map::note_mapped_file(index);
        }
        let piece = Piece {
            index,
            path,
            offset: loaded.offset,
            bytes,
            last: loaded.last,
            data: &loaded.data,
            arena: &self.shared.arena,
            reservations: AtomicU32::new(0),
        };
        let (work, local, last) = (self.work, &mut self.local, loaded.last);
        let mut state = loaded.item.state.take();
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut own = state.take().map_or_else(|| work.begin(index, path), |state| *state);
            let mut last = last;
            // An empty last piece after other pieces only ends the file.
            if !(piece.bytes.is_empty() && piece.offset > 0) {
                last |= work.piece(local, &mut own, &piece)?.is_break();
            }
            if !last {
                return Ok(After::More(Box::new(own)));
            }
            let finish = || work.finish(local, own, index, path);
            let flow = if piece.offset > 0 { finishing(finish) } else { finish() };
            Ok(After::Ended(flow?))
        }));
        self.meter.lap(CallKind::Compute, index);
        if let Some(seen) = &mut self.seen {
            see(seen, index, path, bytes.len() as u64);
        }
        match result {
            Ok(Ok(After::More(state))) => {
                self.shared.gauges.done(self.number, bytes.len() as u64, false);
                loaded.item.state = Some(state);
                true
            }
            Ok(Ok(After::Ended(flow))) => {
                self.shared.gauges.done(self.number, bytes.len() as u64, true);
                let bytes = loaded.offset + bytes.len() as u64;
                self.meter.file_done(loaded.item.began, bytes);
                if flow.is_break() {
                    self.shared.stopped();
                }
                false
            }
            Ok(Err(error)) => {
                self.function_failed(index, path, error);
                false
            }
            Err(payload) => {
                self.shared.panicked(payload);
                false
            }
        }
    }

    /// Passes a failure of the function to the policy, as [`Worker::failed`] does for files.
    /// Also while the run is ending: the function has returned, and says why.
    fn function_failed(&mut self, index: usize, path: &Path, error: W::Error) {
        self.shared.failed.fetch_add(1, Ordering::Relaxed);
        if self.work.function_failed(&mut self.local, index, path, error).is_break() {
            self.shared.stopped();
        }
    }

    /// Passes a failure to the policy. Failures of a run that is ending already are dropped,
    /// because they may be caused by the end.
    pub(crate) fn failed(&mut self, error: FileError) {
        if self.shared.stopping() {
            return;
        }
        self.shared.failed.fetch_add(1, Ordering::Relaxed);
        if self.work.failed(&mut self.local, error).is_break() {
            self.shared.stopped();
        }
    }
}

/// What follows a piece.
enum After<S> {
    /// More pieces of the file.
    More(Box<S>),
    /// The next file, or the end of the run.
    Ended(ControlFlow<()>),
}
