//! The controller of the automatic mode: how many requests in flight are enough.
//!
//! ```text
//! start high ─► measure ─► try a quarter ─► no loss: keep, try a quarter of it
//!                  ▲             │ loss: back, bisect between the two ─► hold
//!                  │             ▼                                       │
//!                  └── larger, while that gains ◄── rate fell or rose, ──┘
//!                                                   workers became idle
//! ```
//!
//! It starts high because a short job has no time to learn, and too many requests cost such a job
//! nothing. Fewer are tried because every request beyond the smallest sufficient number only waits
//! in a queue, where it delays other users of the device. Latency is not a signal here: it grows
//! with the window whether or not throughput does. Throughput is compared only between windows that
//! were the limit, in sequential tests: a large loss ends a trial after a few samples, and a long
//! trial is one that costs little. Every trial must fit a share of the predicted remaining time.
//!
//! When the rate at the device falls, either its capacity fell or its latency rose; the first needs
//! fewer requests and the second more. The window is cut in proportion to the fall. If that loses
//! nothing, it was the capacity; if it gains, the fall is over; otherwise larger windows are tried.
//!
//! When the search has ended, smaller and larger windows are tried again from time to time, because a
//! capacity that rises shows in no rate. A larger one must then gain in proportion.
//!
//! A batch costs a few hundred floating-point operations at most.

use crate::batch::Batch;
use crate::course::Course;
use crate::decision::{Cost, Decision, Log, Phase, Point, Reason};
use crate::measure::{Level, REQUEST_BYTES, Sample};
use crate::thresholds::{
    AGAIN_NS, BUDGET, BUDGET_ALL, CAPPED_LEAST, CAPPED_S, CHANCE, EXPECTED, FILLING, JUMP_LEAST,
    JUMP_ROOM, LIKELY_LOSS, LIMITED, OTHER_LIMIT, REFERENCE_ERROR, REFERENCE_ERROR_FIRST,
    REFERENCE_SAMPLES, REFUSED, SAMPLE_NS, SAMPLE_NS_MAX, SAMPLE_REQUESTS, START, STRIDE, SURE,
    TOLERANCE, TOLERANCE_POLITE, TRIAL_SAMPLES, TRIAL_SAMPLES_MAX,
};
use crate::tuner::Tuner;
use stretch::Stretch;

mod change;
mod charge;
mod climb;
mod method;
mod stretch;
mod trial;

/// Recommended time between two batches, in nanoseconds.
pub const BATCH_NS: u64 = 5_000_000;

/// What an earlier run learnt about the same device, kind of work, condition and size class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prior {
    /// Smallest sufficient window.
    pub window: u32,
}

/// What is known when a run starts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AutoLimits {
    /// Largest window for which resources are allocated.
    pub window_max: u32,
    /// Compute permits.
    pub permits: u32,
    /// Start value from an earlier run, re-verified like any other.
    pub start: Option<Prior>,
    /// Give up 5 % of throughput instead of 0.5 % for fewer requests in flight.
    pub polite: bool,
    /// Files to process, if the number is known.
    pub remaining: Option<u64>,
    /// Requests per second that a control group allows, if it limits them.
    pub cap_per_s: Option<u64>,
    /// Bytes per second that a control group allows, if it limits them.
    pub cap_bytes_per_s: Option<u64>,
}

impl AutoLimits {
    /// Reports whether a control group limits requests or bytes.
    fn is_capped(&self) -> bool {
        self.cap_per_s.is_some() || self.cap_bytes_per_s.is_some()
    }

