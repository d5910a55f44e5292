//! Fault injection: every system call in this crate goes through [`call`].
//!
//! rustix makes raw system calls, so a preloaded library cannot make them fail. With the feature
//! `fault` (test crates only), a rule `op:n:errno` makes the n-th call of an operation fail, and a
//! rule `op:n:cutBYTES` limits a read to that many bytes. A function can run before every call. Without the feature, `call` only calls
//! the function and costs nothing.

use std::io;

/// Runs `f` as operation `op`, unless a test rule makes it fail.
#[inline]
pub fn call<T>(op: &'static str, f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    #[cfg(feature = "fault")]
    {
        rules::notify(op);
        if let Some(error) = rules::hit(op) {
            return Err(error);
        }
    }
    #[cfg(not(feature = "fault"))]
    let _ = op;
    f()
}

/// Retries a call that was interrupted by a signal.
#[inline]
pub fn retry_on_interrupt<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match f() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Applies the rules to a ring completion, which is a number of bytes or an error.
#[inline]
pub fn completion(op: &'static str, result: io::Result<usize>) -> io::Result<usize> {
    call(op, || result).map(|n| cut(op, n))
}

/// Returns how many of the `n` bytes from the latest read `op` the rules let the caller see.
#[inline]
pub fn cut(op: &'static str, n: usize) -> usize {
    #[cfg(feature = "fault")]
    let n = rules::cut(op, n);
    #[cfg(not(feature = "fault"))]
    let _ = op;
    n
}

#[cfg(feature = "fault")]
pub use rules::{before_each, calls_of, set};

#[cfg(feature = "fault")]
mod rules {
    use std::collections::HashMap;
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Mutex, OnceLock, RwLock};

    /// Whether any rule limits reads; avoids taking the lock otherwise.
    static CUTS: AtomicBool = AtomicBool::new(false);

    #[derive(Clone, Copy)]
    enum What {
        Fail(i32),
        Cut(usize),
    }

    #[derive(Default)]
    struct Rules {
        rules: Vec<(String, u64, What)>,
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

    fn parse(text: &str) -> Vec<(String, u64, What)> {
        CUTS.store(text.contains(":cut"), Ordering::Relaxed);
        text.split(',')
            .filter_map(|rule| {
                let mut parts = rule.split(':');
                let op = parts.next()?.to_owned();
                let n = parts.next()?.parse().ok()?;
                let what = parts.next()?;
                let what = match what.strip_prefix("cut") {
                    Some(bytes) => What::Cut(bytes.parse().ok()?),
                    None => What::Fail(what.parse().ok()?),
                };
                Some((op, n, what))
            })
            .collect()
    }

    /// Replaces the rules with `op:n:errno` or `op:n:cutBYTES`, separated by commas, and resets the
    /// counts; an empty text removes all rules.
    pub fn set(text: &str) {
        let mut all = rules().lock().expect("no panic under this lock");
        all.rules = parse(text);
        all.counts.clear();
    }

    /// Runs before every call, with the name of its operation.
    type Before = Box<dyn Fn(&'static str) + Send + Sync>;

    /// Whether there is something to run; avoids taking the lock otherwise.
    static NOTIFIES: AtomicBool = AtomicBool::new(false);
    static BEFORE: RwLock<Option<Before>> = RwLock::new(None);

    /// Runs a function before every call, so that a test can change something between two calls of
    /// the code under test; `None` ends this. The function must not make calls of this crate.
    pub fn before_each(run: Option<Before>) {
        NOTIFIES.store(run.is_some(), Ordering::SeqCst);
        *BEFORE.write().expect("no panic under this lock") = run;
    }

    #[inline]
    pub(super) fn notify(op: &'static str) {
        if NOTIFIES.load(Ordering::SeqCst)
            && let Some(run) = &*BEFORE.read().expect("no panic under this lock")
        {
            run(op);
        }
    }

    /// Returns the number of calls of `op` since [`set`].
    pub fn calls_of(op: &str) -> u64 {
        let all = rules().lock().expect("no panic under this lock");
        all.counts.get(op).copied().unwrap_or(0)
    }

    pub(super) fn hit(op: &'static str) -> Option<io::Error> {
        let mut all = rules().lock().expect("no panic under this lock");
        let count = all.counts.entry(op).or_insert(0);
        *count += 1;
        let now = *count;
        all.rules.iter().find_map(|(name, n, what)| match what {
            What::Fail(errno) if name == op && *n == now => {
                Some(io::Error::from_raw_os_error(*errno))
            }
            _ => None,
        })
    }

    #[inline]
    pub(super) fn cut(op: &'static str, bytes: usize) -> usize {
        if CUTS.load(Ordering::Relaxed) { cut_now(op, bytes) } else { bytes }
    }

    #[cold]
    fn cut_now(op: &'static str, bytes: usize) -> usize {
        let all = rules().lock().expect("no panic under this lock");
        let now = all.counts.get(op).copied().unwrap_or(0);
        let cut = all.rules.iter().find_map(|(name, n, what)| match what {
            What::Cut(most) if name == op && *n == now => Some(*most),
            _ => None,
        });
        cut.map_or(bytes, |most| bytes.min(most))
    }
}
