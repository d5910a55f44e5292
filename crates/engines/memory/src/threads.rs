//! Named threads, which traces and debuggers can identify.

use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Starts a scoped thread with a name; the system keeps 15 bytes of the name.
///
/// # Panics
/// Panics if the thread cannot be started, like [`Scope::spawn`].
pub(crate) fn spawn<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    role: String,
    work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    Builder::new().name(role).spawn_scoped(scope, work).expect("the thread must start")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_name_of_its_role() {
        let name = || std::thread::current().name().map(str::to_owned);
        let name_seen =
            std::thread::scope(|scope| spawn(scope, "ping-cpu3".to_owned(), name).join());
        assert_eq!(name_seen.unwrap().as_deref(), Some("ping-cpu3"));
    }
}
