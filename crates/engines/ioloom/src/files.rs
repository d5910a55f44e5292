//! What users program against: files in, a plain function, values out.

use crate::cancel::Cancel;
use crate::each::{Each, FoldFile, MapChunks, Whole};
use crate::engine::{self, RunOptions};
use crate::error::{Error, FnError};
use crate::keep::Bytes;
use crate::run::{Collect, Folded, Job, Run};
use crate::source::Source;
use crate::trace::{TraceFile, TraceWanted, keeping_trace, level_of_environment};
use ioloom_budget::Budget;
use ioloom_model::{Method, Plan, ReadOrder, Schedule};
use ioloom_sys::file::{self, Nowait, OpenHow};
use ioloom_walk::PathList;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a run does when a file fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// Stop at the first failure and return it.
    #[default]
    Stop,
    /// Count failures and go on.
    Skip,
    /// Go on, keep the first 1000 failures in [`Run::errors`] and count all.
    Collect,
}

/// The order of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As they become ready.
    #[default]
    Any,
    /// In the order of the input.
    Input,
}

/// What a progress function is told, about ten times a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Files computed.
    pub files: u64,
    /// Bytes computed.
    pub bytes: u64,
    /// Number of files, if it is known before the end.
    pub files_total: Option<u64>,
}

pub(crate) type ProgressFn<'a> = Box<dyn Fn(Progress) + Sync + Send + 'a>;

/// Files to run a function over. Made by [`files`], [`tree`] or [`list`].
#[must_use = "nothing is read until a function is given and run"]
pub struct Files<'a> {
    pub(crate) input: Input<'a>,
    pub(crate) plan: Plan,
    pub(crate) pinned: bool,
    pub(crate) on_error: OnError,
    pub(crate) order: Order,
    pub(crate) cancel: Cancel,
    pub(crate) progress: Option<ProgressFn<'a>>,
    pub(crate) files_max: Option<u64>,
    pub(crate) trace: Option<PathBuf>,
}

pub(crate) enum Input<'a> {
    List(PathList),
    Stream(Box<dyn Iterator<Item = PathBuf> + Send + 'a>),
}

/// Requests in flight when nothing is said; `docs/decisions/006.md` says why.
const WINDOW: u64 = 512;
/// The same where only threads can wait for reads.
const WINDOW_BLOCKING: u64 = 256;
/// Bytes of the memory budget that one of them wants.
const MEMORY_EACH: u64 = 512 << 10;

/// The plan that is used when none is given, within `memory_bytes`: reads that do not wait in a window
/// of 512, compute on the usable cores. The window is smaller where memory or the limit of open files
/// asks for it. Kept measurements under `results/` compare it with what users write today.
pub fn default_plan(memory_bytes: u64) -> Plan {
    window_of(Method::Nowait, WINDOW, memory_bytes)
}

/// The default plan for a list that begins with `path`: where its file system cannot answer a read
/// without waiting, blocking reads in a window of 256 threads.
pub fn default_plan_for(path: &Path, memory_bytes: u64) -> Plan {
    if answers_nowait(path) {
        default_plan(memory_bytes)
    } else {
        window_of(Method::Read, WINDOW_BLOCKING, memory_bytes)
    }
}

fn window_of(method: Method, most: u64, memory_bytes: u64) -> Plan {
    // A thread holds a file and its own account open, and others want some too.
    let files = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX).saturating_sub(128) / 3;
    let window = most.min(memory_bytes / MEMORY_EACH).min(files).max(2) as u32;
    let schedule = Schedule::Window { window, permits: Some(usable_cores()) };
    Plan { memory_bytes, ..Plan::new(method, schedule) }
}

/// Asked by use, of one byte. What cannot be opened is no reason against it: the run will tell.
fn answers_nowait(path: &Path) -> bool {
    let Ok(file) = file::open(path, OpenHow::default()) else { return true };
    !matches!(file::read_nowait_at(&file, &mut [0], 0), Ok(Nowait::Unsupported))
}

