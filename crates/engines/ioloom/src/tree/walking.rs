//! A walk in the background, as an iterator of what it finds.

use super::batch::{Batch, Entries};
use super::parked::Parked;
use super::tally::Tally;
use super::visitor::{BATCH_MAX, Finder};
use super::{Links, TreeOptions};
use crate::cancel::Cancel;
use crate::error::{Error, FileError, START_THREAD};
use crate::feed::{Entry, Feeding};
use ioloom_failure::{Operation, PathError};
use ioloom_sys::mount::{Mount, mounts};
use ioloom_sys::priority::lower_io_priority;
use ioloom_walk::{Fields, Follow, Method, PathList, Walk};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Entries that a walk may find before the first read.
const AHEAD_MAX: usize = 65_536;
/// Batches that may wait between the walk and the run.
const BATCHES: usize = AHEAD_MAX / BATCH_MAX;
/// Time between two looks whether the run was cancelled.
const LOOK: Duration = Duration::from_millis(20);

/// What a walk has found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The files.
    pub(crate) list: PathList,
    /// What could not be walked.
    pub(crate) failed: Vec<FileError>,
    /// Whether the walk has ended.
    pub(crate) ended: bool,
}

/// What a walk has found so far.
#[derive(Default)]
struct Batches {
    lists: Vec<PathList>,
    files: usize,
    failed: Vec<FileError>,
}

impl Batches {
    fn add(&mut self, batch: Batch) {
        self.files += batch.files.len();
        self.lists.push(batch.files);
        self.failed.extend(batch.failed);
    }

    fn found(self, sorted: bool, ended: bool) -> Found {
        let join = if sorted { PathList::sorted } else { PathList::joined };
        Found { list: join(&self.lists), failed: self.failed, ended }
    }
}

/// What a walk finds, in the order in which it finds it. The walk starts with the first call.
/// Dropping the iterator stops the walk, and does not wait for its threads: a directory may not answer.
pub(crate) struct Walking {
    state: State,
    tally: Arc<Tally>,
    parked: Arc<Parked>,
}

/// Records the end of a walk, also after a panic.
struct Ending<'t>(&'t Tally);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.ends();
    }
}

enum State {
    /// Not started.
    Waiting(Arc<TreeOptions>),
    Running {
        /// What of the last batch is left.
        entries: Entries,
        batches: Receiver<Batch>,
        thread: JoinHandle<()>,
    },
    Ended,
}

impl Walking {
    pub(crate) fn new(options: TreeOptions) -> (Self, Arc<Tally>) {
        let tally = Arc::new(Tally::default());
        let parked_max = match (options.sorted, options.ahead.is_zero()) {
            (true, _) => usize::MAX,
            (false, true) => 0,
            (false, false) => AHEAD_MAX,
        };
        let state = State::Waiting(Arc::new(options));
        let parked = Arc::new(Parked::new(parked_max));
        (Self { state, tally: tally.clone(), parked }, tally)
    }

    /// Walks the whole tree and sorts it. If the run is cancelled, returns a part and records that.
    pub(crate) fn sorted(mut self, cancel: &Cancel) -> Found {
        let mut batches = Batches::default();
        loop {
            if cancel.is_cancelled() {
                self.tally.cuts();
                break;
            }
            match self.receive(Some(Instant::now() + LOOK)) {
                Received::Batch(batch) => batches.add(batch),
                Received::Late => {}
                Received::Ended => break,
            }
        }
        self.parked.take().into_iter().for_each(|batch| batches.add(batch));
        batches.found(true, true)
    }

    /// Walks until `until` if that is given, until many files are found, or until the run is cancelled.
    pub(crate) fn ahead(&mut self, until: Option<Instant>, sorted: bool, cancel: &Cancel) -> Found {
        let mut batches = Batches::default();
        let received = loop {
            let look = Instant::now() + LOOK;
            let received = self.receive(Some(until.map_or(look, |until| until.min(look))));
            let is_early = until.is_none_or(|until| look < until);
            let goes_on = matches!(received, Received::Late) && is_early;
            if !goes_on || cancel.is_cancelled() {
                break received;
            }
        };
        let ended = matches!(received, Received::Ended);
        if let Received::Batch(batch) = received {
            // No more could be parked.
            batches.add(batch);
        }
        self.parked.take().into_iter().for_each(|batch| batches.add(batch));
        batches.found(sorted, ended)
    }

