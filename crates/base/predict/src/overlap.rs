//! Law D1: synchronous threads compared with one dedicated reader.
//!
//! `W` is the total compute time, `R` the total time that synchronous threads wait for reads, and
//! `n` the number of threads, each on its own core.
//! - Synchronous: every thread alternates between reading and computing, `(W + R) / n`.
//! - Dedicated reader: one thread issues all reads and never waits for a particular one; the others
//!   compute. This takes `max(W / (n - 1), R_wall)`, where `R_wall` is the time that the device
//!   needs for all reads when they overlap.
//!
//! The reader gives up one compute thread and saves all waiting, so it pays off if `n - 1 > W / R`.
//! The two break even at `n = 1 + W / R` threads.
//!
//! The law ignores start-up and tail (the first file must be read before any compute), clock and
//! cache shared by the cores, uneven files, and reads that slow down with more threads.
//! [`FileWork`] adds the shared cores and the tail. The law is derived from the measurements of source
//! 000, which compares both forms for 4 to 8 threads.

use crate::PredictError;
use crate::error::{above_zero, at_least_zero};
use serde::{Deserialize, Serialize};

/// The work of a job over files.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Total compute time, in single-thread seconds.
    pub compute_s: f64,
    /// Total time that synchronous threads wait for reads, in single-thread seconds.
    pub read_wait_s: f64,
}

impl Workload {
    /// Creates a workload.
    ///
    /// # Errors
    /// Fails if a number is negative or not finite.
    pub fn new(compute_s: f64, read_wait_s: f64) -> Result<Self, PredictError> {
        Ok(Self {
            compute_s: at_least_zero("total compute", compute_s)?,
            read_wait_s: at_least_zero("total waiting for reads", read_wait_s)?,
        })
    }

    /// Returns the number of threads at which both forms take the same time, `1 + W / R`, if the
    /// device is not the bottleneck. Infinite without waiting.
    pub fn break_even_threads(&self) -> f64 {
        1.0 + self.compute_s / self.read_wait_s
    }
}

/// A job over files on cores that slow each other down, with the wait for the last file.
///
/// Law D1 with two effects that it ignores. A thread that computes next to `k` others is slower by
/// `1 + contention · k`. And the last files end at different times: when one thread finishes the last
/// file, the others have been idle for half a file on average, which adds `(n - 1) / n` of half a
/// file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FileWork {
    /// Number of files.
    pub files: u32,
    /// Compute time of a file on one thread, in seconds.
    pub compute_s: f64,
    /// Time that a synchronous thread waits for a file, in seconds.
    pub read_wait_s: f64,
    /// Slowdown per additional computing thread, as a share.
    pub contention: f64,
}

impl FileWork {
    /// Finds compute time and waiting from the times of both forms with `threads` threads.
    ///
    /// # Errors
    /// Fails if there are fewer than two threads, a number is not finite, or the times have no
    /// solution because the synchronous form would not wait.
    pub fn from_pair(
        files: u32,
        contention: f64,
        threads: u32,
        synchronous_s: f64,
        reader_s: f64,
    ) -> Result<Self, PredictError> {
        above_zero("number of files", f64::from(files))?;
        at_least_zero("contention", contention)?;
        above_zero("number of compute threads", f64::from(threads) - 1.0)?;
        let computing = above_zero("time with a reader", reader_s)? / rounds(files, threads - 1);
        let compute_s = computing / slower(contention, threads - 1);
        let both = above_zero("synchronous time", synchronous_s)? / rounds(files, threads);
        let read_wait_s = both - compute_s * slower(contention, threads);
        at_least_zero("waiting for a read", read_wait_s)?;
        Ok(Self { files, compute_s, read_wait_s, contention })
    }

    /// Returns the time in seconds of synchronous threads.
    pub fn synchronous_s(&self, threads: u32) -> f64 {
        let file = self.compute_s * slower(self.contention, threads) + self.read_wait_s;
        file * rounds(self.files, threads)
    }

    /// Returns the time in seconds of one reader and `threads - 1` compute threads, if the device is
    /// not the bottleneck.
    pub fn reader_s(&self, threads: u32) -> f64 {
        let computing = threads.saturating_sub(1).max(1);
        self.compute_s * slower(self.contention, computing) * rounds(self.files, computing)
    }
}

/// Returns how much slower one of `threads` computing threads is than a single one.
fn slower(contention: f64, threads: u32) -> f64 {
    1.0 + contention * (f64::from(threads) - 1.0)
}

/// Returns the files per thread, with the idle time while the last ones end.
fn rounds(files: u32, threads: u32) -> f64 {
    let threads = f64::from(threads.max(1));
    f64::from(files) / threads + 0.5 * (threads - 1.0) / threads
}
