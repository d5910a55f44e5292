//! A token that ends a run from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends runs. Clones are the same token; cancelling twice is once.
///
/// A cancelled run takes no new file, waits for what is in flight, and returns
/// [`Error::Cancelled`](crate::Error::Cancelled).
///
/// ```
/// let token = ioloom::Cancel::new();
/// token.cancel();
/// let run = ioloom::files(["Cargo.toml"]).cancel(&token).map(|f| Ok(f.len())).run();
/// assert!(matches!(run, Err(ioloom::Error::Cancelled { files: 0 })));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
    parent: Option<Arc<AtomicBool>>,
}

impl Cancel {
    /// A token that nobody has cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// A token on a flag that a signal handler sets.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Self {
        Self { flag, parent: None }
    }

    /// Cancels every run that has this token.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// A token of one run: cancelled together with this one, but not the other way round.
    pub(crate) fn child(&self) -> Self {
        Self { flag: Arc::default(), parent: Some(self.flag.clone()) }
    }

    /// Whether it was cancelled.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
            || self.parent.as_ref().is_some_and(|parent| parent.load(Ordering::Relaxed))
    }
}
