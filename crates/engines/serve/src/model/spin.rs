//! Decides when an idle loop polls before it sleeps.
//!
//! Sleeping and waking up can cost more than a request, and the client pays for it. If the next
//! request usually arrives soon after the latest answer, polling for a short time is cheaper.
//! Polling occupies a processor that others may need, so it is limited both by time and by success.
//! Every unsuccessful poll doubles the number of waits without polling, and only a wait that turns
//! out to be short resets this number. So a loop that rarely gets requests sleeps.

/// Maximum number of waits without polling after a failed poll.
const SKIP_MAX: u32 = 1024;

/// State for the decision.
#[derive(Debug)]
pub(super) struct SpinPolicy {
    /// Polling time in nanoseconds; 0 disables polling.
    spin_ns: u64,
    /// Number of remaining waits without polling.
    skip: u32,
    /// Number of waits skipped after the latest failed poll.
    skipped: u32,
}

impl SpinPolicy {
    pub(super) fn new(spin_ns: u64) -> Self {
        Self { spin_ns, skip: 0, skipped: 0 }
    }

    /// Returns how long to poll before sleeping in this wait, in nanoseconds.
    pub(super) fn spin_ns(&mut self) -> u64 {
        if self.skip == 0 {
            return self.spin_ns;
        }
        self.skip -= 1;
        0
    }

    /// Polling found an event.
    pub(super) fn found(&mut self) {
        self.skipped = 0;
    }

    /// Polling found nothing.
    pub(super) fn missed(&mut self) {
        self.skipped = (self.skipped * 2).clamp(1, SKIP_MAX);
        self.skip = self.skipped;
    }

    /// Records how long a wait without polling took.
    pub(super) fn slept(&mut self, slept_ns: u64) {
        if slept_ns < self.spin_ns {
            self.skip = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of polls in `waits` waits if each request arrives after `late_ns`.
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
    fn it_polls_if_that_helps_and_rarely_otherwise() {
        assert_eq!(spins(10_000, 20_000), 10_000);
        assert!(spins(10_000, 60_000) < 25);
        assert!(spins(10_000, 500_000_000) < 25);
    }

    #[test]
    fn it_polls_again_when_requests_arrive_quickly() {
        let mut policy = SpinPolicy::new(50_000);
        for _ in 0..8 {
            policy.missed();
        }
        assert_eq!(policy.spin_ns(), 0);
        policy.slept(30_000);
        assert_eq!(policy.spin_ns(), 50_000);
        assert_eq!(SpinPolicy::new(0).spin_ns(), 0, "polling is disabled");
    }
}
