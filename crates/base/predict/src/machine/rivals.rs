//! Other controllers, written from their published descriptions and constants.
//!
//! They see the same batches as `Auto`. Where a rule needs the latency of requests, it is what
//! Little's law gives for the batch: requests in flight × time / completions. Each rule is applied
//! once per batch that has completions, unless it has an interval.

use ioloom_control::{Auto, AutoLimits, Batch, Decision, Phase, Reason, Tuner};

/// Most requests in flight or ready in all runs.
pub const WINDOW_MAX: u32 = 1024;

/// Names of all controllers, `auto` first.
pub const NAMES: [&str; 10] = [
    "auto",
    "fixed 32",
    "fixed 64",
    "fixed 256",
    "fixed 512",
    "gradient2",
    "vegas",
    "hill climbing",
    "bbr-like",
    "plateau",
];

/// Creates a controller by name for a job of `files` files on `cores` cores.
pub fn create(name: &str, cores: u32, files: u64) -> Option<Box<dyn Tuner>> {
    Some(match name {
        "auto" => Box::new(Auto::new(AutoLimits {
            window_max: WINDOW_MAX,
            permits: cores,
            remaining: Some(files),
            ..AutoLimits::default()
        })),
        "fixed 32" => Box::new(Fixed::new(32)),
        "fixed 64" => Box::new(Fixed::new(64)),
        "fixed 256" => Box::new(Fixed::new(256)),
        "fixed 512" => Box::new(Fixed::new(512)),
        "gradient2" => Box::new(Gradient2::default()),
        "vegas" => Box::new(Vegas::default()),
        "hill climbing" => Box::new(HillClimbing::default()),
        "bbr-like" => Box::new(BbrLike::default()),
        "plateau" => Box::new(Plateau::default()),
        _ => return None,
    })
}

/// Returns the mean latency of a batch in nanoseconds.
fn latency_ns(batch: &Batch) -> Option<f64> {
    (batch.misses > 0)
        .then(|| batch.in_flight.max(1.0) * batch.elapsed_ns as f64 / batch.misses as f64)
}

/// What all rivals have: a window between 1 and the maximum.
#[derive(Debug, Clone, Copy)]
struct Window {
    now_ns: u64,
    window: u32,
}

impl Window {
    fn new(window: u32) -> Self {
        Self { now_ns: 0, window }
    }

    fn set(&mut self, to: f64, value: f64) -> Option<Decision> {
        let from = self.window;
        self.window = (to.round().max(1.0) as u32).min(WINDOW_MAX);
        (self.window != from).then_some(Decision {
            at_ns: self.now_ns,
            from,
            window: self.window,
            phase: Phase::Hold,
            reason: Reason::Rule { value },
        })
    }
}

/// A window that never changes.
#[derive(Debug, Clone, Copy)]
pub struct Fixed(u32);

impl Fixed {
    /// Creates a window of at least 1.
    pub fn new(window: u32) -> Self {
        Self(window.max(1))
    }
}

impl Tuner for Fixed {
    fn window(&self) -> u32 {
        self.0
    }

    fn observe(&mut self, _batch: &Batch) -> Option<Decision> {
        None
    }

    fn is_fixed(&self) -> bool {
        true
    }
}

/// Netflix's Gradient2: the limit shrinks when the latency exceeds 1.5 × its long average, and else
/// grows by four. Starts at 20 and never goes below.
#[derive(Debug, Clone, Copy)]
pub struct Gradient2 {
    window: Window,
    limit: f64,
    long_ns: f64,
    seen: f64,
}

impl Default for Gradient2 {
    fn default() -> Self {
        Self { window: Window::new(20), limit: 20.0, long_ns: 0.0, seen: 0.0 }
    }
}

impl Tuner for Gradient2 {
    fn window(&self) -> u32 {
        self.window.window
    }

