//! A job, which is files and a function over them, and the ways to run it.

use crate::error::Error;
use crate::file_fn::{Fallible, FileFn, FoldFile, MapChunks, Plain, Until, Whole, WithInit};
use crate::files::Files;
use crate::hold::{Direct, Hold, InBox};
use crate::keep::new_budget;
use crate::policy::Order;
use crate::run::{Adapter, Collect, EndedResult, Folded, Run, Sink};
use crate::view::{Chunk, File};
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;

/// Files and the function to run over them.
#[must_use = "nothing is read until the job is run"]
pub struct Job<'a, F> {
    pub(crate) files: Files<'a>,
    pub(crate) function: F,
}

/// Files that are read in chunks.
#[must_use = "nothing is read until a function is given and the job is run"]
pub struct Chunks<'a> {
    pub(crate) files: Files<'a>,
}

impl<'a, K> Files<'a, K> {
    /// Sets the function to run on each whole file. It borrows the bytes for the call, and may run on the calling
    /// thread.
    pub fn map<T, F>(self, f: F) -> Job<'a, Whole<F, Plain>>
    where
        T: Send,
        F: Fn(&File<'_>) -> T + Sync,
    {
        Job { files: self.into_files(), function: Whole { function: f, form: PhantomData } }
    }

    /// Sets a function that may fail. Its error keeps its type: see [`FileError`](crate::FileError).
    ///
    /// ```
    /// use std::str::Utf8Error;
    /// let words: Result<usize, ioloom::Error<Utf8Error>> = ioloom::files(["Cargo.toml"])
    ///     .try_map(|f| std::str::from_utf8(f.bytes()).map(|text| text.split(' ').count()))
    ///     .sum();
    /// assert!(words? > 10);
    /// # Ok::<(), ioloom::Error<Utf8Error>>(())
    /// ```
    pub fn try_map<T, E, F>(self, f: F) -> Job<'a, Whole<F, Fallible>>
    where
        T: Send,
        E: Send,
        F: Fn(&File<'_>) -> Result<T, E> + Sync,
    {
        Job { files: self.into_files(), function: Whole { function: f, form: PhantomData } }
    }

    /// Sets a function that can end the run: after `Break` no further file is started. The value
    /// of `Break` and those of functions that are running are kept; with
    /// [`ordered`](Self::ordered), only those before the first file that was not processed.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// let files = std::iter::repeat_n("Cargo.toml", 100_000);
    /// let run = ioloom::files(files)
    ///     .map_until(|f| match f.index() {
    ///         9 => ControlFlow::Break(f.len()),
    ///         _ => ControlFlow::Continue(f.len()),
    ///     })
    ///     .run()?;
    /// assert!(run.stopped && run.value.len() < 100_000);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn map_until<T, F>(self, f: F) -> Job<'a, Whole<F, Until>>
    where
        T: Send,
        F: Fn(&File<'_>) -> ControlFlow<T, T> + Sync,
    {
        Job { files: self.into_files(), function: Whole { function: f, form: PhantomData } }
    }

    /// Sets a function that borrows a state, such as a decoder or a buffer. `init` creates at most
    /// as many states as functions run at once.
    ///
    /// ```
    /// let bytes = ioloom::files(["Cargo.toml", "src/lib.rs"])
    ///     .map_init(Vec::new, |buffer, f| {
    ///         buffer.clear();
    ///         buffer.extend_from_slice(f.bytes());
    ///         buffer.len()
    ///     })
    ///     .sum::<usize>()?;
    /// assert!(bytes > 100);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn map_init<S, T, I, F>(self, init: I, f: F) -> Job<'a, WithInit<I, F, S, Plain>>
    where
        S: Send,
        T: Send,
        I: Fn() -> S + Sync,
        F: Fn(&mut S, &File<'_>) -> T + Sync,
    {
        Job {
            files: self.into_files(),
            function: WithInit { init, function: f, idle: Mutex::default(), form: PhantomData },
        }
    }

    /// Sets a function that borrows a state, as [`map_init`](Self::map_init) does, and may fail.
    pub fn try_map_init<S, T, E, I, F>(self, init: I, f: F) -> Job<'a, WithInit<I, F, S, Fallible>>
    where
        S: Send,
        T: Send,
        E: Send,
        I: Fn() -> S + Sync,
        F: Fn(&mut S, &File<'_>) -> Result<T, E> + Sync,
    {
        let idle = Mutex::default();
        Job {
            files: self.into_files(),
            function: WithInit { init, function: f, idle, form: PhantomData },
        }
    }

    /// Runs a function on each whole file for its side effects.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// let bytes = AtomicU64::new(0);
    /// ioloom::files(["Cargo.toml"]).for_each(|f| {
    ///     bytes.fetch_add(f.len(), Ordering::Relaxed);
    /// })?;
    /// assert!(bytes.into_inner() > 0);
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn for_each<F>(self, f: F) -> Result<Run<()>, Error>
    where
        F: Fn(&File<'_>) + Sync,
    {
        self.map(f).fold(|| (), |(), ()| {}, |(), ()| {})
    }

    /// Runs a function that may fail on each whole file for its side effects.
    pub fn try_for_each<E, F>(self, f: F) -> Result<Run<(), E>, Error<E>>
    where
        E: Send,
        F: Fn(&File<'_>) -> Result<(), E> + Sync,
    {
        self.try_map(f).fold(|| (), |(), ()| {}, |(), ()| {})
    }

    /// Reads files in chunks of at most `bytes`, so that a file may be larger than memory.
    pub fn chunks(mut self, bytes: u64) -> Chunks<'a> {
        self.plan.chunk_bytes = Some(bytes.max(1));
        Chunks { files: self.into_files() }
    }

    /// Reads files as the plan says: in chunks if it has a chunk size ([`Files::pin`]), else whole,
    /// as one chunk. For functions that work with any plan.
    ///
    /// ```
    /// for plan in ["read/threads:n=2", "read/threads:n=2/chunk=100"] {
    ///     let files = ioloom::files(["Cargo.toml"]).pin(plan.parse().unwrap());
    ///     let bytes: u64 = files
    ///         .pieces()
    ///         .fold_file(|_| 0, |sum, c| *sum += c.bytes().len() as u64, |sum, _| sum)
    ///         .sum()?;
    ///     assert_eq!(bytes, std::fs::metadata("Cargo.toml").unwrap().len());
    /// }
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn pieces(mut self) -> Chunks<'a> {
        self.pieces = true;
        Chunks { files: self.into_files() }
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
    ///     .fold_file(|_| 0u64, |sum, c| *sum += c.bytes().len() as u64, |sum, _| sum)
    ///     .collect()?;
    /// assert_eq!(sizes[0], std::fs::metadata("Cargo.toml").unwrap().len());
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn fold_file<S, T, I, F, G>(
        self,
        init: I,
        step: F,
        finish: G,
    ) -> Job<'a, FoldFile<I, F, G, Plain>>
    where
        S: Send,
        T: Send,
        I: Fn(&Path) -> S + Sync,
        F: Fn(&mut S, &Chunk<'_>) + Sync,
        G: Fn(S, &Path) -> T + Sync,
    {
        Job { files: self.files, function: FoldFile { init, step, finish, form: PhantomData } }
    }

    /// Computes one value per file as [`fold_file`](Self::fold_file) does, with steps that may fail.
    ///
    /// ```
    /// let text = ioloom::files(["Cargo.toml"])
    ///     .chunks(1 << 20)
    ///     .try_fold_file(
    ///         |_| String::new(),
    ///         |all, c| std::str::from_utf8(c.bytes()).map(|text| all.push_str(text)),
    ///         |all, _| Ok(all),
    ///     )
    ///     .collect()?;
    /// assert!(text[0].starts_with("[package]"));
    /// # Ok::<(), ioloom::Error<std::str::Utf8Error>>(())
    /// ```
    pub fn try_fold_file<S, T, E, I, F, G>(
        self,
        init: I,
        step: F,
        finish: G,
    ) -> Job<'a, FoldFile<I, F, G, Fallible>>
    where
        S: Send,
        T: Send,
        E: Send,
        I: Fn(&Path) -> S + Sync,
        F: Fn(&mut S, &Chunk<'_>) -> Result<(), E> + Sync,
        G: Fn(S, &Path) -> Result<T, E> + Sync,
    {
        Job { files: self.files, function: FoldFile { init, step, finish, form: PhantomData } }
    }

    /// Computes a value for each chunk and returns one vector per file, in the order of offsets.
    ///
    /// ```
    /// let pieces = ioloom::files(["Cargo.toml"])
    ///     .chunks(100)
    ///     .map_chunks(|c| (c.offset(), c.bytes().len()))
    ///     .collect()?;
    /// assert!(pieces[0].windows(2).all(|w| w[0].0 + w[0].1 as u64 == w[1].0));
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    pub fn map_chunks<T, F>(self, f: F) -> Job<'a, MapChunks<F, Plain>>
    where
        T: Send,
        F: Fn(&Chunk<'_>) -> T + Sync,
    {
        Job { files: self.files, function: MapChunks { function: f, form: PhantomData } }
    }

    /// Computes a value for each chunk with a function that may fail.
    pub fn try_map_chunks<T, E, F>(self, f: F) -> Job<'a, MapChunks<F, Fallible>>
    where
        T: Send,
        E: Send,
        F: Fn(&Chunk<'_>) -> Result<T, E> + Sync,
    {
        Job { files: self.files, function: MapChunks { function: f, form: PhantomData } }
    }
}

impl<F: FileFn> Job<'_, F> {
    /// Runs the job and returns its values, measurements and failures.
    ///
    /// ```
    /// let run = ioloom::files(["Cargo.toml", "no such file"])
    ///     .on_error(ioloom::OnError::Collect)
    ///     .map(|f| f.len())
    ///     .run()?;
    /// assert_eq!((run.value.len(), run.failed), (1, 1));
    /// println!("{}", run.why());
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    #[allow(clippy::type_complexity, reason = "the types of a run, which an alias would hide")]
    pub fn run(self) -> Result<Run<Vec<F::Out>, F::Error>, Error<F::Error>> {
        if F::LARGE { self.run_holding::<InBox>() } else { self.run_holding::<Direct>() }
    }

    #[allow(clippy::type_complexity, reason = "the types of a run, which an alias would hide")]
    fn run_holding<H: Hold>(self) -> Result<Run<Vec<F::Out>, F::Error>, Error<F::Error>> {
        let order = self.files.order;
        Ok(self.execute::<H, _>(&Collect)?.into_values(order, H::list::<F::Out>))
    }

    /// Runs the job and returns the values in the order of the input.
    pub fn collect(self) -> Result<Vec<F::Out>, Error<F::Error>> {
        let Self { files, function } = self;
        let job = Job { files: files.order(Order::Input), function };
        if F::LARGE { job.collect_holding::<InBox>() } else { job.collect_holding::<Direct>() }
    }

    fn collect_holding<H: Hold>(self) -> Result<Vec<F::Out>, Error<F::Error>> {
        let order = self.files.order;
        Ok(self.execute::<H, _>(&Collect)?.into_list(order, H::list::<F::Out>))
    }

    /// Runs the job and returns the sum of the values.
    pub fn sum<T: std::iter::Sum<F::Out> + std::iter::Sum<T> + Send>(
        self,
    ) -> Result<T, Error<F::Error>> {
        let add = |sum: &mut Option<T>, more: T| {
            *sum = Some(sum.take().into_iter().chain([more]).sum());
        };
        let step = |sum: &mut Option<T>, value| add(sum, [value].into_iter().sum());
        let sums = match F::LARGE {
            true => self.accumulate::<InBox, _>(|| None, step)?.into_value(|sums| sums),
            false => self.accumulate::<Direct, _>(|| None, step)?.into_value(|sums| sums),
        };
        Ok(sums.into_iter().flatten().sum())
    }

    /// Runs the job and folds the values: `init` creates the accumulator of a thread, `step` adds a
    /// value, and `merge` adds the accumulator of another thread.
    ///
    /// ```
    /// let run = ioloom::files(["Cargo.toml", "src/lib.rs"]).map(|f| f.len()).fold(
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
        step: impl Fn(&mut A, F::Out) + Sync,
        merge: impl Fn(&mut A, A),
    ) -> Result<Run<A, F::Error>, Error<F::Error>> {
        match F::LARGE {
            true => self.fold_holding::<InBox, A>(init, step, merge),
            false => self.fold_holding::<Direct, A>(init, step, merge),
        }
    }

    fn fold_holding<H: Hold, A: Send>(
        self,
        init: impl Fn() -> A + Sync,
        step: impl Fn(&mut A, F::Out) + Sync,
        merge: impl Fn(&mut A, A),
    ) -> Result<Run<A, F::Error>, Error<F::Error>> {
        let ended = self.accumulate::<H, A>(&init, step)?;
        Ok(ended.into_run(|locals| {
            let mut locals = locals.into_iter();
            let mut all = locals.next().unwrap_or_else(&init);
            for local in locals {
                merge(&mut all, local);
            }
            all
        }))
    }

    /// Runs the job with one accumulator per thread.
    fn accumulate<H: Hold, A: Send>(
        self,
        init: impl Fn() -> A + Sync,
        step: impl Fn(&mut A, F::Out) + Sync,
    ) -> EndedResult<A, F::Error> {
        let step = |all: &mut A, held: H::Of<F::Out>| step(all, H::out::<F::Out>(held));
        self.execute::<H, _>(&Folded { init: &init, step: &step })
    }

    /// Runs the function and passes each value to `sink`.
    pub(crate) fn execute<H: Hold, K: Sink<H::Of<F::Out>>>(
        self,
        sink: &K,
    ) -> EndedResult<K::Local, F::Error> {
        let Self { files, function } = self;
        let work = Adapter::<F, H, K>::new(&function, sink, &files);
        let budget = new_budget(files.plan.memory_bytes);
        let driven = files.drive(F::CHUNKS, budget, None, &work).map_err(Error::widen)?;
        work.end(driven)
    }
}
