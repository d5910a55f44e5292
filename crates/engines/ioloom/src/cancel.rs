//! A token that cancels runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    parent: Option<Arc<AtomicBool>>,
}

impl Cancel {
    /// Creates a token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a token from a flag, such as one that a signal handler sets.
    pub fn from_flag(flag: Arc<AtomicBool>) -> Self {
        Self { flag, parent: None }
    }

    /// Cancels every run that uses this token.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Returns a token for one run: cancelling this one cancels it, but not the other way round.
    pub(crate) fn child(&self) -> Self {
        Self { flag: Arc::default(), parent: Some(self.flag.clone()) }
    }

    /// Reports whether the token was cancelled.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
            || self.parent.as_ref().is_some_and(|parent| parent.load(Ordering::Relaxed))
    }
}