    fn observe(&mut self, batch: &Batch) -> Option<Decision> {
        self.window.now_ns += batch.elapsed_ns;
        let short = latency_ns(batch)?;
        self.seen += 1.0;
        // The average of the first ten, then an exponential one over 600.
        let weight = if self.seen <= 10.0 { 1.0 / self.seen } else { 2.0 / 601.0 };
        self.long_ns += (short - self.long_ns) * weight;
        if self.long_ns > 2.0 * short {
            self.long_ns *= 0.95;
        }
        if batch.in_flight < self.limit / 2.0 {
            return None;
        }
        let gradient = (1.5 * self.long_ns / short).clamp(0.5, 1.0);
        let new = self.limit * gradient + 4.0;
        self.limit = (0.8 * self.limit + 0.2 * new).clamp(20.0, f64::from(WINDOW_MAX));
        self.window.set(self.limit, gradient)
    }
}

/// Netflix's Vegas: the part of the limit that queues, estimated from the smallest latency seen.
#[derive(Debug, Clone, Copy)]
pub struct Vegas {
    window: Window,
    limit: f64,
    least_ns: f64,
    samples: f64,
}

impl Default for Vegas {
    fn default() -> Self {
        Self { window: Window::new(20), limit: 20.0, least_ns: f64::INFINITY, samples: 0.0 }
    }
}

impl Tuner for Vegas {
    fn window(&self) -> u32 {
        self.window.window
    }

    fn observe(&mut self, batch: &Batch) -> Option<Decision> {
        self.window.now_ns += batch.elapsed_ns;
        let latency = latency_ns(batch)?;
        self.samples += batch.misses as f64;
        // The smallest latency is forgotten after 30 × limit samples.
        if self.samples > 30.0 * self.limit {
            self.samples = 0.0;
            self.least_ns = latency;
        }
        self.least_ns = self.least_ns.min(latency);
        if batch.in_flight < self.limit / 2.0 {
            return None;
        }
        let queue = (self.limit * (1.0 - self.least_ns / latency)).ceil();
        let step = self.limit.log10().max(1.0);
        self.limit += if queue <= step {
            6.0 * step
        } else if queue < 3.0 * step {
            step
        } else if queue > 6.0 * step {
            -step
        } else {
            0.0
        };
        self.limit = self.limit.clamp(1.0, f64::from(WINDOW_MAX));
        self.window.set(self.limit, queue)
    }
}

/// Samples of the hill climbing, eight periods of four.
const WAVES: usize = 32;
/// Length of a sample in nanoseconds.
const WAVE_NS: u64 = 10_000_000;

/// The hill climbing of .NET's thread pool: a square wave on the number, and steps in proportion to
/// what the throughput shows of it. At most four per second and per unit of gain.
#[derive(Debug, Clone)]
pub struct HillClimbing {
    window: Window,
    base: f64,
    history: Vec<(f64, f64)>,
    samples: usize,
    sample_ns: u64,
    done: u64,
}

impl Default for HillClimbing {
    fn default() -> Self {
        Self {
            window: Window::new(2),
            base: 2.0,
            history: Vec::new(),
            samples: 0,
            sample_ns: 0,
            done: 0,
        }
    }
}

impl HillClimbing {
    /// Returns the component of the last samples with a period of four, relative to their mean.
    fn wave(&self, of: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let n = self.history.len() as f64;
        let mean = self.history.iter().map(&of).sum::<f64>() / n;
        let first = self.samples - self.history.len();
        let mut sum = (0.0, 0.0);
        for (i, sample) in self.history.iter().enumerate() {
            match (first + i) % 4 {
                0 => sum.0 += of(sample),
                1 => sum.1 += of(sample),
                2 => sum.0 -= of(sample),
                _ => sum.1 -= of(sample),
            }
        }
        let scale = 2.0 / n / mean.max(f64::MIN_POSITIVE);
        (sum.0 * scale, sum.1 * scale)
    }
}

impl Tuner for HillClimbing {
    fn window(&self) -> u32 {
        self.window.window
    }

