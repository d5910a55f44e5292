//! The entry points of the library: files in, and how to run over them.

use crate::cancel::Cancel;
use crate::default_plan::{default_plan, usable_cores};
use crate::engine::{self, RunOptions};
use crate::error::{Error, FileError};
use crate::feed::{Entries, Entry};
use crate::policy::{OnError, Order, Progress, ProgressFn};
use crate::source::Source;
use crate::trace::{TraceFile, TraceWanted, keeping_trace, level_of_environment};
use ioloom_budget::Budget;
use ioloom_model::{Plan, ReadOrder};
use ioloom_walk::PathList;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files to run a function over. Created by [`files`], [`tree`] or [`list`].
#[must_use = "nothing is read until a function is given and the job is run"]
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
    Stream(Entries, PhantomData<&'a ()>),
}

/// Takes files from an iterator of paths, as a stream: each file is processed as soon as its path
/// exists, so that the iterator may block, or wait for results of earlier files. A thread in the
/// background pulls the iterator, up to 4096 paths ahead. If the run ends early, the iterator is
/// dropped when its pending `next` returns. For paths that are in memory already, use [`list`].
///
/// A path that is not a regular file is never opened and fails as that file.
///
/// ```
/// let lines: u64 = ioloom::files(["Cargo.toml", "src/lib.rs"])
///     .map(|f| f.bytes().iter().filter(|b| **b == b'\n').count() as u64)
///     .sum()?;
/// assert!(lines > 10);
/// # Ok::<(), ioloom::Error>(())
/// ```
pub fn files<'a, I>(paths: I) -> Files<'a>
where
    I: IntoIterator,
    I::Item: Into<PathBuf>,
    I::IntoIter: Send + 'static,
{
    let entries = Box::new(paths.into_iter().map(|path| Entry::Path(path.into())));
    Files::new(Input::Stream(entries, PhantomData))
}

/// Takes all regular files below a directory, or a single file. Walks the tree now and skips
/// entries that are not regular files.
///
/// # Errors
///
/// Returns [`Error::File`] with [`Cause::Walk`](crate::Cause::Walk) for the first directory or entry
/// that cannot be read.
///
/// ```
/// let run = ioloom::tree("src")?.map(|f| f.len()).run()?;
/// assert!(run.value.len() > 5);
/// # Ok::<(), ioloom::Error>(())
/// ```
pub fn tree<'a>(root: impl AsRef<Path>) -> Result<Files<'a>, Error> {
    let (mut paths, summary) =
        ioloom_walk::files(root.as_ref(), &ioloom_walk::WalkOptions::default())
            .map_err(|error| Error::File(FileError::walk(0, error)))?;
    if let Some(error) = summary.errors.into_iter().next() {
        return Err(Error::File(FileError::walk(paths.len(), error)));
    }
    paths.sort();
    Ok(Files::from(paths))
}

/// Takes files from paths that are in memory already, so that their number is known from the start.
///
/// ```
/// let paths = vec!["Cargo.toml", "src/lib.rs"];
/// let bytes: u64 = ioloom::list(&paths).map(|f| f.len()).sum()?;
/// assert!(bytes > 1000);
/// # Ok::<(), ioloom::Error>(())
/// ```
pub fn list<'a, I>(paths: I) -> Files<'a>
where
    I: IntoIterator,
    I::Item: AsRef<Path>,
{
    let mut list = PathList::new();
    for path in paths {
        list.push(path.as_ref().as_os_str().as_bytes());
    }
    Files::from(list)
}

