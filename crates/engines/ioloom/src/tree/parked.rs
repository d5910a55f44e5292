//! What a walk has found while no one waits for single files.
//!
//! A batch through a channel wakes the receiver, which for a tree in memory costs more than reading a
//! small directory. So until someone wants files, batches are parked: the receiver sleeps until the
//! walk ends or its time is over, and then takes all of them. They are parked after each directory,
//! because the next one may take long.
//!
//! Protocol: `wanted` is set before the batches are taken, under the same lock under which a thread of
//! the walk reads it. So a batch is either taken or sent.

use super::batch::Batch;
use std::sync::{Mutex, MutexGuard};

/// Files up to which a parked batch is extended, so that small directories share one.
const SHARED_MAX: usize = 256;

/// Batches that wait for the end of a walk, or of its time.
pub(super) struct Parked {
    /// Files that may be parked.
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    batches: Vec<Batch>,
    files: usize,
    wanted: bool,
}

impl Parked {
    /// Creates the place. With `max` 0, batches are wanted from the start.
    pub(super) fn new(max: usize) -> Self {
        Self { max, state: Mutex::new(State { wanted: max == 0, ..State::default() }) }
    }

    /// Parks a batch. Returns it if it must be sent, because files are wanted or too many are parked.
    pub(super) fn park(&self, batch: Batch) -> Option<Batch> {
        let mut state = self.lock();
        if state.wanted || state.files >= self.max {
            return Some(batch);
        }
        state.files += batch.len();
        match state.batches.last_mut() {
            Some(last) if last.len() + batch.len() <= SHARED_MAX => last.append(batch),
            _ => state.batches.push(batch),
        }
        None
    }

    /// Takes what is parked. From here on, nothing is.
    pub(super) fn take(&self) -> Vec<Batch> {
        let mut state = self.lock();
        state.wanted = true;
        std::mem::take(&mut state.batches)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(files: usize) -> Batch {
        let mut batch = Batch::default();
        (0..files).for_each(|file| batch.files.push(format!("{file}").as_bytes()));
        batch
    }

    fn sizes(batches: &[Batch]) -> Vec<usize> {
        batches.iter().map(Batch::len).collect()
    }

    #[test]
    fn small_batches_are_joined_and_nothing_is_lost() {
        let parked = Parked::new(1000);
        assert!([200, 56, 1, 300].into_iter().all(|files| parked.park(batch(files)).is_none()));
        assert_eq!(sizes(&parked.take()), [256, 1, 300]);
        assert_eq!(parked.park(batch(3)).map(|sent| sent.len()), Some(3));
        assert!(parked.take().is_empty());
    }

    #[test]
    fn a_full_place_and_one_without_room_send_everything() {
        let parked = Parked::new(10);
        assert!(parked.park(batch(12)).is_none());
        assert_eq!(parked.park(batch(1)).map(|sent| sent.len()), Some(1));
        assert_eq!(sizes(&parked.take()), [12]);
        assert!(Parked::new(0).park(batch(1)).is_some());
    }
}
