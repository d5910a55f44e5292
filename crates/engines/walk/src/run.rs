//! How a walk is asked for, its threads, and what it reports.

use crate::Fields;
use crate::error::Errors;
use crate::method::{Method, Refused, THREADS_MAX, Threads};
use crate::pool::Pool;
use crate::sweep::Sweeps;
use crate::tables::{self, Tables};
use crate::tables_use::{Counts, TablesUse};
use crate::task::{Holds, Task};
use crate::visit::Visitor;
use crate::watch::{Waits, Watch};
use crate::worker::{Part, Worker};
use ioloom_failure::PathError;
use ioloom_sys::dir::StatRing;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;

/// Threads that `auto` starts at most.
const THREADS_AUTO_MAX: usize = 128;

/// Which symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Follow {
    /// None; a root that is a link is an entry.
    Never,
    /// Those given as roots.
    #[default]
    Roots,
    /// All. A directory that lies within itself is not entered again. A link that leads nowhere is
    /// an entry of its own.
    Always,
}

/// How to walk.
#[derive(Debug, Clone)]
pub struct Walk {
    /// How files are asked for.
    pub method: Method,
    /// How many threads.
    pub threads: Threads,
    /// What is asked for about files and directories. With [`Fields::NONE`], and for files with
    /// [`Method::NamesOnly`], nothing.
    pub fields: Fields,
    /// What [`Threads::Auto`] takes a waiting thread's time for.
    pub waits: Waits,
    /// Which symbolic links are followed.
    pub follow: Follow,
    /// Directories held open for their children, at most. Each thread has one more open, and each
    /// part of a wide directory that waits.
    pub descriptors_max: usize,
    /// Kernel threads that answer one thread's [`Method::Uring`], at most.
    pub ring_workers_max: u32,
    /// Files whose names [`Method::Sweep`] holds at once, at most; more are done in several sweeps.
    pub sweep_files_max: usize,
    /// Ends the walk early when it becomes true.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Default for Walk {
    /// By `statx` with as many threads as pay, asking for nothing, at most a quarter of the
    /// descriptors that the process may have and 256.
    fn default() -> Self {
        let limit = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX);
        Self {
            method: Method::Statx,
            threads: Threads::Auto,
            fields: Fields::NONE,
            waits: Waits::default(),
            follow: Follow::default(),
            descriptors_max: (limit / 4).min(256) as usize,
            ring_workers_max: 16,
            sweep_files_max: 1_000_000,
            cancel: None,
        }
    }
}

/// What a walk did.
#[derive(Debug, Default)]
pub struct Report {
    /// Entries visited that are no directories.
    pub entries: u64,
    /// Directories entered, roots included.
    pub directories: u64,
    /// Names that were gone when they were asked for or opened.
    pub vanished: u64,
    /// Directories not entered because they lie within themselves.
    pub loops: u64,
    /// What could not be read: the first [`crate::ERRORS_KEPT_MAX`].
    pub errors: Vec<PathError>,
    /// All that could not be read.
    pub errors_count: u64,
    /// Whether a visitor or [`Walk::cancel`] ended the walk.
    pub stopped: bool,
    /// Threads that took part.
    pub threads: usize,
    /// Why so many: one sentence.
    pub threads_why: String,
    /// Kernel threads that answered rings, at most at one time; `None` without a ring.
    pub ring_workers: Option<usize>,
    /// What was read from inode tables; `None` with any other method.
    pub tables: Option<TablesUse>,
}

impl Report {
    fn merge(&mut self, part: Part, errors: &mut Errors<PathError>, counts: &mut Counts) {
        counts.add(part.tables);
        self.entries += part.entries;
        self.directories += part.directories;
        self.vanished += part.vanished;
        self.loops += part.loops;
        self.stopped |= part.stopped;
        self.ring_workers = self.ring_workers.max(part.ring_workers);
        errors.merge(part.errors);
    }
}

/// What all workers of one walk see.
pub(crate) struct Ground<'w, D> {
    pub(crate) walk: &'w Walk,
    pub(crate) roots: &'w [PathBuf],
    pub(crate) next_root: AtomicUsize,
    pub(crate) pool: Pool<Task<D>>,
    pub(crate) holds: Arc<Holds>,
    /// The controller, if it decides how many walk.
    pub(crate) watch: Option<Watch>,
    pub(crate) sweeps: Sweeps<D>,
    /// The inode tables, if they are the method.
    pub(crate) tables: Option<Tables>,
}

impl<'w, D> Ground<'w, D> {
    fn new(
        walk: &'w Walk,
        roots: &'w [PathBuf],
        active: usize,
        watch: Option<Watch>,
    ) -> Result<Self, Refused> {
        let by_tables = walk.method == Method::InodeTables && !walk.fields.is_none();
        let tables = if by_tables { Tables::below(roots)? } else { None };
        let pool = Pool::new(active);
        pool.arrive();
        let holds = Arc::new(Holds::new(walk.descriptors_max));
        let sweeps = Sweeps::new(walk.sweep_files_max);
        let next_root = AtomicUsize::new(0);
        Ok(Self { walk, roots, next_root, pool, holds, watch, sweeps, tables })
    }

    /// The next root that nobody took.
    pub(crate) fn take_root(&self) -> Option<(usize, &'w Path)> {
        if self.next_root.load(Ordering::Relaxed) >= self.roots.len() {
            return None;
        }
        let index = self.next_root.fetch_add(1, Ordering::Relaxed);
        self.roots.get(index).map(|root| (index, root.as_path()))
    }
}

