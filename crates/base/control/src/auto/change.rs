//! Changes of the device: what shows one, and which window follows.

use super::{Auto, State};
use crate::decision::{Decision, Reason};
use crate::measure::{Level, Sample};
use crate::thresholds::{AGAIN_NS, CUT_ROOM, FELL, FELL_CLEARLY, IDLE_LEAST, ROSE, START, STARVED};

impl Auto {
    /// Detects a change of the device. Returns `None` if there is none, and otherwise the decision,
    /// if any.
    pub(super) fn changed(&mut self, sample: &Sample, limited: bool) -> Option<Option<Decision>> {
        let watched = self.watched();
        let (low, high) = sample.ratios(watched);
        let (from, to) = (watched.rate_per_s(), sample.rate_per_s());
        let was_busy = watched.idle() < IDLE_LEAST;
        let idle = sample.idle();
        // Workers that are busy, or whose function waits, take less themselves.
        let fell = limited && high < FELL && idle >= IDLE_LEAST;
        let rose = limited && low > ROSE;
        let starved = limited && was_busy && idle > STARVED;
        if !(fell || rose || starved) {
            self.odd = 0;
            return None;
        }
        self.odd += 1;
        // After a pause the device is as fast as before.
        if self.odd < 2 && !(fell && high < FELL_CLEARLY && !sample.paused()) {
            return Some(None);
        }
        self.forget();
        self.fail = 0;
        self.upward = false;
        self.fall = None;
        self.again = (self.course.now_ns + AGAIN_NS, AGAIN_NS);
        self.again_larger = fell;
        if fell {
            let mut reference = Level::new(self.window);
            reference.add(sample);
            self.fall = Some(1.0 / high.max(1e-9));
            let cut = (f64::from(self.window) * high * CUT_ROOM).ceil() as u32;
            if cut < self.window {
                self.state = State::Trial { reference, back: self.window };
                return Some(self.go(cut, Reason::Fell { from, to }));
            }
            self.level.add(sample);
            self.state = State::Measure;
            return Some(None);
        }
        self.state = State::Measure;
        let reason = if rose { Reason::Rose { from, to } } else { Reason::Starved { idle } };
        // A cap of the control group still holds, unless it is that of another device.
        self.upward = self.limits.is_capped();
        let start = if self.upward { self.started } else { START };
        Some(self.go(start.max(self.window), reason))
    }
}
