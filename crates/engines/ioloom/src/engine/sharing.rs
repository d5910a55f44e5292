//! How many workers share the window while functions are long.
//!
//! `nowait` has more workers than permits, because its calls may block. While functions are long and take all
//! permits, the others only wait for one. On two processors, such runs often took a sixth longer: in a trace, threads
//! waited for other threads while a processor was idle for 1 to 4 ms at a time (decision 052). So the window is then divided among as many workers as there are permits, and the
//! others rest until the last path is taken. If permits are often free after that, because the workers wait for
//! reads, all share it again, and the next attempt comes later.
//!
//! The watching thread looks at the permits, at most every [`INTERVAL_NS`]. It costs a few relaxed loads. On file
//! systems without `RWF_NOWAIT` blocking threads take permits, too, and nothing is decided until [`QUIET_NS`] after the
//! last read of such a file.

use crate::shared::Shared;
use ioloom_model::Method;
use ioloom_sys::clock::monotonic_ns;

/// Least time between two looks.
const INTERVAL_NS: u64 = 10_000_000;
/// Time after the last read that blocked for want of `RWF_NOWAIT` until blocking threads take no permits.
const QUIET_NS: u64 = 10 * INTERVAL_NS;
/// Mean time of the functions of a file from which they count as long: a wake-up on a busy processor takes more.
const LONG_NS: u64 = 200_000;
/// Looks in a row that find threads waiting for permits before few workers share the window.
const CROWDED: u32 = 3;
/// Points at which all workers share the window again. A look that finds permits free adds
/// [`FREE_POINTS`], another takes away one, but never below zero.
const FREE_MAX: u32 = 6;
const FREE_POINTS: u32 = 2;
/// Looks without another attempt after the first one was in vain; doubled each time.
const FIRST_PAUSE: u32 = 25;
const PAUSE_MAX: u32 = 1_600;

/// What one look found.
#[derive(Debug, Clone, Copy)]
struct Found {
    now_ns: u64,
    /// Files processed since the start of the run, also those whose function failed.
    files: u64,
    permits: u64,
    held: u64,
    /// Threads that sleep until a permit is free.
    waiting: u64,
}

/// Decides whether only as many workers as permits share the window.
#[derive(Debug)]
pub(super) struct Sharing {
    few: bool,
    crowded: u32,
    free: u32,
    /// Looks until the next attempt.
    pause: u32,
    next_pause: u32,
    /// Time and files at the last look.
    before: Option<(u64, u64)>,
    /// Reads that blocked for want of `RWF_NOWAIT`, and until when nothing is decided because of them.
    unanswered: u64,
    quiet_ns: u64,
}

impl Sharing {
    /// Returns `None` if no worker of the run can be superfluous.
    pub(super) fn of(shared: &Shared<'_>, workers_max: usize) -> Option<Self> {
        let permits = shared.permits.as_ref()?.count();
        let can_spare = shared.plan.method == Method::Nowait && workers_max as u64 > permits;
        can_spare.then(Self::new)
    }

    fn new() -> Self {
        Self {
            few: false,
            crowded: 0,
            free: 0,
            pause: 0,
            next_pause: FIRST_PAUSE,
            before: None,
            unanswered: 0,
            quiet_ns: 0,
        }
    }

    /// Reports whether few workers share the window.
    pub(super) fn is_few(&self) -> bool {
        self.few
    }

    /// Looks at the permits, and sets how many workers share the window. `files`: processed since the
    /// start of the run.
    pub(super) fn check(&mut self, shared: &Shared<'_>, files: u64) {
        let Some(permits) = &shared.permits else { return };
        if shared.methods.is_ring() {
            return self.reset();
        }
        let now_ns = monotonic_ns();
        if self.blocks(shared.blocked_reads(), now_ns) {
            if self.few {
                set(shared, u32::MAX);
            }
            return self.reset();
        }
        let found = Found {
            now_ns,
            files,
            permits: permits.count(),
            held: permits.held(),
            waiting: permits.waiting(),
        };
        if let Some(few) = self.observe(found) {
            set(shared, if few { permits.count() as u32 } else { u32::MAX });
        }
    }

    /// Reports whether blocking threads may take permits, given how many reads have blocked for want of
    /// `RWF_NOWAIT`.
    fn blocks(&mut self, unanswered: u64, now_ns: u64) -> bool {
        if unanswered != self.unanswered {
            self.unanswered = unanswered;
            self.quiet_ns = now_ns.saturating_add(QUIET_NS);
        }
        now_ns < self.quiet_ns
    }

    /// Forgets what it has found, because another decision has set the number of workers.
    fn reset(&mut self) {
        (self.few, self.crowded, self.before) = (false, 0, None);
    }

