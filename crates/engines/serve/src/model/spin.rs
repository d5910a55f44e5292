//! When a loop that has nothing to do looks again before it sleeps.
//!
//! Sleeping and being woken costs more than many a request, and the client pays for the waking. So
//! where the next request comes soon after the latest one was answered, it is better to look a few
//! times more. Looking takes a processor that others may need, so it is bounded twice: by a time, and
//! by what it brought. Each time in vain doubles the number of waits that go by without it, and only
//! a wait that turns out to be short brings it back. A loop that is asked now and then sleeps.

/// Waits at most without a look after looks in vain.
const SKIP_MAX: u32 = 1024;

/// What is decided, and from what.
#[derive(Debug)]
pub(super) struct SpinPolicy {
    /// How long it may look, ns; 0 for never.
    spin_ns: u64,
    /// Waits that go by without a look, from now on.
    skip: u32,
    /// How many that were after the latest look in vain.
    skipped: u32,
}

impl SpinPolicy {
    pub(super) fn new(spin_ns: u64) -> Self {
        Self { spin_ns, skip: 0, skipped: 0 }
    }

    /// How long to look in this wait before it sleeps, ns.
    pub(super) fn spin_ns(&mut self) -> u64 {
        if self.skip == 0 {
            return self.spin_ns;
        }
        self.skip -= 1;
        0
    }

    /// Something came while it looked.
    pub(super) fn found(&mut self) {
        self.skipped = 0;
    }

    /// Nothing came while it looked.
    pub(super) fn missed(&mut self) {
        self.skipped = (self.skipped * 2).clamp(1, SKIP_MAX);
        self.skip = self.skipped;
    }

    /// It slept for so long without a look.
    pub(super) fn slept(&mut self, slept_ns: u64) {
        if slept_ns < self.spin_ns {
            self.skip = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks that a loop makes in so many waits after each of which the next request comes so late.
    fn spins(waits: u32, late_ns: u64) -> u32 {
        let mut policy = SpinPolicy::new(50_000);
        let mut spins = 0;
        for _ in 0..waits {
            match policy.spin_ns() {
                0 => policy.slept(late_ns),
                spin_ns => {
                    spins += 1;
                    if late_ns < spin_ns { policy.found() } else { policy.missed() }
                }
            }
        }
        spins
    }

    #[test]
    fn it_looks_where_that_brings_something_and_hardly_ever_elsewhere() {
        assert_eq!(spins(10_000, 20_000), 10_000);
        assert!(spins(10_000, 60_000) < 25);
        assert!(spins(10_000, 500_000_000) < 25);
    }

    #[test]
    fn it_begins_again_when_requests_come_soon() {
        let mut policy = SpinPolicy::new(50_000);
        for _ in 0..8 {
            policy.missed();
        }
        assert_eq!(policy.spin_ns(), 0);
        policy.slept(30_000);
        assert_eq!(policy.spin_ns(), 50_000);
        assert_eq!(SpinPolicy::new(0).spin_ns(), 0, "never is never");
    }
}
