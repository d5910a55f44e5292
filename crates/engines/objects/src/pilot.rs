//! Adjusts the number of requests in flight while a run proceeds, and finds what limits it.
//!
//! It starts low and doubles until the number of [`Auto`] is reached: a server that limits the rate
//! counts every request, also refused ones, and an allowance for bursts hides its limit. While the
//! pace limits requests, the number in flight has no effect, and `Auto` learns nothing.

use crate::gate::{Counts, Gate, Waiting};
use crate::options::Options;
use ioloom_control::{Auto, AutoLimits, BATCH_NS, Batch, Gather, slow_start};
use ioloom_model::record::Bottleneck;
use ioloom_model::units::{format_count, format_counted};
use ioloom_model::{Decided, Tuned, TunedPoint};
use ioloom_sys::proc::{self, UsageOf};
use std::time::Duration;

/// Interval of decisions.
pub(crate) const INTERVAL: Duration = Duration::from_nanos(BATCH_NS);
/// Idle share of the processors below which they limit a run.
const IDLE_LEAST: f64 = 0.1;

/// The controller of a run, and samples of what requests waited for.
pub(crate) struct Pilot {
    auto: Auto,
    gather: Gather,
    fixed: Option<u32>,
    permits: u32,
    /// Most requests in flight that the limit on open files permits.
    most: u32,
    before: (u64, u64, Counts, u64),
    /// Samples by what was waited for, and of idle processors.
    waits: [u64; 5],
    idle: f64,
    samples: u64,
    in_flight: f64,
}

impl Pilot {
    /// `most`: requests in flight that the limit on open files permits.
    pub(crate) fn new(options: &Options<'_>, most: u32) -> Self {
        let auto = Auto::new(AutoLimits {
            window_max: options.window_max,
            permits: options.threads,
            polite: options.polite,
            ..AutoLimits::default()
        });
        Self {
            auto,
            gather: Gather::default(),
            fixed: options.window,
            permits: options.threads.max(1),
            most: most.max(1),
            before: (0, 0, Counts::default(), 0),
            waits: [0; 5],
            idle: 0.0,
            samples: 0,
            in_flight: 0.0,
        }
    }

    /// Returns the number of requests that may be in flight at a time.
    pub(crate) fn limit(&self, now_ns: u64, paced: bool) -> u32 {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        let window = self.auto.window().min(self.most);
        if paced { window } else { window.min(slow_start(now_ns)) }
    }

    /// Takes the state of a run after `objects` were processed, and sets the limit.
    pub(crate) fn tick(&mut self, gate: &Gate, objects: u64) {
        let now_ns = gate.now_ns();
        let (counts, in_flight, waiting, rate) = gate.look();
        let cpu_ns =
            proc::usage(UsageOf::Process).map_or(0, |usage| usage.user_ns + usage.system_ns);
        let (before_ns, before_cpu_ns, before, before_objects) = self.before;
        self.before = (now_ns, cpu_ns, counts, objects);
        let elapsed_ns = now_ns.saturating_sub(before_ns);
        let area_ns = (elapsed_ns * u64::from(self.permits)).max(1) as f64;
        let idle = (1.0 - cpu_ns.saturating_sub(before_cpu_ns) as f64 / area_ns).clamp(0.0, 1.0);
        let limit = self.limit(now_ns, rate.is_some());
        gate.set_limit(limit);
        // The first sample would include the start of the process.
        if before_cpu_ns == 0 {
            return;
        }
        self.waits[waiting as usize] += 1;
        (self.idle, self.samples) = (self.idle + idle, self.samples + 1);
        self.in_flight += f64::from(in_flight);
        let ramps = limit < self.auto.window();
        let batch = Batch {
            elapsed_ns,
            files: objects - before_objects,
            idle,
            bytes: counts.bytes - before.bytes,
            misses: counts.answered - before.answered,
            in_flight: f64::from(in_flight),
            // Neither is a limit that more requests in flight would move.
            input_limited: f64::from(u8::from(
                ramps || matches!(waiting, Waiting::List | Waiting::Pace),
            )),
            memory_limited: f64::from(u8::from(waiting == Waiting::Memory)),
            ..Batch::default()
        };
        if self.fixed.is_none()
            && let Some(batch) = self.gather.add(&batch, self.auto.window())
        {
            self.auto.observe(&batch);
        }
    }

