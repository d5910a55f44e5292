//! Trials of other windows: when one ends, what follows from it, and which window is next.
//!
//! A smaller window must not lose, and a larger one must gain. A clear loss ends a trial after a few samples,
//! and every trial ends after `TRIAL_SAMPLES_MAX`.

use super::{Auto, Cause, Settling, State};
use crate::batch::Batch;
use crate::decision::{Decision, Phase, Reason};
use crate::measure::{Level, Sample};
use crate::thresholds::{
    AGAIN_NS_MAX, CLEAR_LOSS, CLOSE, CROWD, CUT_LOSS, END_ERROR, FALL_OVER, GAIN_LEAST, IDLE_LEAST,
    PROPORTIONAL, REFERENCE_ERROR, SHARED, STRIDE, SURE, TRIAL_SAMPLES, TRIAL_SAMPLES_MAX,
};

impl Auto {
    /// Takes a batch during which only `limit` could be in flight, fewer than [`Auto::window`]. It says
    /// nothing about the window, so only time and files count, and measuring begins again after it.
    pub fn restrain(&mut self, batch: &Batch, limit: u32) {
        if batch.elapsed_ns == 0 {
            return;
        }
        self.record(batch, limit);
        self.sample = Sample::default();
        self.odd = 0;
        let completions = u64::from(self.window);
        self.settling =
            Some(Settling { until_in_flight: -1.0, completions, last: false, cause: Cause::Limit });
    }

    /// Decides the trial of the present window, if its samples suffice.
    pub(super) fn trial(&mut self, reference: &Level, back: u32) -> Option<Decision> {
        let up = self.window > back;
        let (loss, error) = self.level.loss(reference);
        let n = self.level.samples;
        // A larger window must gain; a smaller one must not lose.
        let limit = if up { -GAIN_LEAST } else { self.tolerance() };
        let worse = loss - limit;
        let clear = loss.abs() > CLEAR_LOSS && loss.abs() > 3.0 * error;
        let fails = (clear && loss > 0.0) || (n >= TRIAL_SAMPLES / 2 && worse > SURE * error);
        // A cut after a fall loses nothing or in proportion; its reference is a single sample.
        let cut = !up && self.best.is_none();
        let holds = (clear && up && loss < 0.0)
            || (n >= TRIAL_SAMPLES && worse < -0.5 * error)
            || (cut && n >= TRIAL_SAMPLES && loss < CUT_LOSS);
        if cut && loss < 0.0 && (clear || (n >= TRIAL_SAMPLES && -loss > FALL_OVER)) {
            return self.fall_ended(reference, back);
        }
        let end = n >= TRIAL_SAMPLES_MAX;
        let vague = self.best.is_some_and(|best| best.relative_error() >= REFERENCE_ERROR);
        let likely =
            self.limits.polite && !up && self.is_likely(self.window, reference.rate_per_s());
        if n >= TRIAL_SAMPLES && !up && !fails && !holds && vague && !likely && !self.precise {
            // The reference is the less certain of the two: measure it first.
            self.precise = true;
            self.state = State::Measure;
            let decision = self.go(back, Reason::Unclear { loss, error });
            if reference.window == back {
                self.level = *reference;
            }
            return decision;
        }
        // Where the latency of the first request speaks for the window, only a loss speaks against it.
        let unlikely = if likely {
            worse > error
        } else {
            worse > -0.5 * error && (worse > 0.0 || error > END_ERROR)
        };
        // After a fall, only a gain in proportion shows that latency rose. Less may be a larger
        // share of a device that a neighbour uses, too.
        let share = !fails && (holds || end) && up && self.gains_a_share(loss);
        if fails || share || (end && unlikely) {
            return self.reject(reference, back, loss, error);
        }
        if holds || end {
            return self.accept(reference, loss, error);
        }
        None
    }

    /// Returns to the window before a fall that is over: even fewer requests in flight are faster than
    /// during it.
    fn fall_ended(&mut self, reference: &Level, back: u32) -> Option<Decision> {
        let (from, to) = (reference.rate_per_s(), self.level.rate_per_s());
        self.fall = None;
        self.state = State::Measure;
        self.go(back, Reason::Rose { from, to })
    }

    /// Reports whether the first larger window after a fall gained less than a rise of latency
    /// explains.
    fn gains_a_share(&mut self, loss: f64) -> bool {
        let Some(fall) = self.fall.take() else { return false };
        fall < CROWD && 1.0 - loss < SHARED * fall.min(f64::from(STRIDE))
    }

