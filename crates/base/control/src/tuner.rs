//! Controllers of the window.
//!
//! A tuner sees merged batches of completions and says how many requests may be in flight. The
//! engine lets whichever worker comes first call it, at most every 10 ms, so it needs no lock of
//! its own. [`Fixed`] is the default: a window that a kept measurement chose.

/// What happened since the last call, over all workers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Batch {
    /// Nanoseconds since the last call.
    pub elapsed_ns: u64,
    /// Files completed.
    pub files: u64,
    /// Bytes completed.
    pub bytes: u64,
    /// Share of the workers' time without anything to do, 0 to 1.
    pub idle: f64,
    /// Share of it in which they waited for each other, 0 to 1; no part of `idle`.
    pub locked: f64,
    /// Window in force.
    pub window: u32,
}

/// A controller: batches in, window out.
pub trait Tuner: Send {
    /// The window to start with.
    fn start(&self) -> u32;
    /// The window to go on with.
    fn decide(&mut self, batch: &Batch) -> u32;
    /// One sentence: what was decided and why.
    fn why(&self) -> String;
}

/// A window that does not change.
#[derive(Debug, Clone, Copy)]
pub struct Fixed(pub u32);

impl Tuner for Fixed {
    fn start(&self) -> u32 {
        self.0
    }

    fn decide(&mut self, _batch: &Batch) -> u32 {
        self.0
    }

    fn why(&self) -> String {
        format!("a fixed window of {}", self.0)
    }
}