/// Processors that this process may use: affinity and control-group quota, at least one.
pub fn usable_cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u32)
}

/// Files from any iterator of paths. The list streams: it is not collected first. What is not a
/// regular file is an error of that file, and is never opened.
///
/// ```
/// let lines: u64 = ioloom::files(["Cargo.toml", "src/lib.rs"])
///     .map(|f| Ok(f.bytes().iter().filter(|b| **b == b'\n').count() as u64))
///     .sum()?;
/// assert!(lines > 10);
/// # Ok::<(), ioloom::Error>(())
/// ```
pub fn files<'a, I>(paths: I) -> Files<'a>
where
    I: IntoIterator,
    I::Item: Into<PathBuf> + 'a,
    I::IntoIter: Send + 'a,
{
    Files::new(Input::Stream(Box::new(paths.into_iter().map(Into::into))))
}

/// All regular files below a directory, or one file. The tree is walked here; what is not regular
/// is left out and what cannot be walked is an error.
///
/// ```
/// let run = ioloom::tree("src")?.map(|f| Ok(f.len())).run()?;
/// assert!(run.value.len() > 5);
/// # Ok::<(), ioloom::Error>(())
/// ```
pub fn tree<'a>(root: impl AsRef<Path>) -> Result<Files<'a>, Error> {
    let (mut paths, summary) =
        ioloom_walk::files(root.as_ref(), &ioloom_walk::WalkOptions::default())
            .map_err(Error::Walk)?;
    if let Some(error) = summary.errors.into_iter().next() {
        return Err(Error::Walk(error));
    }
    paths.sort();
    Ok(list(paths))
}

/// Files from a packed list, as a walk gives it: regular files that it found are opened without
/// asking first.
pub fn list<'a>(paths: PathList) -> Files<'a> {
    Files::new(Input::List(paths))
}

impl<'a> Files<'a> {
    fn new(input: Input<'a>) -> Self {
        Self {
            input,
            plan: default_plan(Plan::DEFAULT_MEMORY_BYTES),
            pinned: false,
            on_error: OnError::default(),
            order: Order::default(),
            cancel: Cancel::new(),
            progress: None,
            files_max: None,
            trace: None,
        }
    }

    /// Bytes that may be in flight, ready or kept at once. Default 256 MiB.
    pub fn memory(mut self, bytes: u64) -> Self {
        if self.pinned {
            self.plan.memory_bytes = bytes;
        } else {
            self.plan.schedule = default_plan(bytes).schedule;
            self.plan.memory_bytes = bytes;
        }
        self
    }

    /// The order in which files are read: as given, or by inode, which rotating disks like.
    pub fn read_order(mut self, order: ReadOrder) -> Self {
        self.plan.read_order = order;
        self
    }

