//! The number of threads that walk a tree.
//!
//! Threads that wait for a device cost nothing and overlap its latencies. Computing threads in
//! excess of the available cores only preempt each other. So the share of time that workers are
//! blocked decides whether to try more workers, and the entry rate decides whether to keep them:
//!
//! ```text
//! start with the cores ─► blocked < 10 % ─► stay (warm: the processors are the limit), unless
//!        │                   they wait for each other: halve while fewer are faster
//!        │ blocked ≥ 10 %
//!        ▼
//! jump to 2 × cores ÷ (1 − blocked), at most 8 per core or 16 ─► processors busy: stay
//!        │                              else double while the rate rises by more than 5 %
//!        │ it does not: one step back, then halve while fewer are faster (a seeking disk)
//!        ▼
//! settled ─► watch: the cores would be blocked < 10 % for long → the cores again
//!                   rate changed by 2 → climb again
//!                   fewer than the cores, not blocked → try twice as many now and then
//! ```
//!
//! If only one worker at a time can change a shared structure, the walk starts with one worker
//! ([`WalkController::starting_with_one`]). Two are tried after [`ALONE_NS`]; short walks are over
//! by then. If it waits for a device, as many start as keep the cores busy, and more only if they are
//! blocked for most of the time, because they also wait for each other.
//!
//! The first jump needs no comparison because a blocked worker proves that there is latency to
//! overlap. Workers that are not blocked compute or wait for a processor; if there are more than
//! [`BUSY_LEAST`] of them per core, no other number could be faster and none is tried. Other steps
//! compare windows of at least [`COMPARE_NS`]. Waiting for other workers proves nothing: two
//! workers that contend for a lock can be faster or slower than one. So a smaller number is tried
//! once, in windows of [`FEWER_NS`], because a walk that does not wait for a device finishes
//! quickly, and is kept if it is faster than the larger number before and after it. As the reason can end,
//! twice as many are tried after [`PAUSE_NS`], and later after longer pauses.
//!
//! The `rotational` flag of the disk is ignored because virtual disks often report it incorrectly.

use crate::batch::Batch;

/// Share of blocked time below which the processors are the bottleneck.
const BLOCKED_LEAST: f64 = 0.10;

/// The same for more workers than keep the cores busy, where only one at a time can change a shared
/// structure.
const BLOCKED_MOST: f64 = 0.5;

/// Workers per core that compute or wait for a processor; with this many, the cores are never idle.
const BUSY_LEAST: f64 = 1.5;

/// Minimum gain to keep a step up.
const GAIN_LEAST: f64 = 1.05;

/// Minimum gain to keep a step up when the lower number is measured again: two windows of equal
/// length differ less.
const AGAIN_LEAST: f64 = 1.03;

/// Minimum gain to keep a step down; smaller gains are within the noise between two measurements.
const DOWN_GAIN_LEAST: f64 = 1.02;

/// Window before the first jump, in nanoseconds and entries.
const FIRST_NS: u64 = 8_000_000;
const FIRST_ENTRIES: u64 = 64;

/// Window of a comparison, in nanoseconds.
pub(crate) const COMPARE_NS: u64 = 60_000_000;

/// Share of time spent waiting for other workers below which fewer workers are not tried.
const LOCKED_LEAST: f64 = 0.25;

/// Minimum gain to keep fewer workers when workers waited for each other. Large because the windows
/// are short.
const FEWER_GAIN_LEAST: f64 = 1.05;

/// Window of such a comparison, in nanoseconds.
const FEWER_NS: u64 = 30_000_000;

/// Time that a single worker walks before a second one is tried, in nanoseconds.
const ALONE_NS: u64 = 100_000_000;

/// Time ignored after a change, while threads start and queues fill, in nanoseconds.
const SETTLE_NS: u64 = 10_000_000;

/// Number of consecutive windows that must agree before a settled controller changes.
const AGREE: u32 = 3;

/// Time until twice as many are tried if fewer workers than cores are kept, in nanoseconds; doubled
/// after each trial in vain.
const PAUSE_NS: u64 = 1_000_000_000;
const PAUSE_NS_MAX: u64 = 64_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// One worker per core, not blocked so far.
    Warm,
    /// Deliberately one worker, not blocked; measuring its rate.
    Alone,
    /// One worker per core, waiting for each other; measuring their rate.
    Crowded,
    /// Trying fewer than `from` workers, which waited for each other and reached `rate`.
    Fewer { from: u32, rate: f64 },
    /// Measuring the larger number again after `fewer` seemed faster at `rate`, waiting for each
    /// other for the share `locked`.
    Again { fewer: u32, rate: f64, locked: f64 },
    /// After the first jump or a doubling; `from` fewer workers reached `rate` before.
    Up { from: u32, rate: f64 },
    /// Measuring fewer workers again after a step up to `tried` seemed no faster.
    Back { tried: u32, rate: f64 },
    /// Trying fewer than `from` workers, which reached `rate`.
    Down { from: u32, rate: f64 },
    /// Keeping the number of workers that reached `rate`.
    Settled { rate: f64 },
}

