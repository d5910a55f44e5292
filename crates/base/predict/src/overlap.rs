//! Law D1: synchronous threads against one dedicated reader.
//!
//! `W` is the compute of all files together, `R` the time that synchronous threads spend waiting for
//! all reads together, `n` the number of threads on as many cores.
//! - Synchronous: every thread reads and computes in turn, `(W + R) / n`.
//! - Dedicated reader: one thread only issues reads and never waits for one in particular, the
//!   others compute: `max(W / (n - 1), R_wall)`, where `R_wall` is how long the device needs for all
//!   reads when they overlap.
//!
//! The reader gives up one thread of compute and saves all waiting, so it pays while
//! `n - 1 > W / R`: they cross at `n = 1 + W / R` threads, or at `W = R (n - 1)` of compute.
//!
//! Left out: start and end (the first file must be read before anything is computed), shared clock
//! and cache of the cores, uneven files, and that more threads may make the reads themselves
//! slower. Derived from the measurements of seed 000, which compares both forms for 4 to 8 threads.

use crate::PredictError;
use crate::error::{above_zero, at_least_zero};
use serde::{Deserialize, Serialize};

/// The work of a job over files.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Compute of all files together, seconds of one thread.
    pub compute_s: f64,
    /// Waiting of synchronous threads for all reads together, seconds of one thread.
    pub read_wait_s: f64,
}

impl Work {
    /// Work of `compute_s` and `read_wait_s`, each at least 0.
    ///
    /// # Errors
    /// A negative number or one that is not finite.
    pub fn new(compute_s: f64, read_wait_s: f64) -> Result<Self, PredictError> {
        Ok(Self {
            compute_s: at_least_zero("total compute", compute_s)?,
            read_wait_s: at_least_zero("total waiting for reads", read_wait_s)?,
        })
    }

    /// Solves the law for the work, from one measured pair at `n` threads in which the reader's form
    /// was limited by compute: `W = (n - 1) reader`, `R = n sync - W`.
    ///
    /// # Errors
    /// Fewer than 2 threads, a time that is not above zero, or a pair in which the synchronous form
    /// would need less than no waiting.
    pub fn from_pair(n: u32, sync_s: f64, reader_s: f64) -> Result<Self, PredictError> {
        if n < 2 {
            return Err(PredictError::OutOfRange {
                what: "number of threads of a pair",
                value: f64::from(n),
                accepted: "at least 2, one of them the reader",
            });
        }
        let compute_s = f64::from(n - 1) * above_zero("elapsed time with a reader", reader_s)?;
        let all_s = f64::from(n) * above_zero("elapsed time of synchronous threads", sync_s)?;
        Self::new(compute_s, all_s - compute_s)
    }

    /// Elapsed time of `n` synchronous threads; infinite for none.
    pub fn sync_s(&self, n: u32) -> f64 {
        (self.compute_s + self.read_wait_s) / f64::from(n)
    }

    /// Elapsed time of one reader and `n - 1` computing threads, if the device needs `read_wall_s`
    /// for all reads together. Infinite below 2 threads, since nobody computes.
    pub fn reader_s(&self, n: u32, read_wall_s: f64) -> f64 {
        if n < 2 {
            return f64::INFINITY;
        }
        (self.compute_s / f64::from(n - 1)).max(read_wall_s)
    }

    /// What the reader saves against synchronous threads; negative where it costs.
    pub fn reader_gain_s(&self, n: u32, read_wall_s: f64) -> f64 {
        self.sync_s(n) - self.reader_s(n, read_wall_s)
    }

    /// Number of threads at which both take the same time, `1 + W / R`, as long as the device is not
    /// the limit; infinite without waiting.
    pub fn break_even_threads(&self) -> f64 {
        1.0 + self.compute_s / self.read_wait_s
    }

    /// Smallest number of threads for which the reader pays, at most `threads_max`, the device's own
    /// time included; `None` if it never does. Beyond some number the device limits the reader's
    /// form and synchronous threads, which this law lets scale without end, catch up again; so this
    /// looks at each number instead of inverting a formula.
    pub fn first_paying_threads(&self, read_wall_s: f64, threads_max: u32) -> Option<u32> {
        (2..=threads_max).find(|n| self.reader_gain_s(*n, read_wall_s) > 0.0)
    }

    /// Total compute at which both take the same time with `n` threads: `R (n - 1)`. With more, the
    /// synchronous form is faster. `None` below 2 threads.
    pub fn break_even_compute_s(&self, n: u32) -> Option<f64> {
        (n >= 2).then(|| self.read_wait_s * f64::from(n - 1))
    }
}