    /// Sets the order of results (default: [`Order::Any`]).
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets what to do when a file fails (default: [`OnError::Stop`]).
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.on_error = policy;
        self
    }

    /// A token that ends the run from outside.
    pub fn cancel(mut self, token: &Cancel) -> Self {
        self.cancel = token.clone();
        self
    }

    /// A function that is told how far the run is, about ten times a second, on the thread that
    /// called `run`.
    pub fn progress(mut self, tell: impl Fn(Progress) + Sync + Send + 'a) -> Self {
        self.progress = Some(Box::new(tell));
        self
    }

    /// For experts: the plan, instead of what was chosen. It runs as asked or the run is refused.
    /// Mappings are refused always: a file that is cut while it is mapped ends the process.
    ///
    /// ```
    /// let plan: ioloom::Plan = "uring/window:l=64,p=2".parse().unwrap();
    /// match ioloom::files(["Cargo.toml"]).pin(plan).map(|f| Ok(f.len())).run() {
    ///     Ok(run) => assert_eq!(run.measured.files, 1),
    ///     Err(ioloom::Error::Refused(reason)) => println!("{reason}"), // no rings here
    ///     Err(other) => panic!("{other}"),
    /// }
    /// ```
    pub fn pin(mut self, plan: Plan) -> Self {
        self.plan = plan.complete(usable_cores());
        self.pinned = true;
        self
    }

    /// At most this many files, from the start of the list.
    pub fn take(mut self, files: u64) -> Self {
        self.files_max = Some(files);
        self
    }

    /// Keeps a trace of what every thread did when, in a file for `ioloom trace show`. The level of
    /// evidence is the highest that works, or what `IOLOOM_EVIDENCE` says.
    ///
    /// ```
    /// let dir = tempfile::tempdir().unwrap();
    /// let path = dir.path().join("run.ioloom");
    /// ioloom::files(["Cargo.toml"]).trace(&path).map(|f| Ok(f.len())).run()?;
    /// assert!(std::fs::read(path).unwrap().starts_with(b"IOLMTRCE"));
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Self {
        self.trace = Some(path.into());
        self
    }

    /// The function that is run on each whole file. It borrows the bytes for the call.
    pub fn map<T, F>(self, f: F) -> Job<'a, Whole<F>>
    where
        T: Send,
        F: Fn(&File<'_>) -> Result<T, FnError> + Sync,
    {
        Job { files: self, each: Whole(f) }
    }

    /// Runs a function on each whole file for its effect.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// let bytes = AtomicU64::new(0);
    /// ioloom::files(["Cargo.toml"]).for_each(|f| {
    ///     bytes.fetch_add(f.len(), Ordering::Relaxed);
    ///     Ok(())
    /// })?;
    /// assert!(bytes.into_inner() > 0);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn for_each<F>(self, f: F) -> Result<Run<()>, Error>
    where
        F: Fn(&File<'_>) -> Result<(), FnError> + Sync,
    {
        self.map(f).fold(|| (), |(), ()| {}, |(), ()| {})
    }

    /// The chunk form: the function sees pieces of at most `bytes`, so that a file may be larger
    /// than memory.
    pub fn chunks(mut self, bytes: u64) -> Chunks<'a> {
        self.plan.chunk_bytes = Some(bytes.max(1));
        Chunks { files: self }
    }

    /// Runs `each` over the files and gives values to `sink`.
    pub(crate) fn execute<E: Each, K: crate::run::Sink<E::Out>>(
        self,
        each: &E,
        sink: &K,
    ) -> Result<crate::run::Ended<K::Local>, Error> {
        let work = crate::run::Adapter { each, sink, on_error: self.on_error };
        let budget = Arc::new(Budget::new(self.plan.memory_bytes));
        crate::run::Ended::from(self.drive::<E, _>(budget, &work)?)
    }

    /// Runs `each` in the iterator form.
    pub(crate) fn execute_sending<E: Each>(
        self,
        each: &E,
        sink: &crate::run::Channel<E::Out>,
    ) -> Result<(), Error> {
        let budget = sink.budget.clone();
        let ended = self.drive::<E, _>(budget, &crate::run::Sending { each, sink })?;
        if ended.cancelled {
            return Err(Error::Cancelled { files: ended.files });
        }
        Ok(())
    }

    fn drive<E: Each, W: engine::Work>(
        self,
        budget: Arc<Budget>,
        work: &W,
    ) -> Result<engine::Executed<W::Local>, Error> {
        let mut plan = self.plan;
        if let (Input::List(list), false) = (&self.input, self.pinned)
            && !list.is_empty()
        {
            let settled = default_plan_for(list.path(0), plan.memory_bytes);
            (plan.method, plan.schedule) = (settled.method, settled.schedule);
        }
        if plan.chunk_bytes.is_some() != E::CHUNKS {
            return Err(Error::Refused(format!(
                "{plan}: chunk= goes with .chunks(), and the function sees {}",
                if E::CHUNKS { "chunks" } else { "whole files" }
            )));
        }
        let wanted = match self.trace {
            Some(path) => Some(TraceWanted { path, level: level_of_environment()? }),
            None => TraceWanted::from_environment()?,
        };
        let trace_file = wanted.as_ref().map(|w| TraceFile::create(&w.path)).transpose()?;
        let source = match (self.input, self.files_max) {
            (Input::List(list), max) => Source::list(Cow::Owned(list), plan.read_order, max),
            (Input::Stream(paths), None) => Source::stream(paths, plan.read_order),
            (Input::Stream(paths), Some(max)) => {
                Source::stream(paths.take(max as usize), plan.read_order)
            }
        };
        let tell = self
            .progress
            .as_ref()
            .map(|tell| |files, bytes, files_total| tell(Progress { files, bytes, files_total }));
        let options = RunOptions {
            cancel: self.cancel.clone(),
            progress: tell.as_ref().map(|t| t as &(dyn Fn(u64, u64, Option<u64>) + Sync)),
            tracing: wanted.as_ref().map(TraceWanted::tracing),
            ..RunOptions::default()
        };
        keeping_trace(trace_file, |failed| {
            let options = RunOptions { trace_of_failure: Some(failed), ..options };
            engine::execute(&source, plan, budget, &options, work)
        })
    }
}

