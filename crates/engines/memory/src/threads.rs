//! Named threads, which traces and debuggers can identify.

use std::io;
use std::sync::{PoisonError, RwLock};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Returns a builder of threads with a name, of which the system keeps 15 bytes.
pub(crate) fn named(role: String) -> Builder {
    Builder::new().name(role)
}

/// Starts a scoped thread with a name.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn spawn<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    role: String,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    named(role).spawn_scoped(scope, work)
}

/// Runs each work in a thread from its builder, and returns the results in the same order; `None` for a
/// work that panicked. No work begins before all threads have been started, so that works which wait
/// for each other never wait for a thread that does not exist.
///
/// # Errors
/// A thread cannot be started. No work has begun.
pub(crate) fn together<T: Send>(
    works: impl IntoIterator<Item = (Builder, impl FnOnce() -> T + Send)>,
) -> io::Result<Vec<Option<T>>> {
    let all_started = RwLock::new(false);
    let gate = &all_started;
    std::thread::scope(|scope| {
        let mut closed = gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut threads = Vec::new();
        for (builder, work) in works {
            // After an error, the threads find the gate closed and end.
            threads.push(builder.spawn_scoped(scope, move || {
                let open = *gate.read().unwrap_or_else(PoisonError::into_inner);
                open.then(work)
            })?);
        }
        *closed = true;
        drop(closed);
        Ok(threads.into_iter().map(|thread| thread.join().ok().flatten()).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_thread_has_the_name_of_its_role() {
        let name = || std::thread::current().name().map(str::to_owned);
        let name_seen =
            std::thread::scope(|scope| spawn(scope, "ping-cpu3".to_owned(), name).unwrap().join());
        assert_eq!(name_seen.unwrap().as_deref(), Some("ping-cpu3"));
    }

    #[test]
    fn works_that_wait_for_each_other_end_if_one_cannot_start() {
        let barrier = Barrier::new(3);
        let begun = AtomicU32::new(0);
        let run = |stacks: [usize; 3]| {
            let work = |stack| {
                let builder = Builder::new().stack_size(stack);
                (builder, || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    barrier.wait();
                    begun.load(Ordering::Relaxed)
                })
            };
            together(stacks.map(work))
        };
        // No address space has room for such a stack.
        const TOO_LARGE: usize = 1 << 60;
        assert!(run([1 << 20, TOO_LARGE, 1 << 20]).is_err());
        assert!(run([1 << 20, 1 << 20, TOO_LARGE]).is_err());
        assert_eq!(begun.load(Ordering::Relaxed), 0);
        assert_eq!(run([1 << 20; 3]).unwrap(), [Some(3); 3]);
    }
}
