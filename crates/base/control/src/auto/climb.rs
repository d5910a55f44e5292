//! Looks at larger windows after the search has ended.
//!
//! A capacity that rises while the latency stays shows in no rate, only in what a larger window gains.
//! But a larger window also gains where it takes a share from a neighbour: with n times as many requests
//! of others in flight, a window k times as large gets k (n + 1) / (n + k) times as much. So a look at a
//! quarter more only decides whether to try twice as many, and each window must gain in proportion. The
//! first double that does not shows where the device is saturated, and that window is tried instead.

use super::{Auto, State, Step};
use crate::decision::{Decision, Reason};
use crate::measure::Level;
use crate::thresholds::{
    CLEAR_LOSS, CLIMB_GAIN, FIT_ROOM, GAIN_LEAST, IDLE_LEAST, LIKELY_LOSS, LIMITED, SURE,
    TRIAL_SAMPLES, TRIAL_SAMPLES_MAX,
};

impl Auto {
    /// Reports whether a larger window may be tried although no change was seen.
    pub(super) fn may_look(&self) -> bool {
        self.window < self.limits.window_max
            && self.flying > LIMITED * f64::from(self.window)
            && !self.limits.is_capped()
            && self.level.idle() >= IDLE_LEAST
            && self.is_worth(LIKELY_LOSS)
    }

    /// Tries a quarter more than the present window, which was just measured.
    pub(super) fn look(&mut self) -> Option<Decision> {
        self.looking = None;
        let more = self.window.saturating_add(self.window.div_ceil(4));
        if !self.may_look() {
            self.state = State::Hold;
            return None;
        }
        let reference = self.level;
        self.climb(&reference, more, Step::Look)
    }

    /// Tries a larger window than that of `reference`.
    fn climb(&mut self, reference: &Level, window: u32, step: Step) -> Option<Decision> {
        let (rate, idle) = (reference.rate_per_s(), reference.idle());
        let back = reference.window;
        self.state = State::Climb { reference: *reference, back, step };
        self.go(window, Reason::TryLarger { from: back, rate, idle })
    }

    /// Decides the trial of the present, larger window, if its samples suffice.
    pub(super) fn climbed(&mut self, reference: &Level, back: u32, step: Step) -> Option<Decision> {
        let (loss, error) = self.level.loss(reference);
        let n = self.level.samples;
        let (own, from) = (f64::from(self.window), f64::from(back));
        let room = if step == Step::Fit { FIT_ROOM } else { 1.0 };
        let missing = CLIMB_GAIN * (own / room / from - 1.0) + loss;
        let worse = loss > CLEAR_LOSS && loss > 3.0 * error;
        let fails = worse || (n >= TRIAL_SAMPLES / 2 && missing > SURE * error);
        let end = n >= TRIAL_SAMPLES_MAX || (n >= TRIAL_SAMPLES && missing.abs() > error);
        if !fails && !end {
            return None;
        }
        if missing <= 0.0 {
            return self.ascend(reference, step, loss, error);
        }
        let fit = (from * (1.0 - loss) * FIT_ROOM).ceil() as u32;
        if step == Step::Double && -loss > GAIN_LEAST && back < fit && fit < self.window {
            return self.climb(reference, fit, Step::Fit);
        }
        self.state = State::Hold;
        let tried = self.window;
        let decision = self.go(back, Reason::Lost { tried, loss, error });
        self.level = *reference;
        decision
    }

    /// Goes on from a window that gained in proportion.
    fn ascend(&mut self, reference: &Level, step: Step, loss: f64, error: f64) -> Option<Decision> {
        let double = reference.window.saturating_mul(2).min(self.limits.window_max);
        if step == Step::Look && self.window < double {
            return self.climb(reference, double, Step::Double);
        }
        self.keep(reference, loss, error);
        let double = self.window.saturating_mul(2).min(self.limits.window_max);
        if step != Step::Fit && self.window < double && self.level.idle() >= IDLE_LEAST {
            let reference = self.level;
            return self.climb(&reference, double, Step::Double);
        }
        self.next()
    }
}
