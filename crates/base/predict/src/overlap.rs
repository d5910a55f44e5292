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
//! cache shared by the cores, uneven files, and reads that slow down with more threads. It is
//! derived from the measurements of source 000, which compares both forms for 4 to 8 threads.

use crate::PredictError;
use crate::error::at_least_zero;
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
