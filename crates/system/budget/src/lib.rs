//! Compute permits and the memory budget: the two things that the threads of a run share.
//!
//! A crate of its own, so that its interleavings can be checked alone:
//! `RUSTFLAGS="--cfg loom" cargo test -p ioloom-budget --release`. Both structures have a fast
//! path of one compare-and-swap and a slow path under a mutex. There is no order between them that
//! could deadlock: a thread that holds a permit never waits for memory.

mod budget;
mod permits;

pub use budget::{Budget, Reserve};
pub use permits::{Permit, Permits};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering, fence},
};

/// A lock is poisoned only by a panic between two of our own lines, none of which panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
