//! Names that are the same file: the first one is copied, the others become links to the copy.
//!
//! A thread that meets a file which another one is copying waits for it: who copies waits for
//! nobody, so the wait ends. Memory: about 150 bytes for each file with several names.

use crate::error::CopyError;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};

/// Device and inode.
pub(crate) type Identity = ((u32, u32), u64);

enum State<P> {
    Busy,
    Made(P),
}

/// Which files with several names were met, and where their copies are.
pub(crate) struct Links<P> {
    met: Mutex<HashMap<Identity, State<P>>>,
    changed: Condvar,
}

impl<P: Clone> Links<P> {
    pub(crate) fn new() -> Self {
        Self { met: Mutex::default(), changed: Condvar::new() }
    }

    /// Where the copy of a file is, or `None`: then the caller copies it and must call
    /// [`made`](Self::made).
    pub(crate) fn claim(&self, identity: Identity) -> Option<P> {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match met.get(&identity) {
                None => {
                    met.insert(identity, State::Busy);
                    return None;
                }
                Some(State::Made(place)) => return Some(place.clone()),
                Some(State::Busy) => {
                    met = self.changed.wait(met).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// The copy that was claimed is made, or failed: then the next one copies it.
    pub(crate) fn made(&self, identity: Identity, place: Option<P>) {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        match place {
            Some(place) => met.insert(identity, State::Made(place)),
            None => met.remove(&identity),
        };
        drop(met);
        self.changed.notify_all();
    }
}

/// What was done with one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// With the bytes that were moved for it.
    Copied(u64),
    Linked,
    Skipped,
    /// An earlier copy had made it.
    Resumed,
}

/// The end of copying one entry.
pub(crate) type Ended = Result<Done, CopyError>;