impl From<PathList> for Files<'_> {
    /// Takes files from a packed list, such as a walk returns. Files that the walk found to be
    /// regular are opened without a `stat`.
    fn from(list: PathList) -> Self {
        Self::new(Input::List(list))
    }
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

    /// Sets the memory budget: bytes in flight, loaded or retained at once (default: 256 MiB).
    pub fn memory(mut self, bytes: u64) -> Self {
        if self.pinned {
            self.plan.memory_bytes = bytes;
        } else {
            let Plan { schedule, blocking, .. } = default_plan(bytes);
            self.plan = Plan { schedule, blocking, memory_bytes: bytes, ..self.plan };
        }
        self
    }

    /// Sets the order in which files are read: as listed, or by inode, which suits rotating disks.
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

    /// Sets a token that cancels the run.
    pub fn cancel(mut self, token: &Cancel) -> Self {
        self.cancel = token.clone();
        self
    }

    /// Sets a function that reports progress about ten times a second, called on the thread that
    /// called `run`.
    pub fn progress(mut self, report: impl Fn(Progress) + Sync + Send + 'a) -> Self {
        self.progress = Some(Box::new(report));
        self
    }

    /// Pins the plan instead of the default one. It runs as given or the run is refused. Mappings
    /// are always refused: truncating a mapped file kills the process.
    ///
    /// ```
    /// let plan: ioloom::Plan = "uring/window:l=64,p=2".parse().unwrap();
    /// match ioloom::files(["Cargo.toml"]).pin(plan).map(|f| f.len()).run() {
    ///     Ok(run) => assert_eq!(run.measured.files, 1),
    ///     Err(ioloom::Error::Refused(reason)) => println!("{reason}"), // no io_uring here
    ///     Err(other) => panic!("{other}"),
    /// }
    /// ```
    pub fn pin(mut self, plan: Plan) -> Self {
        self.plan = plan.complete(usable_cores());
        self.pinned = true;
        self
    }

    /// Takes at most this many files from the start of the list.
    pub fn take(mut self, files: u64) -> Self {
        self.files_max = Some(files);
        self
    }

    /// Records a trace of what every thread did over time, for `ioloom trace show`. The level of
    /// evidence is the highest that works, or the one that `IOLOOM_EVIDENCE` pins.
    ///
    /// ```
    /// let dir = tempfile::tempdir().unwrap();
    /// let path = dir.path().join("run.ioloom");
    /// ioloom::files(["Cargo.toml"]).trace(&path).map(|f| f.len()).run()?;
    /// assert!(std::fs::read(path).unwrap().starts_with(b"IOLMTRCE"));
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn trace(mut self, path: impl Into<PathBuf>) -> Self {
        self.trace = Some(path.into());
        self
    }

    /// Runs `work` over the files. `chunks`: its function takes chunks instead of whole files.
    pub(crate) fn drive<W: engine::Work>(
        self,
        chunks: bool,
        budget: Arc<Budget>,
        work: &W,
    ) -> Result<engine::Executed<W::Local>, Error> {
        let plan = self.plan;
        if plan.chunk_bytes.is_some() != chunks {
            return Err(Error::Refused(format!(
                "{plan}: chunk= requires .chunks(), but the function takes {}",
                if chunks { "chunks" } else { "whole files" }
            )));
        }
        let wanted = match self.trace {
            Some(path) => Some(TraceWanted { path, level: level_of_environment()? }),
            None => TraceWanted::from_environment()?,
        };
        let trace_file = wanted.as_ref().map(|w| TraceFile::create(&w.path)).transpose()?;
        let source = match (self.input, self.files_max) {
            (Input::List(list), max) => Source::list(Cow::Owned(list), plan.read_order, max),
            (Input::Stream(entries, _), None) => Source::stream(entries, plan.read_order),
            (Input::Stream(entries, _), Some(max)) => {
                Source::stream(Box::new(entries.take(max as usize)), plan.read_order)
            }
        };
        let report = self.progress.as_ref().map(|report| {
            |files, bytes, files_total| report(Progress { files, bytes, files_total })
        });
        let options = RunOptions {
            cancel: self.cancel.clone(),
            progress: report
                .as_ref()
                .map(|report| report as &(dyn Fn(u64, u64, Option<u64>) + Sync)),
            tracing: wanted.as_ref().map(TraceWanted::tracing),
            on_demand: !self.pinned,
            ..RunOptions::default()
        };
        keeping_trace(trace_file, |failed| {
            let options = RunOptions { trace_of_failure: Some(failed), ..options };
            engine::execute(&source, plan, budget, &options, work)
        })
    }
}
