//! What no plan can beat: the device's own speed, and the compute over the cores.
//!
//! A job that must bring `bytes` in `requests` through a device takes at least
//! `max(bytes / bandwidth, requests / request rate)`; one that must compute `W` on `cores` takes at
//! least `W / cores`. Perfect overlap takes the larger of the two, and no plan takes less. Limits come
//! from a calibration of this device, never from its data sheet. Data that is already in the cache
//! does not pass the device and must not be counted.

use crate::PredictError;
use crate::error::{above_zero, at_least_zero};
use serde::{Deserialize, Serialize};

/// The measured limits of a device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DeviceLimits {
    /// Highest bandwidth, bytes per second.
    pub bytes_per_s: f64,
    /// Highest rate of requests, per second; `None` if it was not measured.
    pub requests_per_s: Option<f64>,
}

impl DeviceLimits {
    /// Limits, each above zero.
    ///
    /// # Errors
    /// A limit that is not finite and above zero.
    pub fn new(bytes_per_s: f64, requests_per_s: Option<f64>) -> Result<Self, PredictError> {
        above_zero("bandwidth", bytes_per_s)?;
        if let Some(rate) = requests_per_s {
            above_zero("rate of requests", rate)?;
        }
        Ok(Self { bytes_per_s, requests_per_s })
    }

    /// Shortest time in seconds for so many bytes in so many requests.
    pub fn least_s(&self, bytes: u64, requests: u64) -> f64 {
        let transfer = bytes as f64 / self.bytes_per_s;
        transfer.max(self.requests_per_s.map_or(0.0, |rate| requests as f64 / rate))
    }

    /// Shortest time for a job with so much compute, in seconds of one core, and what sets it.
    ///
    /// # Errors
    /// A compute that is negative or not finite, or no cores.
    pub fn job(
        &self,
        bytes: u64,
        requests: u64,
        compute_s: f64,
        cores: u32,
    ) -> Result<JobBound, PredictError> {
        let cores = above_zero("number of cores", f64::from(cores))?;
        let compute = at_least_zero("total compute", compute_s)? / cores;
        let transfer = bytes as f64 / self.bytes_per_s;
        let device = self.least_s(bytes, requests);
        let (least_s, limit) = if compute >= device {
            (compute, Limit::Compute)
        } else if device > transfer {
            (device, Limit::Requests)
        } else {
            (device, Limit::Bandwidth)
        };
        Ok(JobBound { least_s, limit })
    }
}

/// What sets the shortest time of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// Bytes per second of the device.
    Bandwidth,
    /// Requests per second of the device.
    Requests,
    /// The compute over the cores.
    Compute,
}

/// The shortest time of a job.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct JobBound {
    /// Seconds.
    pub least_s: f64,
    /// What sets it.
    pub limit: Limit,
}

impl JobBound {
    /// How much longer than the bound a measured time is, as a share: 0.02 is 2 % longer. Below
    /// zero the bound was wrong: some of the data came from a cache, or a limit was measured badly.
    pub fn gap(&self, elapsed_s: f64) -> f64 {
        elapsed_s / self.least_s - 1.0
    }
}
