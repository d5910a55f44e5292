//! Decisions, their reasons, and what remains of them for a report.

use std::collections::VecDeque;
use std::fmt;

/// What a controller does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Measures the present window.
    Measure,
    /// Tries a smaller window.
    Shrink,
    /// Tries a larger window.
    Grow,
    /// Keeps the window and watches for changes.
    Hold,
}

/// Why the window changed or stayed. Rates are in requests per second at the device, shares are 0
/// to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// The start value, nothing measured yet.
    Start,
    /// The start value is what an earlier run learnt.
    Learnt,
    /// The start value for a device of which at most `rate` requests per second are allowed.
    Capped {
        /// Requests per second.
        rate: f64,
    },
    /// The start value for a device of which at most `rate` bytes per second are allowed.
    CappedBytes {
        /// Bytes per second.
        rate: f64,
    },
    /// A smaller window is tried: `rate` was reached with the window `from`.
    TrySmaller {
        /// Window that reached the rate.
        from: u32,
        /// Requests per second.
        rate: f64,
    },
    /// A larger window is tried: `rate` was reached with the window `from`, and `idle` of the
    /// worker time was without work.
    TryLarger {
        /// Window that reached the rate.
        from: u32,
        /// Requests per second.
        rate: f64,
        /// Share of worker time without work.
        idle: f64,
    },
    /// The window tried is kept: it lost `loss` (negative: gained) compared with `than`.
    Kept {
        /// Window compared with.
        than: u32,
        /// Share lost.
        loss: f64,
        /// Standard error of `loss`.
        error: f64,
    },
    /// The window `tried` lost `loss` and is given up.
    Lost {
        /// Window given up.
        tried: u32,
        /// Share lost.
        loss: f64,
        /// Standard error of `loss`.
        error: f64,
    },
    /// A comparison was too uncertain; the window before is measured longer.
    Unclear {
        /// Share lost.
        loss: f64,
        /// Standard error of `loss`.
        error: f64,
    },
    /// The rate fell from `from` to `to`: the device became slower.
    Fell {
        /// Requests per second before.
        from: f64,
        /// Requests per second now.
        to: f64,
    },
    /// The rate rose from `from` to `to`: the device became faster.
    Rose {
        /// Requests per second before.
        from: f64,
        /// Requests per second now.
        to: f64,
    },
    /// The workers, busy before, now wait for the device for `idle` of their time.
    Starved {
        /// Share of worker time without work.
        idle: f64,
    },
    /// The input list, memory or the output became the limit while a larger window was tried.
    OtherLimit,
    /// The system refused `share` of the requests.
    Refused {
        /// Share of requests refused.
        share: f64,
    },
    /// A ring is compared with reads that do not wait, which reached `rate` files per second.
    TryRing {
        /// Files per second.
        rate: f64,
    },
    /// A ring is used from now on: it gained `gain` compared with reads that do not wait.
    Ring {
        /// Share gained.
        gain: f64,
        /// Standard error of `gain`.
        error: f64,
    },
    /// Reads that do not wait are kept: a ring lost `loss`, or gained too little to be sure.
    NoRing {
        /// Share lost.
        loss: f64,
        /// Standard error of `loss`.
        error: f64,
    },
    /// The comparison with a ring ended without a result.
    NoComparison,
    /// A ring gained `gain`, but one could not be created afterwards.
    RingRefused {
        /// Share gained.
        gain: f64,
    },
    /// The ring is given up: the device delivers `share` less than cold files need.
    RingHits {
        /// Share of the bytes that come from memory.
        share: f64,
    },
    /// The ring is given up because the device has changed.
    RingChanged,
    /// A rule other than those of [`Auto`](crate::Auto): a latency or a rate per second.
    Rule {
        /// What the rule compared.
        value: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| 100.0 * share;
        match *self {
            Self::Start => write!(f, "start value"),
            Self::Learnt => write!(f, "learnt in an earlier run"),
            Self::Capped { rate } => {
                write!(f, "the control group allows {rate:.0} requests/s")
            }
            Self::CappedBytes { rate } => {
                write!(f, "the control group allows {:.1} MB/s", rate / 1e6)
            }
            Self::TrySmaller { from, rate } => {
                write!(f, "{from} in flight reached {rate:.0} requests/s; fewer may be enough")
            }
            Self::TryLarger { from, rate, idle } => write!(
                f,
                "{from} in flight reached {rate:.0} requests/s and left workers idle {:.0} % of \
                 the time",
                percent(idle)
            ),
            Self::Kept { than, loss, error } => write!(
                f,
                "{:+.1} ± {:.1} % throughput compared with {than} in flight",
                -percent(loss),
                percent(error)
            ),
            Self::Lost { tried, loss, error } => write!(
                f,
                "{tried} in flight changed throughput by {:+.1} ± {:.1} %",
                -percent(loss),
                percent(error)
            ),
            Self::Unclear { loss, error } => write!(
                f,
                "{:+.1} ± {:.1} % throughput is too uncertain; measuring longer",
                -percent(loss),
                percent(error)
            ),
            Self::Fell { from, to } => {
                write!(f, "the device fell from {from:.0} to {to:.0} requests/s")
            }
            Self::Rose { from, to } => {
                write!(f, "the device rose from {from:.0} to {to:.0} requests/s")
            }
            Self::Starved { idle } => {
                write!(f, "workers became idle {:.0} % of the time", percent(idle))
            }
            Self::OtherLimit => write!(f, "the input, memory or the output became the limit"),
            Self::Refused { share } => {
                write!(f, "the system refused {:.0} % of the requests", percent(share))
            }
            Self::Rule { value } => write!(f, "rule value {value:.4}"),
            _ => self.fmt_method(f),
        }
    }
}

