//! Compute permits, the memory budget and the window, shared by the threads of a run.
//!
//! A separate crate, so that its interleavings can be checked in isolation: `RUSTFLAGS="--cfg loom"
//! cargo test -p ioloom-budget --release`. Both structures have a fast path with one
//! compare-and-swap and a slow path under a mutex. They cannot deadlock with each other because a
//! thread that holds a permit never waits for memory.

mod budget;
mod permits;
mod window;

pub use budget::{Budget, Reserve};
pub use permits::{Permit, Permits};
pub use window::{Part, Room, Window};

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

/// Locks a mutex. Poisoning is ignored: no code under these locks panics in the middle of a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
