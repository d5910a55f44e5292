//! What the choice of the method changes for the controller of the window.

use super::{AGAIN_NS, Auto, Cause, Settling, State};
use crate::batch::Batch;
use crate::decision::{Decision, Reason};
use crate::duel::Turn;
use crate::measure::{Level, Sample};

impl Auto {
    /// Makes the controller keep the window that it has measured, or lets it try others again.
    pub fn hold(&mut self, holds: bool) {
        self.holds = holds;
    }

    /// Returns how often a change made what was measured out of date.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// Takes a batch during which methods were compared, with up to `window` in flight. Measuring
    /// begins again after it.
    pub fn set_aside(&mut self, batch: &Batch, window: u32) {
        if batch.elapsed_ns > 0 {
            self.record(batch, window);
            self.settle_again();
        }
    }

    /// Takes a decision about the method. For another method, the window is searched from the start.
    pub fn turn(&mut self, turn: &Turn) {
        let from = self.window;
        self.method = Some(turn.reason);
        self.method_ns = self.method_ns.saturating_add(turn.lost_ns);
        self.cost.probing_ns += turn.lost_ns;
        self.limits.window_max = turn.window_max.max(1);
        if let Some(window) = turn.begin {
            // The search begins as at the start of the run, with what the control group allows.
            let is_start = matches!(turn.reason, Reason::RingHits { .. });
            let capped = self.limits.capped().filter(|_| is_start);
            self.begin_again(capped.map_or(window, |(enough, _)| window.min(enough)));
            // After a change, the present window is a first reaction. A cap may be that of another device.
            self.upward = capped.is_some() || matches!(turn.reason, Reason::RingChanged);
        }
        self.log.push(Decision {
            at_ns: self.course.now_ns,
            from,
            window: self.window,
            phase: self.phase(),
            reason: turn.reason,
        });
    }

    fn begin_again(&mut self, window: u32) {
        self.settle_again();
        self.window = window.clamp(1, self.limits.window_max);
        self.started = self.window;
        self.best = None;
        self.looking = None;
        self.level = Level::new(self.window);
        self.fail = 0;
        self.upward = false;
        self.fall = None;
        self.precise = false;
        self.again = (self.course.now_ns + AGAIN_NS, AGAIN_NS);
        self.state = State::Measure;
    }

    /// Ignores what was issued before, by either method. What it loses is a cost of the choice of the method.
    fn settle_again(&mut self) {
        self.sample = Sample::default();
        self.odd = 0;
        let completions = u64::from(self.window);
        self.settling = Some(Settling {
            until_in_flight: -1.0,
            completions,
            last: false,
            cause: Cause::Method,
        });
    }
}