/// Decides the number of workers. The `idle` field of a batch is the share of time that workers
/// were blocked by a device.
#[derive(Debug, Clone)]
pub struct WalkController {
    cores: u32,
    most: u32,
    workers: u32,
    state: State,
    seen: Batch,
    settle_ns: u64,
    odd: u32,
    /// Whether fewer workers than cores were tried because the workers waited for each other.
    fewer_tried: bool,
    /// Whether only one worker at a time can change a shared structure.
    one_at_a_time: bool,
    /// The number of workers that was kept last.
    kept: u32,
    /// Pause before twice as many are tried, and what is left until then.
    pause_ns: u64,
    left_ns: u64,
    why: String,
}

impl WalkController {
    /// Creates a controller for `cores` usable cores and at most `most` workers.
    pub fn new(cores: u32, most: u32) -> Self {
        let most = most.max(1);
        let cores = cores.clamp(1, most);
        let why = format!("{} on {cores} usable cores, not measured yet", threads(cores));
        Self {
            cores,
            most,
            workers: cores,
            state: State::Warm,
            seen: Batch::default(),
            settle_ns: 0,
            odd: 0,
            fewer_tried: false,
            one_at_a_time: false,
            kept: 0,
            pause_ns: PAUSE_NS,
            left_ns: PAUSE_NS,
            why,
        }
    }

    /// Starts with a single worker because others would only wait for it.
    pub fn starting_with_one(mut self) -> Self {
        self.workers = 1;
        self.one_at_a_time = true;
        self.why = "1 thread, because only one at a time can change the tree".to_owned();
        self
    }

    /// Returns the current number of workers.
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// Adds a batch to the window. Returns true once the window is complete.
    fn complete(&mut self, batch: &Batch) -> bool {
        if self.settle_ns > 0 {
            self.settle_ns = self.settle_ns.saturating_sub(batch.elapsed_ns.max(1));
            return false;
        }
        let (old, new) = (self.seen.elapsed_ns as f64, batch.elapsed_ns as f64);
        if old + new > 0.0 {
            let merged = |a: f64, b: f64| (a * old + b * new) / (old + new);
            self.seen.idle = merged(self.seen.idle, batch.idle);
            self.seen.locked = merged(self.seen.locked, batch.locked);
        }
        self.seen.elapsed_ns += batch.elapsed_ns;
        self.seen.files += batch.files;
        let long = match self.state {
            State::Warm => FIRST_NS,
            State::Crowded | State::Fewer { .. } | State::Again { .. } => FEWER_NS,
            State::Alone => ALONE_NS,
            _ => COMPARE_NS,
        };
        // A long time without any completion is a result, too.
        let many = self.seen.files >= FIRST_ENTRIES || self.seen.elapsed_ns >= 10 * long;
        self.seen.elapsed_ns >= long && many
    }

    /// Reports whether enough unblocked workers exist to keep all cores busy.
    fn busy(&self, blocked: f64) -> bool {
        f64::from(self.workers) * (1.0 - blocked) >= BUSY_LEAST * f64::from(self.cores)
    }

    fn go(&mut self, workers: u32, state: State) {
        self.workers = workers.clamp(1, self.most);
        self.state = state;
        self.settle_ns = SETTLE_NS;
        self.odd = 0;
    }

    fn settle(&mut self, workers: u32, rate: f64, why: String) {
        self.why = why;
        // A trial that ends with the number before it was in vain.
        let pause_ns = if workers == self.kept { self.pause_ns * 2 } else { PAUSE_NS };
        self.pause_ns = pause_ns.min(PAUSE_NS_MAX);
        (self.kept, self.left_ns) = (workers, self.pause_ns);
        self.go(workers, State::Settled { rate });
    }

    /// Returns the number of workers to jump to from one per core: twice as many as keep the cores
    /// busy if each is blocked for this share of the time, and at most 8 per core. Of workers that also
    /// wait for each other, only as many as keep the cores busy.
    fn first_jump(&self, blocked: f64) -> u32 {
        let busy = f64::from(self.cores) / (1.0 - blocked).max(0.01);
        let most = (self.cores * 8).max(16).min(self.most);
        let wanted = if self.one_at_a_time { busy.floor() } else { (2.0 * busy).ceil() };
        (wanted as u32).min(most)
    }