    fn observe(&mut self, batch: &Batch) -> Option<Decision> {
        self.window.now_ns += batch.elapsed_ns;
        self.sample_ns += batch.elapsed_ns;
        self.done += batch.files;
        if self.sample_ns < WAVE_NS || self.done == 0 {
            return None;
        }
        let seconds = self.sample_ns as f64 / 1e9;
        let rate = self.done as f64 / seconds;
        (self.sample_ns, self.done) = (0, 0);
        if self.history.len() == WAVES {
            self.history.remove(0);
        }
        self.history.push((f64::from(self.window.window), rate));
        self.samples += 1;
        let mut step = 0.0;
        if self.history.len() >= 8 {
            let (count, through) = (self.wave(|s| s.0), self.wave(|s| s.1));
            let power = count.0 * count.0 + count.1 * count.1;
            if power > 0.0 {
                // Gain of throughput per gain of the number, of which 0.15 is the least wanted.
                let ratio = (through.0 * count.0 + through.1 * count.1) / power - 0.15;
                let confidence = (power.sqrt() * 8.0).min(1.0);
                let ratio = ratio.clamp(-1.0, 1.0);
                step = ratio.signum() * ratio * ratio * confidence * 4.0 * seconds.max(0.25);
            }
            if step > 0.0 && batch.idle < 0.05 {
                step = 0.0;
            }
        }
        self.base = (self.base + step.clamp(-20.0, 20.0)).clamp(1.0, f64::from(WINDOW_MAX));
        // The wave: two samples up, two samples not.
        let up = if self.samples % 4 < 2 { (self.base * 0.15).max(1.0) } else { 0.0 };
        self.window.set(self.base + up, step)
    }
}

/// A controller like that of Polars for object stores, itself like BBR: the highest rate ever seen ×
/// a latency, with phases. Its own comments say that the highest rate never decays.
#[derive(Debug, Clone, Copy)]
pub struct BbrLike {
    window: Window,
    rate: f64,
    least_ns: f64,
    mean_ns: f64,
    ramping: bool,
    since_ns: u64,
    stalled: u32,
}

impl Default for BbrLike {
    fn default() -> Self {
        Self {
            window: Window::new(16),
            rate: 0.0,
            least_ns: f64::INFINITY,
            mean_ns: 0.0,
            ramping: true,
            since_ns: 0,
            stalled: 0,
        }
    }
}

impl Tuner for BbrLike {
    fn window(&self) -> u32 {
        self.window.window
    }

    fn observe(&mut self, batch: &Batch) -> Option<Decision> {
        self.window.now_ns += batch.elapsed_ns;
        self.since_ns += batch.elapsed_ns;
        let latency = latency_ns(batch)?;
        self.least_ns = self.least_ns.min(latency);
        self.mean_ns =
            if self.mean_ns == 0.0 { latency } else { 0.9 * self.mean_ns + 0.1 * latency };
        let rate = batch.misses as f64 / batch.elapsed_ns as f64;
        let grew = rate > 1.25 * self.rate;
        self.rate = self.rate.max(rate);
        if self.ramping {
            // Three batches without growth end the ramp.
            self.stalled = if grew { 0 } else { self.stalled + 1 };
            self.ramping = self.stalled < 3;
            return self.window.set((f64::from(self.window.window) * 1.25 + 1.0).min(512.0), rate);
        }
        // One second of four probes upward.
        let gain = if self.since_ns % 4_000_000_000 > 3_000_000_000 { 1.25 } else { 1.0 };
        let budget = self.rate * self.mean_ns.min(10.0 * self.least_ns) * gain;
        self.window.set(budget.min(512.0), rate)
    }
}

/// A slow start that adds 32 while throughput grows by a tenth, and then keeps the plateau; AWS's
/// transfer manager had it with windows of 0.3 s.
#[derive(Debug, Clone, Copy)]
pub struct Plateau {
    window: Window,
    best: f64,
    step_ns: u64,
    bytes: f64,
    ended: bool,
}

impl Default for Plateau {
    fn default() -> Self {
        Self { window: Window::new(32), best: 0.0, step_ns: 0, bytes: 0.0, ended: false }
    }
}

impl Tuner for Plateau {
    fn window(&self) -> u32 {
        self.window.window
    }

    fn observe(&mut self, batch: &Batch) -> Option<Decision> {
        self.window.now_ns += batch.elapsed_ns;
        self.step_ns += batch.elapsed_ns;
        self.bytes += batch.bytes as f64;
        if self.ended || self.step_ns < 300_000_000 {
            return None;
        }
        let rate = self.bytes / self.step_ns as f64;
        (self.step_ns, self.bytes) = (0, 0.0);
        if rate > 1.1 * self.best {
            self.best = rate;
            return self.window.set(f64::from(self.window.window) + 32.0, rate);
        }
        self.ended = true;
        self.window.set((f64::from(self.window.window) - 32.0).max(32.0), rate)
    }
}
