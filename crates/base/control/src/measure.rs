//! Throughput of one window, and comparison of two.
//!
//! Which unit of progress a device limits is unknown: a cap on requests makes the rate of requests
//! steady, a cap on bandwidth that of bytes, and a disk something between. So progress is counted
//! in three units, and two windows are compared in the unit that varied least.

use crate::batch::Batch;
use crate::thresholds::CLEAR_LOSS;

/// Bytes that a request counts for in the mixed unit.
pub(crate) const REQUEST_BYTES: f64 = 32.0 * 1024.0;
/// Below this idle share in both windows the processors are the limit, and idle time is compared
/// instead of throughput: it does not depend on which files were read.
const BUSY: f64 = 0.25;
/// Squared relative error of a single sample.
const SINGLE: f64 = 0.04;
/// Ready files by which a stock varies without meaning.
const STOCK_NOISE: f64 = 4.0;
/// Squared relative error that a single request contributes at least.
const GRAIN: f64 = 0.02;
/// Shortest time without a completion that is a pause.
const PAUSE_NS: f64 = 1e7;

/// Progress at the device over some time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) ns: f64,
    /// Requests, mixed, bytes.
    progress: [f64; 3],
    pub(crate) requests: f64,
    idle_ns: f64,
    flying_ns: f64,
    /// Growth of the stock of ready files.
    stock: f64,
    /// Time until the first request completed.
    first_ns: f64,
}

impl Sample {
    /// Adds a batch; `ready` files were in stock before it.
    pub(crate) fn add(&mut self, batch: &Batch, ready: u32) {
        let ns = batch.elapsed_ns as f64;
        // Without any miss, files are the progress: the source cannot distinguish hits from misses,
        // or everything is cached and only idle time counts.
        let (requests, part) = if batch.misses > 0 {
            (batch.misses as f64, batch.misses as f64 / (batch.misses + batch.hits) as f64)
        } else {
            (0.0, 0.0)
        };
        let bytes = batch.bytes as f64 * part;
        if self.requests == 0.0 {
            let own_ns = batch.first_ns.filter(|_| batch.misses > 0);
            self.first_ns += own_ns.unwrap_or(batch.elapsed_ns) as f64;
        }
        self.ns += ns;
        self.requests += requests;
        self.idle_ns += ns * batch.idle.clamp(0.0, 1.0);
        self.flying_ns += ns * batch.in_flight;
        self.stock += f64::from(batch.ready) - f64::from(ready);
        for (sum, x) in
            self.progress.iter_mut().zip([requests, bytes + REQUEST_BYTES * requests, bytes])
        {
            *sum += x;
        }
    }

    pub(crate) fn idle(&self) -> f64 {
        self.idle_ns / self.ns.max(1.0)
    }

    pub(crate) fn in_flight(&self) -> f64 {
        self.flying_ns / self.ns.max(1.0)
    }

    /// Reports whether nothing completed for most of the time, and then requests did: a pause of the
    /// device looks like this, and also a device that became very slow.
    pub(crate) fn paused(&self) -> bool {
        self.first_ns > PAUSE_NS.max(self.ns / 2.0)
    }

    /// Returns the growth of the stock as a share of the requests.
    pub(crate) fn growth(&self) -> f64 {
        self.stock / self.requests.max(1.0)
    }

    /// Returns the ratio to the rates of `level`, smallest and largest over the units.
    pub(crate) fn ratios(&self, level: &Level) -> (f64, f64) {
        let mut ends = (f64::INFINITY, 0.0f64);
        for unit in 0..3 {
            let rate = level.sum[unit] / level.ns.max(1.0);
            if rate > 0.0 {
                let ratio = self.progress[unit] / self.ns.max(1.0) / rate;
                ends = (ends.0.min(ratio), ends.1.max(ratio));
            }
        }
        ends
    }

    pub(crate) fn rate_per_s(&self) -> f64 {
        self.requests * 1e9 / self.ns.max(1.0)
    }
}

/// Mean and variance, updated one value at a time.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, x: f64, n: f64) {
        let off = x - self.mean;
        self.mean += off / n;
        self.squares += off * (x - self.mean);
    }

    fn variance(&self, n: f64) -> f64 {
        self.squares / (n - 1.0).max(1.0)
    }
}

/// The samples of one window.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Level {
    pub(crate) window: u32,
    pub(crate) samples: u32,
    pub(crate) ns: f64,
    requests: f64,
    stock: f64,
    sum: [f64; 3],
    rates: [Moments; 3],
    idle: Moments,
}

impl Level {
    pub(crate) fn new(window: u32) -> Self {
        Self { window, ..Self::default() }
    }

    pub(crate) fn add(&mut self, sample: &Sample) {
        self.samples += 1;
        let n = f64::from(self.samples);
        self.ns += sample.ns;
        self.requests += sample.requests;
        self.stock += sample.stock;
        for unit in 0..3 {
            self.sum[unit] += sample.progress[unit];
            self.rates[unit].add(sample.progress[unit] / sample.ns.max(1.0), n);
        }
        self.idle.add(sample.idle(), n);
    }

    pub(crate) fn rate_per_s(&self) -> f64 {
        self.requests * 1e9 / self.ns.max(1.0)
    }

    pub(crate) fn idle(&self) -> f64 {
        self.idle.mean
    }

