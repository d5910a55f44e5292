//! The result of a run, and the sinks that its values go to.

use crate::default_plan::usable_cores;
use crate::engine::{Executed, Piece, Work};
use crate::error::{Error, FileError};
use crate::file_fn::FileFn;
use crate::files::{Driven, Files};
use crate::hold::Hold;
use crate::iter::Channel;
use crate::policy::{Current, OnError, Order};
use crate::tree::Walked;
use ioloom_model::units::{format_counted, format_ns, format_size};
use ioloom_model::{Measured, Plan};
use std::convert::Infallible;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Failures that [`OnError::Collect`] keeps; further ones are only counted.
const ERRORS_KEPT: usize = 1000;

/// The result of a run. `E` is the error of the function.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run<T, E = Infallible> {
    /// The values.
    pub value: T,
    /// Files that failed, and directories that could not be walked.
    pub failed: u64,
    /// Up to 1000 failures, sorted by position, under [`OnError::Collect`]. If there are more, others with
    /// lower positions may be missing.
    pub errors: Vec<FileError<E>>,
    /// Whether the function or the caller stopped the run before the end of the input. A run that they stop
    /// at the last file of a list has not been stopped early. The end of a stream, or of a walk, may not be
    /// known yet at its last file; the run then counts as stopped. A value that was computed and not wanted by
    /// `take_results` counts, too.
    ///
    /// A [`scope`](crate::Job::scope) is stopped by a caller that leaves results, even if they were ready: that
    /// returns before it has taken one result for each file of a [`list`](crate::list()), or has seen the end
    /// of the results of a stream or a walk.
    pub stopped: bool,
    /// Whether the run was cancelled, under [`Files::partial`](crate::Files::partial).
    pub cancelled: bool,
    /// What the walk of a tree visited and skipped.
    pub walked: Option<Walked>,
    /// The plan that ran.
    pub plan: Plan,
    /// The measurements.
    pub measured: Measured,
}

impl<T, E> Run<T, E> {
    /// Describes what limited the run and, with a plan that adapts, what the controller decided, in
    /// one sentence.
    pub fn why(&self) -> String {
        let m = &self.measured;
        let limit = match &m.bottleneck {
            Some(b) if b.word != "unknown" => format!("limited by {}: {}", b.word, b.sentence),
            Some(b) => format!("limit unknown: {}", b.sentence),
            None => "limit unknown".to_owned(),
        };
        let tuned = m.tuned.as_ref().map(|tuned| format!("; {tuned}")).unwrap_or_default();
        format!(
            "{limit} ({}, {} in {} with {}){tuned}",
            format_counted(m.files, "file", "files"),
            format_size(m.bytes),
            format_ns(m.elapsed_ns as f64),
            self.plan
        )
    }
}

/// Where values go.
pub(crate) trait Sink<T>: Sync {
    type Local: Send;
    fn local(&self) -> Self::Local;
    /// Takes a value; `Break` if no more are wanted.
    fn take(&self, local: &mut Self::Local, index: usize, value: T) -> ControlFlow<()>;
}

/// Keeps all values with their positions.
pub(crate) struct Collect;

impl<T: Send> Sink<T> for Collect {
    type Local = Vec<(usize, T)>;

    fn local(&self) -> Self::Local {
        Vec::new()
    }

    fn take(&self, local: &mut Self::Local, index: usize, value: T) -> ControlFlow<()> {
        local.push((index, value));
        ControlFlow::Continue(())
    }
}

/// Folds values into one accumulator per thread.
pub(crate) struct Folded<'f, I, F> {
    pub(crate) init: &'f I,
    pub(crate) step: &'f F,
}

impl<T, A: Send, I: Fn() -> A + Sync, F: Fn(&mut A, T) + Sync> Sink<T> for Folded<'_, I, F> {
    type Local = A;

    fn local(&self) -> A {
        (self.init)()
    }

    fn take(&self, local: &mut A, _: usize, value: T) -> ControlFlow<()> {
        (self.step)(local, value);
        ControlFlow::Continue(())
    }
}

