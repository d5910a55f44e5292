//! Results while the run goes on: iterators, scopes and early stops.

use crate::error::{Error, FileError};
use crate::file_fn::FileFn;
use crate::files::Driven;
use crate::hold::{Direct, Hold, InBox};
use crate::iter::{Channel, Ends, Horizon, Incoming, Iter, Results};
use crate::job::Job;
use crate::keep::new_budget;
use crate::policy::Order;
use crate::run::{Ended, Passing, Receive, Run, Sink};
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Makes results of what a run sends.
type Receiving<V, T, E> = fn(Incoming<V, E>) -> Results<T, E>;

impl<F: FileFn> Job<'_, F> {
    /// Runs the function and sends each value and each failure.
    fn execute_sending<H: Hold>(
        self,
        channel: &Channel<H::Of<F::Out>, F::Error>,
        horizon: Option<Arc<Horizon>>,
    ) -> Result<Driven<((), u64)>, Error> {
        let Self { files, function } = self;
        let current = files.current.clone();
        let hold = PhantomData::<H>;
        let work = Passing { function: &function, receiver: channel, current, hold };
        files.drive(F::CHUNKS, channel.budget(), horizon, &work)
    }

    /// Creates both ends of a channel for the results, and makes the run end with the receiver.
    fn connect<H: Hold>(&mut self) -> Ends<H::Of<F::Out>, F::Error> {
        // The end of this run must not cancel other runs that use the caller's token.
        let cancel = self.files.cancel.child();
        self.files.cancel = cancel.clone();
        let ordered = self.files.order == Order::Input;
        Incoming::channel(ordered, cancel, self.files.plan.memory_bytes)
    }
}

impl<F: FileFn + Send> Job<'_, F> {
    /// Runs the job while `consume` iterates over its results on the calling thread, as they become
    /// ready or in the order of the input ([`Files::ordered`](crate::Files::ordered)). Failed files
    /// are items, so [`OnError`](crate::OnError) does not apply. When `consume` returns, the run
    /// ends, and takes no new files.
    ///
    /// Unlike [`into_iter`](Self::into_iter), the function may borrow.
    ///
    /// ```
    /// let wanted = String::from("fn main");
    /// let run = ioloom::tree("examples")
    ///     .map(|f| {
    ///         let found = f.bytes().windows(wanted.len()).any(|w| w == wanted.as_bytes());
    ///         found.then(|| f.path().to_owned())
    ///     })
    ///     .scope(|results| results.flatten().flatten().next())?;
    /// println!("{} in {}", wanted, run.value.unwrap().display());
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns why the run ended early, if not because `consume` returned.
    pub fn scope<R>(
        self,
        consume: impl FnOnce(&mut Results<F::Out, F::Error>) -> R,
    ) -> Result<Run<R, F::Error>, Error<F::Error>> {
        match F::LARGE {
            true => self.scope_holding::<InBox, R>(Results::in_box, consume),
            false => self.scope_holding::<Direct, R>(Results::direct, consume),
        }
    }

    fn scope_holding<H: Hold, R>(
        mut self,
        receiving: Receiving<H::Of<F::Out>, F::Out, F::Error>,
        consume: impl FnOnce(&mut Results<F::Out, F::Error>) -> R,
    ) -> Result<Run<R, F::Error>, Error<F::Error>> {
        let partial = self.files.partial;
        let files = self.files.input.len_until(self.files.files_max);
        let (channel, incoming, horizon) = self.connect::<H>();
        let mut results = receiving(incoming);
        let (value, (ended, taken), driven) = std::thread::scope(|scope| {
            let engine = std::thread::Builder::new().name("ioloom-scope".to_owned());
            let engine =
                engine.spawn_scoped(scope, move || self.execute_sending::<H>(&channel, horizon));
            let engine =
                engine.map_err(|source| Error::System { operation: "start a thread", source })?;
            let value = consume(&mut results);
            let seen = results.seen();
            // Ends the run; workers that wait to send, and the feeder, notice it.
            drop(results);
            match engine.join() {
                Ok(driven) => Ok((value, seen, driven)),
                Err(payload) => std::panic::resume_unwind(payload),
            }
        })
        .map_err(Error::widen)?;
        let driven = driven.map_err(Error::widen)?;
        // The end of `consume` cancels the run, at a point that depends on the threads. So what the run left
        // counts only if `consume` has seen its end.
        let took_all = files == Some(taken);
        let stopped = !took_all && (!ended || driven.executed.stopped);
        let cancelled = !took_all && ended && driven.executed.cancelled;
        if cancelled && !partial {
            return Err(Error::Cancelled { files: driven.executed.files });
        }
        let run = Ended::passed(driven).into_run(|_| value);
        Ok(Run { stopped, cancelled, ..run })
    }

    /// Returns the first value, in the order of the input, for which `wanted` holds. The run ends
    /// when it is known, and the values after it are dropped.
    ///
    /// ```
    /// let first = ioloom::list(["src/lib.rs", "Cargo.toml", "src/job.rs", "src/keep.rs"])
    ///     .map(|f| f.path().display().to_string())
    ///     .find_first(|path| !path.ends_with("lib.rs"))?;
    /// assert_eq!(first.as_deref(), Some("Cargo.toml"));
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error of the first file that fails before that, or why the run ended early.
    pub fn find_first(
        self,
        mut wanted: impl FnMut(&F::Out) -> bool,
    ) -> Result<Option<F::Out>, Error<F::Error>> {
        let skip = self.files.on_error != crate::OnError::Stop;
        let job = Job { files: self.files.ordered(), function: self.function };
        // Not returned from the scope, which would copy a large value several times.
        let mut found = None;
        let run = job.scope(|results| {
            for result in results {
                match result {
                    Ok(value) if wanted(&value) => {
                        found = Some(value);
                        return Ok(());
                    }
                    Ok(_) => {}
                    Err(_) if skip => {}
                    Err(error) => return Err(Error::File(error)),
                }
            }
            Ok(())
        })?;
        run.value?;
        match found {
            // What was not processed may be what is wanted.
            None if run.cancelled => Err(Error::Cancelled { files: run.measured.files }),
            found => Ok(found),
        }
    }
}

