//! Decides when the sampling thread reads everything and when it searches for new processes.
//!
//! The cost of a complete sample depends on the machine: 30 to 250 µs were measured on a single
//! machine, where waking up alone costs 16 to 41 µs. No fixed rate could guarantee a cost. The
//! thread knows its processor time: it reads everything every [`ALL_NS`] while it stays within
//! [`SHARE`] of a processor, and less often otherwise, but at least every [`RARE_NS`]. The first
//! lines of /proc/vmstat are read for each sample regardless of cost;
//! [`Record::cost`](super::Record::cost) reports the total. Samples for marks are taken on other
//! threads and do not count.

use super::read::Scope;

/// Time after which everything is read again.
const ALL_NS: u64 = 100_000_000;
/// The same if the thread has used up its share.
const RARE_NS: u64 = 1_000_000_000;
/// Maximum share of a processor: less than the documented half percent because of the additional
/// initial allowance.
const SHARE: f64 = 0.0045;
/// Initial processor time allowance in nanoseconds: short runs have few samples.
const FIRST_NS: u64 = 1_000_000;
/// Interval between searches for new processes. The counters of a process are added to its parent
/// when the parent waits for it, so little is missed.
const LIST_NS: u64 = 500_000_000;
/// Number of initial complete samples that begin with a search for new processes because programs
/// often start others early.
const LIST_FIRST: u64 = 5;

/// Kind of the next sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// How much to read.
    pub(super) scope: Scope,
    /// Whether to search for new processes first.
    pub(super) lists: bool,
}

/// Plans samples one by one. Times are relative to the start of the thread.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    all_ns: Option<u64>,
    listed_ns: u64,
    wholes: u64,
    /// Cost of the last complete sample, in nanoseconds of processor time.
    whole_cost_ns: u64,
}

impl Schedule {
    /// Plans the sample at `at_ns`, with one sample every `period_ns`. `cpu_ns` returns the
    /// thread's processor time and is called only if needed.
    pub(super) fn next(&mut self, at_ns: u64, period_ns: u64, cpu_ns: impl FnOnce() -> u64) -> Due {
        // The sample nearest to the intended time rather than the first one after it.
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

    /// Reports whether a complete sample fits within the share after `cpu_ns` of processor time.
    fn affords(&self, at_ns: u64, cpu_ns: u64) -> bool {
        cpu_ns + self.whole_cost_ns <= FIRST_NS + (at_ns as f64 * SHARE) as u64
    }

    /// Records the cost of a complete sample.
    pub(super) fn cost(&mut self, whole_cost_ns: u64) {
        self.whole_cost_ns = whole_cost_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Scope::{All, Paging};

    /// Simulates a thread that needs `wake_ns` to wake up and `whole_ns` more for a complete
    /// sample; returns its samples and its processor time.
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
    fn everything_is_read_ten_times_per_second_or_in_every_rare_sample() {
        assert_eq!(scopes(10_000_000), [All, Paging, Paging, Paging, Paging, Paging]);
        assert_eq!(scopes(30_000_000), [All, Paging, Paging, All, Paging, Paging]);
        assert_eq!(scopes(1_000_000_000), [All; 6]);
        let lists = |period_ns, samples| {
            simulated(period_ns, 0, 0, samples).0.iter().filter(|due| due.lists).count()
        };
        // In 6 seconds, twice per second and four additional times at the beginning; with rare
        // samples, each time.
        assert_eq!((lists(10_000_000, 600), lists(1_000_000_000, 600)), (16, 600));
    }

    #[test]
    fn expensive_sources_are_read_as_often_as_the_share_allows() {
        let minute = 6000;
        let wholes = |taken: &[Due]| taken.iter().filter(|due| due.scope == All).count();
        let (cheap, _) = simulated(10_000_000, 20_000, 30_000, minute);
        assert_eq!(wholes(&cheap), 600);
        for (wake_ns, whole_ns) in [(35_000, 250_000), (40_000, 100_000), (10_000, 900_000)] {
            let (taken, cpu_ns) = simulated(10_000_000, wake_ns, whole_ns, minute);
            let (wholes, share) = (wholes(&taken), cpu_ns as f64 / 60e9);
            assert!((60..600).contains(&wholes), "{wholes}");
            assert!(share <= 0.005, "{share}");
            // No affordable sample is skipped.
            assert!(wholes == 60 || share > SHARE - 0.0002, "{share} with {wholes}");
        }
        // If waking up alone exceeds the share, everything is still read once per second.
        let (dear, _) = simulated(10_000_000, 90_000, 250_000, minute);
        assert!((60..=64).contains(&wholes(&dear)), "{}", wholes(&dear));
        let gaps = dear.split(|due| due.scope == All).map(<[Due]>::len).max();
        assert!(gaps <= Some(100), "{gaps:?}");
    }
}
