//! How often the workers waited for reads.
//!
//! The system counts all waits of a process. The waits of the watching thread, for permits and for
//! paths are known and subtracted. New threads also wait for the lock of the shared address space, more
//! so the more there are. So for `nowait`, whose reads report whether they found their data in
//! memory, the count is capped at the number of misses and of blocks read from a device.

use crate::bell::Bell;
use crate::shared::Shared;
use ioloom_budget::Permits;
use ioloom_model::Method;
use ioloom_sys::proc::{self, UsageOf};

/// Smallest read from a device, for one name or inode.
const BLOCK_BYTES: u64 = 4096;

/// Counts the waits of workers for reads.
pub(super) struct ReadWaits<'e> {
    shared: &'e Shared<'e>,
    before: proc::Usage,
    /// Waits of the watching thread.
    pub(super) watcher: u64,
    /// Waits at the last look, and reads until then that blocked because the file system does not
    /// support `RWF_NOWAIT`.
    seen: (u64, u64),
    /// Waits while such reads happened, to which no cap applies.
    uncapped: u64,
}

impl<'e> ReadWaits<'e> {
    pub(super) fn new(shared: &'e Shared<'e>) -> Self {
        let before = proc::usage(UsageOf::Process).unwrap_or_default();
        Self { shared, before, watcher: 0, seen: (0, 0), uncapped: 0 }
    }

    /// Returns how often workers have waited for reads until now, when the process has used `now`.
    pub(super) fn for_reads(&mut self, now: &proc::Usage) -> u64 {
        let for_permits = self.shared.permits.as_ref().map_or(0, Permits::sleeps);
        let all = now.voluntary_switches.saturating_sub(self.before.voluntary_switches);
        let bells = [self.shared.source.bell(), &self.shared.spare_bell].map(Bell::sleeps);
        let resting = bells.iter().sum::<u64>() + self.shared.blocking.sleeps();
        let for_reads = all.saturating_sub(self.watcher + for_permits + resting);
        if self.shared.plan.method != Method::Nowait {
            return for_reads;
        }
        // Files on a filesystem that is not read from a block device were seen: opens wait there,
        // too, and no counter shows them.
        let unanswered = self.shared.blocked_reads();
        let (waits, blocked) = std::mem::replace(&mut self.seen, (for_reads, unanswered));
        if unanswered != blocked {
            self.uncapped += for_reads.saturating_sub(waits);
        }
        let blocks = now.read_bytes.saturating_sub(self.before.read_bytes) / BLOCK_BYTES;
        for_reads.min(self.shared.gauges.misses() + blocks + self.uncapped)
    }
}

#[cfg(test)]
mod tests {
    use super::super::prepare;
    use super::super::work::RunOptions;
    use super::*;
    use crate::cancel::Cancel;
    use crate::source::{Listed, Source};
    use ioloom_budget::Budget;
    use ioloom_model::{Plan, ReadOrder};
    use ioloom_walk::PathList;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn the_cap_holds_except_while_reads_block_for_want_of_support() {
        let (mut list, cancel) = (PathList::default(), Cancel::new());
        list.push(b"/no/such");
        let source = Source::list(Listed::Borrowed(&list), ReadOrder::List, None, &cancel);
        let plan: Plan = "nowait/window:l=8,p=2".parse().unwrap();
        let budget = Arc::new(Budget::new(plan.memory_bytes));
        let shared = prepare(&source, plan, budget, &RunOptions::default()).unwrap();
        let mut waits = ReadWaits::new(&shared);
        let mut after = |unanswered: u64, waited: u64| {
            shared.unanswered.store(unanswered, Ordering::Relaxed);
            let voluntary_switches = waits.before.voluntary_switches + waited;
            waits.for_reads(&proc::Usage { voluntary_switches, ..waits.before })
        };
        shared.unanswered_later.store(1, Ordering::Relaxed);
        assert_eq!(after(0, 10), 0, "no read has missed, and later pieces may be in memory");
        assert_eq!(after(1, 25), 15, "a file of another file system");
        assert_eq!(after(1, 100), 15);
        assert_eq!(after(2, 101), 16);
        shared.unanswered_later.store(2, Ordering::Relaxed);
        assert_eq!(after(2, 130), 45, "a later piece of a large file");
    }
}