    /// Takes what a look found. Returns whether few workers share the window from now on, if that is to be set.
    fn observe(&mut self, found: Found) -> Option<bool> {
        let is_early = |(at_ns, _)| found.now_ns.saturating_sub(at_ns) < INTERVAL_NS;
        if self.before.is_some_and(is_early) {
            return None;
        }
        let before = self.before.replace((found.now_ns, found.files));
        self.pause = self.pause.saturating_sub(1);
        let is_crowded = found.held >= found.permits
            && found.waiting >= (found.permits / 2).max(2)
            && before.is_some_and(|before| mean_ns(before, found) >= LONG_NS);
        self.crowded = if is_crowded { self.crowded + 1 } else { 0 };
        if self.few {
            let is_free = found.held + (found.permits / 8).max(1) <= found.permits;
            self.free = if is_free { self.free + FREE_POINTS } else { self.free.saturating_sub(1) };
            if self.free >= FREE_MAX {
                self.few = false;
                self.pause = self.next_pause;
                self.next_pause = (self.next_pause * 2).min(PAUSE_MAX);
                return Some(false);
            }
        }
        if self.crowded < CROWDED || self.pause > 0 {
            return None;
        }
        // Set again if it did not last.
        (self.few, self.crowded, self.free) = (true, 0, 0);
        Some(true)
    }
}

/// Sets how many workers share the window.
fn set(shared: &Shared<'_>, workers: u32) {
    shared.window.set_sharers(workers);
    if workers == u32::MAX {
        // Those that have a part again.
        shared.spare_bell.ring_all();
    }
}

/// Returns the mean time of the functions of a file, if all permits were held since `before`.
fn mean_ns((since_ns, files): (u64, u64), found: Found) -> u64 {
    let elapsed_ns = found.now_ns.saturating_sub(since_ns);
    elapsed_ns.saturating_mul(found.permits) / found.files.saturating_sub(files).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what a check every 10 ms finds, while functions take `function_ns` on two processors.
    fn found(check: u64, function_ns: u64, held: u64, waiting: u64) -> Found {
        let now_ns = check * 10_000_000;
        Found { now_ns, files: 2 * now_ns / function_ns, permits: 2, held, waiting }
    }

    #[test]
    fn few_workers_share_while_long_functions_take_all_permits() {
        let mut sharing = Sharing::new();
        let decided: Vec<_> =
            (0..5).map(|check| sharing.observe(found(check, 1_000_000, 2, 5))).collect();
        assert_eq!(decided, [None, None, None, Some(true), None], "the first has no mean");
        // They work on: nothing changes, also if a permit is free now and then.
        for check in 5..200 {
            let held = if check % 5 == 0 { 1 } else { 2 };
            assert_eq!(sharing.observe(found(check, 1_000_000, held, 0)), None);
        }
        assert!(sharing.is_few());
    }

    #[test]
    fn short_functions_and_free_permits_change_nothing() {
        let ever = |function_ns, held, waiting| {
            let mut sharing = Sharing::new();
            (0..100)
                .any(|check| sharing.observe(found(check, function_ns, held, waiting)).is_some())
        };
        assert!(!ever(50_000, 2, 9), "short");
        assert!(!ever(1_000_000, 1, 9), "a free permit");
        assert!(!ever(1_000_000, 2, 1), "one waits");
        assert!(ever(1_000_000, 2, 2));
    }

    #[test]
    fn looks_that_follow_at_once_count_once() {
        let mut sharing = Sharing::new();
        for check in 0..100 {
            let at = Found { now_ns: 10_000_000 + check * 100_000, ..found(1, 1_000_000, 2, 5) };
            assert_eq!(sharing.observe(at), None, "less than 10 ms");
        }
    }

    #[test]
    fn of_many_permits_some_may_be_free() {
        let mut sharing = Sharing::new();
        let many =
            |check, held, waiting| Found { permits: 64, ..found(check, 1_000_000, held, waiting) };
        let few = (0..4).filter_map(|check| sharing.observe(many(check, 64, 32)));
        assert_eq!(few.collect::<Vec<_>>(), [true]);
        assert!((4..100).all(|check| sharing.observe(many(check, 57, 0)).is_none()));
        assert!((100..110).any(|check| sharing.observe(many(check, 56, 0)) == Some(false)));
    }

    #[test]
    fn all_share_again_if_permits_stay_free_and_attempts_become_rare() {
        let mut sharing = Sharing::new();
        let mut attempts = Vec::new();
        for check in 0..1_000 {
            // Few workers wait for reads; many take all permits.
            let (held, waiting) = if sharing.is_few() { (check % 2, 0) } else { (2, 9) };
            if sharing.observe(found(check, 1_000_000, held, waiting)) == Some(true) {
                attempts.push(check);
            }
        }
        let gaps: Vec<_> = attempts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.len() >= 4 && gaps.windows(2).all(|pair| pair[1] > pair[0]), "{gaps:?}");
    }

    #[test]
    fn a_read_that_blocks_for_want_of_support_counts_for_a_while() {
        let mut sharing = Sharing::new();
        let ms = 1_000_000;
        assert!(!sharing.blocks(0, 1_000 * ms));
        assert!(sharing.blocks(1, 1_010 * ms) && sharing.blocks(1, 1_100 * ms));
        assert!(!sharing.blocks(1, 1_110 * ms));
        assert!(sharing.blocks(2, 1_120 * ms));
    }

    #[test]
    fn a_decision_that_did_not_last_is_taken_again() {
        let mut sharing = Sharing::new();
        let again = (0..9).filter_map(|check| sharing.observe(found(check, 1_000_000, 2, 5)));
        assert_eq!(again.collect::<Vec<_>>(), [true, true]);
        sharing.reset();
        assert!(!sharing.is_few());
    }
}
