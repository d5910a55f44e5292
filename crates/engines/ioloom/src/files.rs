//! The entry points of the library: files in, and how to run over them.

use crate::cancel::Cancel;
use crate::default_plan::{default_memory_bytes, default_plan, usable_cores, with_threads};
use crate::engine::{self, RunOptions};
use crate::error::Error;
use crate::feed::{self, Before, Entry};
use crate::input::{Input, Opened};
use crate::iter::Horizon;
use crate::observing::{LabOptions, Measure, Observing};
use crate::policy::{Current, OnError, Order, Progress, ProgressFn};
use crate::trace::{self, TraceWanted, keeping_trace};
use crate::tree::{Tally, Walked};
use ioloom_budget::Budget;
use ioloom_model::{Level, Plan, ReadOrder, Tuning};
use ioloom_walk::PathList;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Least number of chunks that fit in the memory budget.
const CHUNKS_MIN: u64 = 4;

/// Marks [`Files`] whose paths the caller gives.
#[derive(Debug)]
pub enum Paths {}

/// Files to run a function over. Created by [`files`], [`list`] or [`tree`](crate::tree); `K` says
/// which, because trees have more settings.
#[must_use = "nothing is read until a function is given and the job is run"]
pub struct Files<'a, K = Paths> {
    pub(crate) input: Input,
    pub(crate) plan: Plan,
    pub(crate) pinned: bool,
    pub(crate) on_error: OnError,
    pub(crate) order: Order,
    pub(crate) cancel: Cancel,
    pub(crate) progress: Option<ProgressFn<'a>>,
    pub(crate) current: Option<Arc<Current>>,
    pub(crate) bytes_total: Option<u64>,
    pub(crate) threads: Option<u32>,
    pub(crate) files_max: Option<u64>,
    /// Called before each file is taken.
    before: Option<Before>,
    pub(crate) observing: Observing,
    /// Whether the function takes chunks or whole files, as the plan says.
    pub(crate) pieces: bool,
    /// Whether a cancelled run returns what it has.
    pub(crate) partial: bool,
    /// Whether threads start when files wait for them; `None`: unless the plan is pinned and fixed.
    pub(crate) on_demand: Option<bool>,
    /// Whether the run goes on with the threads it has if the system refuses another one.
    pub(crate) fewer_threads: bool,
    /// What was set besides the plan, and applies to a plan that is pinned later.
    settings: Settings,
    /// Why the run is refused: a setting that came too late.
    pub(crate) refused: Option<&'static str>,
    pub(crate) lab: LabOptions,
    kind: PhantomData<K>,
}

/// Settings that are part of every plan.
#[derive(Debug, Clone, Copy, Default)]
struct Settings {
    memory: Option<u64>,
    polite: bool,
    read_order: Option<ReadOrder>,
}

impl Settings {
    /// Returns a plan with these settings.
    fn applied(self, plan: Plan) -> Plan {
        Plan {
            memory_bytes: self.memory.unwrap_or(plan.memory_bytes),
            tuning: if self.polite { Tuning::Polite } else { plan.tuning },
            read_order: self.read_order.unwrap_or(plan.read_order),
            ..plan
        }
    }
}

/// Takes files from an iterator of paths, as a stream: each file is processed as soon as its path
/// exists, so that the iterator may block, or wait for results of earlier files. A thread in the
/// background pulls the iterator, up to 4096 paths ahead, or 65,536 in the order of inode numbers
/// ([`Files::read_order`]). If the run ends early, the iterator is
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
    let entries = feed::one_by_one(paths.into_iter().map(|path| Entry::Path(path.into())));
    Files::new(Input::Stream(entries))
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
        Self::new(Input::List(Arc::new(list)))
    }
}

impl<'a, K> Files<'a, K> {
    pub(crate) fn new(input: Input) -> Self {
        Self {
            input,
            plan: default_plan(default_memory_bytes()),
            pinned: false,
            on_error: OnError::default(),
            order: Order::default(),
            cancel: Cancel::new(),
            progress: None,
            current: None,
            bytes_total: None,
            threads: None,
            files_max: None,
            before: None,
            observing: Observing::default(),
            pieces: false,
            partial: false,
            on_demand: None,
            fewer_threads: false,
            settings: Settings::default(),
            refused: None,
            lab: LabOptions::default(),
            kind: PhantomData,
        }
    }