/// One file, borrowed for the call of the function.
pub struct File<'a> {
    pub(crate) piece: &'a engine::Piece<'a>,
}

impl File<'_> {
    /// The path as given.
    pub fn path(&self) -> &Path {
        self.piece.path
    }

    /// Position in the input.
    pub fn index(&self) -> usize {
        self.piece.index
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.piece.bytes
    }

    /// Number of bytes.
    pub fn len(&self) -> u64 {
        self.piece.bytes.len() as u64
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.piece.bytes.is_empty()
    }

    /// Keeps the bytes beyond the call without copying them where possible. They count against the
    /// memory budget until they are dropped, so a run whose function keeps everything ends with
    /// [`Error::BudgetHeld`] instead of filling the memory. In the iterator form the run waits while
    /// the caller may yet drop some, and ends so only when the caller waits for it.
    ///
    /// ```
    /// let kept = ioloom::files(["Cargo.toml"]).map(|f| Ok(f.keep())).collect()?;
    /// assert_eq!(&kept[0][..], std::fs::read("Cargo.toml").unwrap());
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn keep(&self) -> Bytes {
        Bytes(self.piece.keep())
    }
}

/// Files in chunk form.
#[must_use = "nothing is read until a function is given and run"]
pub struct Chunks<'a> {
    files: Files<'a>,
}

/// One piece of a file, borrowed for the call of the function.
pub struct Chunk<'a> {
    pub(crate) piece: &'a engine::Piece<'a>,
}

impl Chunk<'_> {
    /// The path of the file as given.
    pub fn path(&self) -> &Path {
        self.piece.path
    }

    /// Position of the file in the input.
    pub fn index(&self) -> usize {
        self.piece.index
    }

    /// Offset of the piece in the file.
    pub fn offset(&self) -> u64 {
        self.piece.offset
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.piece.bytes
    }
}

