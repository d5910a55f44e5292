//! Elapsed time of a directory walk as a function of the number of threads.
//!
//! The network has two stations: the processor, where each thread slows down the others
//! ([`Station::Shared`]), and the device, a single server. Slow media lose sequential order when
//! many directories are read at once. The device demand therefore grows with the number of threads
//! `n`, `D (1 + g (h(n) - h(1)))` with `h(n) = n² / (n² + τ²)`: no loss for few threads, the full
//! `g` for many, and half of it at `τ`. The whole job is one round, so the elapsed time is `1 /
//! X(n)`.
//!
//! Fitted to the 36 published times of source 001 (four media, 1 to 256 threads) with two demands
//! per medium, `g` for two of them, and one contention and one `τ` for all. `g` has no visible
//! effect below about `τ / 3` threads, so a fit without measurements at many threads must not be
//! extrapolated.

use crate::PredictError;
use crate::error::{above_zero, at_least_zero};
use crate::network::{Network, Station};
use serde::{Deserialize, Serialize};

/// A medium and a program that walks a tree on it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WalkModel {
    /// Processor time of the whole walk on one thread, in seconds.
    pub cpu_s: f64,
    /// Device time of the whole walk without interleaving, in seconds.
    pub device_s: f64,
    /// Slowdown per additional thread on the processor, as a share.
    pub contention: f64,
    /// Growth of the device time when very many directories are interleaved, as a share.
    pub interleave: f64,
    /// Number of threads at which half of that growth is reached.
    pub interleave_half_threads: f64,
}

impl WalkModel {
    /// Returns the device time of the whole walk with `threads`, in seconds.
    pub(crate) fn device_s_with(&self, threads: u32) -> f64 {
        let spread = |n: f64| n * n / (n * n + self.interleave_half_threads.powi(2));
        self.device_s * (1.0 + self.interleave * (spread(f64::from(threads)) - spread(1.0)))
    }

    /// Returns the elapsed time with `threads`, in seconds.
    ///
    /// # Errors
    /// Fails if there are no threads or a parameter is out of range.
    pub fn elapsed_s(&self, threads: u32) -> Result<f64, PredictError> {
        above_zero("number of threads", f64::from(threads))?;
        at_least_zero("growth due to interleaving", self.interleave)?;
        above_zero("threads at half growth", self.interleave_half_threads)?;
        let network = Network::new(vec![
            Station::Shared { demand_s: self.cpu_s, contention: self.contention },
            Station::Queue { demand_s: self.device_s_with(threads) },
        ])?;
        Ok(1.0 / network.rate_per_s(threads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaving_has_no_effect_on_one_thread_and_full_effect_on_many() {
        let walk = WalkModel {
            cpu_s: 1.0,
            device_s: 100.0,
            contention: 0.06,
            interleave: 0.5,
            interleave_half_threads: 28.0,
        };
        let near = |threads, expected: f64| {
            let found = walk.device_s_with(threads);
            assert!((found - expected).abs() < 1e-3, "{threads}: {found} is not {expected}");
        };
        near(1, 100.0);
        // Subtracting h(1) = 1 / (1 + 28²) means that one thread loses nothing.
        let lost_at_one = 50.0 / 785.0;
        near(28, 125.0 - lost_at_one);
        near(100_000, 150.0 - lost_at_one);
    }
}