/// What a thread brings back.
type Brought<V> = Result<(usize, V, Part), Box<dyn std::any::Any + Send>>;

struct Crew<'w, V: Visitor, M> {
    ground: Ground<'w, V::Dir>,
    make: M,
    brought: Mutex<Vec<Brought<V>>>,
}

/// Ends the walk for all when its worker panics, so that no other waits for ever.
struct Alarm<'a, T>(&'a Pool<T>);

impl<T> Drop for Alarm<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
            self.0.set_active(usize::MAX);
            self.0.depart();
        }
    }
}

/// The work of one thread, from its first task to the end of the walk.
fn labour<'scope, 'env, V, M>(
    scope: &'scope Scope<'scope, 'env>,
    crew: &'env Crew<'env, V, M>,
    number: usize,
) where
    V: Visitor + Send + 'env,
    M: Fn(usize) -> V + Sync,
{
    let pool = &crew.ground.pool;
    let start = |born: usize| {
        let thread = std::thread::Builder::new().name("ioloom-walk".to_owned());
        // A thread that the system refuses is done without.
        if thread.spawn_scoped(scope, move || labour(scope, crew, born)).is_err() {
            pool.unborn(born);
        }
    };
    let work = std::panic::AssertUnwindSafe(|| {
        let _alarm = Alarm(pool);
        let mut visitor = (crew.make)(number);
        let part = Worker::new(&crew.ground, number, &mut visitor, &start).run();
        (number, visitor, part)
    });
    let brought = std::panic::catch_unwind(work);
    crew.brought.lock().unwrap_or_else(PoisonError::into_inner).push(brought);
}

impl Walk {
    /// Whether this machine can walk `roots` so.
    pub fn probe(&self, roots: &[PathBuf]) -> Result<(), Refused> {
        match (self.method, self.threads) {
            (_, Threads::Count(count)) if !(1..=THREADS_MAX).contains(&count) => {
                Err(Refused::Threads(count.to_string()))
            }
            (Method::InodeTables, _) if !self.fields.is_none() => tables::probe(roots),
            (Method::Uring, _) => {
                StatRing::new(1, self.ring_workers_max).map(drop).map_err(Refused::Ring)
            }
            _ => Ok(()),
        }
    }

    /// Walks `roots` (directories, or anything else as an entry) with a visitor per thread, which
    /// `make` makes by the thread's number. The visitors of the threads that took part come back in
    /// the order of their numbers; the first is always there.
    ///
    /// Roots are walked in parallel too. A root that cannot be opened is an error in the report.
    ///
    /// # Panics
    ///
    /// Passes on a panic of a visitor after all threads have ended.
    pub fn run<V: Visitor + Send>(
        &self,
        roots: &[PathBuf],
        make: impl Fn(usize) -> V + Sync,
    ) -> Result<(Vec<V>, Report), Refused> {
        self.probe(roots)?;
        let (active, watch) = self.threads_to_start();
        let ground = Ground::new(self, roots, active, watch)?;
        let crew = Crew { ground, make, brought: Mutex::default() };
        std::thread::scope(|scope| labour(scope, &crew, 0));
        let brought = crew.brought.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut parts = Vec::with_capacity(brought.len());
        for one in brought {
            parts.push(one.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        parts.sort_by_key(|(number, ..)| *number);
        let threads_why = match &crew.ground.watch {
            Some(watch) => watch.why(),
            None => as_asked(active, parts.len()),
        };
        let mut report = Report { threads: parts.len(), threads_why, ..Report::default() };
        let (mut errors, mut counts) = (Errors::default(), Counts::default());
        let mut visitors = Vec::with_capacity(parts.len());
        for (_, visitor, part) in parts {
            report.merge(part, &mut errors, &mut counts);
            visitors.push(visitor);
        }
        (report.errors, report.errors_count) = (errors.kept, errors.count);
        report.tables = crew.ground.tables.as_ref().map(|tables| tables.use_of(counts));
        Ok((visitors, report))
    }

    /// Walks `roots` on the calling thread alone, whatever [`Walk::threads`] says.
    pub fn run_here<V: Visitor>(
        &self,
        roots: &[PathBuf],
        visitor: &mut V,
    ) -> Result<Report, Refused> {
        self.probe(roots)?;
        let ground = Ground::new(self, roots, 1, None)?;
        let part = Worker::new(&ground, 0, visitor, &|_| {}).run();
        let threads_why = "1 thread, the caller's".to_owned();
        let mut report = Report { threads: 1, threads_why, ..Report::default() };
        let (mut errors, mut counts) = (Errors::default(), Counts::default());
        report.merge(part, &mut errors, &mut counts);
        (report.errors, report.errors_count) = (errors.kept, errors.count);
        report.tables = ground.tables.as_ref().map(|tables| tables.use_of(counts));
        Ok(report)
    }

    fn threads_to_start(&self) -> (usize, Option<Watch>) {
        match self.threads {
            Threads::Count(count) => (count, None),
            Threads::Auto => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                let cores = cores.min(THREADS_MAX);
                let watch = Watch::new(cores, THREADS_AUTO_MAX.max(cores), self.waits);
                (watch.first(), Some(watch))
            }
        }
    }
}

/// The reason for a fixed number of threads.
fn as_asked(asked: usize, came: usize) -> String {
    let word = if asked == 1 { "thread" } else { "threads" };
    if came < asked {
        return format!("{asked} {word}, as asked; there was work for {came}");
    }
    format!("{asked} {word}, as asked")
}
