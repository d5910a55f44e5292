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
pub(super) struct Patience {
    /// How long it may look, ns; 0 for never.
    look_ns: u64,
    /// Waits that go by without a look, from now on.
    skip: u32,
    /// How many that were after the latest look in vain.
    skipped: u32,
}

impl Patience {
    pub(super) fn new(look_ns: u64) -> Self {
        Self { look_ns, skip: 0, skipped: 0 }
    }

    /// How long to look in this wait before it sleeps, ns.
    pub(super) fn look_ns(&mut self) -> u64 {
        if self.skip == 0 {
            return self.look_ns;
        }
        self.skip -= 1;
        0
    }

    /// Something came while it looked.
    pub(super) fn found(&mut self) {
        self.skipped = 0;
    }

    /// Nothing came while it looked.
    pub(super) fn in_vain(&mut self) {
        self.skipped = (self.skipped * 2).clamp(1, SKIP_MAX);
        self.skip = self.skipped;
    }

    /// It slept for so long without a look.
    pub(super) fn slept(&mut self, slept_ns: u64) {
        if slept_ns < self.look_ns {
            self.skip = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks that a loop makes in so many waits after each of which the next request comes so late.
    fn looks(waits: u32, late_ns: u64) -> u32 {
        let mut patience = Patience::new(50_000);
        let mut looks = 0;
        for _ in 0..waits {
            match patience.look_ns() {
                0 => patience.slept(late_ns),
                look_ns => {
                    looks += 1;
                    if late_ns < look_ns { patience.found() } else { patience.in_vain() }
                }
            }
        }
        looks
    }

    #[test]
    fn it_looks_where_that_brings_something_and_hardly_ever_elsewhere() {
        assert_eq!(looks(10_000, 20_000), 10_000);
        assert!(looks(10_000, 60_000) < 25);
        assert!(looks(10_000, 500_000_000) < 25);
    }

    #[test]
    fn it_begins_again_when_requests_come_soon() {
        let mut patience = Patience::new(50_000);
        for _ in 0..8 {
            patience.in_vain();
        }
        assert_eq!(patience.look_ns(), 0);
        patience.slept(30_000);
        assert_eq!(patience.look_ns(), 50_000);
        assert_eq!(Patience::new(0).look_ns(), 0, "never is never");
    }
}
