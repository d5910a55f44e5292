//! How the server behaves: latency, limit and faults.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection is closed without a response.
    Reset,
    /// Refused with 503, whatever the limit.
    Busy,
    /// Answered with 500.
    Broken,
    /// The connection is closed in the middle of the contents.
    Cut,
    /// The response names another size of the object.
    WrongTotal,
    /// The response is complete in itself but contains less than was requested.
    Shortened,
    /// The contents arrive in small parts.
    Slow,
    /// The object is replaced before the request is answered.
    Replaced,
}

/// How a server behaves.
#[derive(Debug, Clone)]
pub struct Law {
    /// Seed of latencies and faults.
    pub seed: u64,
    /// Median of the latency, and standard deviation of its logarithm.
    pub latency: (Duration, f64),
    /// Latency of a refusal.
    pub refusal: Duration,
    /// Admitted requests per second, and how many more at once.
    pub cap_per_s: f64,
    /// See `cap_per_s`.
    pub burst: f64,
    /// Faults, and the share of requests with each. Faults of contents hit only downloads.
    pub faults: Vec<(Fault, f64)>,
    /// Objects per page of a listing.
    pub page: usize,
}

impl Default for Law {
    fn default() -> Self {
        Self {
            seed: 1,
            latency: (Duration::ZERO, 0.0),
            refusal: Duration::ZERO,
            cap_per_s: f64::INFINITY,
            burst: f64::INFINITY,
            faults: Vec::new(),
            page: 1000,
        }
    }
}

impl Law {
    /// Returns a number from 0 to 1 for a request and a purpose.
    fn random(&self, number: u64, purpose: u64) -> f64 {
        let mut x = self.seed
            ^ (number.wrapping_mul(4).wrapping_add(purpose)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn latency(&self, number: u64) -> Duration {
        let (median, sigma) = self.latency;
        if sigma == 0.0 {
            return median;
        }
        let (u, v) = (self.random(number, 0).max(1e-12), self.random(number, 1));
        let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        median.mul_f64((sigma * normal).exp())
    }

    pub(crate) fn fault(&self, number: u64, download: bool) -> Option<Fault> {
        let mut left = self.random(number, 2);
        for (fault, share) in &self.faults {
            if left < *share {
                let anywhere = matches!(fault, Fault::Reset | Fault::Busy | Fault::Broken);
                return (anywhere || download).then_some(*fault);
            }
            left -= share;
        }
        None
    }
}

/// A limit on requests per second with an allowance for bursts.
#[derive(Debug)]
pub(crate) struct Limit {
    per_s: f64,
    burst: f64,
    left: Mutex<(f64, Instant)>,
}

impl Limit {
    pub(crate) fn new(per_s: f64, burst: f64) -> Self {
        Self { per_s, burst, left: Mutex::new((burst, Instant::now())) }
    }

    pub(crate) fn admits(&self) -> bool {
        if self.per_s.is_infinite() {
            return true;
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let passed = now.saturating_duration_since(left.1).as_secs_f64();
        *left = ((left.0 + passed * self.per_s).min(self.burst.max(1.0)), now);
        let admits = left.0 >= 1.0;
        left.0 -= f64::from(u8::from(admits));
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_and_latencies_come_from_the_seed() {
        let law = Law {
            latency: (Duration::from_millis(20), 0.5),
            faults: vec![(Fault::Reset, 0.1), (Fault::Cut, 0.2)],
            ..Law::default()
        };
        let count = |download, fault| {
            (0..10_000).filter(|n| law.fault(*n, download) == Some(fault)).count()
        };
        assert!((900..1100).contains(&count(true, Fault::Reset)));
        assert!((1850..2150).contains(&count(true, Fault::Cut)));
        assert_eq!(count(false, Fault::Cut), 0);
        let mut all: Vec<_> = (0..1001).map(|n| law.latency(n)).collect();
        assert_eq!(all[7], law.clone().latency(7));
        all.sort();
        assert!((17..23).contains(&all[500].as_millis()), "{:?}", all[500]);
    }
}
