//! The choice of the method in a run with a controller: what the engine does for `control::Duel`.
//!
//! The duel gets the same batches as the controller of the window. After each of them the method that it
//! wants is put in force: threads read it before they begin a file. While files begin by rings, only as
//! many workers as functions may run share the window, because each of them keeps many in flight; the
//! others rest.

use crate::methods::RingRefused;
use crate::shared::Shared;
use ioloom_control::{Auto, Batch, Duel, Phase, Rival, Signs, Turn};
use ioloom_model::{Decided, Tuning};
use std::sync::atomic::Ordering;

/// Chooses the method of a run.
pub(super) struct Choice<'e> {
    shared: &'e Shared<'e>,
    duel: Duel,
    by_ring: bool,
    /// Changes that the controller of the window had detected.
    changes: u32,
    /// Bytes from devices until the last batch.
    read_bytes: Option<u64>,
    /// Reads until the last batch that blocked because the file system does not support `RWF_NOWAIT`.
    unanswered: u64,
}

impl<'e> Choice<'e> {
    pub(super) fn new(shared: &'e Shared<'e>, window_max: u32) -> Self {
        let polite = shared.plan.tuning == Tuning::Polite;
        let duel = Duel::new(window_max, shared.methods.ring_window(), polite);
        Self { shared, duel, by_ring: false, changes: 0, read_bytes: None, unanswered: 0 }
    }

    /// Returns the window of a comparison, which then holds instead of that of the controller.
    pub(super) fn window(&self) -> Option<u32> {
        self.duel.window()
    }

    /// Passes a batch, which ended `at_ns` after the start, to the controller and to the duel.
    /// `read_bytes`: what the process has read from devices.
    pub(super) fn observe(
        &mut self,
        auto: &mut Auto,
        batch: &Batch,
        (at_ns, read_bytes): (u64, u64),
    ) {
        let comparing = self.duel.window();
        match comparing {
            Some(window) => auto.set_aside(batch, window),
            None => {
                auto.hold(self.duel.wants_hold());
                auto.observe(batch);
            }
        }
        let shared = self.shared;
        let (arrived, left_known) = shared.source.arrived();
        let done = shared.gauges.files() + shared.failed.load(Ordering::Relaxed);
        let before = self.read_bytes.replace(read_bytes);
        let changes = auto.changes();
        let unanswered = shared.blocked_reads();
        let signs = Signs {
            at_ns,
            window: auto.window(),
            holds: comparing.is_none() && auto.phase() == Phase::Hold,
            changed: std::mem::replace(&mut self.changes, changes) != changes,
            probing_ns: auto.spent_ns(),
            left: (arrived as u64).saturating_sub(done),
            left_known,
            ended: shared.source.has_ended(),
            device_bytes: before.map_or(0, |before| read_bytes.saturating_sub(before)),
            unanswered: std::mem::replace(&mut self.unanswered, unanswered) != unanswered,
            refused: shared.methods.refused().is_some(),
        };
        let turn = self.duel.observe(batch, &signs);
        self.take(auto, turn);
    }

    /// Ends a comparison, because another limit than that of the controller holds.
    pub(super) fn disturb(&mut self, auto: &mut Auto) {
        let turn = self.duel.disturb();
        self.take(auto, turn);
    }

    fn take(&mut self, auto: &mut Auto, turn: Option<Turn>) {
        if let Some(turn) = turn {
            auto.turn(&turn);
        }
        let by_ring = self.duel.method() == Rival::Ring;
        if by_ring == self.by_ring {
            return;
        }
        self.by_ring = by_ring;
        let shared = self.shared;
        shared.methods.begin_by_ring(by_ring);
        shared.window.set_sharers(if by_ring { shared.methods.workers() } else { u32::MAX });
        // Those that have a part again.
        shared.spare_bell.ring_all();
    }

    /// Returns the reasons for the window and for the method.
    pub(super) fn why(&self, auto: &Auto) -> String {
        match self.shared.methods.refused() {
            Some(refused) => format!("{}; {}", auto.why(), cannot_create(refused)),
            None => auto.why(),
        }
    }

    /// Returns why a ring could not be created, as a decision, if that was tried in vain.
    pub(super) fn refused(&self, start_ns: u64, window: u32) -> Option<Decided> {
        let refused = self.shared.methods.refused()?;
        Some(Decided {
            at_ns: refused.at_ns.saturating_sub(start_ns),
            from: window,
            window,
            reason: cannot_create(refused),
        })
    }
}

fn cannot_create(refused: &RingRefused) -> String {
    format!("cannot create an io_uring: {}", ioloom_failure::reason(&refused.error))
}

#[cfg(test)]
mod tests {
    use super::super::prepare;
    use super::super::work::RunOptions;
    use super::*;
    use crate::cancel::Cancel;
    use crate::source::{Listed, Source};
    use ioloom_budget::{Budget, Part};
    use ioloom_control::{AutoLimits, BATCH_NS};
    use ioloom_model::{Plan, ReadOrder};
    use ioloom_walk::PathList;
    use std::sync::Arc;

    /// Files are completed at a rate that depends on the method.
    fn batch(by_ring: bool) -> Batch {
        let files = if by_ring { 90 } else { 100 };
        Batch {
            elapsed_ns: BATCH_NS,
            files,
            idle: 0.5,
            bytes: files * 4096,
            misses: files,
            in_flight: 200.0,
            ..Batch::default()
        }
    }

    #[test]
    fn a_leg_by_rings_leaves_few_workers_a_part_and_the_others_get_it_back() {
        let mut list = PathList::default();
        (0..100_000).for_each(|index: u32| list.push(index.to_string().as_bytes()));
        let cancel = Cancel::new();
        let source = Source::list(Listed::Borrowed(&list), ReadOrder::List, None, &cancel);
        let plan: Plan = "nowait/window:l=256,p=2/auto".parse().unwrap();
        let budget = Arc::new(Budget::new(plan.memory_bytes));
        let shared = prepare(&source, plan, budget, &RunOptions::default()).unwrap();
        (0..16).for_each(|_| shared.window.joins());
        let in_flight =
            || [0, 1, 2].map(|n| Part::new(n, u32::MAX).room(&shared.window, 0).in_flight);
        let window_max = 256;
        let limits = AutoLimits { window_max, permits: 2, ..AutoLimits::default() };
        let (mut auto, mut choice) = (Auto::new(limits), Choice::new(&shared, window_max));
        let (mut legs, mut read_bytes) = (Vec::new(), 0);
        // A single file of another file system.
        shared.unanswered.store(1, Ordering::Relaxed);
        for at in 1..200 {
            let batch = batch(shared.methods.is_ring());
            read_bytes += batch.bytes;
            choice.observe(&mut auto, &batch, (at * BATCH_NS, read_bytes));
            let leg = (shared.methods.is_ring(), in_flight());
            if legs.last() != Some(&leg) {
                legs.push(leg);
            }
        }
        assert_eq!(legs, [(false, [16; 3]), (true, [128, 128, 0]), (false, [16; 3])]);
        let text = choice.why(&auto);
        assert!(text.contains("throughput by io_uring"), "{text}");
        shared.methods.cannot_create(std::io::Error::from_raw_os_error(1));
        let text = choice.why(&auto);
        assert!(text.ends_with("; cannot create an io_uring: Operation not permitted"), "{text}");
    }
}