/// Makes a function, a sink and a policy into work for the engine.
pub(crate) struct Adapter<'a, F: FileFn, H, K> {
    function: &'a F,
    sink: &'a K,
    on_error: OnError,
    order: Order,
    partial: bool,
    current: Option<Arc<Current>>,
    /// The failure that ended the run.
    fatal: Mutex<Option<FileError<F::Error>>>,
    /// Whether the sink has all that it wants. Later failures are not those of the run.
    satisfied: AtomicBool,
    hold: PhantomData<H>,
}

/// The state of one thread.
pub(crate) struct Local<L, E> {
    values: L,
    errors: Vec<FileError<E>>,
    failed: u64,
    /// Positions of the files that failed, if values are returned in the order of the input.
    failed_at: Vec<usize>,
}

impl<'a, F: FileFn, H: Hold, K: Sink<H::Of<F::Out>>> Adapter<'a, F, H, K> {
    pub(crate) fn new(function: &'a F, sink: &'a K, files: &Files<'_>) -> Self {
        let (on_error, order, partial) = (files.on_error, files.order, files.partial);
        let current = files.current.clone();
        let (fatal, satisfied) = (Mutex::new(None), AtomicBool::new(false));
        let hold = PhantomData;
        Self { function, sink, on_error, order, partial, current, fatal, satisfied, hold }
    }

    /// Applies the policy to a failure.
    #[cold]
    fn fail(
        &self,
        local: &mut Local<K::Local, F::Error>,
        error: FileError<F::Error>,
    ) -> ControlFlow<()> {
        local.failed += 1;
        if self.order == Order::Input {
            local.failed_at.push(error.index);
        }
        match self.on_error {
            OnError::Stop if self.satisfied.load(Ordering::SeqCst) => {
                return ControlFlow::Break(());
            }
            OnError::Stop => {
                lock(&self.fatal).get_or_insert(error);
                return ControlFlow::Break(());
            }
            OnError::Skip => {}
            OnError::Collect if local.errors.len() < ERRORS_KEPT => local.errors.push(error),
            OnError::Collect => {}
        }
        ControlFlow::Continue(())
    }

