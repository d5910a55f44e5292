//! Gauges of work in flight and done, readable from other threads.
//!
//! Each thread stores its numbers in its own cache line and reads no other line. A reader adds them
//! up: a sampler thread of the laboratory a thousand times per second, a progress display ten times
//! per second. A thread pays one or two stores to a line that no other thread writes.

use ioloom_sys::clock::monotonic_ns;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of points stored by a sampler; then every second one is dropped and the period
/// doubles.
const POINTS_MAX: usize = 512;

#[repr(align(64))]
#[derive(Debug, Default)]
struct Line {
    in_flight: AtomicU32,
    ready: AtomicU32,
    files: AtomicU64,
    bytes: AtomicU64,
    misses: AtomicU64,
    waited: AtomicU64,
}

/// The gauges of all threads, plus a shared line.
#[derive(Debug)]
pub struct Gauges(Vec<Line>);

/// Sums over all threads at one point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GaugeTotals {
    /// Requests in flight.
    pub in_flight: u32,
    /// Pieces read but not yet processed.
    pub ready: u32,
}

/// Sums of what all threads have done since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GaugeCounts {
    /// Files processed.
    pub files: u64,
    /// Bytes processed.
    pub bytes: u64,
    /// Reads that missed the cache and are complete.
    pub waited: u64,
    /// Requests in flight now.
    pub in_flight: u32,
    /// Pieces read but not yet processed now.
    pub ready: u32,
}