impl<'a> Chunks<'a> {
    /// A value for each file from its pieces: `init` at its start, `step` on each piece in the
    /// order of offsets, one at a time, `finish` at its end. Files run in parallel.
    ///
    /// ```
    /// let sizes = ioloom::files(["Cargo.toml"])
    ///     .chunks(100)
    ///     .fold_file(|_| 0u64, |sum, c| Ok(*sum += c.bytes().len() as u64), |sum, _| Ok(sum))
    ///     .collect()?;
    /// assert_eq!(sizes[0], std::fs::metadata("Cargo.toml").unwrap().len());
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn fold_file<S, T, I, F, G>(self, init: I, step: F, finish: G) -> Job<'a, FoldFile<I, F, G>>
    where
        S: Send,
        T: Send,
        I: Fn(&Path) -> S + Sync,
        F: Fn(&mut S, &Chunk<'_>) -> Result<(), FnError> + Sync,
        G: Fn(S, &Path) -> Result<T, FnError> + Sync,
    {
        Job { files: self.files, each: FoldFile { init, step, finish } }
    }

    /// A value for each piece. The values of a file come together, as one vector for each file in
    /// the order of offsets.
    ///
    /// ```
    /// let pieces = ioloom::files(["Cargo.toml"])
    ///     .chunks(100)
    ///     .map_chunks(|c| Ok((c.offset(), c.bytes().len())))
    ///     .collect()?;
    /// assert!(pieces[0].windows(2).all(|w| w[0].0 + w[0].1 as u64 == w[1].0));
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn map_chunks<T, F>(self, f: F) -> Job<'a, MapChunks<F>>
    where
        T: Send,
        F: Fn(&Chunk<'_>) -> Result<T, FnError> + Sync,
    {
        Job { files: self.files, each: MapChunks(f) }
    }
}

impl<'a, E: Each> Job<'a, E> {
    /// Runs and gives the values, with what was measured and what failed.
    ///
    /// ```
    /// let run = ioloom::files(["Cargo.toml", "no such file"])
    ///     .on_error(ioloom::OnError::Collect)
    ///     .map(|f| Ok(f.len()))
    ///     .run()?;
    /// assert_eq!((run.value.len(), run.failed), (1, 1));
    /// println!("{}", run.why());
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn run(self) -> Result<Run<Vec<E::Out>>, Error> {
        let order = self.files.order;
        let ended = self.files.execute(&self.each, &Collect)?;
        Ok(ended.into_run(|locals| {
            let mut values: Vec<(usize, E::Out)> = locals.into_iter().flatten().collect();
            if order == Order::Input {
                values.sort_by_key(|(index, _)| *index);
            }
            values.into_iter().map(|(_, value)| value).collect()
        }))
    }

    /// The values in the order of the input.
    pub fn collect(self) -> Result<Vec<E::Out>, Error> {
        let Self { files, each } = self;
        Job { files: files.order(Order::Input), each }.run().map(|run| run.value)
    }

    /// The sum of the values.
    pub fn sum<T: std::iter::Sum<E::Out> + std::iter::Sum<T> + Send>(self) -> Result<T, Error> {
        let add = |sum: &mut Option<T>, more: T| {
            *sum = Some(sum.take().into_iter().chain([more]).sum());
        };
        let run = self.fold(
            || None,
            |sum, value| add(sum, [value].into_iter().sum()),
            |sum, other| {
                if let Some(other) = other {
                    add(sum, other);
                }
            },
        )?;
        Ok(run.value.unwrap_or_else(|| std::iter::empty::<T>().sum()))
    }

    /// Folds the values: `init` makes the accumulator of a thread, `step` adds a value, `merge`
    /// adds the accumulator of another thread.
    ///
    /// ```
    /// let run = ioloom::files(["Cargo.toml", "src/lib.rs"]).map(|f| Ok(f.len())).fold(
    ///     || 0,
    ///     |largest, len| *largest = len.max(*largest),
    ///     |largest, other| *largest = other.max(*largest),
    /// )?;
    /// assert!(run.value > 0);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn fold<A: Send>(
        self,
        init: impl Fn() -> A + Sync,
        step: impl Fn(&mut A, E::Out) + Sync,
        merge: impl Fn(&mut A, A),
    ) -> Result<Run<A>, Error> {
        let sink = Folded { init: &init, step: &step };
        let ended = self.files.execute(&self.each, &sink)?;
        Ok(ended.into_run(|locals| {
            let mut locals = locals.into_iter();
            let mut all = locals.next().unwrap_or_else(&init);
            for local in locals {
                merge(&mut all, local);
            }
            all
        }))
    }
}