    /// Returns the mean number of requests in flight.
    pub(crate) fn in_flight_mean(&self) -> f64 {
        self.in_flight / self.samples.max(1) as f64
    }

    /// Returns what limited the run.
    pub(crate) fn bottleneck(&self, gate: &Gate) -> Bottleneck {
        let (counts, _, _, rate) = gate.look();
        let samples = self.samples.max(1) as f64;
        let share = |waiting: Waiting| self.waits[waiting as usize] as f64 / samples;
        let percent = |share: f64| (100.0 * share).round();
        let idle = self.idle / samples;
        let latency_ms = counts.latency_ns as f64 / counts.answered.max(1) as f64 / 1e6;
        let (word, sentence) = if self.samples == 0 {
            ("unknown", "the run was too short to judge".to_owned())
        } else if idle < IDLE_LEAST {
            ("compute", format!("the processors were busy {} % of the time", percent(1.0 - idle)))
        } else if let (true, Some(rate)) = (share(Waiting::Pace) > 0.3, rate) {
            let rate = format_count(rate.round() as u64);
            (
                "object store",
                format!(
                    "it refuses more than about {rate} requests/s; raise its limit, or spread \
                         keys over more prefixes"
                ),
            )
        } else if share(Waiting::Memory) > 0.3 {
            let share = percent(share(Waiting::Memory));
            ("memory", format!("requests waited for the memory budget {share} % of the time"))
        } else if share(Waiting::List) > 0.5 {
            let share = percent(share(Waiting::List));
            ("input list", format!("requests waited for the listing {share} % of the time"))
        } else if counts.answered == 0 {
            ("unknown", "no object was read".to_owned())
        } else {
            let mean = self.in_flight_mean().round() as u64;
            let requests = format_counted(mean, "request", "requests");
            (
                "object store",
                format!(
                    "{requests} in flight took {latency_ms:.1} ms each, and the \
                         processors were idle {} % of the time",
                    percent(idle)
                ),
            )
        };
        Bottleneck { word: word.to_owned(), sentence, ..Bottleneck::default() }
    }

    /// Returns what the controller did.
    pub(crate) fn tuned(&self, gate: &Gate) -> Option<Tuned> {
        if self.fixed.is_some() {
            return None;
        }
        let (log, cost) = (self.auto.log(), self.auto.cost());
        let decided = |decision: &ioloom_control::Decision| Decided {
            at_ns: decision.at_ns,
            from: decision.from,
            window: decision.window,
            reason: decision.reason.to_string(),
        };
        let points = log.points().iter().map(|point| TunedPoint {
            at_ns: point.at_ns,
            elapsed_ns: point.elapsed_ns,
            window: point.window,
            in_flight: point.in_flight,
            files_per_s: point.files_per_s,
            bytes_per_s: point.bytes_per_s,
            idle: point.idle,
        });
        let rate = gate.look().3;
        let (limit, window) = (self.limit(gate.now_ns(), rate.is_some()), self.auto.window());
        let why = match rate {
            Some(rate) => format!("at most {rate:.0} requests/s: the server refused more"),
            None if limit < window && limit == self.most => {
                format!("at most {limit} in flight: the limit on open files permits no more")
            }
            None if limit < window => {
                let first = slow_start(0).min(window);
                format!("at most {limit} in flight: the limit rises from {first} at the start")
            }
            None => self.auto.why(),
        };
        Some(Tuned {
            why,
            decisions: log.decisions().map(decided).collect(),
            decisions_dropped: log.dropped(),
            points: points.collect(),
            probing_ns: cost.probing_ns,
            choice_ns: cost.choice_ns,
            priority: None,
        })
    }
}
