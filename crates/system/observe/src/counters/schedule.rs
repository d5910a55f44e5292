//! When the sampling thread reads everything, and when it looks for new processes.
//!
//! What a whole sample costs depends on the machine: between 30 and 250 µs were seen on one, and
//! waking costs between 16 and 41 by itself. So a fixed rate keeps no promise. The thread knows its
//! own processor time; it reads everything every [`ALL_NS`] while it stays within [`SHARE`] of a
//! processor, and less often where it would not, but at least every [`RARE_NS`]. The first lines of
//! /proc/vmstat are read in each sample, whatever that costs: what remains above the share is in
//! [`Record::cost`](super::Record::cost). Samples of marks are taken on other threads and are not
//! counted.

use super::read::Scope;

/// Time after which everything is read again.
const ALL_NS: u64 = 100_000_000;
/// The same where the thread has used up its share.
const RARE_NS: u64 = 1_000_000_000;
/// The share of a processor within which the thread stays: below the half percent that is promised,
/// as the beginning comes on top.
const SHARE: f64 = 0.0045;
/// Processor time that may be used at the beginning beyond the share, nanoseconds: short runs have
/// few samples.
const FIRST_NS: u64 = 1_000_000;
/// Time after which new processes are looked for. What a process did whose parent waited for it is
/// in the parent's sums, so little is missed.
const LIST_NS: u64 = 500_000_000;
/// First whole samples before each of which new processes are looked for: a program may start
/// others.
const LIST_FIRST: u64 = 5;

/// What the next sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// How much is read.
    pub(super) scope: Scope,
    /// Whether new processes are looked for before.
    pub(super) lists: bool,
}

/// Decides for each sample in turn. Times count from the start of the thread.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    all_ns: Option<u64>,
    listed_ns: u64,
    wholes: u64,
    /// What the last whole sample cost, nanoseconds of processor time.
    whole_cost_ns: u64,
}

impl Schedule {
    /// What the sample at `at_ns` is where one is taken every `period_ns`. `cpu_ns` tells the
    /// processor time of the thread; it is asked only when it matters.
    pub(super) fn next(&mut self, at_ns: u64, period_ns: u64, cpu_ns: impl FnOnce() -> u64) -> Due {
        // The sample nearest to the wanted time, not the first one after it.
        let since = |last_ns: u64| at_ns.saturating_sub(last_ns) + period_ns / 2;
        let whole = self.all_ns.is_none_or(|last| {
            period_ns >= ALL_NS
                || since(last) >= RARE_NS
                || since(last) >= ALL_NS && self.affords(at_ns, cpu_ns())
        });
        if !whole {
            return Due { scope: Scope::Paging, lists: false };
        }
        let lists = self.wholes < LIST_FIRST || since(self.listed_ns) >= LIST_NS;
        self.all_ns = Some(at_ns);
        self.wholes += 1;
        if lists {
            self.listed_ns = at_ns;
        }
        Due { scope: Scope::All, lists }
    }

    /// Returns whether a whole sample fits into the share after `cpu_ns` of processor time.
    fn affords(&self, at_ns: u64, cpu_ns: u64) -> bool {
        cpu_ns + self.whole_cost_ns <= FIRST_NS + (at_ns as f64 * SHARE) as u64
    }

    /// Tells what a whole sample cost.
    pub(super) fn cost(&mut self, whole_cost_ns: u64) {
        self.whole_cost_ns = whole_cost_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Scope::{All, Paging};

    /// Returns a thread that wakes for `wake_ns` and pays `whole_ns` more for everything: all that
    /// it took, and its processor time.
    fn simulated(period_ns: u64, wake_ns: u64, whole_ns: u64, samples: u64) -> (Vec<Due>, u64) {
        let mut schedule = Schedule::default();
        let mut cpu_ns = 0;
        let taken = (0..samples).map(|i| {
            let due = schedule.next(i * period_ns, period_ns, || cpu_ns);
            cpu_ns += wake_ns;
            if due.scope == All {
                cpu_ns += whole_ns;
                schedule.cost(whole_ns);
            }
            due
        });
        (taken.collect(), cpu_ns)
    }

    fn scopes(period_ns: u64) -> Vec<Scope> {
        simulated(period_ns, 0, 0, 6).0.iter().map(|due| due.scope).collect()
    }

    #[test]
    fn everything_is_read_ten_times_a_second_or_each_time_where_samples_are_rare() {
        assert_eq!(scopes(10_000_000), [All, Paging, Paging, Paging, Paging, Paging]);
        assert_eq!(scopes(30_000_000), [All, Paging, Paging, All, Paging, Paging]);
        assert_eq!(scopes(1_000_000_000), [All; 6]);
        let lists = |period_ns, samples| {
            simulated(period_ns, 0, 0, samples).0.iter().filter(|due| due.lists).count()
        };
        // In 6 seconds twice a second, and four times more at the beginning; with rare ones each
        // time.
        assert_eq!((lists(10_000_000, 600), lists(1_000_000_000, 600)), (16, 600));
    }

    #[test]
    fn what_is_dear_is_read_as_often_as_the_share_allows() {
        let minute = 6000;
        let wholes = |taken: &[Due]| taken.iter().filter(|due| due.scope == All).count();
        let (cheap, _) = simulated(10_000_000, 20_000, 30_000, minute);
        assert_eq!(wholes(&cheap), 600);
        for (wake_ns, whole_ns) in [(35_000, 250_000), (40_000, 100_000), (10_000, 900_000)] {
            let (taken, cpu_ns) = simulated(10_000_000, wake_ns, whole_ns, minute);
            let (wholes, share) = (wholes(&taken), cpu_ns as f64 / 60e9);
            assert!((60..600).contains(&wholes), "{wholes}");
            assert!(share <= 0.005, "{share}");
            // Nothing that could be afforded is left out.
            assert!(wholes == 60 || share > SHARE - 0.0002, "{share} with {wholes}");
        }
        // Where waking alone costs more than all that, everything is still read once a second.
        let (dear, _) = simulated(10_000_000, 90_000, 250_000, minute);
        assert!((60..=64).contains(&wholes(&dear)), "{}", wholes(&dear));
        let gaps = dear.split(|due| due.scope == All).map(<[Due]>::len).max();
        assert!(gaps <= Some(100), "{gaps:?}");
    }
}