    /// Returns what the run left, or the failure that ended it.
    pub(crate) fn end(
        self,
        driven: Driven<Local<K::Local, F::Error>>,
    ) -> EndedResult<K::Local, F::Error> {
        let fatal = self.fatal.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        match fatal {
            Some(error) => Err(Error::File(error)),
            None if driven.executed.cancelled && !self.partial => {
                Err(Error::Cancelled { files: driven.executed.files })
            }
            None => Ok(Ended::of(driven)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl<F: FileFn, H: Hold, K: Sink<H::Of<F::Out>>> Work for Adapter<'_, F, H, K> {
    type State = F::State<H>;
    type Local = Local<K::Local, F::Error>;
    type Error = F::Error;

    fn local(&self) -> Self::Local {
        Local { values: self.sink.local(), errors: Vec::new(), failed: 0, failed_at: Vec::new() }
    }

    fn begin(&self, _: usize, path: &Path) -> F::State<H> {
        if let Some(current) = &self.current {
            current.begins(path);
        }
        self.function.begin::<H>(path)
    }

    #[inline]
    fn piece(
        &self,
        _: &mut Self::Local,
        state: &mut F::State<H>,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, F::Error> {
        self.function.piece::<H>(state, piece)
    }

    fn finish(
        &self,
        local: &mut Self::Local,
        state: F::State<H>,
        index: usize,
        path: &Path,
    ) -> Result<ControlFlow<()>, F::Error> {
        Ok(match self.function.finish::<H>(state, path)? {
            ControlFlow::Continue(value) => {
                let flow = self.sink.take(&mut local.values, index, value);
                if flow.is_break() {
                    self.satisfied.store(true, Ordering::SeqCst);
                }
                flow
            }
            ControlFlow::Break(value) => {
                let _ = self.sink.take(&mut local.values, index, value);
                ControlFlow::Break(())
            }
        })
    }

    fn function_failed(
        &self,
        local: &mut Self::Local,
        index: usize,
        path: &Path,
        error: F::Error,
    ) -> ControlFlow<()> {
        self.fail(local, FileError::function(index, path, error))
    }

    fn failed(&self, local: &mut Self::Local, error: FileError) -> ControlFlow<()> {
        self.fail(local, error.widen())
    }

    fn failure(&self) -> Option<String> {
        lock(&self.fatal).as_ref().map(FileError::outline)
    }
}

/// A finished run, or why it failed.
pub(crate) type EndedResult<L, E> = Result<Ended<L, E>, Error<E>>;

/// A finished run before its values are merged.
pub(crate) struct Ended<L, E> {
    executed: Executed<L>,
    errors: Vec<FileError<E>>,
    failed: u64,
    failed_at: Vec<usize>,
    walked: Option<Walked>,
    cpus: u32,
}

impl<L, E> Ended<L, E> {
    /// A run that passed on its failures; its threads counted them.
    pub(crate) fn passed(driven: Driven<(L, u64)>) -> Self {
        let Driven { executed, walked, cpus } = driven;
        let mut failed = 0;
        let executed = executed.map(|(local, count)| {
            failed += count;
            local
        });
        Self { executed, errors: Vec::new(), failed, failed_at: Vec::new(), walked, cpus }
    }

    fn of(driven: Driven<Local<L, E>>) -> Self {
        let Driven { executed, walked, cpus } = driven;
        let (mut errors, mut failed, mut failed_at) = (Vec::new(), 0, Vec::new());
        let executed = executed.map(|local| {
            errors.extend(local.errors);
            failed += local.failed;
            failed_at.extend(local.failed_at);
            local.values
        });
        errors.sort_by_key(|error| error.index);
        errors.truncate(ERRORS_KEPT);
        Self { executed, errors, failed, failed_at, walked, cpus }
    }

    /// Returns only the value, without measurements.
    pub(crate) fn into_value<T>(self, values: impl FnOnce(Vec<L>) -> T) -> T {
        values(self.executed.locals)
    }

    pub(crate) fn into_run<T>(mut self, values: impl FnOnce(Vec<L>) -> T) -> Run<T, E> {
        let mut measured = self.executed.measured(usable_cores(), self.cpus);
        measured.errors = self.failed;
        Run {
            value: values(self.executed.locals),
            failed: self.failed,
            errors: self.errors,
            stopped: self.executed.stopped,
            cancelled: self.executed.cancelled,
            walked: self.walked,
            plan: self.executed.plan,
            measured,
        }
    }
}

impl<T, E> Ended<Vec<(usize, T)>, E> {
    /// Returns a run with the values, from which `list` makes a list. In the order of the input, a run that
    /// ended early returns those before the first file that has no result.
    pub(crate) fn into_values<V>(
        mut self,
        order: Order,
        list: impl FnOnce(Vec<(usize, T)>) -> Vec<V>,
    ) -> Run<Vec<V>, E> {
        let failed_at = self.known_failures();
        self.into_run(|locals| list(in_order(locals, order, failed_at)))
    }

    /// Returns only the values, as [`Ended::into_values`] does.
    pub(crate) fn into_list<V>(
        mut self,
        order: Order,
        list: impl FnOnce(Vec<(usize, T)>) -> Vec<V>,
    ) -> Vec<V> {
        let failed_at = self.known_failures();
        list(in_order(self.executed.locals, order, failed_at))
    }

    /// Returns the positions of the files that failed, if the run ended early.
    fn known_failures(&mut self) -> Option<Vec<usize>> {
        let failed_at = std::mem::take(&mut self.failed_at);
        (self.executed.stopped || self.executed.cancelled).then_some(failed_at)
    }
}

/// Returns the values of all threads in an order. `failed_at`: of a run that ended early.
fn in_order<T>(
    locals: Vec<Vec<(usize, T)>>,
    order: Order,
    failed_at: Option<Vec<usize>>,
) -> Vec<(usize, T)> {
    let mut values: Vec<(usize, T)> = locals.into_iter().flatten().collect();
    if order == Order::Input {
        values.sort_by_key(|(index, _)| *index);
        if let Some(mut failed_at) = failed_at {
            failed_at.sort_unstable();
            values.truncate(before_gap(&values, &failed_at));
        }
    }
    values
}

/// Returns how many values are before the first position that has neither a value nor a failure.
fn before_gap<T>(values: &[(usize, T)], failed_at: &[usize]) -> usize {
    let mut failed = failed_at.iter().peekable();
    let mut next = 0;
    for (before, (index, _)) in values.iter().enumerate() {
        while failed.next_if(|at| **at == next).is_some() {
            next += 1;
        }
        if *index != next {
            return before;
        }
        next += 1;
    }
    values.len()
}

/// Takes results, values and failures alike.
pub(crate) trait Receive<T, E>: Sync {
    type Local: Send;
    fn local(&self) -> Self::Local;
    /// Takes the result of file `index`; `Break` if no more are wanted.
    fn receive(
        &self,
        local: &mut Self::Local,
        index: usize,
        result: Result<T, FileError<E>>,
    ) -> ControlFlow<()>;
}

impl<T: Send, E: Send> Receive<T, E> for Channel<T, E> {
    type Local = ();

    fn local(&self) {}

    fn receive(
        &self,
        (): &mut (),
        index: usize,
        result: Result<T, FileError<E>>,
    ) -> ControlFlow<()> {
        if self.send(index, result) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Work that also passes on its failures.
pub(crate) struct Passing<'a, F, H, R> {
    pub(crate) function: &'a F,
    pub(crate) receiver: &'a R,
    pub(crate) current: Option<Arc<Current>>,
    pub(crate) hold: PhantomData<H>,
}

impl<F: FileFn, H: Hold, R: Receive<H::Of<F::Out>, F::Error>> Work for Passing<'_, F, H, R> {
    type State = F::State<H>;
    /// The state of the receiver, and failures.
    type Local = (R::Local, u64);
    type Error = F::Error;

    fn local(&self) -> Self::Local {
        (self.receiver.local(), 0)
    }

    #[inline]
    fn begin(&self, _: usize, path: &Path) -> F::State<H> {
        if let Some(current) = &self.current {
            current.begins(path);
        }
        self.function.begin::<H>(path)
    }

    #[inline]
    fn piece(
        &self,
        _: &mut Self::Local,
        state: &mut F::State<H>,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, F::Error> {
        self.function.piece::<H>(state, piece)
    }

    #[inline]
    fn finish(
        &self,
        (local, _): &mut Self::Local,
        state: F::State<H>,
        index: usize,
        path: &Path,
    ) -> Result<ControlFlow<()>, F::Error> {
        Ok(match self.function.finish::<H>(state, path)? {
            ControlFlow::Continue(value) => self.receiver.receive(local, index, Ok(value)),
            ControlFlow::Break(value) => {
                let _ = self.receiver.receive(local, index, Ok(value));
                ControlFlow::Break(())
            }
        })
    }

    fn function_failed(
        &self,
        (local, failed): &mut Self::Local,
        index: usize,
        path: &Path,
        error: F::Error,
    ) -> ControlFlow<()> {
        *failed += 1;
        self.receiver.receive(local, index, Err(FileError::function(index, path, error)))
    }

    fn failed(&self, (local, failed): &mut Self::Local, error: FileError) -> ControlFlow<()> {
        *failed += 1;
        self.receiver.receive(local, error.index, Err(error.widen()))
    }
}
