//! Runs a walk on its threads.

use crate::context::WalkContext;
use crate::error::Errors;
use crate::method::{Method, Refused, THREADS_MAX, Threads};
use crate::pool::Pool;
use crate::report::{Part, Report};
use crate::tables;
use crate::tables_use::Counts;
use crate::visit::Visitor;
use crate::walk::Walk;
use crate::watch::Watch;
use crate::worker::Worker;
use ioloom_sys::dir::StatRing;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::Scope;

/// Most threads that `auto` starts.
const THREADS_AUTO_MAX: usize = 128;

/// The result of a thread.
type WorkerResult<V> = Result<(usize, V, Part), Box<dyn std::any::Any + Send>>;

struct SharedRun<'w, V: Visitor, M> {
    context: WalkContext<'w, V::Dir>,
    make: M,
    results: Mutex<Vec<WorkerResult<V>>>,
}

/// Ends the walk when its worker panics, so that no other worker waits forever.
struct StopOnPanic<'a, T>(&'a Pool<T>);

impl<T> Drop for StopOnPanic<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop();
            self.0.set_active(usize::MAX);
            self.0.depart();
        }
    }
}

/// Runs one thread, from its first task to the end of the walk.
fn run_worker<'scope, 'env, V, M>(
    scope: &'scope Scope<'scope, 'env>,
    controller: &'env SharedRun<'env, V, M>,
    number: usize,
) where
    V: Visitor + Send + 'env,
    M: Fn(usize) -> V + Sync,
{
    let pool = &controller.context.pool;
    let start = |number: usize| {
        let thread = std::thread::Builder::new().name("ioloom-walk".to_owned());
        // The walk goes on without a thread that cannot be started.
        if thread.spawn_scoped(scope, move || run_worker(scope, controller, number)).is_err() {
            pool.not_started(number);
        }
    };
    let work = std::panic::AssertUnwindSafe(|| {
        let _stop = StopOnPanic(pool);
        let mut visitor = (controller.make)(number);
        let part = Worker::new(&controller.context, number, &mut visitor, &start).run();
        (number, visitor, part)
    });
    let results = std::panic::catch_unwind(work);
    controller.results.lock().unwrap_or_else(PoisonError::into_inner).push(results);
}

impl Walk {
    /// Checks whether this machine can walk `roots` with these settings.
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
    /// `make` creates from the thread's number. Returns the visitors in the order of thread
    /// numbers, at least one.
    ///
    /// Roots are walked in parallel, too. A root that cannot be opened is an error in the report.
    ///
    /// # Panics
    ///
    /// Resumes a panic of a visitor after all threads have ended.
    pub fn run<V: Visitor + Send>(
        &self,
        roots: &[PathBuf],
        make: impl Fn(usize) -> V + Sync,
    ) -> Result<(Vec<V>, Report), Refused> {
        self.probe(roots)?;
        let (active, watch) = self.threads_to_start();
        let context = WalkContext::new(self, roots, active, watch)?;
        let controller = SharedRun { context, make, results: Mutex::default() };
        std::thread::scope(|scope| run_worker(scope, &controller, 0));
        let results = controller.results.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut parts = Vec::with_capacity(results.len());
        for one in results {
            parts.push(one.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        parts.sort_by_key(|(number, ..)| *number);
        let threads_why = match &controller.context.watch {
            Some(watch) if parts.len() < watch.workers() => fewer_started(parts.len()),
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
        report.tables = controller.context.tables.as_ref().map(|tables| tables.use_of(counts));
        Ok((visitors, report))
    }

    /// Walks `roots` on the calling thread alone, ignoring [`Walk::threads`].
    pub fn run_here<V: Visitor>(
        &self,
        roots: &[PathBuf],
        visitor: &mut V,
    ) -> Result<Report, Refused> {
        self.probe(roots)?;
        let context = WalkContext::new(self, roots, 1, None)?;
        let part = Worker::new(&context, 0, visitor, &|_| {}).run();
        let threads_why = "1 thread, the caller's".to_owned();
        let mut report = Report { threads: 1, threads_why, ..Report::default() };
        let (mut errors, mut counts) = (Errors::default(), Counts::default());
        report.merge(part, &mut errors, &mut counts);
        (report.errors, report.errors_count) = (errors.kept, errors.count);
        report.tables = context.tables.as_ref().map(|tables| tables.use_of(counts));
        Ok(report)
    }

    fn threads_to_start(&self) -> (usize, Option<Watch>) {
        match self.threads {
            Threads::Count(count) => (count, None),
            Threads::Auto => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                let cores = cores.min(THREADS_MAX);
                let affordable = threads_by_descriptors();
                let most = THREADS_AUTO_MAX.max(cores).min(affordable);
                let watch = Watch::new(cores.min(affordable), most, self.waits);
                (watch.workers(), Some(watch))
            }
        }
    }
}

/// Returns the number of threads for which the limit on open files leaves room: each opens a
/// directory and its own statistics, and the rest of the program needs most of the limit.
fn threads_by_descriptors() -> usize {
    let limit = ioloom_sys::proc::open_files_limit().unwrap_or(u64::MAX);
    usize::try_from((limit / 8).saturating_sub(1).max(1)).unwrap_or(usize::MAX)
}

/// Explains an automatic number of threads that was not reached.
fn fewer_started(started: usize) -> String {
    let word = if started == 1 { "thread" } else { "threads" };
    format!("{started} {word}: no more were started before the work ended")
}

/// Explains a fixed number of threads.
fn as_asked(asked: usize, came: usize) -> String {
    let word = if asked == 1 { "thread" } else { "threads" };
    if came < asked {
        return format!("{asked} {word}, as requested; there was work for {came}");
    }
    format!("{asked} {word}, as requested")
}