    fn warm(&mut self, blocked: f64, locked: f64, rate: f64) {
        let first = self.first_jump(blocked);
        if blocked < BLOCKED_LEAST || first <= self.workers {
            return self.stay(blocked, locked);
        }
        let from = self.workers;
        self.why =
            format!("{}: {} were blocked {} of the time", threads(first), from, percent(blocked));
        self.go(first, State::Up { from, rate });
    }

    /// Stays at one worker per core because nothing waits for a device, or no more are allowed.
    fn stay(&mut self, blocked: f64, locked: f64) {
        if blocked >= BLOCKED_LEAST && self.workers == self.most {
            self.why = format!(
                "{}: no more are allowed, although they were blocked {} of the time",
                threads(self.workers),
                percent(blocked),
            );
            return;
        }
        if self.fewer_tried {
            return;
        }
        if self.workers < self.cores {
            return self.go(self.workers, State::Alone);
        }
        let so = match blocked < BLOCKED_LEAST {
            true => "so more would be no faster",
            false => "but also wait for each other",
        };
        self.why = format!(
            "{}, one per usable core: they were blocked {} of the time, {so}",
            threads(self.workers),
            percent(blocked),
        );
        if blocked < BLOCKED_LEAST && locked >= LOCKED_LEAST && self.workers > 1 {
            self.fewer_tried = true;
            self.go(self.workers, State::Crowded);
        }
    }

    fn try_fewer(&mut self, rate: f64) {
        let from = self.workers;
        self.go(from.div_ceil(2), State::Fewer { from, rate });
    }

    fn fewer(&mut self, from: u32, before: f64, blocked: f64, locked: f64, rate: f64) {
        let now = self.workers;
        let gain = rate / before.max(f64::MIN_POSITIVE);
        if blocked >= BLOCKED_LEAST || gain <= FEWER_GAIN_LEAST {
            self.why = format!(
                "{}: they waited for each other, but {now} gave {:+.0} % entries/s",
                threads(from),
                (gain - 1.0) * 100.0,
            );
            // Still warm: waiting for a device would be detected immediately.
            let state =
                if from == self.cores { State::Warm } else { State::Settled { rate: before } };
            return self.go(from, state);
        }
        // A file system can change its speed from one window to the next, so measure the larger
        // number before and after.
        self.go(from, State::Again { fewer: now, rate, locked });
    }

    fn again(&mut self, fewer: u32, then: f64, locked: f64, rate: f64) {
        let now = self.workers;
        let gain = then / rate.max(f64::MIN_POSITIVE);
        if gain <= FEWER_GAIN_LEAST {
            self.why = format!(
                "{}: they waited for each other, but {fewer} gave {:+.0} % entries/s",
                threads(now),
                (gain - 1.0) * 100.0,
            );
            let state = if now == self.cores { State::Warm } else { State::Settled { rate } };
            return self.go(now, state);
        }
        let why = format!(
            "{}: {:+.0} % entries/s from {now}, which waited for each other",
            threads(fewer),
            (gain - 1.0) * 100.0,
        );
        self.settle(fewer, then, why);
        if locked >= LOCKED_LEAST && fewer > 1 {
            self.try_fewer(then);
        }
    }

    fn up(&mut self, from: u32, before: f64, blocked: f64, rate: f64) {
        let gain = rate / before.max(f64::MIN_POSITIVE);
        let now = self.workers;
        if gain > GAIN_LEAST && self.busy(blocked) {
            let why = format!("{}: they keep the {} usable cores busy", threads(now), self.cores);
            return self.settle(now, rate, why);
        }
        let least = if self.one_at_a_time { BLOCKED_MOST } else { BLOCKED_LEAST };
        if gain > GAIN_LEAST && now < self.most && blocked >= least {
            self.why = format!(
                "{}: {} were blocked {} of the time, {:+.0} % entries/s from {from}",
                threads(now),
                now,
                percent(blocked),
                (gain - 1.0) * 100.0,
            );
            return self.go((now * 2).min(self.most), State::Up { from: now, rate });
        }
        if gain > GAIN_LEAST {
            let why = format!(
                "{}: blocked {} of the time, {:+.0} % entries/s from {from}",
                threads(now),
                percent(blocked),
                (gain - 1.0) * 100.0,
            );
            return self.settle(now, rate, why);
        }
        self.why =
            format!("{}: {now} gave {:+.0} % entries/s", threads(from), (gain - 1.0) * 100.0);
        // The rates come from different times, so measure the lower number again.
        self.go(from, State::Back { tried: now, rate });
    }