    /// Returns the smallest window that suffices for what the control group allows, and why.
    fn capped(&self) -> Option<(u32, Reason)> {
        let enough = |rate: f64| {
            let enough = (CAPPED_S * rate).ceil().min(f64::from(START)) as u32;
            enough.max(CAPPED_LEAST)
        };
        let requests = self.cap_per_s.map(|cap| {
            let rate = cap as f64;
            (enough(rate), Reason::Capped { rate })
        });
        let bytes = self.cap_bytes_per_s.map(|cap| {
            let rate = cap as f64;
            (enough(rate / REQUEST_BYTES), Reason::CappedBytes { rate })
        });
        requests.into_iter().chain(bytes).min_by_key(|(window, _)| *window)
    }
}

/// What a larger window is tried for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A quarter more: whether twice as many are worth a trial.
    Look,
    /// Twice as many.
    Double,
    /// As many as the gain of the double suggests.
    Fit,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Measures the present window.
    Measure,
    /// Tries the present window against `reference`; `back` is the window to return to.
    Trial { reference: Level, back: u32 },
    /// Tries the present, larger window against `reference` after the search has ended; `back` is the
    /// window to return to.
    Climb { reference: Level, back: u32, step: Step },
    /// Watches.
    Hold,
}

/// What is ignored after a change of the window.
#[derive(Debug, Clone, Copy)]
struct Settling {
    /// Requests in flight at which the queue of the larger window has drained.
    until_in_flight: f64,
    /// Completions of requests that were issued before.
    completions: u64,
    /// One batch after that.
    last: bool,
    cause: Cause,
}

/// What left behind the requests that are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Another window of the controller.
    Window,
    /// Another method.
    Method,
    /// A limit below the window.
    Limit,
}

/// Chooses the number of requests in flight. Only requests at the device count: hits of the page
/// cache, and files that are ready, are limited by `window_max` alone.
#[derive(Debug, Clone)]
pub struct Auto {
    limits: AutoLimits,
    window: u32,
    state: State,
    settling: Option<Settling>,
    sample: Sample,
    /// Samples of the present window.
    level: Level,
    /// The fastest window since the last change of the device.
    best: Option<Level>,
    /// Largest window known to be insufficient, or 0.
    fail: u32,
    /// Whether a larger window should be tried next.
    upward: bool,
    /// Ready files at the end of the last batch.
    ready: u32,
    /// Factor by which the rate fell, until a larger window was tried.
    fall: Option<f64>,
    /// When to try again what was found insufficient, and the interval after that.
    again: (u64, u64),
    /// Whether a larger window is tried then.
    again_larger: bool,
    /// The earlier samples of the present window while it is measured again, to be compared with a larger
    /// one.
    looking: Option<Level>,
    /// Requests in flight in the last sample.
    flying: f64,
    /// Whether a trial needed a more precise reference than a first impression.
    precise: bool,
    /// Window at which the search began.
    started: u32,
    /// Consecutive samples that look like a change of the device.
    odd: u32,
    /// How often what was measured became out of date.
    changes: u32,
    /// Whether no other window is tried.
    holds: bool,
    /// The last decision about the method.
    method: Option<Reason>,
    /// What trials of windows and the choice of the method count as lost where further trials are limited.
    trials_ns: u64,
    method_ns: u64,
    course: Course,
    stretch: Stretch,
    cost: Cost,
    log: Log,
}

impl Auto {
    /// Creates a controller at its start value.
    pub fn new(limits: AutoLimits) -> Self {
        let limits = AutoLimits {
            window_max: limits.window_max.max(1),
            permits: limits.permits.max(1),
            ..limits
        };
        let (window, reason) = match limits.start {
            Some(prior) => (prior.window, Reason::Learnt),
            None => limits.capped().unwrap_or((START, Reason::Start)),
        };
        let window = window.clamp(1, limits.window_max);
        let mut log = Log::default();
        log.push(Decision { at_ns: 0, from: window, window, phase: Phase::Measure, reason });
        Self {
            limits,
            window,
            state: State::Measure,
            // The first completions come a latency after the first requests.
            settling: Some(Settling {
                until_in_flight: -1.0,
                completions: 1,
                last: false,
                cause: Cause::Window,
            }),
            sample: Sample::default(),
            level: Level::new(window),
            best: None,
            fail: 0,
            // A cap may be that of another device.
            upward: limits.start.is_some() || limits.is_capped(),
            ready: 0,
            fall: None,
            again: (AGAIN_NS, AGAIN_NS),
            again_larger: false,
            looking: None,
            flying: f64::from(window),
            precise: false,
            started: window,
            odd: 0,
            changes: 0,
            holds: false,
            method: None,
            trials_ns: 0,
            method_ns: 0,
            course: Course::new(limits.remaining),
            stretch: Stretch::default(),
            cost: Cost::default(),
            log,
        }
    }

