//! Running a job, and what a run gives.

use crate::cancel::Cancel;
use crate::each::Each;
use crate::engine::{Executed, Piece, Work};
use crate::error::{Error, FileError, FnError};
use crate::files::{Files, OnError, usable_cores};
use ioloom_budget::Budget;
use ioloom_model::units::{format_count, format_ns, format_size};
use ioloom_model::{Measured, Plan};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

/// Failures that [`OnError::Collect`] keeps; the rest is counted.
const ERRORS_KEPT: usize = 1000;
/// Values that the iterator form holds ready.
const ITER_READY: usize = 256;

/// Files and the function to run on them.
#[must_use = "nothing is read until it is run"]
pub struct Job<'a, E> {
    pub(crate) files: Files<'a>,
    pub(crate) each: E,
}

/// What a run gives.
#[derive(Debug)]
pub struct Run<T> {
    /// The values.
    pub value: T,
    /// Files that failed.
    pub failed: u64,
    /// The first thousand failures, under [`OnError::Collect`].
    pub errors: Vec<FileError>,
    /// The plan that ran.
    pub plan: Plan,
    /// What was measured.
    pub measured: Measured,
}

impl<T> Run<T> {
    /// What limited the run, in one sentence.
    pub fn why(&self) -> String {
        let m = &self.measured;
        let limit = m.bottleneck.as_ref().map_or("unknown", |b| b.word.as_str());
        let sentence = m.bottleneck.as_ref().map_or("", |b| b.sentence.as_str());
        format!(
            "limited by {limit}: {sentence} ({} files, {} in {} with {})",
            format_count(m.files),
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
    fn take(&self, local: &mut Self::Local, index: usize, value: T) -> Result<(), FnError>;
}

/// All values with their positions.
pub(crate) struct Collect;

impl<T: Send> Sink<T> for Collect {
    type Local = Vec<(usize, T)>;

    fn local(&self) -> Self::Local {
        Vec::new()
    }

    fn take(&self, local: &mut Self::Local, index: usize, value: T) -> Result<(), FnError> {
        local.push((index, value));
        Ok(())
    }
}

/// An accumulator for each thread.
pub(crate) struct Folded<'f, I, F> {
    pub(crate) init: &'f I,
    pub(crate) step: &'f F,
}

impl<T, A: Send, I: Fn() -> A + Sync, F: Fn(&mut A, T) + Sync> Sink<T> for Folded<'_, I, F> {
    type Local = A;

    fn local(&self) -> A {
        (self.init)()
    }

    fn take(&self, local: &mut A, _: usize, value: T) -> Result<(), FnError> {
        (self.step)(local, value);
        Ok(())
    }
}

/// A function, a sink and a policy as work for the engine.
pub(crate) struct Adapter<'a, E, K> {
    pub(crate) each: &'a E,
    pub(crate) sink: &'a K,
    pub(crate) on_error: OnError,
}

/// The state of one thread.
pub(crate) struct Local<L> {
    values: L,
    errors: Vec<FileError>,
    failed: u64,
}

impl<E: Each, K: Sink<E::Out>> Work for Adapter<'_, E, K> {
    type State = E::State;
    type Local = Local<K::Local>;

    fn local(&self) -> Self::Local {
        Local { values: self.sink.local(), errors: Vec::new(), failed: 0 }
    }

    fn begin(&self, _: usize, path: &Path) -> E::State {
        self.each.begin(path)
    }

    fn piece(
        &self,
        _: &mut Self::Local,
        state: &mut E::State,
        piece: &Piece<'_>,
    ) -> Result<(), FnError> {
        self.each.piece(state, piece)
    }

    fn finish(
        &self,
        local: &mut Self::Local,
        state: E::State,
        index: usize,
        path: &Path,
    ) -> Result<(), FnError> {
        let value = self.each.finish(state, path)?;
        self.sink.take(&mut local.values, index, value)
    }

    fn failed(&self, local: &mut Self::Local, error: FileError) -> ControlFlow<FileError> {
        local.failed += 1;
        match self.on_error {
            OnError::Stop => return ControlFlow::Break(error),
            OnError::Skip => {}
            OnError::Collect if local.errors.len() < ERRORS_KEPT => local.errors.push(error),
            OnError::Collect => {}
        }
        ControlFlow::Continue(())
    }
}

/// A finished run before its values are put together.
pub(crate) struct Ended<L> {
    executed: Executed<L>,
    errors: Vec<FileError>,
    failed: u64,
}

impl<L> Ended<L> {
    pub(crate) fn from(executed: Executed<Local<L>>) -> Result<Self, Error> {
        if executed.cancelled {
            return Err(Error::Cancelled { files: executed.files });
        }
        let (mut errors, mut failed) = (Vec::new(), 0);
        let executed = executed.map(|local| {
            errors.extend(local.errors);
            failed += local.failed;
            local.values
        });
        errors.sort_by_key(|error| error.index);
        errors.truncate(ERRORS_KEPT);
        Ok(Self { executed, errors, failed })
    }

    pub(crate) fn into_run<T>(mut self, values: impl FnOnce(Vec<L>) -> T) -> Run<T> {
        let cores = usable_cores();
        let mut measured = self.executed.measured(cores, cores);
        measured.errors = self.failed;
        Run {
            value: values(self.executed.locals),
            failed: self.failed,
            errors: self.errors,
            plan: self.executed.plan,
            measured,
        }
    }
}