impl Gauges {
    /// Creates gauges for `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self((0..=threads).map(|_| Line::default()).collect())
    }

    /// Returns the number of pieces in the queue of `thread`.
    #[inline]
    pub fn ready(&self, thread: usize) -> usize {
        self.0[thread].ready.load(Ordering::Acquire) as usize
    }

    /// Sets the number of pieces in the queue of `thread`. Called with the queue lock held.
    #[inline]
    pub fn set_ready(&self, thread: usize, count: usize) {
        self.0[thread].ready.store(count as u32, Ordering::Release);
    }

    /// Sets the number of pieces in the shared queue. Called with the queue lock held.
    #[inline]
    pub fn set_ready_of_all(&self, count: usize) {
        self.set_ready(self.0.len() - 1, count);
    }

    /// Sets the number of requests in flight on `thread`.
    #[inline]
    pub fn set(&self, thread: usize, count: u32) {
        self.0[thread].in_flight.store(count, Ordering::Relaxed);
    }

    /// Adds `bytes` and, if `whole`, one file to the work completed by `thread`. Called only by
    /// `thread` itself.
    #[inline]
    pub fn done(&self, thread: usize, bytes: u64, whole: bool) {
        let line = &self.0[thread];
        let files = line.files.load(Ordering::Relaxed) + u64::from(whole);
        line.files.store(files, Ordering::Relaxed);
        line.bytes.store(line.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    /// Counts a read on `thread` that missed the cache. Called only by `thread` itself.
    #[inline]
    pub fn missed(&self, thread: usize) {
        let misses = &self.0[thread].misses;
        misses.store(misses.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts a read on `thread` that missed the cache and is complete. Called only by `thread`
    /// itself.
    #[inline]
    pub fn waited(&self, thread: usize) {
        let waited = &self.0[thread].waited;
        waited.store(waited.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns the sums over all threads, in one pass.
    pub fn counts(&self) -> GaugeCounts {
        let mut sum = GaugeCounts::default();
        for line in &self.0 {
            sum.files += line.files.load(Ordering::Relaxed);
            sum.bytes += line.bytes.load(Ordering::Relaxed);
            sum.waited += line.waited.load(Ordering::Relaxed);
            sum.in_flight += line.in_flight.load(Ordering::Relaxed);
            sum.ready += line.ready.load(Ordering::Relaxed);
        }
        sum
    }

    /// Returns the number of reads on all threads that missed the cache.
    pub fn misses(&self) -> u64 {
        self.0.iter().map(|line| line.misses.load(Ordering::Relaxed)).sum()
    }

    /// Returns the sums over all threads.
    pub fn sum(&self) -> GaugeTotals {
        let of = |number: fn(&Line) -> &AtomicU32| {
            self.0.iter().map(|line| number(line).load(Ordering::Relaxed)).sum()
        };
        GaugeTotals { in_flight: of(|line| &line.in_flight), ready: of(|line| &line.ready) }
    }

    /// Returns the number of files processed by all threads.
    pub fn files(&self) -> u64 {
        self.0.iter().map(|line| line.files.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of bytes processed by all threads.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|line| line.bytes.load(Ordering::Relaxed)).sum()
    }
}

/// A thread that samples numbers while other threads change them.
pub struct GaugeSampler<T> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(u64, T)>>,
}

impl<T: Send + 'static> GaugeSampler<T> {
    /// Samples `read` periodically; times are relative to `start_ns` on the monotonic clock.
    pub fn start(read: impl Fn() -> T + Send + 'static, start_ns: u64) -> std::io::Result<Self> {
        Self::every(Duration::from_millis(1), read, start_ns)
    }

    fn every(
        period: Duration,
        read: impl Fn() -> T + Send + 'static,
        start_ns: u64,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("ioloom-sampler".to_owned())
            .spawn(move || run(&stopped, period, read, start_ns))?;
        Ok(Self { stop, thread })
    }

    /// Stops and returns the samples, each with its time since the start in nanoseconds.
    pub fn stop(self) -> Vec<(u64, T)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_default()
    }
}

/// Samples until stopped. A pause ends early if the sampler is stopped.
fn run<T>(
    stop: &AtomicBool,
    mut period: Duration,
    read: impl Fn() -> T,
    start_ns: u64,
) -> Vec<(u64, T)> {
    let mut points = Vec::with_capacity(POINTS_MAX);
    let mut next_ns = 0;
    while !stop.load(Ordering::Relaxed) {
        let now = monotonic_ns();
        if now < next_ns {
            // A spurious wake-up only starts another iteration.
            std::thread::park_timeout(Duration::from_nanos(next_ns - now));
            continue;
        }
        if points.len() == POINTS_MAX {
            let mut odd = false;
            points.retain(|_| {
                odd = !odd;
                odd
            });
            period *= 2;
        }
        debug_assert!(points.len() < POINTS_MAX, "the sampler must not allocate during the run");
        points.push((monotonic_ns().saturating_sub(start_ns), read()));
        next_ns = monotonic_ns() + period.as_nanos() as u64;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sampler_reads_what_threads_set() {
        let gauges = Arc::new(Gauges::new(2));
        gauges.set(0, 3);
        gauges.set(1, 4);
        gauges.set_ready(1, 5);
        gauges.set_ready_of_all(6);
        assert_eq!((gauges.counts().in_flight, gauges.counts().ready), (7, 11));
        let (sampled, seen) = std::sync::mpsc::channel();
        let read = move || {
            let _ = sampled.send(());
            gauges.sum()
        };
        let sampler = GaugeSampler::start(read, monotonic_ns()).unwrap();
        (0..2).for_each(|_| seen.recv_timeout(Duration::from_secs(60)).unwrap());
        let points = sampler.stop();
        assert!(
            points.iter().all(|(_, n)| *n == GaugeTotals { in_flight: 7, ready: 11 })
                && points.len() >= 2
        );
        assert!(points.windows(2).all(|w| w[0].0 < w[1].0));
    }

    #[test]
    fn stopping_does_not_wait_for_the_end_of_a_period() {
        let (sampled, first) = std::sync::mpsc::channel();
        let read = move || sampled.send(()).is_ok();
        let start_ns = monotonic_ns();
        let sampler = GaugeSampler::every(Duration::from_secs(600), read, start_ns).unwrap();
        first.recv().unwrap();
        assert_eq!(sampler.stop().len(), 1);
        assert!(monotonic_ns() - start_ns < 300_000_000_000);
    }
}