    fn reject(&mut self, reference: &Level, back: u32, loss: f64, error: f64) -> Option<Decision> {
        let tried = self.window;
        let fast = self.best.is_none();
        if tried < back {
            self.fail = self.fail.max(tried);
            if fast {
                self.course.latency_changed();
            }
            // A cut that loses in proportion: latency rose, or the window was the limit before.
            let proportional = 1.0 - f64::from(tried) / f64::from(back);
            self.upward = loss > PROPORTIONAL * proportional && (fast || back == self.started);
        } else {
            self.upward = false;
        }
        self.state = if fast { State::Measure } else { State::Hold };
        let level = *reference;
        let decision = self.go(back, Reason::Lost { tried, loss, error });
        if level.window == back && !fast {
            self.level = level;
        }
        decision
    }

    fn accept(&mut self, reference: &Level, loss: f64, error: f64) -> Option<Decision> {
        self.keep(reference, loss, error);
        self.next()
    }

    /// Keeps the present window.
    pub(super) fn keep(&mut self, reference: &Level, loss: f64, error: f64) {
        let up = self.window > reference.window;
        if up {
            self.fail = self.fail.max(reference.window);
        }
        let better = self.best.is_none_or(|_| loss + error < 0.0);
        if up || better {
            self.best = Some(self.level);
        }
        self.state = State::Hold;
        let than = reference.window;
        let decision = Decision {
            at_ns: self.course.now_ns,
            from: self.window,
            window: self.window,
            phase: Phase::Hold,
            reason: Reason::Kept { than, loss, error },
        };
        self.log.push(decision);
    }

    /// Chooses the next trial, or holds.
    pub(super) fn next(&mut self) -> Option<Decision> {
        self.state = State::Hold;
        if self.holds {
            return None;
        }
        let back = self.window;
        let rate = self.level.rate_per_s();
        let reference = self.best.unwrap_or(self.level);
        if self.upward {
            let idle = self.level.idle();
            let larger = self.window.saturating_mul(STRIDE).min(self.limits.window_max);
            if larger > self.window && idle >= IDLE_LEAST {
                self.state = State::Trial { reference: self.level, back };
                return self.go(larger, Reason::TryLarger { from: back, rate, idle });
            }
            self.upward = false;
        }
        let smaller = if self.fail == 0 {
            self.first_smaller(rate)
        } else if f64::from(self.window) > CLOSE * f64::from(self.fail) {
            (f64::from(self.window) * f64::from(self.fail)).sqrt().round() as u32
        } else {
            return self.again();
        };
        // If something else is the limit, more than is in flight is not needed.
        let smaller = smaller.min(self.flying.ceil() as u32).max(1);
        if smaller >= self.window || smaller <= self.fail {
            return self.again();
        }
        if !self.affordable(smaller) {
            return None;
        }
        self.state = State::Trial { reference, back };
        self.go(smaller, Reason::TrySmaller { from: back, rate })
    }

    /// Begins another trial when one is due: alternately of what was found insufficient, and of a larger
    /// window.
    fn again(&mut self) -> Option<Decision> {
        let (at, pause) = self.again;
        if self.course.now_ns < at {
            return None;
        }
        let larger = (self.again_larger || self.window == 1) && self.may_look();
        if self.window == 1 && !larger {
            return None;
        }
        self.again_larger = !larger;
        let pause = (pause * 4).min(AGAIN_NS_MAX);
        self.again = (self.course.now_ns + pause, pause);
        if larger {
            // What was measured long ago says little about the present.
            self.looking = Some(std::mem::replace(&mut self.level, Level::new(self.window)));
            self.state = State::Measure;
        } else {
            // The samples of the present window remain the reference, and still show a change.
            self.best = Some(self.level);
            self.fail = self.window / STRIDE;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AutoLimits;

    fn batch(misses: u64) -> Batch {
        let (elapsed_ns, in_flight) = (100_000_000, misses as f64 / 4.0);
        Batch { elapsed_ns, files: misses, misses, in_flight, idle: 0.9, ..Batch::default() }
    }

    #[test]
    fn a_rate_under_a_smaller_limit_is_not_compared() {
        let limits = AutoLimits {
            window_max: 512,
            permits: 2,
            start: None,
            polite: false,
            remaining: None,
            cap_per_s: None,
            cap_bytes_per_s: None,
        };
        let mut auto = Auto::new(limits);
        for _ in 0..20 {
            auto.observe(&batch(400));
        }
        let (window, best, level) = (auto.window(), auto.best, auto.level);
        for _ in 0..50 {
            auto.restrain(&batch(20), 8);
        }
        assert_eq!(auto.log().points().last().map(|point| point.window), Some(8.0));
        assert_eq!(auto.window(), window);
        assert_eq!(format!("{:?} {:?}", auto.best, auto.level), format!("{best:?} {level:?}"));
        assert_eq!(auto.course.files, 20 * 400 + 50 * 20);
        let cost = auto.cost();
        auto.observe(&batch(20));
        assert_eq!(auto.cost(), cost, "the queue that fills again is not charged as probing");
    }
}