    fn start(&mut self, options: Arc<TreeOptions>) -> Option<FileError> {
        let tally = self.tally.clone();
        if !tally.starts() {
            self.state = State::Ended;
            return None;
        }
        let (send, batches) = sync_channel(BATCHES);
        let (stop, parked) = (tally.stop.clone(), self.parked.clone());
        let thread = std::thread::Builder::new().name("ioloom-walk".to_owned());
        let walks = {
            let (options, tally) = (options.clone(), tally.clone());
            move || {
                let _ending = Ending(&tally);
                if options.polite {
                    // The other threads of the walk inherit it. Reads report a refusal.
                    let _ = lower_io_priority();
                }
                walk(&options, &tally, &send, (stop, &parked));
            }
        };
        match thread.spawn(walks) {
            Ok(thread) => {
                self.state = State::Running { entries: Entries::default(), batches, thread };
                None
            }
            Err(source) => {
                tally.ends();
                self.state = State::Ended;
                let root = options.roots.first().cloned().unwrap_or_default();
                let error: Error = Error::System { operation: START_THREAD, source };
                let error = PathError::new(Operation::Walk, root, io::Error::other(error));
                Some(FileError::walk(0, error))
            }
        }
    }
}

/// Returns true if a file system whose files the kernel makes up is mounted below a root. Directories
/// must then say on which device they are.
fn has_made_up(roots: &[PathBuf]) -> bool {
    let roots: Vec<PathBuf> = roots.iter().filter_map(|root| root.canonicalize().ok()).collect();
    let below = |point: &Path| roots.iter().any(|root| point.starts_with(root) && point != root);
    let made_up = |mount: &Mount| mount.is_made_up() && below(&mount.point);
    mounts().is_ok_and(|mounts| mounts.iter().any(made_up))
}

/// Walks on this thread and those that it starts.
fn walk(
    options: &Arc<TreeOptions>,
    tally: &Arc<Tally>,
    send: &SyncSender<Batch>,
    (stop, parked): (Arc<AtomicBool>, &Arc<Parked>),
) {
    let walk = Walk {
        method: Method::NamesOnly,
        dir_fields: match options.same_file_system || has_made_up(&options.roots) {
            true => Fields::IDENTITY,
            false => Fields::NONE,
        },
        follow: if options.links == Links::All { Follow::Always } else { Follow::Roots },
        cancel: Some(stop),
        ..Walk::default()
    };
    let absolute = options.roots.iter().map(|root| absolute(root, options.ignore_files));
    let absolute = Arc::new(absolute.collect::<Vec<_>>());
    let make = |_| Finder::new(options, &absolute, send.clone(), parked.clone(), tally);
    if let Err(refused) = walk.run(&options.roots, make) {
        let root = options.roots.first().cloned().unwrap_or_default();
        let error = PathError::new(Operation::Walk, root, io::Error::other(refused));
        let failed = vec![FileError::walk(0, error)];
        let _ = send.send(Batch { failed, ..Batch::default() });
    }
}

/// Returns the absolute path of a root. Rules of ignore files apply to real paths, without links and
/// `..`; nothing else needs them.
fn absolute(root: &Path, real: bool) -> PathBuf {
    let found = if real { std::fs::canonicalize(root) } else { std::path::absolute(root) };
    found.unwrap_or_else(|_| root.to_owned())
}

/// The outcome of a wait for a batch.
enum Received {
    Batch(Batch),
    /// The time is over.
    Late,
    /// The walk has ended.
    Ended,
}

impl Iterator for Walking {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            if let State::Running { entries, .. } = &mut self.state
                && let Some(entry) = entries.next()
            {
                return Some(entry);
            }
            let Received::Batch(batch) = self.receive(None) else { return None };
            match &mut self.state {
                State::Running { entries, .. } => *entries = batch.into(),
                // The walk did not start.
                _ => return Entries::from(batch).next(),
            }
        }
    }
}

impl Feeding for Walking {
    fn ready(&mut self) -> Option<Entry> {
        match &mut self.state {
            State::Running { entries, .. } => entries.next(),
            _ => None,
        }
    }
}

impl Walking {
    /// Waits for the next batch, at most until `until`.
    fn receive(&mut self, until: Option<Instant>) -> Received {
        loop {
            match &mut self.state {
                State::Ended => return Received::Ended,
                State::Waiting(options) => {
                    let options = options.clone();
                    if let Some(failed) = self.start(options) {
                        let failed = vec![failed];
                        return Received::Batch(Batch { failed, ..Batch::default() });
                    }
                }
                State::Running { batches, .. } => {
                    let received = match until {
                        None => batches.recv().map_err(|_| RecvTimeoutError::Disconnected),
                        Some(until) => {
                            batches.recv_timeout(until.saturating_duration_since(Instant::now()))
                        }
                    };
                    match received {
                        Ok(batch) => return Received::Batch(batch),
                        Err(RecvTimeoutError::Timeout) => return Received::Late,
                        Err(RecvTimeoutError::Disconnected) => self.end(),
                    }
                }
            }
        }
    }

    /// Waits for the walk. Resumes its panic: the filter is the caller's.
    fn end(&mut self) {
        if let State::Running { batches, thread, .. } =
            std::mem::replace(&mut self.state, State::Ended)
        {
            drop(batches);
            if let Err(payload) = thread.join()
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(payload);
            }
        }
    }
}

impl Drop for Walking {
    fn drop(&mut self) {
        self.tally.stop.store(true, Ordering::Relaxed);
    }
}
