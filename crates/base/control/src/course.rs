//! What is known about the course of a run: how far it is, and how long the rest will take.

use crate::batch::Batch;

/// Weight of the past after each batch when the remaining time is predicted.
const RECENT: f64 = 0.99;

/// Time, files, and the latency without a queue.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Course {
    pub(crate) now_ns: u64,
    pub(crate) files: u64,
    /// All files, if known.
    pub(crate) all: Option<u64>,
    /// Files and nanoseconds, the latest weighing most.
    recent: (f64, f64),
    /// Time with requests in flight and without files from memory, before the first completion.
    waited_ns: u64,
    /// Time until the first completion.
    first_ns: Option<u64>,
    /// Whether latency rose since.
    changed: bool,
}

impl Course {
    pub(crate) fn new(all: Option<u64>) -> Self {
        Self { all, ..Self::default() }
    }

    pub(crate) fn add(&mut self, batch: &Batch) {
        if self.first_ns.is_none() {
            if batch.hits > 0 {
                self.waited_ns = 0;
            }
            if batch.misses > 0 {
                let first_ns = batch.first_ns.unwrap_or(batch.elapsed_ns);
                self.first_ns = Some(self.waited_ns + first_ns);
            } else if batch.in_flight > 0.0 && batch.hits == 0 {
                self.waited_ns += batch.elapsed_ns;
            }
        }
        self.now_ns = self.now_ns.saturating_add(batch.elapsed_ns);
        self.files = self.files.saturating_add(batch.files);
        let (files, ns) = self.recent;
        self.recent = (RECENT * files + batch.files as f64, RECENT * ns + batch.elapsed_ns as f64);
    }

    /// Records that the latency of the device changed, so that of the first request does not apply.
    pub(crate) fn latency_changed(&mut self) {
        self.changed = true;
    }

    /// Returns the window that is probably sufficient for `rate` requests per second: twice what the
    /// latency of the first request, which had no queue before it, needs.
    pub(crate) fn likely(&self, rate: f64) -> Option<f64> {
        let ns = self.first_ns.filter(|_| !self.changed)?;
        Some(2.0 * rate * ns as f64 / 1e9)
    }

    /// Predicts the remaining time in nanoseconds. Without a known number of files, as long again
    /// as so far.
    pub(crate) fn remaining_ns(&self) -> f64 {
        let (files, ns) = self.recent;
        match self.all {
            Some(all) if files > 0.0 => all.saturating_sub(self.files) as f64 * ns / files,
            _ => self.now_ns as f64,
        }
    }
}