impl<F: FileFn> Job<'_, F> {
    /// Folds results, of files that failed, too: so [`OnError`](crate::OnError) does not apply.
    /// `init`, `step` and `merge` are those of [`fold`](Self::fold). Failures are passed when they
    /// happen, whatever their number.
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// let run = ioloom::files(["Cargo.toml", "no such file"]).map(|f| f.len()).fold_results(
    ///     || (0, 0),
    ///     |(bytes, missing), result| match result {
    ///         Ok(len) => *bytes += len,
    ///         Err(error) => {
    ///             let kind = error.io_error().map(|error| error.kind());
    ///             *missing += u64::from(kind == Some(ErrorKind::NotFound));
    ///         }
    ///     },
    ///     |all, other| *all = (all.0 + other.0, all.1 + other.1),
    /// )?;
    /// let (bytes, missing) = run.value;
    /// assert!(bytes > 100 && missing == 1 && run.failed == 1);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn fold_results<A: Send>(
        self,
        init: impl Fn() -> A + Sync,
        step: impl Fn(&mut A, Result<F::Out, FileError<F::Error>>) + Sync,
        merge: impl Fn(&mut A, A),
    ) -> Result<Run<A, F::Error>, Error<F::Error>> {
        match F::LARGE {
            true => self.fold_results_holding::<InBox, A>(init, step, merge),
            false => self.fold_results_holding::<Direct, A>(init, step, merge),
        }
    }

    fn fold_results_holding<H: Hold, A: Send>(
        self,
        init: impl Fn() -> A + Sync,
        step: impl Fn(&mut A, Result<F::Out, FileError<F::Error>>) + Sync,
        merge: impl Fn(&mut A, A),
    ) -> Result<Run<A, F::Error>, Error<F::Error>> {
        let Self { files, function } = self;
        let step = |all: &mut A, held: Result<H::Of<F::Out>, FileError<F::Error>>| {
            step(all, H::result::<F::Out, _>(held));
        };
        let receiver = FoldedResults { init: &init, step: &step };
        let (current, partial) = (files.current.clone(), files.partial);
        let hold = PhantomData::<H>;
        let work = Passing { function: &function, receiver: &receiver, current, hold };
        let budget = new_budget(files.plan.memory_bytes);
        let driven = files.drive(F::CHUNKS, budget, None, &work).map_err(Error::widen)?;
        if driven.executed.cancelled && !partial {
            return Err(Error::Cancelled { files: driven.executed.files });
        }
        Ok(Ended::passed(driven).into_run(|locals| {
            let mut locals = locals.into_iter();
            let mut all = locals.next().unwrap_or_else(&init);
            locals.for_each(|local| merge(&mut all, local));
            all
        }))
    }

    /// Returns any value for which `wanted` holds. The run ends when there is one.
    ///
    /// ```
    /// let large = ioloom::tree("src").map(|f| f.len()).find_any(|len| *len > 1000)?;
    /// assert!(large.is_some());
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn find_any(
        self,
        wanted: impl Fn(&F::Out) -> bool + Sync,
    ) -> Result<Option<F::Out>, Error<F::Error>> {
        match F::LARGE {
            true => self.find_holding::<InBox>(wanted),
            false => self.find_holding::<Direct>(wanted),
        }
    }

    fn find_holding<H: Hold>(
        self,
        wanted: impl Fn(&F::Out) -> bool + Sync,
    ) -> Result<Option<F::Out>, Error<F::Error>> {
        let wanted = |held: &mut H::Of<F::Out>| H::with::<F::Out, _>(held, |value| wanted(value));
        let sink = Find { wanted, found: Mutex::new(None) };
        let run = self.execute::<H, _>(&sink)?.into_run(|_| ());
        match sink.found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            None if run.cancelled => Err(Error::Cancelled { files: run.measured.files }),
            found => Ok(found.map(H::out::<F::Out>)),
        }
    }

    /// Runs the job until it has `count` results, which are those of any files. With
    /// [`ordered`](crate::Files::ordered) they are in the order of the input; for the first ones in that
    /// order, use [`scope`](Self::scope).
    ///
    /// ```
    /// let paths = std::iter::repeat_n("Cargo.toml", 100_000);
    /// let run = ioloom::files(paths).map(|f| f.len()).take_results(10)?;
    /// assert!(run.stopped && run.value.len() == 10);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    #[allow(clippy::type_complexity, reason = "the types of a run, which an alias would hide")]
    pub fn take_results(self, count: usize) -> Result<Run<Vec<F::Out>, F::Error>, Error<F::Error>> {
        match F::LARGE {
            true => self.take_holding::<InBox>(count),
            false => self.take_holding::<Direct>(count),
        }
    }

    #[allow(clippy::type_complexity, reason = "the types of a run, which an alias would hide")]
    fn take_holding<H: Hold>(
        self,
        count: usize,
    ) -> Result<Run<Vec<F::Out>, F::Error>, Error<F::Error>> {
        let sink = First { left: AtomicUsize::new(count), surplus: AtomicBool::new(false) };
        let (input, files_max) = (&self.files.input, self.files.files_max);
        let is_empty = files_max == Some(0) || input.len_until(files_max) == Some(0);
        let files = if count == 0 { self.files.take(0) } else { self.files };
        let in_order = files.order == Order::Input;
        let ended = Job { files, function: self.function }.execute::<H, _>(&sink)?;
        let run = ended.into_run(|locals| {
            let mut values: Vec<_> = locals.into_iter().flatten().collect();
            if in_order {
                values.sort_unstable_by_key(|(index, _)| *index);
            }
            H::list::<F::Out>(values)
        });
        let left = count == 0 && !is_empty;
        Ok(Run { stopped: run.stopped || left || sink.surplus.into_inner(), ..run })
    }
}

