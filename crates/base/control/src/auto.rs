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
//! nothing, it was the capacity; otherwise larger windows are tried.
//!
//! A batch costs a few hundred floating-point operations at most.

use crate::batch::Batch;
use crate::course::Course;
use crate::decision::{Cost, Decision, Log, Phase, Point, Reason};
use crate::measure::{Level, Sample};
use crate::thresholds::{
    AGAIN_NS, BUDGET, BUDGET_ALL, CAPPED_LEAST, CAPPED_S, CHANCE, CUT_ROOM, EXPECTED, FELL,
    FELL_CLEARLY, FILLING, IDLE_LEAST, JUMP_LEAST, JUMP_ROOM, LIKELY_LOSS, OTHER_LIMIT,
    REFERENCE_ERROR, REFERENCE_ERROR_FIRST, REFERENCE_SAMPLES, REFUSED, ROSE, SAMPLE_NS,
    SAMPLE_NS_MAX, SAMPLE_REQUESTS, START, STARVED, STRIDE, SURE, TOLERANCE, TOLERANCE_POLITE,
    TRIAL_SAMPLES, TRIAL_SAMPLES_MAX,
};
use crate::tuner::Tuner;

mod method;
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
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Measures the present window.
    Measure,
    /// Tries the present window against `reference`; `back` is the window to return to.
    Trial { reference: Level, back: u32 },
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
    course: Course,
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
        let (window, reason) = match (limits.start, limits.cap_per_s) {
            (Some(prior), _) => (prior.window, Reason::Learnt),
            (None, Some(cap)) => {
                let rate = cap as f64;
                let enough = (CAPPED_S * rate).ceil().min(f64::from(START)) as u32;
                (enough.max(CAPPED_LEAST), Reason::Capped { rate })
            }
            (None, None) => (START, Reason::Start),
        };
        let window = window.clamp(1, limits.window_max);
        let mut log = Log::default();
        log.push(Decision { at_ns: 0, from: window, window, phase: Phase::Measure, reason });
        Self {
            limits,
            window,
            state: State::Measure,
            // The first completions come a latency after the first requests.
            settling: Some(Settling { until_in_flight: -1.0, completions: 1, last: false }),
            sample: Sample::default(),
            level: Level::new(window),
            best: None,
            fail: 0,
            // A cap may be that of another device.
            upward: limits.start.is_some() || limits.cap_per_s.is_some(),
            ready: 0,
            fall: None,
            again: (AGAIN_NS, AGAIN_NS),
            flying: f64::from(window),
            precise: false,
            started: window,
            odd: 0,
            changes: 0,
            holds: false,
            course: Course::new(limits.remaining),
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
            State::Trial { .. } => Phase::Grow,
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

    /// Returns the reason for the present window, in one sentence.
    pub fn why(&self) -> String {
        let reason = self.log.decisions().last().map_or(Reason::Start, |last| last.reason);
        format!(
            "{} in flight: {reason}; {:.0} ms lost to trials",
            self.window,
            self.cost.probing_ns as f64 / 1e6
        )
    }

    /// Takes the next batch. Returns the decision if the window changed.
    pub fn observe(&mut self, batch: &Batch) -> Option<Decision> {
        if batch.elapsed_ns == 0 {
            return None;
        }
        self.record(batch, self.window);
        let ready = std::mem::replace(&mut self.ready, batch.ready);
        let requests = batch.refused + batch.misses + batch.hits;
        let share = batch.refused as f64 / requests.max(1) as f64;
        if share > REFUSED
            && self.window > 1
            && self.settling.is_none_or(|settling| settling.until_in_flight < 0.0)
        {
            self.forget();
            self.fail = 0;
            self.upward = false;
            self.state = State::Measure;
            return self.go(self.window / 2, Reason::Refused { share });
        }
        let memory = batch.memory_limited > OTHER_LIMIT;
        if batch.input_limited > OTHER_LIMIT || memory {
            self.upward = false;
            if let State::Trial { back, .. } = self.state
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

    /// Adds what this batch lost compared with the fastest window. Files in memory lose nothing by it.
    fn charge(&mut self, batch: &Batch) {
        let Some(best) = self.best else { return };
        if batch.misses == 0 && batch.hits > 0 {
            return;
        }
        let mut sample = Sample::default();
        sample.add(batch, batch.ready);
        let (_, ratio) = sample.ratios(&best);
        let lost = ((1.0 - ratio).clamp(0.0, 1.0) * batch.elapsed_ns as f64) as u64;
        match self.state {
            State::Trial { .. } => self.cost.probing_ns += lost,
            _ if self.settling.is_some() => self.cost.probing_ns += lost,
            _ if self.level.samples >= TRIAL_SAMPLES => {
                let loss = self.level.loss(&best).0.clamp(0.0, 1.0);
                self.cost.choice_ns += (loss * batch.elapsed_ns as f64) as u64;
            }
            _ => {}
        }
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
            State::Trial { reference, .. } => reference.rate_per_s(),
            _ => self.level.rate_per_s(),
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
        let noticed = (1.5 * EXPECTED * 1e9 / rate).max(3.0 * BATCH_NS as f64);
        let lost = expected * noticed;
        let remaining = self.course.remaining_ns();
        lost <= BUDGET * remaining
            && self.cost.probing_ns as f64 + lost
                <= BUDGET_ALL * (self.course.now_ns as f64 + remaining)
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
        });
        let decision =
            Decision { at_ns: self.course.now_ns, from, window, phase: self.phase(), reason };
        self.log.push(decision);
        Some(decision)
    }

    fn step(&mut self, sample: &Sample) -> Option<Decision> {
        self.flying = sample.in_flight();
        let limited = sample.in_flight() > 0.7 * f64::from(self.window);
        if let State::Trial { reference, back } = self.state {
            self.level.add(sample);
            return self.trial(&reference, back);
        }
        if matches!(self.state, State::Measure)
            && self.level.samples == 0
            && sample.growth() > FILLING
        {
            return None;
        }
        if (self.best.is_some() || self.level.samples >= REFERENCE_SAMPLES)
            && self.level.samples >= 1
            && let Some(decision) = self.changed(sample, limited)
        {
            return decision;
        }
        self.level.add(sample);
        match self.state {
            State::Measure if self.known() => {
                self.best = Some(self.level);
                self.next()
            }
            State::Hold if self.known() => self.verify(),
            _ => None,
        }
    }

    /// Reports whether the present window was measured well enough to compare others with it.
    fn known(&self) -> bool {
        let n = self.level.samples;
        let limit = if self.precise { REFERENCE_ERROR } else { REFERENCE_ERROR_FIRST };
        n >= REFERENCE_SAMPLES
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

    /// Detects a change of the device. Returns `None` if there is none, and otherwise the decision,
    /// if any.
    fn changed(&mut self, sample: &Sample, limited: bool) -> Option<Option<Decision>> {
        let (low, high) = sample.ratios(&self.level);
        let (from, to) = (self.level.rate_per_s(), sample.rate_per_s());
        let fell = limited && high < FELL;
        let rose = limited && low > ROSE;
        let idle = sample.idle();
        let starved = limited && self.level.idle() < IDLE_LEAST && idle > STARVED;
        if !(fell || rose || starved) {
            self.odd = 0;
            return None;
        }
        self.odd += 1;
        if self.odd < 2 && !(fell && high < FELL_CLEARLY) {
            return Some(None);
        }
        self.forget();
        self.fail = 0;
        self.upward = false;
        self.fall = None;
        self.again = (self.course.now_ns + AGAIN_NS, AGAIN_NS);
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
        self.upward = self.limits.cap_per_s.is_some();
        let start = if self.upward { self.started } else { START };
        Some(self.go(start.max(self.window), reason))
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One batch of a device with `capacity` requests per second and a latency, for workers that
    /// never compute. `done` carries fractions of requests.
    fn batch(window: u32, capacity: f64, latency_s: f64, done: &mut f64) -> Batch {
        let rate = capacity.min(f64::from(window) / latency_s);
        *done += rate * BATCH_NS as f64 / 1e9;
        let misses = *done as u64;
        *done -= misses as f64;
        Batch {
            elapsed_ns: BATCH_NS,
            files: misses,
            idle: 0.9,
            bytes: misses * 4096,
            misses,
            in_flight: f64::from(window),
            ..Batch::default()
        }
    }

    fn limits() -> AutoLimits {
        AutoLimits { window_max: 512, permits: 2, ..AutoLimits::default() }
    }

    fn after(auto: &mut Auto, batches: u32, capacity: f64, latency_s: f64) -> u32 {
        let mut done = 0.0;
        for _ in 0..batches {
            auto.observe(&batch(auto.window(), capacity, latency_s, &mut done));
        }
        auto.window()
    }

    #[test]
    fn the_smallest_sufficient_window_is_found() {
        let mut auto = Auto::new(limits());
        // 40,000/s at 0.5 ms need 20 in flight.
        let window = after(&mut auto, 2_000, 40_000.0, 0.0005);
        assert!((20..=26).contains(&window), "{window}: {}", auto.why());
    }

    #[test]
    fn a_cap_of_the_control_group_sets_the_start() {
        let capped = |cap| Auto::new(AutoLimits { cap_per_s: Some(cap), ..limits() });
        assert_eq!([1, 600, 1_000_000].map(|cap| capped(cap).window()), [8, 12, 512]);
        // The limited device is another one: the window opens.
        let window = after(&mut capped(600), 1_000, 40_000.0, 0.005);
        assert!((200..=260).contains(&window), "{window}");
    }

    #[test]
    fn a_rise_of_latency_opens_the_window() {
        let mut auto = Auto::new(limits());
        after(&mut auto, 2_000, 40_000.0, 0.0005);
        let window = after(&mut auto, 200, 40_000.0, 0.020);
        assert_eq!(window, 512, "{}", auto.why());
    }

    #[test]
    fn a_fall_of_capacity_closes_it() {
        let mut auto = Auto::new(limits());
        after(&mut auto, 2_000, 40_000.0, 0.0005);
        let window = after(&mut auto, 400, 4_000.0, 0.0005);
        assert!((2..=4).contains(&window), "{window}: {}", auto.why());
    }

    #[test]
    fn a_warm_start_teaches_nothing() {
        let mut auto = Auto::new(limits());
        let warm = Batch {
            elapsed_ns: BATCH_NS,
            files: 5_000,
            hits: 5_000,
            bytes: 5_000 << 12,
            idle: 0.01,
            ..Batch::default()
        };
        for _ in 0..1_000 {
            assert_eq!(auto.observe(&warm), None);
        }
        assert_eq!(auto.window(), 512);
    }

    #[test]
    fn other_limits_stop_the_search() {
        let mut auto = Auto::new(limits());
        for _ in 0..1_000 {
            let all = Batch { input_limited: 0.5, ..batch(auto.window(), 4e4, 5e-4, &mut 0.0) };
            assert_eq!(auto.observe(&all), None);
            let all = Batch { memory_limited: 0.5, ..batch(auto.window(), 4e4, 5e-4, &mut 0.0) };
            assert_eq!(auto.observe(&all), None);
        }
    }

    #[test]
    fn short_jobs_do_not_explore() {
        let mut auto = Auto::new(AutoLimits { remaining: Some(10_000), ..limits() });
        assert_eq!(after(&mut auto, 50, 40_000.0, 0.0005), 512);
    }

    #[test]
    fn files_in_memory_during_a_trial_lose_nothing() {
        let mut auto = Auto::new(limits());
        let mut done = 0.0;
        while !matches!(auto.state, State::Trial { .. }) {
            auto.observe(&batch(auto.window(), 40_000.0, 0.0005, &mut done));
        }
        let before = auto.cost();
        let warm = Batch { hits: 5_000, misses: 0, ..batch(1, 1.0, 1.0, &mut 0.0) };
        for _ in 0..1_000 {
            auto.observe(&warm);
        }
        assert_eq!(auto.cost().probing_ns, before.probing_ns);
    }

    #[test]
    fn a_refusal_among_files_in_memory_is_ignored() {
        let mut auto = Auto::new(limits());
        let refused = Batch { refused: 1, hits: 5_000, misses: 0, ..batch(1, 1.0, 1.0, &mut 0.0) };
        assert_eq!(auto.observe(&refused), None);
    }

    #[test]
    fn refusals_halve_the_window() {
        let mut auto = Auto::new(limits());
        let refused = Batch { refused: 100, ..batch(512, 2e4, 5e-4, &mut 0.0) };
        assert_eq!(auto.observe(&refused).map(|decision| decision.window), Some(256));
    }

    proptest! {
        #[test]
        fn the_window_stays_in_bounds(
            window_max in 0u32..2_000,
            prior in proptest::option::of(0u32..5_000),
            batches in proptest::collection::vec(
                (0u64..100_000_000, 0u64..10_000, -1.0f64..2.0, 0.0f64..1_000.0, 0u64..50),
                0..400,
            ),
        ) {
            let start = prior.map(|window| Prior { window });
            let mut auto = Auto::new(AutoLimits { window_max, start, ..AutoLimits::default() });
            for (elapsed_ns, misses, idle, in_flight, refused) in batches {
                let batch = Batch {
                    elapsed_ns, files: misses, misses, bytes: misses * 1_000, idle, in_flight,
                    refused, ..Batch::default()
                };
                auto.observe(&batch);
                prop_assert!(auto.window() >= 1 && auto.window() <= window_max.max(1));
            }
        }
    }
}