    /// Returns the paths in the order of their positions ([`File::index`](crate::File::index)), if all
    /// of them are known before the run. A tree is walked now: whole if it is
    /// [`sorted`](Files::sorted), else for as long as [`walk_ahead`](Files::walk_ahead) allows. The paths
    /// are not known if the walk is cancelled, or if anything could not be walked: failures have
    /// positions among the files. Settings of the walk must come before.
    ///
    /// A function that has the list can return positions instead of copies of paths.
    ///
    /// ```
    /// let mut files = ioloom::list(["Cargo.toml", "src/lib.rs"]);
    /// let paths = files.known_paths().unwrap();
    /// let (longest, _) = files
    ///     .map(|f| (f.index(), f.len()))
    ///     .run()?
    ///     .value
    ///     .into_iter()
    ///     .max_by_key(|(_, len)| *len)
    ///     .unwrap();
    /// assert!(paths.path(longest).exists());
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn known_paths(&mut self) -> Option<Arc<PathList>> {
        if matches!(&self.input, Input::Tree(tree) if tree.sorted || !tree.ahead.is_zero()) {
            let tree = std::mem::replace(&mut self.input, Input::List(Arc::default()));
            let root = match &tree {
                Input::Tree(options) => options.roots.first().cloned().unwrap_or_default(),
                _ => PathBuf::new(),
            };
            if let (opened, Some(tally)) = tree.open(self.order == Order::Input, &self.cancel) {
                self.input = Input::Begun(opened, tally, root);
            }
        }
        match &self.input {
            Input::Begun(_, tally, _) if self.cancel.is_cancelled() || tally.is_cut() => None,
            Input::List(list) | Input::Begun(Opened::List(list) | Opened::Found(list), ..) => {
                Some(list.clone())
            }
            _ => None,
        }
    }

