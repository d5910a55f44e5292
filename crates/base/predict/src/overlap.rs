//! Law D1: synchronous threads compared with one dedicated reader.
//!
//! `W` is the compute time of all files, `R` the time that synchronous threads wait for all reads,
//! and `n` the number of threads, each on a core of its own.
//! - Synchronous: every thread alternates between reading and computing, `(W + R) / n`.
//! - Dedicated reader: one thread issues all reads and never waits for a particular one; the others
//!   compute. This takes `max(W / (n - 1), R_wall)`, where `R_wall` is the time that the device
//!   needs for all reads when they overlap.
//!
//! The reader gives up one compute thread and saves all waiting, so it pays off if `n - 1 > W / R`.
//! The two break even at `n = 1 + W / R` threads.
//!
//! Left out: start-up and tail (the first file must be read before any compute), clock and cache
//! shared by the cores, uneven files, and reads that get slower with more threads. Derived from the
//! measurements of source 000, which compares both forms for 4 to 8 threads.

use crate::PredictError;
use crate::error::at_least_zero;
use serde::{Deserialize, Serialize};

/// The work of a job over files.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Compute time of all files, in seconds of one thread.
    pub compute_s: f64,
    /// Time that synchronous threads wait for all reads, in seconds of one thread.
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
    /// device is not the limit. Infinite without waiting.
    pub fn break_even_threads(&self) -> f64 {
        1.0 + self.compute_s / self.read_wait_s
    }
}