impl Reason {
    /// Reports whether the reason is about the method, not about the window.
    pub(crate) fn is_about_method(&self) -> bool {
        matches!(
            self,
            Self::TryRing { .. }
                | Self::Ring { .. }
                | Self::NoRing { .. }
                | Self::NoComparison
                | Self::RingRefused { .. }
                | Self::RingHits { .. }
                | Self::RingChanged
        )
    }

    /// Formats the reasons of decisions about the method.
    fn fmt_method(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| 100.0 * share;
        match *self {
            Self::TryRing { rate } => {
                write!(
                    f,
                    "{rate:.0} files/s by reads that do not wait; comparing them with io_uring"
                )
            }
            Self::Ring { gain, error } => write!(
                f,
                "{:+.1} ± {:.1} % throughput by io_uring, which is used from now on",
                percent(gain),
                percent(error)
            ),
            Self::NoRing { loss, error } => write!(
                f,
                "{:+.1} ± {:.1} % throughput by io_uring; reads that do not wait are kept",
                -percent(loss),
                percent(error)
            ),
            Self::NoComparison => write!(f, "the comparison with io_uring ended without a result"),
            Self::RingRefused { gain } => write!(
                f,
                "{:+.1} % throughput by io_uring, but a ring could not be created; reads that do \
                 not wait are used",
                percent(gain)
            ),
            Self::RingHits { share } => write!(
                f,
                "the device delivers {:.0} % fewer bytes than cold files need, so that part comes \
                 from memory; io_uring is given up",
                percent(share)
            ),
            Self::RingChanged => write!(f, "the device has changed; io_uring is given up"),
            _ => unreachable!("all other reasons are about the window"),
        }
    }
}

/// A change of the window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Nanoseconds of observed time since the start.
    pub at_ns: u64,
    /// The window before.
    pub from: u32,
    /// The new window.
    pub window: u32,
    /// What the controller does with it.
    pub phase: Phase,
    /// Why.
    pub reason: Reason,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at_ns as f64 / 1e9;
        write!(f, "{seconds:.2} s: {} → {} in flight: {}", self.from, self.window, self.reason)
    }
}

/// One point of a timeline: the mean of all batches that it covers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Point {
    /// Nanoseconds of observed time at which it begins.
    pub at_ns: u64,
    /// Its length in nanoseconds.
    pub elapsed_ns: u64,
    /// Window.
    pub window: f64,
    /// Requests at the device.
    pub in_flight: f64,
    /// Files per second.
    pub files_per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Share of worker time without work.
    pub idle: f64,
}

impl Point {
    /// Returns the time-weighted mean of two points, of which `later` follows.
    fn joined(&self, later: &Self) -> Self {
        let total = self.elapsed_ns + later.elapsed_ns;
        let part = later.elapsed_ns as f64 / (total as f64).max(1.0);
        let mean = |a: f64, b: f64| a + (b - a) * part;
        Self {
            at_ns: self.at_ns,
            elapsed_ns: total,
            window: mean(self.window, later.window),
            in_flight: mean(self.in_flight, later.in_flight),
            files_per_s: mean(self.files_per_s, later.files_per_s),
            bytes_per_s: mean(self.bytes_per_s, later.bytes_per_s),
            idle: mean(self.idle, later.idle),
        }
    }
}

/// Decisions kept: the first [`FIRST`] and the last [`LAST`].
const FIRST: usize = 64;
const LAST: usize = 192;
/// Points kept; when full, adjacent points are joined, so that a run of any length fits.
const POINTS: usize = 512;

/// A bounded record of decisions and of the course of a run.
#[derive(Debug, Clone, Default)]
pub struct Log {
    first: Vec<Decision>,
    last: VecDeque<Decision>,
    dropped: u64,
    points: Vec<Point>,
    point_ns: u64,
}

impl Log {
    /// Appends a decision.
    pub(crate) fn push(&mut self, decision: Decision) {
        if self.first.len() < FIRST {
            return self.first.push(decision);
        }
        if self.last.len() == LAST {
            self.last.pop_front();
            self.dropped += 1;
        }
        self.last.push_back(decision);
    }

    /// Appends a point.
    pub(crate) fn point(&mut self, point: Point) {
        match self.points.last_mut() {
            Some(last) if last.elapsed_ns < self.point_ns => *last = last.joined(&point),
            _ => self.points.push(point),
        }
        if self.points.len() == POINTS {
            self.points = self.points.chunks(2).map(|pair| pair[0].joined(&pair[1])).collect();
            let covered: u64 = self.points.iter().map(|point| point.elapsed_ns).sum();
            self.point_ns = covered / self.points.len() as u64;
        }
    }

    /// Returns the decisions in order, without those that were dropped.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.first.iter().chain(&self.last)
    }

    /// Returns how many decisions were dropped between the first and the last ones.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the course of the run in at most 512 points.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

/// Time that a controller cost compared with the best window it saw, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Lost while other windows or methods were tried.
    pub probing_ns: u64,
    /// Lost because the window kept was not the fastest one measured.
    pub choice_ns: u64,
}
