//! A walk in the background, as an iterator of what it finds.

use super::visitor::Finder;
use super::{Links, TreeOptions, Walked};
use crate::error::FileError;
use crate::feed::Entry;
use ioloom_failure::{Operation, PathError};
use ioloom_walk::{Fields, Follow, Method, PathList, Walk};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Batches that may wait between the walk and the run.
const BATCHES: usize = 32;

/// Counts of a walk, complete when it has ended.
pub(crate) type Counts = Arc<Mutex<Walked>>;

/// What a walk finds, in the order in which it finds it. The walk starts with the first call.
/// Dropping the iterator stops the walk and waits for its threads.
pub(crate) struct Walking {
    state: State,
    stop: Arc<AtomicBool>,
}

enum State {
    /// Not started.
    Waiting(Arc<TreeOptions>, Counts),
    Running {
        batch: std::vec::IntoIter<Entry>,
        batches: Receiver<Vec<Entry>>,
        thread: JoinHandle<()>,
    },
    Ended,
}

impl Walking {
    pub(crate) fn new(options: TreeOptions) -> (Self, Counts) {
        let counts = Counts::default();
        let state = State::Waiting(Arc::new(options), counts.clone());
        (Self { state, stop: Arc::default() }, counts)
    }

    /// Walks the whole tree and sorts it. Returns the files, and the failures of the walk.
    pub(crate) fn sorted(self) -> (PathList, Vec<Entry>) {
        let (mut list, mut others) = (PathList::new(), Vec::new());
        for entry in self {
            match entry {
                Entry::Regular(path) => list.push_found(&[path.as_os_str().as_bytes()], 0),
                Entry::Path(path) => list.push(path.as_os_str().as_bytes()),
                Entry::Failed(error) => others.push(Entry::Failed(error)),
            }
        }
        list.sort();
        (list, others)
    }

    fn start(&mut self, options: Arc<TreeOptions>, counts: Counts) -> Option<Entry> {
        let (send, batches) = sync_channel(BATCHES);
        let stop = self.stop.clone();
        let thread = std::thread::Builder::new().name("ioloom-walk".to_owned());
        match thread.spawn(move || walk(&options, &counts, send, stop)) {
            Ok(thread) => {
                self.state = State::Running { batch: Vec::new().into_iter(), batches, thread };
                None
            }
            Err(error) => {
                self.state = State::Ended;
                let error = PathError::new(Operation::Walk, PathBuf::new(), error);
                Some(Entry::Failed(FileError::walk(0, error)))
            }
        }
    }
}

/// Walks on this thread and those that it starts.
fn walk(
    options: &Arc<TreeOptions>,
    counts: &Counts,
    send: SyncSender<Vec<Entry>>,
    stop: Arc<AtomicBool>,
) {
    let walk = Walk {
        method: Method::NamesOnly,
        dir_fields: if options.same_file_system { Fields::IDENTITY } else { Fields::NONE },
        follow: if options.links == Links::All { Follow::Always } else { Follow::Roots },
        cancel: Some(stop),
        ..Walk::default()
    };
    let absolute =
        options.roots.iter().map(|root| std::path::absolute(root).unwrap_or_else(|_| root.clone()));
    let absolute = Arc::new(absolute.collect::<Vec<_>>());
    let make = |_| Finder::new(options, &absolute, send.clone(), counts);
    if let Err(refused) = walk.run(&options.roots, make) {
        let root = options.roots.first().cloned().unwrap_or_default();
        let error = PathError::new(Operation::Walk, root, io::Error::other(refused));
        let _ = send.send(vec![Entry::Failed(FileError::walk(0, error))]);
    }
}

impl Iterator for Walking {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            match &mut self.state {
                State::Ended => return None,
                State::Waiting(options, counts) => {
                    let (options, counts) = (options.clone(), counts.clone());
                    if let Some(failed) = self.start(options, counts) {
                        return Some(failed);
                    }
                }
                State::Running { batch, batches, .. } => {
                    if let Some(entry) = batch.next() {
                        return Some(entry);
                    }
                    match batches.recv() {
                        Ok(more) => *batch = more.into_iter(),
                        Err(_) => self.end(),
                    }
                }
            }
        }
    }
}

impl Walking {
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
        self.stop.store(true, Ordering::Relaxed);
        if let State::Running { batches, thread, .. } =
            std::mem::replace(&mut self.state, State::Ended)
        {
            drop(batches);
            let _ = thread.join();
        }
    }
}
