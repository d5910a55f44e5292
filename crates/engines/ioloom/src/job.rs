//! A job, which is files and a function over them, and the ways to run it.

use crate::cancel::Cancel;
use crate::error::{Error, FileError, FnError};
use crate::file_fn::{FileFn, FoldFile, MapChunks, Whole};
use crate::files::Files;
use crate::policy::{OnError, Order};
use crate::run::{Adapter, Channel, Collect, Ended, Folded, Run, Sending, Sink};
use crate::view::{Chunk, File};
use ioloom_budget::Budget;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::JoinHandle;

/// Results that the iterator form holds ready.
const ITER_READY: usize = 256;

/// Files and the function to run over them.
#[must_use = "nothing is read until the job is run"]
pub struct Job<'a, E> {
    files: Files<'a>,
    function: E,
}

/// Files that are read in chunks.
#[must_use = "nothing is read until a function is given and the job is run"]
pub struct Chunks<'a> {
    files: Files<'a>,
}

impl<'a> Files<'a> {
    /// Sets the function to run on each whole file. It borrows the bytes for the call.
    pub fn map<T, F>(self, f: F) -> Job<'a, Whole<F>>
    where
        T: Send,
        F: Fn(&File<'_>) -> Result<T, FnError> + Sync,
    {
        Job { files: self, function: Whole(f) }
    }

    /// Runs a function on each whole file for its side effects.
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

    /// Reads files in chunks of at most `bytes`, so that a file may be larger than memory.
    pub fn chunks(mut self, bytes: u64) -> Chunks<'a> {
        self.plan.chunk_bytes = Some(bytes.max(1));
        Chunks { files: self }
    }
}

impl<'a> Chunks<'a> {
    /// Computes one value per file from its chunks: `init` at the start, `step` for each chunk in
    /// the order of offsets, one at a time, and `finish` at the end. Files are processed in
    /// parallel.
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
        Job { files: self.files, function: FoldFile { init, step, finish } }
    }

    /// Computes a value for each chunk and returns one vector per file, in the order of offsets.
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
        Job { files: self.files, function: MapChunks(f) }
    }
}

impl<'a, E: FileFn> Job<'a, E> {
    /// Runs the job and returns its values, measurements and failures.
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
        let ended = self.execute(&Collect)?;
        Ok(ended.into_run(|locals| {
            let mut values: Vec<(usize, E::Out)> = locals.into_iter().flatten().collect();
            if order == Order::Input {
                values.sort_by_key(|(index, _)| *index);
            }
            values.into_iter().map(|(_, value)| value).collect()
        }))
    }

    /// Runs the job and returns the values in the order of the input.
    pub fn collect(self) -> Result<Vec<E::Out>, Error> {
        let Self { files, function } = self;
        Job { files: files.order(Order::Input), function }.run().map(|run| run.value)
    }

    /// Runs the job and returns the sum of the values.
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

    /// Runs the job and folds the values: `init` creates the accumulator of a thread, `step` adds a
    /// value, and `merge` adds the accumulator of another thread.
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
        let ended = self.execute(&sink)?;
        Ok(ended.into_run(|locals| {
            let mut locals = locals.into_iter();
            let mut all = locals.next().unwrap_or_else(&init);
            for local in locals {
                merge(&mut all, local);
            }
            all
        }))
    }

    /// Runs the function and passes each value to `sink`.
    fn execute<K: Sink<E::Out>>(self, sink: &K) -> Result<Ended<K::Local>, Error> {
        let Self { files, function } = self;
        let work = Adapter { function: &function, sink, on_error: files.on_error };
        let budget = Arc::new(Budget::new(files.plan.memory_bytes));
        Ended::from(files.drive(E::CHUNKS, budget, &work)?)
    }

    /// Runs the function and sends each value and each failure.
    fn execute_sending(self, sink: &Channel<E::Out>) -> Result<(), Error> {
        let Self { files, function } = self;
        let work = Sending { function: &function, sink };
        let ended = files.drive(E::CHUNKS, sink.budget.clone(), &work)?;
        if ended.cancelled {
            return Err(Error::Cancelled { files: ended.files });
        }
        Ok(())
    }
}

/// The iterator form of a job: values as they become ready, or the error of a file. The run works
/// at most 256 values ahead. While the caller may still drop values, the run waits for the memory
/// that they retain; if the caller waits for the next value instead, the run ends with
/// [`Error::BudgetHeld`]. Dropping the iterator cancels the run and waits for what is in flight.
pub struct Iter<T> {
    values: Option<Receiver<Result<T, FileError>>>,
    cancel: Cancel,
    engine: Option<JoinHandle<Result<(), Error>>>,
    error: Option<Error>,
    /// Each value in the channel may return retained bytes to the budget, and so may the caller
    /// while it is not in [`Iter::next`].
    budget: Arc<Budget>,
}

impl<E> IntoIterator for Job<'static, E>
where
    E: FileFn + Send + 'static,
    E::Out: 'static,
{
    type Item = Result<E::Out, FileError>;
    type IntoIter = Iter<E::Out>;

    /// Runs the job in the background and yields values as they become ready.
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
        // Dropping this iterator must not cancel other runs that use the caller's token.
        let cancel = self.files.cancel.child();
        let token = cancel.clone();
        let budget = Arc::new(Budget::new(self.files.plan.memory_bytes));
        budget.add_releaser();
        let shared = budget.clone();
        let engine = std::thread::Builder::new().name("ioloom-iter".to_owned()).spawn(move || {
            let Job { mut files, function } = self;
            // Failures are items, so none of them ends the run.
            files.on_error = OnError::Skip;
            files.cancel = token;
            let sink = Channel { send, budget: shared };
            Job { files, function }.execute_sending(&sink)
        });
        let (engine, error) = match engine {
            Ok(engine) => (Some(engine), None),
            Err(source) => (None, Some(Error::System { operation: "start a thread", source })),
        };
        Iter { values: Some(values), cancel, engine, error, budget }
    }
}

impl<T> Iter<T> {
    /// Returns why the run ended early, once the iterator has ended.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }
}

impl<T> Iterator for Iter<T> {
    type Item = Result<T, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        let values = self.values.as_ref()?;
        // Both the caller while it is not here and each queued value count as releasers. A caller
        // that must wait stops counting first, and takes over the count of the value it receives.
        let next = match values.try_recv() {
            Err(TryRecvError::Disconnected) => None,
            Ok(next) => {
                self.budget.remove_releaser();
                Some(next)
            }
            Err(TryRecvError::Empty) => {
                self.budget.remove_releaser();
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
        // Without a receiver every send fails at once, so the workers end.
        self.values = None;
        if let Some(engine) = self.engine.take() {
            let _ = engine.join();
        }
    }
}
