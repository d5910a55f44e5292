//! Files of any size as a [`Read`]: the function pulls, while the engine pushes chunks.
//!
//! Each file in progress has a thread that runs the function. A worker that has a chunk passes a
//! copy to that thread and waits until the function requests more or returns. So no more
//! functions run than the plan has permits, and their time counts as compute.
//!
//! ```text
//! worker   chunk ──copy──► wait ──────────────┐ next chunk, of this file or another
//! function          read … read ──request────►┘ … return ──► join
//! ```

use crate::engine::Piece;
use crate::error::Error;
use crate::file_fn::{Fallible, FileFn, Flow, Form, Plain, Sealed};
use crate::hold::{Hold, is_large};
use crate::job::{Chunks, Job};
use crate::run::Run;
use ioloom_model::layout::{Role, layout};
use ioloom_model::{Plan, Schedule};
use ioloom_sys::clock::thread_cpu_ns;
use std::io::{self, BufRead, Read};
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

/// Files in progress for each permit, in the default plan. Each of them has a thread.
const FILES_PER_PERMIT: u32 = 4;
const FILES_MIN: u32 = 8;

/// Bytes of one chunk, if the caller has not chosen them.
const CHUNK_BYTES: u64 = 256 << 10;
/// Least bytes of one chunk, whatever the memory: each one is handed over between two threads.
const CHUNK_LEAST_BYTES: u64 = 512;
/// What is left to the plan if the memory allows: less is refused.
const MEMORY_LEAST_BYTES: u64 = ioloom_model::table::MEMORY_LEAST_BYTES;

/// What a function is given instead of the rest of its file.
const ENDED_EARLY: &str = "the file was not read to its end: a read failed, or the run ended";

/// The contents of a file, which are read as they are requested. Passed to the function of
/// [`Chunks::map_reader`].
///
/// If the file cannot be read to its end, `read` fails, and so does the file, with the error of the
/// system, whatever the function returns. `read` also fails if the run ends early, because it is cancelled
/// or another file fails; the file itself does not count as failed then.
#[derive(Debug)]
pub struct Reader {
    chunk: Vec<u8>,
    at: usize,
    ended: bool,
    requests: Sender<Vec<u8>>,
    chunks: Receiver<Message>,
}

#[derive(Debug)]
enum Message {
    Data(Vec<u8>),
    End,
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.at == self.chunk.len() && !self.ended {
            self.at = 0;
            let mut empty = std::mem::take(&mut self.chunk);
            empty.clear();
            let _ = self.requests.send(empty);
            match self.chunks.recv() {
                Ok(Message::Data(chunk)) => self.chunk = chunk,
                Ok(Message::End) => self.ended = true,
                Err(_) => return Err(io::Error::other(ENDED_EARLY)),
            }
        }
        Ok(&self.chunk[self.at..])
    }

    fn consume(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.chunk.len());
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let bytes = available.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&available[..bytes]);
        self.consume(bytes);
        Ok(bytes)
    }
}

impl Chunks<'_> {
    /// Runs a function that reads each file through a [`Reader`], for decoders that pull: archives,
    /// compressed files, parsers. Memory is bounded by chunks, whatever the size of the file. If the
    /// function returns early, the rest of the file is not read. If the run ends early, reads of the files in
    /// progress fail, and what their functions return is dropped.
    ///
    /// Chunks are 256 KiB after [`pieces`](crate::Files::pieces). Each is copied once, and each file in
    /// progress has a thread. The copies count against the memory budget, except with a pinned plan.
    /// Where the function can take chunks as they come, [`fold_file`](Self::fold_file) costs neither.
    ///
    /// ```
    /// use std::io::BufRead;
    /// let run = ioloom::files(["Cargo.toml", "src/lib.rs"])
    ///     .chunks(100)
    ///     .map_reader(|_, reader| reader.lines().map_while(Result::ok).count())?;
    /// assert!(run.value.iter().all(|lines| *lines > 10));
    /// # Ok::<(), ioloom::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the system refuses a thread. A panic of the function resumes at the end of the run,
    /// unless its file could not be read to the end: then the file fails, with the error of the read.
    pub fn map_reader<T, F>(self, f: F) -> Result<Run<Vec<T>>, Error>
    where
        T: Send,
        F: Fn(&Path, &mut Reader) -> T + Sync,
    {
        self.run_reader::<T, F, Plain>(&f)
    }

    /// Runs a function that may fail over readers; see [`map_reader`](Self::map_reader).
    ///
    /// ```
    /// use std::io::Read;
    /// let run = ioloom::files(["Cargo.toml"]).chunks(100).try_map_reader(|_, reader| {
    ///     let mut text = String::new();
    ///     reader.read_to_string(&mut text).map(|_| text)
    /// })?;
    /// assert!(run.value[0].starts_with("[package]"));
    /// # Ok::<(), ioloom::Error<std::io::Error>>(())
    /// ```
    pub fn try_map_reader<T, E, F>(self, f: F) -> Result<Run<Vec<T>, E>, Error<E>>
    where
        T: Send,
        E: Send,
        F: Fn(&Path, &mut Reader) -> Result<T, E> + Sync,
    {
        self.run_reader::<Result<T, E>, F, Fallible>(&f)
    }

    #[allow(clippy::type_complexity, reason = "the types of a run, which an alias would hide")]
    fn run_reader<R, F, M>(self, f: &F) -> Result<Run<Vec<M::Out>, M::Error>, Error<M::Error>>
    where
        R: Send,
        F: Fn(&Path, &mut Reader) -> R + Sync,
        M: Form<R>,
    {
        let mut files = self.files;
        if !files.pinned {
            bound_files(&mut files.plan, files.threads);
        }
        std::thread::scope(|scope| {
            let function = Pulling { scope, function: f, form: PhantomData::<M> };
            Job { files, function }.run()
        })
    }
}

