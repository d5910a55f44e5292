//! Limits of a run and what it reports meanwhile.

use crate::retries::PAUSE;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time after which a run ends if every request was refused, if the caller sets no other.
const OUTAGE: Duration = Duration::from_secs(600);
/// Least memory of a run.
const MEMORY_LEAST: u64 = 1 << 16;

/// How a run proceeds.
pub struct Options<'a> {
    /// Bytes in flight and ready, at most. Less than 64 KiB count as 64 KiB.
    pub memory: u64,
    /// Threads that run the function.
    pub threads: u32,
    /// Most requests in flight.
    pub window_max: u32,
    /// A number of requests in flight that is not adjusted. Refused requests still limit the rate.
    pub window: Option<u32>,
    /// Use as few requests in flight as keep 95 % of the throughput.
    pub polite: bool,
    /// Process what is below the location, and not only the object that it names.
    pub recursive: bool,
    /// Pause after the first failed attempt of a request. Each further pause is twice as long, at most
    /// four seconds, and half of it is random.
    pub retry_pause: Duration,
    /// Ends the run with an error when the server has refused every request for so long because there were too many, and
    /// at least 16 of them.
    pub outage: Duration,
    /// Ends the run when it is set.
    pub stop: Arc<AtomicBool>,
    /// Called about ten times a second.
    pub progress: &'a (dyn Fn(&Progress) + Sync),
}

impl Options<'_> {
    /// Returns the bytes in flight and ready, at most.
    pub(crate) fn budget(&self) -> u64 {
        self.memory.max(MEMORY_LEAST)
    }
}

impl Default for Options<'_> {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Self {
            memory: 256 << 20,
            threads,
            window_max: 512,
            window: None,
            polite: false,
            recursive: true,
            retry_pause: PAUSE,
            outage: OUTAGE,
            stop: Arc::default(),
            progress: &|_| {},
        }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, threads, window_max, window, polite, .. } = self;
        write!(
            f,
            "Options {{ {memory} bytes, {threads} threads, {window:?} of {window_max}, polite {polite} }}"
        )
    }
}

/// Waits until a flag is set. A signal handler sets it, so it is polled.
pub(crate) async fn until_set(flag: &AtomicBool) {
    while !flag.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What a run has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Objects processed.
    pub objects: u64,
    /// Bytes processed.
    pub bytes: u64,
    /// Objects listed.
    pub found: u64,
    /// Whether the listing has ended.
    pub complete: bool,
}
