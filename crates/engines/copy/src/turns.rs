//! Files that are written in place by one thread at a time.
//!
//! Several names at the target can be one file: hard links, or symbolic links that lead to it. Two
//! sources written into it at once would mix. The second waits for the first, so the last one wins
//! as in a sequential copy. A thread that has a turn waits for nothing else, so there is no
//! deadlock. Cost: one lock per file that is written in place.

use crate::links::Identity;
use std::collections::HashSet;
use std::sync::{Condvar, Mutex, PoisonError};

/// The files being written in place.
#[derive(Default)]
pub(crate) struct Turns {
    busy: Mutex<HashSet<Identity>>,
    changed: Condvar,
}

impl Turns {
    /// Waits until no other thread writes a file.
    pub(crate) fn take(&self, identity: Identity) -> Turn<'_> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        while !busy.insert(identity) {
            busy = self.changed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
        Turn { turns: self, identity }
    }
}

/// The right to write one file, until dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    identity: Identity,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut busy = self.turns.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.remove(&self.identity);
        self.turns.changed.notify_all();
    }
}
