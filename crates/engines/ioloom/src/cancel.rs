//! A token that cancels runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;

/// Cancels runs. Clones share one state, and cancelling twice has no further effect.
///
/// A cancelled run takes no new files, waits for what is in flight, and returns
/// [`Error::Cancelled`](crate::Error::Cancelled).
///
/// ```
/// let token = ioloom::Cancel::new();
/// token.cancel();
/// let run = ioloom::files(["Cargo.toml"]).cancel(&token).map(|f| f.len()).run();
/// assert!(matches!(run, Err(ioloom::Error::Cancelled { files: 0 })));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
    /// Threads that a cancel wakes: one per run that uses this token or a child.
    sleepers: Arc<Mutex<Vec<Thread>>>,
    parent: Option<Arc<AtomicBool>>,
}

impl Cancel {
    /// Creates a token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a token from a flag, such as one that a signal handler sets. Runs check it every 40
    /// milliseconds.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Self {
        Self { flag, ..Self::default() }
    }

    /// Cancels every run that uses this token.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::SeqCst);
        self.sleepers().iter().for_each(Thread::unpark);
    }

    /// Returns a token for one run: cancelling this one cancels it, but not the other way round.
    pub(crate) fn child(&self) -> Self {
        Self {
            flag: Arc::default(),
            sleepers: self.sleepers.clone(),
            parent: Some(self.flag.clone()),
        }
    }

    /// Makes a cancel wake `thread` until the guard is dropped.
    pub(crate) fn wakes(&self, thread: Thread) -> Wakes<'_> {
        self.sleepers().push(thread.clone());
        Wakes { cancel: self, thread }
    }

    fn sleepers(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.sleepers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Reports whether the token was cancelled.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
            || self.parent.as_ref().is_some_and(|parent| parent.load(Ordering::Relaxed))
    }
}

/// Keeps a thread on the list of those that a cancel wakes.
pub(crate) struct Wakes<'c> {
    cancel: &'c Cancel,
    thread: Thread,
}

impl Drop for Wakes<'_> {
    fn drop(&mut self) {
        let mut sleepers = self.cancel.sleepers();
        if let Some(at) = sleepers.iter().position(|thread| thread.id() == self.thread.id()) {
            sleepers.swap_remove(at);
        }
    }
}
