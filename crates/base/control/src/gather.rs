//! Gathers short batches into ones that hold enough requests for a decision.
//!
//! An engine can look at its counters every few milliseconds, but a worker that waits for the oldest
//! of its requests finds those behind it complete, too. So the requests of one queue complete in bursts,
//! and a batch must cover several of them. How long the first request took, without a queue before it, is
//! kept from the short batches.

use crate::batch::Batch;

/// Completed requests of a gathered batch at least, and as a share of the window.
const REQUESTS: u64 = 16;
const PART: u32 = 8;
/// Nanoseconds after which a gathered batch is complete in any case, with and without requests.
const LONG_NS: u64 = 200_000_000;
const EMPTY_NS: u64 = 100_000_000;

/// A batch that is being gathered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gather {
    sum: Batch,
    /// Time with requests in flight and without files from memory, before the first completion of this
    /// batch.
    waiting_ns: u64,
}

impl Gather {
    /// Adds a short batch. Returns the gathered one if that is complete for a window of `window`.
    pub fn add(&mut self, batch: &Batch, window: u32) -> Option<Batch> {
        if self.sum.misses == 0 {
            if batch.hits > 0 {
                self.waiting_ns = 0;
            }
            // While files come from memory, the time is theirs.
            if batch.misses > 0 || (batch.hits == 0 && batch.in_flight > 0.0) {
                self.waiting_ns += batch.elapsed_ns;
            }
            if batch.misses > 0 {
                self.sum.first_ns = Some(batch.first_ns.unwrap_or(self.waiting_ns));
            }
        }
        self.join(batch);
        let sum = self.sum;
        let long_ns = if sum.misses == 0 { EMPTY_NS } else { LONG_NS };
        if sum.misses < REQUESTS.max(u64::from(window / PART)) && sum.elapsed_ns < long_ns {
            return None;
        }
        *self = Self::default();
        Some(sum)
    }

    /// Returns what was gathered so far, if anything, and begins again.
    pub fn take(&mut self) -> Option<Batch> {
        Some(std::mem::take(self).sum).filter(|sum| sum.elapsed_ns > 0)
    }

    fn join(&mut self, batch: &Batch) {
        let sum = &mut self.sum;
        let elapsed_ns = sum.elapsed_ns + batch.elapsed_ns;
        let part = batch.elapsed_ns as f64 / elapsed_ns.max(1) as f64;
        let mean = |a: f64, b: f64| a + (b - a) * part;
        *sum = Batch {
            elapsed_ns,
            files: sum.files + batch.files,
            idle: mean(sum.idle, batch.idle),
            locked: mean(sum.locked, batch.locked),
            bytes: sum.bytes + batch.bytes,
            hits: sum.hits + batch.hits,
            misses: sum.misses + batch.misses,
            in_flight: mean(sum.in_flight, batch.in_flight),
            ready: batch.ready,
            input_limited: mean(sum.input_limited, batch.input_limited),
            memory_limited: mean(sum.memory_limited, batch.memory_limited),
            refused: sum.refused + batch.refused,
            first_ns: sum.first_ns,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn short(misses: u64, in_flight: f64) -> Batch {
        let files = misses;
        Batch { elapsed_ns: 5 * MS, files, misses, in_flight, idle: 0.5, ..Batch::default() }
    }

    #[test]
    fn a_batch_is_complete_with_an_eighth_of_the_window() {
        let mut gather = Gather::default();
        assert_eq!(gather.add(&short(63, 512.0), 512), None);
        let done = gather.add(&short(1, 256.0), 512).unwrap();
        assert_eq!((done.misses, done.files, done.elapsed_ns), (64, 64, 10 * MS));
        assert_eq!((done.in_flight, done.idle), (384.0, 0.5));
        assert_eq!(gather.add(&short(15, 2.0), 2), None, "a small window needs sixteen");
        assert!(gather.add(&short(1, 2.0), 2).is_some());
    }

    #[test]
    fn a_slow_or_empty_batch_ends_in_time() {
        let mut gather = Gather::default();
        let batches = |gather: &mut Gather, misses| {
            (1..1000).find(|_| gather.add(&short(misses, 1.0), 512).is_some()).unwrap()
        };
        assert_eq!((batches(&mut gather, 0), batches(&mut gather, 1)), (20, 40));
    }

    #[test]
    fn what_was_gathered_can_be_taken_early() {
        let mut gather = Gather::default();
        assert_eq!(gather.take(), None);
        gather.add(&short(3, 1.0), 512);
        gather.add(&short(4, 1.0), 512);
        let part = gather.take().unwrap();
        assert_eq!((part.misses, part.elapsed_ns, gather.take()), (7, 10 * MS, None));
    }

    #[test]
    fn the_first_completion_is_known_to_one_short_batch() {
        let mut gather = Gather::default();
        gather.add(&short(0, 0.0), 512);
        gather.add(&short(0, 40.0), 512);
        gather.add(&short(1, 512.0), 512);
        let done = gather.add(&short(100, 512.0), 512).unwrap();
        assert_eq!(done.first_ns, Some(10 * MS), "time without requests does not count");
        let mut gather = Gather::default();
        for _ in 0..3 {
            gather.add(&Batch { files: 900, hits: 900, ..short(0, 8.0) }, 512);
        }
        gather.add(&short(0, 512.0), 512);
        let done = gather.add(&short(100, 512.0), 512).unwrap();
        assert_eq!(done.first_ns, Some(10 * MS), "nor does time with files from memory");
    }
}