    fn back(&mut self, tried: u32, then: f64, blocked: f64, rate: f64) {
        let now = self.workers;
        let gain = then / rate.max(f64::MIN_POSITIVE);
        if gain > AGAIN_LEAST {
            let why =
                format!("{}: {:+.0} % entries/s from {now}", threads(tried), (gain - 1.0) * 100.0);
            return self.settle(tried, then, why);
        }
        if blocked >= BLOCKED_LEAST && now > 2 && !self.busy(blocked) {
            return self.go(now.div_ceil(2), State::Down { from: now, rate });
        }
        let why = self.why.clone();
        self.settle(now, rate, why);
    }

    fn down(&mut self, from: u32, before: f64, blocked: f64, rate: f64) {
        let change = rate / before.max(f64::MIN_POSITIVE);
        let now = self.workers;
        if change < DOWN_GAIN_LEAST {
            let why = format!("{}: neither more nor fewer were faster", threads(from));
            return self.settle(from, before, why);
        }
        if now > 2 && blocked >= BLOCKED_LEAST {
            return self.go(now.div_ceil(2), State::Down { from: now, rate });
        }
        let why =
            format!("{}: {:+.0} % entries/s from {from}", threads(now), (change - 1.0) * 100.0,);
        self.settle(now, rate, why);
    }

    /// Returns the share of time that one worker per core would be blocked if the present ones are
    /// blocked for this share: of more workers, some also wait for a core.
    fn blocked_of_cores(&self, blocked: f64) -> f64 {
        let per_core = f64::from(self.workers) / f64::from(self.cores);
        let (waits, works) = (per_core * blocked, (per_core * (1.0 - blocked)).min(1.0));
        waits / (waits + works)
    }

    fn settled(&mut self, reference: f64, blocked: f64, rate: f64, elapsed_ns: u64) {
        let calm = self.workers > self.cores && self.blocked_of_cores(blocked) < BLOCKED_LEAST;
        let few = self.workers < self.cores && blocked < BLOCKED_LEAST;
        let other = !(reference / 2.0..=reference * 2.0).contains(&rate);
        let more = few || (blocked >= BLOCKED_LEAST && self.workers < self.most);
        self.odd = if calm || (other && more) { self.odd + 1 } else { 0 };
        if few {
            self.left_ns = self.left_ns.saturating_sub(elapsed_ns);
        }
        if self.odd < AGREE && !(few && self.left_ns == 0) {
            return;
        }
        if calm {
            self.why = format!(
                "{}, one per usable core: blocked {} of the time at the end",
                threads(self.cores),
                percent(blocked),
            );
            return self.go(self.cores, State::Warm);
        }
        let from = self.workers;
        // Without anything that blocks, more than the cores would be no faster.
        let most = if few { self.cores } else { self.most };
        self.go((from * 2).min(most), State::Up { from, rate });
    }
}

impl WalkController {
    /// Takes the next batch and returns the new number of workers.
    pub fn decide(&mut self, batch: &Batch) -> u32 {
        if !self.complete(batch) {
            return self.workers;
        }
        let seen = std::mem::take(&mut self.seen);
        let blocked = seen.idle.clamp(0.0, 1.0);
        let locked = seen.locked.clamp(0.0, 1.0);
        let rate = seen.files as f64 * 1e9 / seen.elapsed_ns as f64;
        match self.state {
            State::Warm => self.warm(blocked, locked, rate),
            State::Crowded if blocked < BLOCKED_LEAST => self.try_fewer(rate),
            State::Crowded => self.go(self.workers, State::Warm),
            State::Alone if blocked < BLOCKED_LEAST => self.go(2, State::Up { from: 1, rate }),
            State::Alone => self.go(self.workers, State::Warm),
            State::Fewer { from, rate: before } => {
                self.fewer(from, before, blocked, locked, rate);
            }
            State::Again { fewer, rate: then, locked } => self.again(fewer, then, locked, rate),
            State::Up { from, rate: before } => self.up(from, before, blocked, rate),
            State::Back { tried, rate: then } => self.back(tried, then, blocked, rate),
            State::Down { from, rate: before } => self.down(from, before, blocked, rate),
            State::Settled { rate: reference } => {
                self.settled(reference, blocked, rate, seen.elapsed_ns);
            }
        }
        self.workers
    }

    /// Returns the reason for the number of workers, in one sentence.
    pub fn why(&self) -> String {
        self.why.clone()
    }
}

fn threads(count: u32) -> String {
    if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests;