    /// Drops the settings that only trees have.
    pub fn into_files(self) -> Files<'a> {
        Files {
            input: self.input,
            plan: self.plan,
            pinned: self.pinned,
            on_error: self.on_error,
            order: self.order,
            cancel: self.cancel,
            progress: self.progress,
            current: self.current,
            bytes_total: self.bytes_total,
            threads: self.threads,
            files_max: self.files_max,
            before: self.before,
            observing: self.observing,
            pieces: self.pieces,
            partial: self.partial,
            on_demand: self.on_demand,
            fewer_threads: self.fewer_threads,
            settings: self.settings,
            refused: self.refused,
            lab: self.lab,
            kind: PhantomData,
        }
    }

    /// Sets the memory budget: bytes in flight, loaded or retained at once (default: 256 MiB, or half
    /// of what a control group allows, or a quarter of what the limit on address space leaves, if that
    /// is less). A part of it, at most 48 MiB with the default plan, is for the first buffers of files in flight, so a file
    /// that is read whole must be smaller than the rest.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.settings.memory = Some(bytes);
        if self.pinned {
            self.plan.memory_bytes = bytes;
        } else {
            let Plan { schedule, blocking, .. } = default_plan(bytes);
            self.plan = Plan { schedule, blocking, memory_bytes: bytes, ..self.plan };
        }
        self
    }

    /// Leaves more of the storage to others: a controller searches the smallest number of files in
    /// flight that keeps 95 % of the throughput, and the threads that walk or read lower their I/O priority,
    /// except those of a walk that [`known_paths`](Self::known_paths) has begun before this call.
    /// [`Measured::tuned`](crate::Measured::tuned) reports what it did and whether the priority has
    /// an effect: it has none with the I/O schedulers `mq-deadline`, `kyber` and `none`, and on FUSE
    /// and tmpfs. A pinned plan that is not a window of `nowait` is then refused.
    pub fn polite(mut self) -> Self {
        self.settings.polite = true;
        self.plan.tuning = Tuning::Polite;
        self.input.lower_priority();
        self
    }

    /// Sets the order in which files are read (default: [`ReadOrder::List`]). Files of a walk that
    /// is not sorted are read by inode number with either, except when results are streamed in the
    /// order of the input. With [`ReadOrder::Inode`], all inode numbers of a [`list`] that no walk
    /// recorded are queried before the first file, with one `stat` after another.
    pub fn read_order(mut self, order: ReadOrder) -> Self {
        self.settings.read_order = Some(order);
        self.plan.read_order = order;
        self
    }

    /// Sets the order of results (default: [`Order::Any`]).
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Requests results in the order of the input, from every form that returns several of them.
    /// They have no gaps, except those of [`take_results`](crate::Job::take_results): a run that ends
    /// early returns the results before the first file that was not processed.
    ///
    /// A result that is ready early is held until those before it are. What it retains with
    /// [`File::keep`](crate::File::keep) counts against the memory budget meanwhile, and a run whose
    /// early results fill the budget ends with [`Error::BudgetHeld`](crate::Error::BudgetHeld).
    ///
    /// ```
    /// let paths = ["src/lib.rs", "Cargo.toml", "src/view.rs"];
    /// let job = ioloom::list(paths).ordered().map(|f| f.path().to_owned());
    /// let names: Result<Vec<_>, _> = job.into_iter().collect();
    /// assert!(names?.iter().eq(paths.iter().map(std::path::Path::new)));
    /// # Ok::<(), ioloom::FileError>(())
    /// ```
    pub fn ordered(self) -> Self {
        self.order(Order::Input)
    }

    /// Runs the function on at most `threads` threads at once (default: the usable cores). If the memory
    /// budget or the limit on open files requires it, fewer files are in flight; there are no more
    /// threads than files.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    /// let (now, most) = (AtomicU32::new(0), AtomicU32::new(0));
    /// ioloom::files(std::iter::repeat_n("Cargo.toml", 100)).threads(1).for_each(|_| {
    ///     most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
    ///     now.fetch_sub(1, SeqCst);
    /// })?;
    /// assert_eq!(most.into_inner(), 1);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// Sets what to do when a file fails (default: [`OnError::Stop`]). Iterators, `scope` and
    /// `fold_results` return failures as results instead.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.on_error = policy;
        self
    }

    /// Sets a token that cancels the run.
    pub fn cancel(mut self, token: &Cancel) -> Self {
        self.cancel = token.clone();
        self
    }

    /// Sets a function that reports progress about ten times a second. It is called on the thread that
    /// waits for the run: the caller of `run`, or a thread of its own in `scope` and iterators. Walks
    /// before the first file (`sorted`, `walk_ahead`, `walk`) report none.
    pub fn progress(mut self, report: impl Fn(Progress) + Sync + Send + 'a) -> Self {
        self.progress = Some(Box::new(report));
        self.current = Some(Arc::default());
        self
    }

    /// Sets the total that [`Progress::bytes_total`] reports, for callers who know it.
    pub fn bytes_total(mut self, bytes: u64) -> Self {
        self.bytes_total = Some(bytes);
        self
    }

    /// Pins the plan instead of the default one. It runs as given or the run is refused. Mappings
    /// are always refused: truncating a mapped file kills the process. [`memory`](Self::memory),
    /// [`polite`](Self::polite) and [`read_order`](Self::read_order) override what the plan says,
    /// whichever call comes first, and so does [`chunks`](Self::chunks).
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
        self.plan = self.settings.applied(plan.complete(usable_cores()));
        self.pinned = true;
        if self.plan.tuning == Tuning::Polite {
            self.input.lower_priority();
        }
        self
    }

    /// Sets whether threads start only when files wait for them (default: unless the plan is
    /// pinned and does not adjust itself). Otherwise all threads of the plan start together, before
    /// the first file. Those of the schedule `roles` always do.
    ///
    /// ```
    /// let plan = "read/threads:n=8".parse().unwrap();
    /// let run = ioloom::files(["Cargo.toml"]).pin(plan).start_on_demand(true).map(|f| f.len()).run()?;
    /// assert!(run.measured.threads.len() <= 8);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn start_on_demand(mut self, yes: bool) -> Self {
        self.on_demand = Some(yes);
        self
    }

    /// Sets whether the run goes on if the system refuses a thread while others work (default: no). If
    /// threads start on demand, it always does. The schedule `roles` needs all its threads.
    ///
    /// ```
    /// let plan = "read/threads:n=8".parse().unwrap();
    /// let files = ioloom::files(["Cargo.toml"]).pin(plan).accept_fewer_threads(true);
    /// assert_eq!(files.map(|f| f.len()).run()?.measured.files, 1);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn accept_fewer_threads(mut self, yes: bool) -> Self {
        self.fewer_threads = yes;
        self
    }

    /// Sets whether a cancelled run returns what it has, with [`Run::cancelled`](crate::Run), instead
    /// of failing with [`Error::Cancelled`] (default: no). An iterator then ends without an error.
    ///
    /// ```
    /// let token = ioloom::Cancel::new();
    /// let run = ioloom::files(std::iter::repeat("Cargo.toml"))
    ///     .cancel(&token)
    ///     .partial(true)
    ///     .map(|f| {
    ///         token.cancel();
    ///         f.len()
    ///     })
    ///     .run()?;
    /// assert!(run.cancelled && !run.value.is_empty());
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn partial(mut self, yes: bool) -> Self {
        self.partial = yes;
        self
    }

    /// Takes at most this many files from the start of the list. Directories that could not be walked do
    /// not count.
    pub fn take(mut self, files: u64) -> Self {
        self.files_max = Some(files);
        self
    }

    /// Sets a function that is called with the position of each file before the file is taken, and once at
    /// the end of the input. It may wait, for example until the caller has room for more results: files
    /// taken before, up to 65,536, go on. It is called on a thread of its own. Files are then taken in the
    /// order of the input, one by one, which costs more than taking them from a list. A run that ends early
    /// does not wait for the call. An iterator that waits has the same effect; this keeps what a walk knows.
    #[doc(hidden)]
    pub fn before_each(mut self, wait: impl FnMut(usize) + Send + 'static) -> Self {
        self.before = Some(Box::new(wait));
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
        self.observing.trace = Some(path.into());
        self
    }

    /// Records no trace, even if `IOLOOM_TRACE` requests one: for runs that would distort a measurement.
    ///
    /// ```
    /// let run = ioloom::files(["Cargo.toml"]).untraced().map(|f| f.len()).run()?;
    /// assert_eq!(run.measured.files, 1);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn untraced(mut self) -> Self {
        self.observing.untraced = true;
        self
    }

    /// Pins the level of evidence of a trace, instead of `IOLOOM_EVIDENCE`. A level that does not work
    /// is refused.
    ///
    /// ```
    /// use ioloom::measured::Level;
    /// let dir = tempfile::tempdir().unwrap();
    /// let files = ioloom::files(["Cargo.toml"]).trace(dir.path().join("run.ioloom"));
    /// let run = files.trace_level(Level::Account).map(|f| f.len()).run()?;
    /// assert_eq!(run.measured.evidence.unwrap().level, Level::Account);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn trace_level(mut self, level: Level) -> Self {
        self.observing.level = Some(level);
        self
    }

    /// Measures more than by default.
    ///
    /// ```
    /// use ioloom::{Measure, measured::CallKind};
    /// let measure = Measure::default().calls(100).in_flight();
    /// let run = ioloom::files(["Cargo.toml"]).measure(measure).map(|f| f.len()).run()?;
    /// let spans = run.measured.spans.iter().flatten();
    /// assert!(spans.filter(|span| span.kind == CallKind::Compute).count() == 1);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn measure(mut self, measure: Measure) -> Self {
        self.observing.measure = Some(measure);
        self
    }

    /// Sets what only the laboratory needs.
    #[cfg(feature = "lab")]
    #[doc(hidden)]
    pub fn lab(mut self, options: LabOptions) -> Self {
        self.lab = options;
        self
    }

    /// Returns the plan with the number of threads.
    fn plan(&self) -> Result<Plan, Error> {
        if let Some(reason) = self.refused {
            return Err(Error::Refused(reason.to_owned()));
        }
        let plan = self.plan;
        match self.threads {
            None => Ok(plan),
            Some(threads) if !self.pinned => Ok(with_threads(plan, threads)),
            Some(_) => Err(Error::Refused(format!(
                "{plan}: a pinned plan has a number of threads already; set it there, or leave \
                 .threads() out"
            ))),
        }
    }

    /// Runs `work` over the files. `chunks`: its function takes chunks instead of whole files.
    /// Returns what the threads left, and what a walk visited.
    pub(crate) fn drive<W: engine::Work>(
        self,
        chunks: bool,
        budget: Arc<Budget>,
        horizon: Option<Arc<Horizon>>,
        work: &W,
    ) -> Result<Driven<W::Local>, Error> {
        let mut plan = self.plan()?;
        if horizon.is_some() {
            Horizon::check(&plan)?;
        }
        if let (Some(bytes), false) = (plan.chunk_bytes, self.pinned) {
            // Chunks are at most as long as wanted.
            plan.chunk_bytes = Some(bytes.min((plan.memory_bytes / CHUNKS_MIN).max(1)));
        }
        if plan.chunk_bytes.is_some() != chunks && !self.pieces {
            return Err(Error::Refused(format!(
                "{plan}: chunk= requires .chunks(), but the function takes {}",
                if chunks { "chunks" } else { "whole files" }
            )));
        }
        let wanted = self.observing.trace_wanted()?;
        let trace_file = trace::create(wanted.as_ref(), &self.cancel)?;
        let order = (plan.read_order, self.order == Order::Input);
        let listed = self.input.len_until(self.files_max);
        let taken = (self.files_max, self.before);
        let (source, tally) = self.input.source(order, taken, horizon, &self.cancel);
        // A walk that was cancelled, perhaps by an earlier token, leaves a part of the list.
        let is_cut =
            self.cancel.is_cancelled() || tally.as_ref().is_some_and(|tally| tally.is_cut());
        let walk = tally.map(WalkOfRun);
        let (current, bytes_total) = (self.current.clone(), self.bytes_total);
        let report = self.progress.as_ref().map(|report| {
            let (source, walk) = (&source, &walk);
            move |now: engine::ProgressNow| {
                let current = current.as_ref().and_then(|current| current.next());
                let (arrived, ended) = source.arrived();
                let walked = walk.as_ref().map_or(0, |walk| walk.0.found());
                let files_found = now.total.unwrap_or(arrived as u64).max(walked);
                let files_total = now.total.or(listed).or(ended.then_some(arrived as u64));
                let files_found = files_total.unwrap_or(files_found);
                let engine::ProgressNow { files, failed, bytes, .. } = now;
                report(Progress {
                    files,
                    failed,
                    bytes,
                    files_found,
                    files_total,
                    bytes_total,
                    current,
                });
            }
        });
        let measure = self.observing.measure.clone().unwrap_or_default();
        let options = RunOptions {
            cancel: self.cancel.clone(),
            progress: report.as_ref().map(|report| report as &(dyn Fn(engine::ProgressNow) + Sync)),
            tracing: self.lab.tracing.or(wanted.as_ref().map(TraceWanted::tracing)),
            on_demand: self.on_demand.unwrap_or(!self.pinned || plan.tuning != Tuning::Fixed),
            fewer_threads: self.fewer_threads,
            mmap: self.lab.mmap,
            detail: measure.detail(),
            sample: measure.in_flight,
            block_device: measure.block_device.as_deref(),
            function_waits: measure.function_waits,
            ..RunOptions::default()
        };
        let mut executed = keeping_trace(trace_file, |failed| {
            let options = RunOptions { trace_of_failure: Some(failed), ..options };
            engine::execute(&source, plan, budget, &options, work)
        })?;
        executed.cancelled |= is_cut;
        drop(source);
        let walked = walk.map(|walk| {
            walk.0.finish();
            walk.0.walked()
        });
        Ok(Driven { executed, walked, cpus: self.observing.cpus() })
    }
}

/// The walk of a run, which ends with the run, even after a panic or an error.
struct WalkOfRun(Arc<Tally>);

impl Drop for WalkOfRun {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// What the threads of a run left, and what is known besides.
pub(crate) struct Driven<L> {
    pub(crate) executed: engine::Executed<L>,
    pub(crate) walked: Option<Walked>,
    /// Processors that shares of the machine refer to.
    pub(crate) cpus: u32,
}
