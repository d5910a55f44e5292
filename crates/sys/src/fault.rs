//! The fault seam: every system call of this crate passes [`call`].
//!
//! rustix makes raw system calls, so a preloaded library cannot fail them. With the feature
//! `fault` (test crates only) a rule `op:n:errno` makes the n-th call of that operation fail;
//! without it `call` is the function itself and costs nothing.

use std::io;

/// Runs `f`, the operation `op`, unless a test asked for its failure.
#[inline]
pub fn call<T>(op: &'static str, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(feature = "fault")]
    if let Some(error) = rules::hit(op) {
        return Err(error);
    }
    #[cfg(not(feature = "fault"))]
    let _ = op;
    f()
}

/// Lets a completion of a ring pass the seam: a count of bytes, or an error.
#[inline]
pub fn completion(op: &'static str, result: io::Result<usize>) -> io::Result<usize> {
    call(op, || result)
}

#[cfg(feature = "fault")]
pub use rules::{calls_of, set};

#[cfg(feature = "fault")]
mod rules {
    use std::collections::HashMap;
    use std::io;
    use std::sync::{Mutex, OnceLock};

    #[derive(Default)]
    struct Rules {
        rules: Vec<(String, u64, i32)>,
        counts: HashMap<&'static str, u64>,
    }

    fn rules() -> &'static Mutex<Rules> {
        static RULES: OnceLock<Mutex<Rules>> = OnceLock::new();
        RULES.get_or_init(|| {
            let mut rules = Rules::default();
            if let Ok(text) = std::env::var("IOLOOM_FAULT") {
                rules.rules = parse(&text);
            }
            Mutex::new(rules)
        })
    }

    fn parse(text: &str) -> Vec<(String, u64, i32)> {
        text.split(',')
            .filter_map(|rule| {
                let mut parts = rule.split(':');
                let op = parts.next()?.to_owned();
                Some((op, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
            })
            .collect()
    }

    /// Sets the rules `op:n:errno[,…]` and starts counting anew; an empty text removes them.
    pub fn set(text: &str) {
        let mut all = rules().lock().expect("no panic under this lock");
        all.rules = parse(text);
        all.counts.clear();
    }

    /// How often `op` was called since [`set`].
    pub fn calls_of(op: &str) -> u64 {
        let all = rules().lock().expect("no panic under this lock");
        all.counts.get(op).copied().unwrap_or(0)
    }

    pub(super) fn hit(op: &'static str) -> Option<io::Error> {
        let mut all = rules().lock().expect("no panic under this lock");
        let count = all.counts.entry(op).or_insert(0);
        *count += 1;
        let now = *count;
        all.rules
            .iter()
            .find(|(name, n, _)| name == op && *n == now)
            .map(|(_, _, errno)| io::Error::from_raw_os_error(*errno))
    }
}
