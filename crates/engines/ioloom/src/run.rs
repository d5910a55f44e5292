//! The result of a run, and the sinks that its values go to.

use crate::default_plan::usable_cores;
use crate::engine::{Executed, Piece, Work};
use crate::error::{Error, FileError, FnError};
use crate::file_fn::FileFn;
use crate::policy::OnError;
use ioloom_budget::Budget;
use ioloom_model::units::{format_count, format_ns, format_size};
use ioloom_model::{Measured, Plan};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Failures that [`OnError::Collect`] keeps; further ones are only counted.
const ERRORS_KEPT: usize = 1000;
/// The result of a run.
#[derive(Debug)]
pub struct Run<T> {
    /// The values.
    pub value: T,
    /// Files that failed.
    pub failed: u64,
    /// The first 1000 failures, under [`OnError::Collect`].
    pub errors: Vec<FileError>,
    /// The plan that ran.
    pub plan: Plan,
    /// The measurements.
    pub measured: Measured,
}

impl<T> Run<T> {
    /// Describes what limited the run, in one sentence.
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

/// Keeps all values with their positions.
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

    fn take(&self, local: &mut A, _: usize, value: T) -> Result<(), FnError> {
        (self.step)(local, value);
        Ok(())
    }
}

/// Makes a function, a sink and a policy into work for the engine.
pub(crate) struct Adapter<'a, E, K> {
    pub(crate) function: &'a E,
    pub(crate) sink: &'a K,
    pub(crate) on_error: OnError,
}

/// The state of one thread.
pub(crate) struct Local<L> {
    values: L,
    errors: Vec<FileError>,
    failed: u64,
}

impl<E: FileFn, K: Sink<E::Out>> Work for Adapter<'_, E, K> {
    type State = E::State;
    type Local = Local<K::Local>;

    fn local(&self) -> Self::Local {
        Local { values: self.sink.local(), errors: Vec::new(), failed: 0 }
    }

    fn begin(&self, _: usize, path: &Path) -> E::State {
        self.function.begin(path)
    }

    fn piece(
        &self,
        _: &mut Self::Local,
        state: &mut E::State,
        piece: &Piece<'_>,
    ) -> Result<(), FnError> {
        self.function.piece(state, piece)
    }

    fn finish(
        &self,
        local: &mut Self::Local,
        state: E::State,
        index: usize,
        path: &Path,
    ) -> Result<(), FnError> {
        let value = self.function.finish(state, path)?;
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

/// A finished run before its values are merged.
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

/// Sends values and failures through a bounded channel.
pub(crate) struct Channel<T> {
    pub(crate) send: SyncSender<Result<T, FileError>>,
    /// The budget of the run, which counts values in the channel as possible releases.
    pub(crate) budget: Arc<Budget>,
}

impl<T> Channel<T> {
    /// Sends a value. Returns it if the iterator was dropped.
    fn send(&self, value: Result<T, FileError>) -> Result<(), Result<T, FileError>> {
        self.budget.add_releaser();
        self.send.send(value).map_err(|unsent| {
            self.budget.remove_releaser();
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

/// Work that also sends its failures through the channel.
pub(crate) struct Sending<'a, E: FileFn> {
    pub(crate) function: &'a E,
    pub(crate) sink: &'a Channel<E::Out>,
}

impl<E: FileFn> Work for Sending<'_, E> {
    type State = E::State;
    type Local = ();

    fn local(&self) {}

    fn begin(&self, _: usize, path: &Path) -> E::State {
        self.function.begin(path)
    }

    fn piece(&self, (): &mut (), state: &mut E::State, piece: &Piece<'_>) -> Result<(), FnError> {
        self.function.piece(state, piece)
    }

    fn finish(
        &self,
        (): &mut (),
        state: E::State,
        index: usize,
        path: &Path,
    ) -> Result<(), FnError> {
        self.sink.take(&mut (), index, self.function.finish(state, path)?)
    }

    fn failed(&self, (): &mut (), error: FileError) -> ControlFlow<FileError> {
        match self.sink.send(Err(error)) {
            Err(Err(error)) => ControlFlow::Break(error),
            Ok(()) | Err(Ok(_)) => ControlFlow::Continue(()),
        }
    }
}