/// The iterator form: values as they are ready, or why a file has none. The run works ahead by at
/// most 256 values. What values keep of the memory budget is waited for as long as the caller may
/// drop it; when the caller waits for the next value instead, the run ends with
/// [`Error::BudgetHeld`]. Dropping the iterator cancels the run and waits until nothing is in flight.
pub struct Iter<T> {
    values: Option<Receiver<Result<T, FileError>>>,
    cancel: Cancel,
    engine: Option<JoinHandle<Result<(), Error>>>,
    error: Option<Error>,
    /// Each value in the channel is a hope that kept bytes come back, and so is the caller while it
    /// is not in [`Iter::next`].
    budget: Arc<Budget>,
}

impl<E> IntoIterator for Job<'static, E>
where
    E: Each + Send + 'static,
    E::Out: 'static,
{
    type Item = Result<E::Out, FileError>;
    type IntoIter = Iter<E::Out>;

    /// Runs in the background and yields values as they are ready.
    ///
    /// ```
    /// let mut sum = 0;
    /// for len in ioloom::files(["Cargo.toml", "src/lib.rs"]).map(|f| Ok(f.len())) {
    ///     sum += len?;
    /// }
    /// assert!(sum > 0);
    /// # Ok::<(), ioloom::FileError>(())
    /// ```
    fn into_iter(self) -> Iter<E::Out> {
        let (send, values) = sync_channel(ITER_READY);
        // The end of this iterator must not cancel other runs of the caller's token.
        let cancel = self.files.cancel.child();
        let token = cancel.clone();
        let budget = Arc::new(Budget::new(self.files.plan.memory_bytes));
        budget.begin_hope();
        let shared = budget.clone();
        let engine = std::thread::Builder::new().name("ioloom-iter".to_owned()).spawn(move || {
            let Job { mut files, each } = self;
            // Failures are items, so none of them ends the run.
            files.on_error = OnError::Skip;
            files.cancel = token;
            let sink = Channel { send, budget: shared };
            files.execute_sending(&each, &sink)
        });
        let (engine, error) = match engine {
            Ok(engine) => (Some(engine), None),
            Err(source) => (None, Some(Error::System { operation: "start a thread", source })),
        };
        Iter { values: Some(values), cancel, engine, error, budget }
    }
}

impl<T> Iter<T> {
    /// Why the run ended before all files, once the iterator is at its end.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }
}

impl<T> Iterator for Iter<T> {
    type Item = Result<T, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        let values = self.values.as_ref()?;
        // Of two hopes, the caller's and that of a value, one is left with the caller. The caller
        // that must wait gives its own up before, and gets that of the value which comes.
        let next = match values.try_recv() {
            Err(TryRecvError::Disconnected) => None,
            Ok(next) => {
                self.budget.end_hope();
                Some(next)
            }
            Err(TryRecvError::Empty) => {
                self.budget.end_hope();
                values.recv().ok()
            }
        };
        if next.is_some() {
            return next;
        }
        self.values = None;
        match self.engine.take()?.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.error = Some(error),
            Err(payload) => std::panic::resume_unwind(payload),
        }
        None
    }
}

impl<T> Drop for Iter<T> {
    fn drop(&mut self) {
        self.cancel.cancel();
        // Without a receiver every send fails at once, so workers come to their end.
        self.values = None;
        if let Some(engine) = self.engine.take() {
            let _ = engine.join();
        }
    }
}

/// Values and failures through a bounded channel.
pub(crate) struct Channel<T> {
    send: SyncSender<Result<T, FileError>>,
    /// The budget of the run, which counts values on their way.
    pub(crate) budget: Arc<Budget>,
}

impl<T> Channel<T> {
    /// Sends, or gives the value back when the iterator was dropped.
    fn send(&self, value: Result<T, FileError>) -> Result<(), Result<T, FileError>> {
        self.budget.begin_hope();
        self.send.send(value).map_err(|unsent| {
            self.budget.end_hope();
            unsent.0
        })
    }
}

impl<T: Send> Sink<T> for Channel<T> {
    type Local = ();

    fn local(&self) {}

    fn take(&self, (): &mut (), _: usize, value: T) -> Result<(), FnError> {
        self.send(Ok(value)).map_err(|_| "the iterator was dropped".into())
    }
}

/// Work whose failures go through the channel too.
pub(crate) struct Sending<'a, E: Each> {
    pub(crate) each: &'a E,
    pub(crate) sink: &'a Channel<E::Out>,
}

impl<E: Each> Work for Sending<'_, E> {
    type State = E::State;
    type Local = ();

    fn local(&self) {}

    fn begin(&self, _: usize, path: &Path) -> E::State {
        self.each.begin(path)
    }

    fn piece(&self, (): &mut (), state: &mut E::State, piece: &Piece<'_>) -> Result<(), FnError> {
        self.each.piece(state, piece)
    }

    fn finish(
        &self,
        (): &mut (),
        state: E::State,
        index: usize,
        path: &Path,
    ) -> Result<(), FnError> {
        self.sink.take(&mut (), index, self.each.finish(state, path)?)
    }

    fn failed(&self, (): &mut (), error: FileError) -> ControlFlow<FileError> {
        match self.sink.send(Err(error)) {
            Err(Err(error)) => ControlFlow::Break(error),
            Ok(()) | Err(Ok(_)) => ControlFlow::Continue(()),
        }
    }
}