    fn rate(&self, unit: usize) -> f64 {
        self.sum[unit] / self.ns.max(1.0)
    }

    /// Returns the squared relative standard error of the rate in a unit.
    fn error(&self, unit: usize) -> f64 {
        let n = f64::from(self.samples.max(1));
        let mean = self.rates[unit].mean.max(f64::MIN_POSITIVE);
        let spread = if self.samples > 1 {
            self.rates[unit].variance(n) / (mean * mean) / n
        } else {
            SINGLE
        };
        spread + GRAIN * GRAIN / self.requests.max(1.0)
    }

    /// Returns the relative standard error of the rate in the unit that varied least, or of the idle
    /// share if the workers are busy.
    pub(crate) fn relative_error(&self) -> f64 {
        if self.idle() < BUSY {
            let n = f64::from(self.samples.max(1));
            return (self.idle.variance(n) / n).sqrt();
        }
        let units = (0..3).filter(|unit| self.sum[*unit] > 0.0);
        units.map(|unit| self.error(unit)).fold(f64::INFINITY, f64::min).sqrt()
    }

    /// Returns the share of throughput lost compared with `reference`, and its standard error.
    pub(crate) fn loss(&self, reference: &Self) -> (f64, f64) {
        if self.idle() < BUSY && reference.idle() < BUSY {
            let busy = 1.0 - reference.idle();
            let error = |level: &Self| {
                let n = f64::from(level.samples.max(1));
                level.idle.variance(n) / n + 1e-6
            };
            let idle = (self.idle() - reference.idle()) / busy;
            // Work that came from the stock of ready files is not sustained.
            let used = (-self.stock).max(0.0);
            let from_stock = (used - STOCK_NOISE).max(0.0) / (self.requests + used).max(1.0);
            let busy = (idle + from_stock, (error(self) + error(reference)).sqrt() / busy);
            // Other threads of the process keep the processors busy whatever the window is.
            let (loss, error) = self.rate_loss(reference);
            let is_clear = loss > CLEAR_LOSS && loss > 3.0 * error && loss > busy.0;
            return if is_clear { (loss, error) } else { busy };
        }
        self.rate_loss(reference)
    }

    /// Returns the share by which the rate is lower than that of `reference`, whatever limits either,
    /// and its standard error.
    pub(crate) fn rate_loss(&self, reference: &Self) -> (f64, f64) {
        self.steady_unit(reference).map_or((0.0, 1.0), |unit| self.loss_in(unit, reference))
    }

    /// Returns the unit that varied least in both.
    pub(crate) fn steady_unit(&self, reference: &Self) -> Option<usize> {
        let both = |unit: &usize| self.error(*unit) + reference.error(*unit);
        (0..3)
            .filter(|unit| self.sum[*unit] > 0.0 && reference.sum[*unit] > 0.0)
            .min_by(|a, b| both(a).total_cmp(&both(b)))
    }

    /// Returns the share by which the rate in a unit is lower than that of `reference`, and its
    /// standard error.
    pub(crate) fn loss_in(&self, unit: usize, reference: &Self) -> (f64, f64) {
        let ratio = self.rate(unit) / reference.rate(unit);
        (1.0 - ratio, ratio * (self.error(unit) + reference.error(unit)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the level of a window at which `misses` complete in each of eight batches.
    fn level(window: u32, misses: u64, idle: f64) -> Level {
        let mut level = Level::new(window);
        for _ in 0..8 {
            let mut sample = Sample::default();
            let (elapsed_ns, bytes) = (10_000_000, misses << 12);
            let batch =
                Batch { elapsed_ns, files: misses, misses, bytes, idle, ..Batch::default() };
            sample.add(&batch, 0);
            level.add(&sample);
        }
        level
    }

    #[test]
    fn a_lower_rate_is_a_loss_although_other_threads_keep_the_processors_busy() {
        let (loss, _) = level(8, 100, 0.0).loss(&level(32, 400, 0.0));
        assert!((0.7..0.8).contains(&loss), "{loss}");
    }

    #[test]
    fn busy_workers_lose_nothing_by_files_that_take_a_little_longer() {
        let (loss, _) = level(8, 360, 0.02).loss(&level(32, 400, 0.02));
        assert!(loss.abs() < 1e-6, "{loss}");
    }

    #[test]
    fn most_of_a_sample_without_a_completion_is_a_pause() {
        let sample = |batches: &[(u64, u64, Option<u64>)]| {
            let mut sample = Sample::default();
            for (ms, misses, first_ms) in batches {
                let first_ns = first_ms.map(|ms| ms * 1_000_000);
                let (elapsed_ns, misses) = (ms * 1_000_000, *misses);
                sample.add(&Batch { elapsed_ns, misses, first_ns, ..Batch::default() }, 0);
            }
            sample.paused()
        };
        assert!(sample(&[(35, 200, Some(30))]), "gathered");
        assert!(sample(&[(5, 0, None), (5, 0, None), (5, 0, None), (5, 100, None)]));
        assert!(!sample(&[(5, 3, None)]), "slow, without a gap");
        assert!(!sample(&[(5, 0, None), (5, 2, None), (5, 3, None), (5, 3, None)]));
        assert!(!sample(&[(35, 200, Some(2))]));
    }
}