/// Folds results into one accumulator per thread.
struct FoldedResults<'f, I, S> {
    init: &'f I,
    step: &'f S,
}

impl<T, E, A, I, S> Receive<T, E> for FoldedResults<'_, I, S>
where
    A: Send,
    I: Fn() -> A + Sync,
    S: Fn(&mut A, Result<T, FileError<E>>) + Sync,
{
    type Local = A;

    fn local(&self) -> A {
        (self.init)()
    }

    #[inline]
    fn receive(&self, local: &mut A, _: usize, result: Result<T, FileError<E>>) -> ControlFlow<()> {
        (self.step)(local, result);
        ControlFlow::Continue(())
    }
}

/// Keeps one value that is wanted.
struct Find<P, T> {
    wanted: P,
    found: Mutex<Option<T>>,
}

impl<T: Send, P: Fn(&mut T) -> bool + Sync> Sink<T> for Find<P, T> {
    type Local = ();

    fn local(&self) {}

    fn take(&self, (): &mut (), _: usize, mut value: T) -> ControlFlow<()> {
        if !(self.wanted)(&mut value) {
            return ControlFlow::Continue(());
        }
        *self.found.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(value);
        ControlFlow::Break(())
    }
}

/// Keeps a number of values.
struct First {
    left: AtomicUsize,
    /// Whether there were more values.
    surplus: AtomicBool,
}

