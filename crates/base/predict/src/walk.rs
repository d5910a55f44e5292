//! Elapsed time of a directory walk against the number of threads.
//!
//! The network has two stations: the processor, slower for each thread the more there are
//! ([`Station::Shared`]), and the device, one server. Slow media lose order when many directories
//! are read at once; the device's demand then grows with the number of threads `n`,
//! `D (1 + g (h(n) - h(1)))` with `h(n) = n² / (n² + τ²)`: no loss for few threads, all of `g` for
//! many, half of it at `τ`. The whole job is one round, so the elapsed time is `1 / X(n)`.
//!
//! Fitted to the 36 published times of seed 001 (four media, 1 to 256 threads) with two demands for
//! each medium, `g` for two of them, and the same contention and `τ` for all. `g` cannot be seen
//! below about `τ / 3` threads: a fit without a probe at many threads must not be extrapolated.

use crate::PredictError;
use crate::error::{above_zero, at_least_zero};
use crate::network::{Network, Station};
use serde::{Deserialize, Serialize};

/// A medium and a program that walks it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WalkModel {
    /// Processor time of the whole walk on one thread, seconds.
    pub cpu_s: f64,
    /// Device time of the whole walk in order, seconds.
    pub device_s: f64,
    /// Loss of speed of each further thread on the processor, a share.
    pub contention: f64,
    /// Growth of the device time when very many directories are interleaved, a share.
    pub interleave: f64,
    /// Threads at which half of that growth is reached.
    pub interleave_half_threads: f64,
}

impl WalkModel {
    /// Device time of the whole walk with `threads`, seconds.
    pub fn device_s_with(&self, threads: u32) -> f64 {
        let spread = |n: f64| n * n / (n * n + self.interleave_half_threads.powi(2));
        self.device_s * (1.0 + self.interleave * (spread(f64::from(threads)) - spread(1.0)))
    }

    /// Elapsed time with `threads`, seconds.
    ///
    /// # Errors
    /// No threads, or a parameter out of range.
    pub fn elapsed_s(&self, threads: u32) -> Result<f64, PredictError> {
        above_zero("number of threads", f64::from(threads))?;
        at_least_zero("growth by interleaving", self.interleave)?;
        above_zero("threads of half growth", self.interleave_half_threads)?;
        let network = Network::new(vec![
            Station::Shared { demand_s: self.cpu_s, contention: self.contention },
            Station::Queue { demand_s: self.device_s_with(threads) },
        ])?;
        Ok(1.0 / network.rate_per_s(threads))
    }
}
