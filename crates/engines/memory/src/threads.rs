//! Threads named by their role, so that a trace and a debugger tell them apart.

use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Starts a thread of a scope under a name, of which the system keeps 15 bytes.
///
/// # Panics
/// If the system has no thread for it, as [`Scope::spawn`] does.
pub(crate) fn spawn<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    role: String,
    work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    Builder::new().name(role).spawn_scoped(scope, work).expect("the system has a thread for it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_name_of_its_role() {
        let name = || std::thread::current().name().map(str::to_owned);
        let told = std::thread::scope(|scope| spawn(scope, "ping-cpu3".to_owned(), name).join());
        assert_eq!(told.unwrap().as_deref(), Some("ping-cpu3"));
    }
}
