//! How the server behaves: latency, limit and faults.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    /// Refused with 403.
    Denied,
    /// Refused with 400.
    Invalid,
    /// The connection is closed in the middle of the contents.
    Cut,
    /// The response names another size of the object.
    WrongTotal,
    /// The response is complete in itself but contains less than was requested.
    Shortened,
    /// The body of the response arrives in small parts.
    Slow,
    /// The object is replaced before the request is answered.
    Replaced,
    /// The request is carried out, and the connection is closed without a response.
    Unanswered,
    /// The status is 200, and the body is an error document, as S3 sends it when it notices a failure
    /// after it began to answer.
    LateError,
    /// Only the first half of the contents in the request is stored.
    HalfStored,
    /// Answered with 404 by something that is not a store.
    NotFound,
    /// Answered with 404 because the bucket does not exist.
    NoBucket,
    /// Answered with 200 and a page without a version by something that is not a store.
    Portal,
}

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A page of a listing.
    List,
    /// The description of an object.
    Describe,
    /// Contents.
    Read,
    /// A whole object.
    Write,
    /// The beginning of an upload in parts, a part of it, its completion, and its end without an object.
    Begin,
    /// See `Begin`.
    Part,
    /// See `Begin`.
    Complete,
    /// See `Begin`.
    Abort,
    /// Anything else.
    Other,
}

/// A fault of the first requests of a kind.
#[derive(Debug, Clone)]
pub struct First {
    target: Target,
    fault: Fault,
    /// Requests before them that have no fault.
    skipped: Arc<AtomicU64>,
    left: Arc<AtomicU64>,
}

impl First {
    /// Lets the first `count` requests of a kind fail.
    pub fn new(target: Target, fault: Fault, count: u64) -> Self {
        Self { target, fault, skipped: Arc::default(), left: Arc::new(AtomicU64::new(count)) }
    }

    /// Lets requests fail only after so many others of the kind.
    pub fn after(self, skipped: u64) -> Self {
        Self { skipped: Arc::new(AtomicU64::new(skipped)), ..self }
    }

    fn take(&self, target: Target) -> Option<Fault> {
        let less = |left: u64| left.checked_sub(1);
        let takes = |count: &AtomicU64| {
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
        };
        (target == self.target && !takes(&self.skipped) && takes(&self.left)).then_some(self.fault)
    }
}

/// How a listing goes on after its first page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pages {
    /// To its end.
    #[default]
    All,
    /// Every later page names itself as the next one.
    Repeated,
    /// The first page follows the last one.
    Circular,
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
    /// Faults of the first requests of a kind.
    pub first: Vec<First>,
    /// Pause before each of eight parts in which the body of a request is read.
    pub receives_slowly: Duration,
    /// Keep only lengths and checksums of uploads. Reading them gives a pattern.
    pub forgets: bool,
    /// Objects per page of a listing.
    pub page: usize,
    /// How its pages follow each other.
    pub pages: Pages,
    /// List all objects, whatever the prefix.
    pub ignores_prefix: bool,
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
            first: Vec::new(),
            receives_slowly: Duration::ZERO,
            forgets: false,
            page: 1000,
            pages: Pages::All,
            ignores_prefix: false,
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

    pub(crate) fn fault(&self, number: u64, target: Target) -> Option<Fault> {
        if let Some(fault) = self.first.iter().find_map(|first| first.take(target)) {
            return Some(fault);
        }
        let download = target == Target::Read;
        let mut left = self.random(number, 2);
        for (fault, share) in &self.faults {
            if left < *share {
                let anywhere = matches!(
                    fault,
                    Fault::Reset | Fault::Busy | Fault::Broken | Fault::Slow | Fault::Unanswered
                );
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
        let count =
            |target, fault| (0..10_000).filter(|n| law.fault(*n, target) == Some(fault)).count();
        assert!((900..1100).contains(&count(Target::Read, Fault::Reset)));
        assert!((1850..2150).contains(&count(Target::Read, Fault::Cut)));
        assert_eq!(count(Target::Write, Fault::Cut), 0);
        let mut all: Vec<_> = (0..1001).map(|n| law.latency(n)).collect();
        assert_eq!(all[7], law.clone().latency(7));
        all.sort();
        assert!((17..23).contains(&all[500].as_millis()), "{:?}", all[500]);
    }
}
