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
//! settled ─► watch: blocked < 10 % for long → the cores again; rate changed by 2 → climb again
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
//! quickly, and is kept if it is faster than the larger number before and after it. The `rotational` flag of the disk is ignored because virtual disks often report it
//! incorrectly.

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

    /// Stays at one worker per core because nothing waits for a device.
    fn stay(&mut self, blocked: f64, locked: f64) {
        if self.fewer_tried {
            return;
        }
        if self.workers < self.cores {
            return self.go(self.workers, State::Alone);
        }
        self.why = format!(
            "{}, one per usable core: they were blocked {} of the time, so more would be no faster",
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

    fn settled(&mut self, reference: f64, blocked: f64, rate: f64) {
        let calm = blocked < BLOCKED_LEAST && self.workers > self.cores;
        let other = !(reference / 2.0..=reference * 2.0).contains(&rate);
        let more = blocked >= BLOCKED_LEAST && self.workers < self.most;
        self.odd = if calm || (other && more) { self.odd + 1 } else { 0 };
        if self.odd < AGREE {
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
        self.go((from * 2).min(self.most), State::Up { from, rate });
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
            State::Settled { rate: reference } => self.settled(reference, blocked, rate),
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A medium: the seconds needed to walk a tree with 1, 2, 4 … 256 threads.
    struct Medium {
        seconds: &'static [f64],
        entries: f64,
        /// Processor seconds for the whole tree.
        cpu: f64,
    }

    impl Medium {
        /// Returns the seconds for the whole tree with `workers`, interpolated between the two
        /// nearest counts.
        fn alone(&self, workers: u32) -> f64 {
            let at = f64::from(workers).log2().clamp(0.0, (self.seconds.len() - 1) as f64);
            let low = at.floor() as usize;
            let high = (low + 1).min(self.seconds.len() - 1);
            let part = at - low as f64;
            self.seconds[low] * (1.0 - part) + self.seconds[high] * part
        }

        /// Returns the same if `cores` do all the computing.
        fn on(&self, workers: u32, cores: u32) -> f64 {
            self.alone(workers).max(self.cpu / f64::from(cores))
        }

        fn rate(&self, workers: u32, cores: u32) -> f64 {
            self.entries / self.on(workers, cores)
        }

        /// Returns the share of worker time spent waiting for the device; the rest is computing and
        /// waiting for a core.
        fn blocked(&self, workers: u32, cores: u32) -> f64 {
            let waited = self.alone(workers) * f64::from(workers) - self.cpu;
            (waited / (self.on(workers, cores) * f64::from(workers))).clamp(0.0, 1.0)
        }
    }

    /// Small generator; a seed always produces the same run.
    fn noise(random: &mut u64, size: f64) -> f64 {
        *random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        1.0 + size * ((*random >> 33) as f64 / f64::from(1u32 << 31) * 2.0 - 1.0)
    }

    /// Returns the seconds for the whole tree under the controller's control.
    fn walked(controller: &mut WalkController, medium: &Medium, random: &mut u64) -> f64 {
        let (mut left, mut seconds, mut workers) = (medium.entries, 0.0, controller.workers);
        while left > 0.0 {
            let rate = medium.rate(workers, controller.cores) * noise(random, 0.03);
            let files = (rate * 0.01).min(left);
            left -= files;
            seconds += 0.01;
            let batch = Batch {
                elapsed_ns: 10_000_000,
                files: files as u64,
                idle: medium.blocked(workers, controller.cores) * noise(random, 0.1),
                ..Batch::default()
            };
            workers = controller.decide(&batch);
            assert!((1..=256).contains(&workers));
        }
        seconds
    }

    /// The published table: one tree of 2,835,154 files on four media, with 1 to 256 threads on 16
    /// hardware threads. The processor time is that of the processor-bound run: all sixteen for six
    /// seconds.
    fn published() -> [(&'static str, Medium); 4] {
        let medium = |seconds| Medium { seconds, entries: 2_835_154.0, cpu: 34.0 };
        [
            ("nvme", medium(&[36.14, 19.0, 11.07, 7.19, 6.0, 6.06, 6.08, 6.15, 6.35])),
            (
                "hdd",
                medium(&[149.83, 110.02, 108.61, 102.38, 112.52, 124.47, 139.83, 135.01, 138.1]),
            ),
            ("usb2", medium(&[87.22, 66.68, 58.99, 54.05, 57.75, 63.22, 66.49, 66.63, 67.44])),
            ("usb3.2", medium(&[39.68, 25.27, 25.33, 22.57, 23.57, 22.46, 22.72, 25.15, 24.03])),
        ]
    }

    #[test]
    fn published_media_are_walked_near_the_best_fixed_count() {
        for (name, medium) in published() {
            for cores in [2, 4, 16] {
                let counts = (0..9).map(|power| medium.on(1 << power, cores));
                let best = counts.fold(f64::INFINITY, f64::min);
                for seed in 0..20 {
                    let mut controller = WalkController::new(cores, 256);
                    let seconds = walked(&mut controller, &medium, &mut (seed * 7 + 1));
                    let ratio = seconds / best;
                    assert!(
                        ratio < 1.10,
                        "{name} {cores} cores seed {seed}: {ratio:.3} ({})",
                        controller.why()
                    );
                }
            }
        }
    }

    #[test]
    fn warm_it_stays_with_the_cores() {
        // Processor-bound: 16 cores; more threads change nothing.
        let warm = Medium {
            seconds: &[34.0, 17.0, 8.5, 4.25, 2.2, 2.2, 2.2, 2.2, 2.3],
            entries: 2e6,
            cpu: 34.0,
        };
        for seed in 1..20 {
            let mut controller = WalkController::new(16, 256);
            walked(&mut controller, &warm, &mut (seed * 3));
            assert_eq!(controller.workers, 16);
            assert!(controller.why().contains("one per usable core"), "{}", controller.why());
        }
    }

    #[test]
    fn blocked_workers_get_company_at_once() {
        let mut controller = WalkController::new(2, 256);
        let batch = Batch { elapsed_ns: 9_000_000, files: 100, idle: 0.4, ..Batch::default() };
        // 3.3 keep both cores busy.
        assert_eq!(controller.decide(&batch), 7);
        assert!(controller.why().contains("40 %"), "{}", controller.why());
        let batch = Batch { idle: 0.9, ..batch };
        assert_eq!(WalkController::new(2, 256).decide(&batch), 16);
        assert_eq!(WalkController::new(2, 10).decide(&batch), 10);
    }

    #[test]
    fn a_tree_that_becomes_cold_is_noticed() {
        let mut controller = WalkController::new(2, 64);
        let warm = Batch { elapsed_ns: 10_000_000, files: 10_000, idle: 0.01, ..Batch::default() };
        for _ in 0..50 {
            assert_eq!(controller.decide(&warm), 2);
        }
        let cold = Batch { files: 300, idle: 0.8, ..warm };
        for _ in 0..3 {
            controller.decide(&cold);
        }
        assert!(controller.workers >= 16);
    }

    /// Runs the controller with workers that spend half of their time waiting for each other, given
    /// the rate in entries per second for each number of workers.
    fn crowd(cores: u32, rates: &[(u32, f64)], windows: usize) -> WalkController {
        crowded(WalkController::new(cores, 256), rates, windows)
    }

    fn crowded(
        mut controller: WalkController,
        rates: &[(u32, f64)],
        windows: usize,
    ) -> WalkController {
        let mut random = 7;
        for _ in 0..windows {
            let rate =
                rates.iter().find(|(workers, _)| *workers == controller.workers()).unwrap().1;
            let files = (rate * 0.01 * noise(&mut random, 0.02)) as u64;
            let locked = if controller.workers() > 1 { 0.5 } else { 0.0 };
            controller.decide(&Batch { elapsed_ns: 10_000_000, files, locked, ..Batch::default() });
        }
        controller
    }

    #[test]
    fn workers_that_wait_for_each_other_become_fewer() {
        let controller = crowd(2, &[(2, 47_000.0), (1, 57_000.0)], 16);
        assert_eq!(controller.workers(), 1, "{}", controller.why());
        assert!(controller.why().contains("waited for each other"), "{}", controller.why());
        let many = [(16, 40_000.0), (8, 60_000.0), (4, 80_000.0), (2, 70_000.0), (1, 50_000.0)];
        let controller = crowd(16, &many, 40);
        assert_eq!(controller.workers(), 4, "{}", controller.why());
    }

    #[test]
    fn a_file_system_that_becomes_faster_does_not_cost_a_worker() {
        // The rate doubles while one worker is tried, for a reason of its own.
        let mut controller = WalkController::new(2, 256);
        let mut tried = false;
        for _ in 0..40 {
            tried |= controller.workers() == 1;
            let files = if tried { 1_000 } else { 500 };
            let locked = if controller.workers() > 1 { 0.5 } else { 0.0 };
            controller.decide(&Batch { elapsed_ns: 10_000_000, files, locked, ..Batch::default() });
        }
        assert!(tried);
        assert_eq!(controller.workers(), 2, "{}", controller.why());
        assert!(controller.why().contains("but 1 gave +0 %"), "{}", controller.why());
    }

    #[test]
    fn fewer_are_tried_once_and_a_device_is_noticed_after_that() {
        let mut controller = crowd(2, &[(2, 80_000.0), (1, 60_000.0)], 100);
        assert_eq!(controller.workers(), 2, "{}", controller.why());
        assert!(controller.why().contains("but 1 gave"), "{}", controller.why());
        let cold = Batch { elapsed_ns: 20_000_000, files: 300, idle: 0.8, ..Batch::default() };
        controller.decide(&cold);
        assert_eq!(controller.decide(&cold), 16);
        // If a single worker is blocked, others are added.
        let mut controller = crowd(2, &[(2, 47_000.0), (1, 57_000.0)], 16);
        let cold = Batch { elapsed_ns: 60_000_000, ..cold };
        for _ in 0..4 {
            controller.decide(&cold);
        }
        assert!(controller.workers() > 1, "{}", controller.why());
    }

    #[test]
    fn a_single_worker_gets_company_only_if_that_is_faster() {
        let alone = || WalkController::new(4, 256).starting_with_one();
        let worse = [(1, 57_000.0), (2, 47_000.0)];
        assert_eq!(crowded(alone(), &worse, 10).workers(), 1);
        assert_eq!(crowded(alone(), &worse, 13).workers(), 2, "tried");
        let controller = crowded(alone(), &worse, 100);
        assert_eq!(controller.workers(), 1, "{}", controller.why());
        let controller = crowded(alone(), &[(1, 47_000.0), (2, 57_000.0)], 100);
        assert_eq!(controller.workers(), 2, "{}", controller.why());
        assert!(controller.why().contains("from 1"), "{}", controller.why());
        // Waiting for a device is detected here, too.
        let cold = Batch { elapsed_ns: 9_000_000, files: 100, idle: 0.4, ..Batch::default() };
        assert_eq!(alone().decide(&cold), 6, "as many as keep 4 cores busy");
    }

    #[test]
    fn workers_that_keep_the_cores_busy_are_enough() {
        let mut controller = WalkController::new(2, 256);
        let first = Batch { elapsed_ns: 9_000_000, files: 9_000, idle: 0.7, ..Batch::default() };
        assert_eq!(controller.decide(&first), 14);
        let busy = Batch { elapsed_ns: 10_000_000, files: 30_000, idle: 0.6, ..Batch::default() };
        for _ in 0..100 {
            assert_eq!(controller.decide(&busy), 14);
        }
        assert!(controller.why().contains("busy"), "{}", controller.why());
    }

    proptest! {
        #[test]
        fn the_number_stays_in_bounds(
            cores in 0u32..300,
            most in 0u32..300,
            alone: bool,
            batches in proptest::collection::vec(
                (0u64..100_000_000, 0u64..10_000, -1.0f64..2.0, -1.0f64..2.0),
                0..300,
            ),
        ) {
            let mut controller = WalkController::new(cores, most);
            if alone {
                controller = controller.starting_with_one();
            }
            for (elapsed_ns, files, idle, locked) in batches {
                let batch = Batch { elapsed_ns, files, idle, locked, ..Batch::default() };
                let workers = controller.decide(&batch);
                prop_assert!(workers >= 1 && workers <= most.max(1));
                prop_assert!(controller.why().contains("thread"));
            }
        }
    }
}