impl<T: Send> Sink<T> for First {
    type Local = Vec<(usize, T)>;

    fn local(&self) -> Self::Local {
        Vec::new()
    }

    fn take(&self, local: &mut Self::Local, index: usize, value: T) -> ControlFlow<()> {
        let left =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        match left {
            Ok(_) => local.push((index, value)),
            Err(_) => self.surplus.store(true, Ordering::Relaxed),
        }
        if left.is_ok_and(|left| left > 1) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

impl<F> IntoIterator for Job<'static, F>
where
    F: FileFn + Send + 'static,
    F::Out: 'static,
    F::Error: 'static,
{
    type Item = <Self::IntoIter as Iterator>::Item;
    type IntoIter = Iter<F::Out, F::Error>;

    /// Runs the job in the background and yields results as they become ready, or in the order of
    /// the input. Failed files are items, so [`OnError`](crate::OnError) does not apply.
    ///
    /// ```
    /// let mut sum = 0;
    /// for len in ioloom::files(["Cargo.toml", "src/lib.rs"]).map(|f| f.len()) {
    ///     sum += len?;
    /// }
    /// assert!(sum > 0);
    ///
    /// let job = ioloom::files(["Cargo.toml", "no such file"]).map(|f| f.len());
    /// assert_eq!(job.into_iter().filter(|item| item.is_err()).count(), 1);
    /// # Ok::<(), ioloom::FileError>(())
    /// ```
    fn into_iter(self) -> Iter<F::Out, F::Error> {
        match F::LARGE {
            true => iterate::<F, InBox>(self, Results::in_box),
            false => iterate::<F, Direct>(self, Results::direct),
        }
    }
}

fn iterate<F, H: Hold>(
    mut job: Job<'static, F>,
    receiving: Receiving<H::Of<F::Out>, F::Out, F::Error>,
) -> Iter<F::Out, F::Error>
where
    F: FileFn + Send + 'static,
    F::Out: 'static,
    F::Error: 'static,
{
    let (channel, incoming, horizon) = job.connect::<H>();
    let partial = job.files.partial;
    let engine = std::thread::Builder::new().name("ioloom-iter".to_owned());
    let engine = engine.spawn(move || {
        let ended = job.execute_sending::<H>(&channel, horizon)?.executed;
        match ended.cancelled && !partial {
            true => Err(Error::Cancelled { files: ended.files }),
            false => Ok(()),
        }
    });
    Iter::new(receiving(incoming), engine)
}
