//! The two methods of a run whose controller chooses the method.
//!
//! Such a run begins with `nowait`. While the controller says so, the first workers, one per permit, begin
//! files by rings of their own, opens included; the other workers rest, because the window is shared
//! among the first ones alone. A piece in flight ends by the method by which it began.

use ioloom_model::layout::{Layout, Role};
use ioloom_model::{Plan, ReadAhead, Tuning};
use ioloom_sys::clock::monotonic_ns;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most requests in flight in the rings of all workers together.
const RING_WINDOW: u32 = 256;

/// Why a ring could not be created.
#[derive(Debug)]
pub(crate) struct RingRefused {
    pub(crate) at_ns: u64,
    pub(crate) error: io::Error,
}

/// The method in force.
#[derive(Debug, Default)]
pub(crate) struct Methods {
    /// Most requests in rings; zero if the run has one method.
    ring_window: u32,
    /// Workers that have a ring.
    workers: u32,
    by_ring: AtomicBool,
    refused: OnceLock<RingRefused>,
}

impl Methods {
    /// Returns the methods of a plan: two if it has a controller.
    pub(crate) fn of(plan: &Plan, layout: &Layout) -> Self {
        match (plan.tuning, layout.window) {
            (Tuning::Auto | Tuning::Polite, ReadAhead::Files(window)) => {
                let workers = layout.max_of(Role::Worker);
                Self::both(window, layout.permits.unwrap_or(1).min(workers))
            }
            _ => Self::default(),
        }
    }

    /// Returns two methods for a window of `window`, of which `workers` may use a ring.
    pub(crate) fn both(window: u32, workers: u32) -> Self {
        Self { ring_window: window.min(RING_WINDOW), workers: workers.max(1), ..Self::default() }
    }

    /// Returns the most requests in rings, or zero.
    pub(crate) fn ring_window(&self) -> u32 {
        self.ring_window
    }

    /// Returns how many workers share the window while files begin by rings.
    pub(crate) fn workers(&self) -> u32 {
        self.workers
    }

    /// Returns the most requests in the ring of worker `number`; `None` if it has none.
    pub(crate) fn ring_of(&self, number: usize) -> Option<u32> {
        let has_ring = self.ring_window > 0 && number < self.workers as usize;
        has_ring.then(|| self.ring_window.div_ceil(self.workers))
    }

    /// Reports whether files begin by a ring.
    #[inline]
    pub(crate) fn is_ring(&self) -> bool {
        self.by_ring.load(Ordering::Relaxed)
    }

    /// Begins files by a ring, or by `nowait`, from now on.
    pub(crate) fn begin_by_ring(&self, ring: bool) {
        self.by_ring.store(ring, Ordering::Relaxed);
    }

    /// Records that a thread could not create its ring. It reads by `nowait`.
    pub(crate) fn cannot_create(&self, error: io::Error) {
        let _ = self.refused.set(RingRefused { at_ns: monotonic_ns(), error });
    }

    /// Returns why a ring could not be created, if one could not.
    pub(crate) fn refused(&self) -> Option<&RingRefused> {
        self.refused.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::layout::layout;

    #[test]
    fn only_plans_with_a_controller_have_two_methods() {
        let of = |text: &str| {
            let plan = text.parse::<Plan>().unwrap().complete(3);
            let methods = Methods::of(&plan, &layout(&plan).unwrap());
            [0, 2, 3].map(|number| methods.ring_of(number))
        };
        assert_eq!(of("nowait/window:l=512"), [None; 3]);
        assert_eq!(of("uring/window:l=512"), [None; 3]);
        assert_eq!(of("auto"), [Some(86), Some(86), None]);
        assert_eq!(of("nowait/window:l=7/auto=polite"), [Some(3), Some(3), None]);
    }
}