/// Bounds the files in progress of a plan, and takes their copies of chunks from its memory budget.
fn bound_files(plan: &mut Plan, threads: Option<u32>) {
    let Schedule::Window { window, permits } = &mut plan.schedule else { return };
    let permits = threads.or(*permits).unwrap_or(1);
    *window = (*window).min(FILES_PER_PERMIT.saturating_mul(permits).max(FILES_MIN));
    let window = *window;
    // A blocking thread has a file in progress, too.
    plan.blocking = plan.blocking.map(|blocking| blocking.min(window));
    let blocking = layout(plan).map_or(0, |layout| layout.max_of(Role::Blocking));
    // Each file in progress has a copy of a chunk, and one more may be on its way.
    let copies = 2 * (u64::from(window) + u64::from(blocking));
    // Half of the memory at most, and what a plan needs at least is left, unless it was not given.
    let spare =
        plan.memory_bytes.saturating_sub(MEMORY_LEAST_BYTES).max(copies * CHUNK_LEAST_BYTES);
    let most = (plan.memory_bytes / 2).min(spare) / copies;
    let chunk = plan.chunk_bytes.unwrap_or(CHUNK_BYTES).min(most).max(1);
    plan.chunk_bytes = Some(chunk);
    let least = plan.memory_bytes.min(MEMORY_LEAST_BYTES);
    plan.memory_bytes = plan.memory_bytes.saturating_sub(copies * chunk).max(least);
}

/// The function, and where its threads run.
struct Pulling<'scope, 'env, F, M> {
    scope: &'scope Scope<'scope, 'env>,
    function: &'scope F,
    form: PhantomData<M>,
}

impl<F, M> Sealed for Pulling<'_, '_, F, M> {}

/// A file in progress.
struct Progressing<'scope, R> {
    /// A buffer that the function has returned, with its request for more.
    request: Option<Vec<u8>>,
    requests: Receiver<Vec<u8>>,
    chunks: SyncSender<Message>,
    /// Returns what the function returned, and the processor time of the thread.
    thread: ScopedJoinHandle<'scope, (std::thread::Result<R>, u64)>,
}

impl<'scope, R, F, M> FileFn for Pulling<'scope, '_, F, M>
where
    R: Send + 'scope,
    F: Fn(&Path, &mut Reader) -> R + Sync,
    M: Form<R>,
{
    const CHUNKS: bool = true;
    const LARGE: bool = is_large::<R>();
    type State<H: Hold> = Progressing<'scope, H::Of<R>>;
    type Out = M::Out;
    type Error = M::Error;

    fn begin<H: Hold>(&self, path: &Path) -> Self::State<H> {
        let (send_request, requests) = channel();
        let (chunks, receive) = sync_channel(1);
        let (function, path) = (self.function, path.to_owned());
        let thread = std::thread::Builder::new().name("ioloom-reader".to_owned());
        let thread = thread.spawn_scoped(self.scope, move || {
            let (chunk, at, ended) = (Vec::new(), 0, false);
            let mut reader = Reader { chunk, at, ended, requests: send_request, chunks: receive };
            // A function that panics after its run has ended must not end the caller.
            let returned = catch_unwind(AssertUnwindSafe(|| H::of(function(&path, &mut reader))));
            (returned, thread_cpu_ns())
        });
        let thread = thread.expect("the system starts a thread for a reader");
        Progressing { request: None, requests, chunks, thread }
    }

    fn piece<H: Hold>(
        &self,
        state: &mut Self::State<H>,
        piece: &Piece<'_>,
    ) -> Result<ControlFlow<()>, M::Error> {
        if state.request.is_none() {
            state.request = state.requests.recv().ok();
        }
        // Without a request the function has returned.
        let Some(mut buffer) = state.request.take() else { return Ok(ControlFlow::Break(())) };
        buffer.extend_from_slice(piece.bytes);
        let _ = state.chunks.send(Message::Data(buffer));
        state.request = state.requests.recv().ok();
        Ok(match state.request {
            Some(_) => ControlFlow::Continue(()),
            None => ControlFlow::Break(()),
        })
    }

    fn finish<H: Hold>(&self, state: Self::State<H>, _: &Path) -> Flow<H::Of<M::Out>, M::Error> {
        let _ = state.chunks.send(Message::End);
        let returned = state.thread.join().and_then(|(returned, cpu_ns)| {
            ioloom_observe::helped(cpu_ns);
            returned
        });
        let returned = returned.unwrap_or_else(|payload| resume_unwind(payload));
        M::flow::<H>(H::out::<R>(returned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_progress_and_their_copies_are_bounded() {
        const MEMORY: u64 = 1 << 30;
        for (threads, files) in [(None, 16), (Some(1), 8), (Some(16), 64), (Some(300), 512)] {
            let mut plan: Plan = "nowait/window:l=512,p=4/blocking=256,chunk=1MiB".parse().unwrap();
            plan.memory_bytes = MEMORY;
            bound_files(&mut plan, threads);
            let layout = layout(&plan).unwrap();
            let in_progress = layout.files_at_once(u64::MAX);
            assert_eq!(plan.blocking, Some(files.min(256)), "{plan}");
            assert!(in_progress <= 2 * u64::from(files), "{plan}: {in_progress}");
            let most = u64::from(files + layout.max_of(Role::Blocking));
            let copies = 2 * most * plan.chunk_bytes.unwrap();
            assert!(copies + plan.memory_bytes <= MEMORY, "{plan}: {copies} of {MEMORY}");
        }
    }
}