    /// Returns the present window.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// Returns what the controller is doing.
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Measure => Phase::Measure,
            State::Trial { back, .. } if back > self.window => Phase::Shrink,
            State::Trial { .. } | State::Climb { .. } => Phase::Grow,
            State::Hold => Phase::Hold,
        }
    }

    /// Sets the number of files that remain, once it is known.
    pub fn set_remaining(&mut self, files: Option<u64>) {
        self.course.all = files.map(|files| files.saturating_add(self.course.files));
    }

    /// Returns the decisions and the course of the run.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Returns the time lost to trials and to the choice, compared with the fastest window seen.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Returns what all trials count as lost where further ones are limited: at least [`Cost::probing_ns`] as
    /// a rule, and more where completions are rarer than batches.
    pub fn spent_ns(&self) -> u64 {
        self.trials_ns.saturating_add(self.method_ns)
    }

    /// Returns the reason for the present window, and the last decision about the method, in one
    /// sentence.
    pub fn why(&self) -> String {
        // After a turn that also set the window, that turn is the reason for it.
        let about_window = self.log.decisions().filter(|one| !one.reason.is_about_method()).last();
        let last = about_window
            .filter(|one| one.window == self.window)
            .or_else(|| self.log.decisions().last());
        let reason = last.map_or(Reason::Start, |last| last.reason);
        let mut text = format!(
            "{} in flight: {reason}; {:.0} ms lost to trials",
            self.window,
            self.cost.probing_ns as f64 / 1e6
        );
        if let Some(method) = self.method.filter(|method| *method != reason) {
            text += &format!("; {method}");
        }
        text
    }

    /// Takes the next batch. Returns the decision if the window changed.
    pub fn observe(&mut self, batch: &Batch) -> Option<Decision> {
        if batch.elapsed_ns == 0 {
            return None;
        }
        self.record(batch, self.window);
        let ready = std::mem::replace(&mut self.ready, batch.ready);
        let share = batch.refused_share();
        if share > REFUSED
            && self.window > 1
            && self.settling.is_none_or(|settling| settling.until_in_flight < 0.0)
        {
            return self.refused(share);
        }
        let memory = batch.memory_limited > OTHER_LIMIT;
        if batch.input_limited > OTHER_LIMIT || memory {
            self.upward = false;
            if let State::Trial { back, .. } | State::Climb { back, .. } = self.state
                && back < self.window
            {
                self.state = State::Hold;
                return self.go(back, Reason::OtherLimit);
            }
            if !memory {
                self.sample = Sample::default();
                return None;
            }
        }
        self.charge(batch);
        if !self.settled(batch) {
            return None;
        }
        self.sample.add(batch, ready);
        if !self.complete() {
            return None;
        }
        let sample = std::mem::take(&mut self.sample);
        self.step(&sample)
    }

    /// Leaves a window for which resources are short, and tries larger ones again later.
    fn refused(&mut self, share: f64) -> Option<Decision> {
        let window = match self.state {
            State::Trial { back, .. } | State::Climb { back, .. } if back < self.window => back,
            _ => {
                self.fail = 0;
                self.again = (self.course.now_ns + AGAIN_NS, AGAIN_NS);
                self.again_larger = true;
                self.window / 2
            }
        };
        self.forget();
        self.upward = false;
        self.state = State::Measure;
        self.go(window, Reason::Refused { share })
    }

    fn record(&mut self, batch: &Batch, window: u32) {
        let seconds = batch.elapsed_ns as f64 / 1e9;
        self.log.point(Point {
            at_ns: self.course.now_ns,
            elapsed_ns: batch.elapsed_ns,
            window: f64::from(window),
            in_flight: batch.in_flight,
            files_per_s: batch.files as f64 / seconds,
            bytes_per_s: batch.bytes as f64 / seconds,
            idle: batch.idle,
        });
        self.course.add(batch);
    }

    /// Reports whether what completes now was issued under the present window.
    fn settled(&mut self, batch: &Batch) -> bool {
        let Some(settling) = &mut self.settling else { return true };
        settling.completions = settling.completions.saturating_sub(batch.misses);
        if settling.last {
            self.settling = None;
        } else if settling.completions == 0 || batch.in_flight <= settling.until_in_flight {
            settling.last = true;
        }
        false
    }

    /// Reports whether the sample is large enough, or certainly far below what was expected.
    fn complete(&self) -> bool {
        let sample = &self.sample;
        if sample.ns < SAMPLE_NS {
            return false;
        }
        // Requests that were issued together complete together: a sample covers a round of them.
        let round = sample.in_flight();
        let usual = match self.state {
            State::Trial { reference, .. } | State::Climb { reference, .. } => {
                reference.rate_per_s()
            }
            _ => self.watched().rate_per_s(),
        };
        let expected = usual * sample.ns / 1e9;
        let enough = sample.requests >= round || sample.ns >= SAMPLE_NS_MAX;
        sample.requests >= SAMPLE_REQUESTS && enough
            || (expected >= EXPECTED
                && (expected >= round || sample.ns >= SAMPLE_NS_MAX)
                && sample.requests > 0.0
                && sample.requests < 0.5 * expected)
    }

    fn tolerance(&self) -> f64 {
        if self.limits.polite { TOLERANCE_POLITE } else { TOLERANCE }
    }

    /// Reports whether a trial of `window` is worth what it is expected to lose: in proportion to the
    /// window until two samples have shown that, if it is insufficient at all.
    fn affordable(&self, window: u32) -> bool {
        let rate = self.level.rate_per_s().max(1e-9);
        let part = f64::from(window) / f64::from(self.window.max(1));
        let loss = (1.0 - part).max(LIKELY_LOSS);
        // The first completion shows the latency without a queue, and thus what may be enough.
        let expected = if self.is_likely(window, rate) {
            LIKELY_LOSS
        } else if self.limits.polite && self.window < self.started && self.fail == 0 {
            // A larger step lost nothing, so the device was saturated.
            CHANCE * loss
        } else {
            loss
        };
        self.is_worth(expected)
    }

    /// Reports whether the remaining time is worth a trial that is expected to lose this share until its
    /// result is clear.
    fn is_worth(&self, expected: f64) -> bool {
        let rate = self.level.rate_per_s().max(1e-9);
        let noticed = (1.5 * EXPECTED * 1e9 / rate).max(3.0 * BATCH_NS as f64);
        let lost = expected * noticed;
        let remaining = self.course.remaining_ns();
        // The choice of the method has a budget of its own.
        lost <= BUDGET * remaining
            && self.trials_ns as f64 + lost <= BUDGET_ALL * (self.course.now_ns as f64 + remaining)
    }

    /// Reports whether the latency of the first request suggests that `window` is sufficient.
    fn is_likely(&self, window: u32, rate: f64) -> bool {
        self.course.likely(rate).is_some_and(|likely| f64::from(window) >= likely)
    }

    /// Returns the first window to try below the present one: a quarter. A polite run tries less at
    /// once, where the latency of the first request suggests that much less is sufficient.
    fn first_smaller(&self, rate: f64) -> u32 {
        let quarter = self.window / STRIDE;
        match self.course.likely(rate) {
            Some(likely) if self.limits.polite && self.window == self.started => {
                quarter.min(((JUMP_ROOM * likely).ceil() as u32).max(JUMP_LEAST))
            }
            _ => quarter,
        }
    }

    fn forget(&mut self) {
        self.changes += 1;
        self.looking = None;
        self.level = Level::new(self.window);
        self.best = None;
        self.sample = Sample::default();
        self.odd = 0;
    }

    /// Changes the window.
    fn go(&mut self, window: u32, reason: Reason) -> Option<Decision> {
        let from = self.window;
        let window = window.clamp(1, self.limits.window_max);
        self.sample = Sample::default();
        self.odd = 0;
        self.level = Level::new(window);
        if window == from {
            return None;
        }
        self.window = window;
        let down = window < from;
        self.settling = Some(Settling {
            until_in_flight: if down { 1.1 * f64::from(window) + 0.5 } else { -1.0 },
            completions: u64::from(if down { from - window + window.min(4) } else { from }),
            last: false,
            cause: Cause::Window,
        });
        let decision =
            Decision { at_ns: self.course.now_ns, from, window, phase: self.phase(), reason };
        self.log.push(decision);
        Some(decision)
    }

    fn step(&mut self, sample: &Sample) -> Option<Decision> {
        self.flying = sample.in_flight();
        let limited = self.flying > LIMITED * f64::from(self.window);
        if let State::Trial { reference, back } = self.state {
            self.level.add(sample);
            return self.trial(&reference, back);
        }
        if let State::Climb { reference, back, step } = self.state {
            self.level.add(sample);
            return self.climbed(&reference, back, step);
        }
        if matches!(self.state, State::Measure)
            && self.level.samples == 0
            && sample.growth() > FILLING
        {
            return None;
        }
        if (self.best.is_some() || self.level.samples >= REFERENCE_SAMPLES)
            && (self.level.samples >= 1 || self.looking.is_some())
            && let Some(decision) = self.changed(sample, limited)
        {
            return decision;
        }
        self.level.add(sample);
        match self.state {
            State::Measure if self.known() && self.looking.is_some() => self.look(),
            State::Measure if self.known() => {
                self.best = Some(self.level);
                self.next()
            }
            State::Hold if self.known() => self.verify(),
            _ => None,
        }
    }

    /// Returns the level from which a change of the device differs.
    fn watched(&self) -> &Level {
        self.looking.as_ref().unwrap_or(&self.level)
    }

    /// Reports whether the present window was measured well enough to compare others with it.
    fn known(&self) -> bool {
        let n = self.level.samples;
        let limit = if self.precise { REFERENCE_ERROR } else { REFERENCE_ERROR_FIRST };
        n >= (if self.looking.is_some() { TRIAL_SAMPLES } else { REFERENCE_SAMPLES })
            && (self.upward || n >= TRIAL_SAMPLES_MAX || self.level.relative_error() < limit)
    }

    /// Goes back if the window kept turns out to lose after all.
    fn verify(&mut self) -> Option<Decision> {
        if let Some(best) = self.best
            && best.window > self.window
            && self.level.samples.is_multiple_of(TRIAL_SAMPLES_MAX)
        {
            let (loss, error) = self.level.loss(&best);
            if loss - self.tolerance() > SURE * error {
                let tried = self.window;
                self.fail = tried;
                // What was measured then may be out of date: measure again from there.
                self.best = None;
                self.state = State::Measure;
                return self.go(best.window.min(2 * tried), Reason::Lost { tried, loss, error });
            }
        }
        self.next()
    }
}

impl Tuner for Auto {
    fn window(&self) -> u32 {
        Auto::window(self)
    }

    fn observe(&mut self, batch: &Batch) -> Option<Decision> {
        Auto::observe(self, batch)
    }
}

#[cfg(test)]
mod tests;
